//! Writes of new data for a time, until they are on the disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::content::Content;
use super::file_system::FileSystem;
use super::{LimitArgs, WriteArgs};
use crate::error::MeasureError;
use crate::random::{random_key, random_seed};

/// Bytes in memory before the request to write them: enough for a disk to work without a break.
const MIN_WINDOW_BYTES: u64 = 8 << 20;
const MAX_WINDOW_BYTES: u64 = 256 << 20;

/// Seconds of writing that may be in memory. A slow disk has no long fsync at the end then.
const WINDOW_S: f64 = 0.25;

/// Shortest useful measurement.
const MIN_BYTES: u64 = 16 << 20;

/// Result of a write.
#[derive(Debug, Serialize)]
pub(super) struct WriteResult {
    operation: &'static str,
    directory: String,
    pub(super) bytes: u64,
    pub(super) duration_s: f64,
    pub(super) sync_s: f64,
    rate_bytes_per_s: f64,
    pub(super) direct: bool,
    cpu_s: f64,
    cpu_wait_s: f64,
    #[serde(flatten)]
    file_system: FileSystem,
}

/// Writes a file until a limit.
pub(super) fn write(arguments: &WriteArgs) -> Result<WriteResult, MeasureError> {
    let directory = arguments.directory.as_path();
    let failed = |operation| move |error| MeasureError::io(operation, directory.display(), error);
    let mut file =
        create_unnamed(directory, arguments.direct).map_err(failed("create a file in"))?;
    let file_system = FileSystem::of(&file).map_err(failed("read the file system of"))?;
    let limits = LimitArgs {
        bytes: arguments.limits.bytes.min(file_system.free_bytes / 2),
        ..arguments.limits
    };
    if limits.bytes < MIN_BYTES.min(arguments.limits.bytes) {
        return Err(MeasureError::Space {
            path: directory.display().to_string(),
            free_bytes: file_system.free_bytes,
            needed_bytes: 2 * MIN_BYTES,
        });
    }
    let seed = random_seed().map_err(failed("make random data for"))?;
    let mut content = Content::new(limits.block, seed).map_err(failed("make data for"))?;
    let (cpu_before_s, wait_before_ns) = (crate::own_cpu_s(), crate::thread_wait_ns());
    let started = Instant::now();
    let bytes = write_blocks(&mut file, &mut content, limits, arguments.direct, started)
        .map_err(failed("write to"))?;
    let before_sync = Instant::now();
    file.sync_all().map_err(failed("write to the disk of"))?;
    let duration_s = started.elapsed().as_secs_f64();
    Ok(WriteResult {
        operation: "write",
        directory: directory.display().to_string(),
        bytes,
        duration_s,
        sync_s: before_sync.elapsed().as_secs_f64(),
        rate_bytes_per_s: bytes as f64 / duration_s,
        direct: arguments.direct,
        cpu_s: crate::own_cpu_s() - cpu_before_s,
        cpu_wait_s: crate::thread_wait_ns().saturating_sub(wait_before_ns) as f64 / 1e9,
        file_system,
    })
}

/// Creates a file without a name, or removes its name immediately.
fn create_unnamed(directory: &Path, direct: bool) -> io::Result<File> {
    let direct = if direct { libc::O_DIRECT } else { 0 };
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    if let Ok(file) = options
        .custom_flags(libc::O_TMPFILE | direct)
        .open(directory)
    {
        return Ok(file);
    }
    let path = directory.join(format!(".venturi-measure-{}", random_key()?));
    let file = options.custom_flags(direct).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn write_blocks(
    file: &mut File,
    content: &mut Content,
    limits: LimitArgs,
    direct: bool,
    started: Instant,
) -> io::Result<u64> {
    let mut write_back = WriteBack::default();
    let mut bytes = 0;
    while bytes < limits.bytes && started.elapsed().as_secs_f64() < limits.time_s {
        file.write_all(content.next())?;
        bytes += limits.block as u64;
        if !direct {
            write_back.advance(file, bytes, started);
        }
    }
    Ok(bytes)
}

/// Keeps the amount of unwritten data small: requests the write of a part, and waits for the part before it.
#[derive(Debug, Default)]
struct WriteBack {
    started_bytes: u64,
    finished_bytes: u64,
}

impl WriteBack {
    fn advance(&mut self, file: &File, bytes: u64, started: Instant) {
        // The rate of the disk: only bytes that it has written.
        let rate = self.finished_bytes as f64 / started.elapsed().as_secs_f64();
        let window = ((rate * WINDOW_S) as u64).clamp(MIN_WINDOW_BYTES, MAX_WINDOW_BYTES);
        if bytes - self.started_bytes < window / 2 {
            return;
        }
        sync_range(file, self.started_bytes, bytes, libc::SYNC_FILE_RANGE_WRITE);
        let wait = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        sync_range(file, self.finished_bytes, self.started_bytes, wait);
        self.finished_bytes = self.started_bytes;
        self.started_bytes = bytes;
    }
}

/// Requests or awaits write-back of a range. Errors are those of the disk, and fsync returns them.
fn sync_range(file: &File, from: u64, to: u64, flags: libc::c_uint) {
    if from < to {
        // SAFETY: the descriptor is open through the call, which takes no memory.
        unsafe { libc::sync_file_range(file.as_raw_fd(), from as i64, (to - from) as i64, flags) };
    }
}
