//! Files for reads: created, resized, and removed from the page cache.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::MakeArgs;
use super::cache;
use super::content::Content;
use super::file_system::FileSystem;
use crate::error::MeasureError;
use crate::random::random_seed;

const BLOCK_BYTES: usize = 1 << 20;

/// Free space that stays free.
const RESERVE_BYTES: u64 = 64 << 20;

/// File and its state in the page cache.
#[derive(Debug, Serialize)]
pub(super) struct MadeFile {
    pub(super) file: String,
    pub(super) bytes: u64,
    pub(super) duration_s: f64,
    pub(super) resident_ratio: Option<f64>,
    #[serde(flatten)]
    file_system: FileSystem,
}

/// Creates or resizes a file.
pub(super) fn make(path: &Path, arguments: &MakeArgs) -> Result<MadeFile, MeasureError> {
    let failed = |operation| move |error| MeasureError::io(operation, path.display(), error);
    let started = Instant::now();
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600);
    if !arguments.resize {
        options.create_new(true);
    }
    let mut file = options.open(path).map_err(failed("create the file"))?;
    let before = file.metadata().map_err(failed("read the size"))?.len();
    if before > arguments.bytes {
        file.set_len(arguments.bytes)
            .map_err(failed("shorten the file"))?;
    }
    let more = arguments.bytes.saturating_sub(before);
    let file_system = FileSystem::of(&file).map_err(failed("read the file system"))?;
    let result = check_space(path, more, file_system.free_bytes)
        .and_then(|()| append(&mut file, path, more, arguments.time_s, started))
        .and_then(|()| cache::evict(&file).map_err(failed("write to the disk")));
    if let Err(error) = result {
        if !arguments.resize {
            let _ = std::fs::remove_file(path); // a part of a file helps nobody
        }
        return Err(error);
    }
    described(path, &file, started)
}

/// Removes a file from the page cache.
pub(super) fn evict(path: &Path) -> Result<MadeFile, MeasureError> {
    let failed = |operation| move |error| MeasureError::io(operation, path.display(), error);
    let started = Instant::now();
    let file = File::open(path).map_err(failed("open"))?;
    cache::evict(&file).map_err(failed("write to the disk"))?;
    described(path, &file, started)
}

fn check_space(path: &Path, more: u64, free_bytes: u64) -> Result<(), MeasureError> {
    let needed_bytes = more.saturating_add(RESERVE_BYTES);
    if more > 0 && free_bytes < needed_bytes {
        return Err(MeasureError::Space {
            path: path.display().to_string(),
            free_bytes,
            needed_bytes,
        });
    }
    Ok(())
}

fn append(
    file: &mut File,
    path: &Path,
    bytes: u64,
    time_s: Option<f64>,
    started: Instant,
) -> Result<(), MeasureError> {
    let failed = |operation| move |error| MeasureError::io(operation, path.display(), error);
    let seed = random_seed().map_err(failed("make random data for"))?;
    let mut content = Content::new(BLOCK_BYTES, seed).map_err(failed("make data for"))?;
    let mut left = bytes;
    while left > 0 && time_s.is_none_or(|limit| started.elapsed().as_secs_f64() < limit) {
        let block = content.next();
        let count = left.min(block.len() as u64) as usize;
        file.write_all(&block[..count]).map_err(failed("write"))?;
        left -= count as u64;
        // With a limit of time, data must not pile up in memory.
        if time_s.is_some() && left % (16 << 20) < BLOCK_BYTES as u64 {
            file.sync_data().map_err(failed("write to the disk"))?;
        }
    }
    Ok(())
}

fn described(path: &Path, file: &File, started: Instant) -> Result<MadeFile, MeasureError> {
    let failed = |operation| move |error| MeasureError::io(operation, path.display(), error);
    Ok(MadeFile {
        file: path.display().to_string(),
        bytes: file.metadata().map_err(failed("read the size"))?.len(),
        duration_s: started.elapsed().as_secs_f64(),
        resident_ratio: cache::resident_ratio(file),
        file_system: FileSystem::of(file).map_err(failed("read the file system"))?,
    })
}
