//! Reads of a file for a time.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde::Serialize;
use venturi_linux::AlignedBuffer;

use super::cache::{self, CACHED_RATIO};
use super::file_system::{FileSystem, Memory};
use super::{LimitArgs, ReadArgs};
use crate::error::MeasureError;

/// Bytes of a read that finds out whether a file system reads past the cache: a multiple of the blocks of usual disks.
const TRIAL_BYTES: usize = 4096;

/// Result of a read.
#[derive(Debug, Serialize)]
pub(super) struct ReadResult {
    operation: &'static str,
    file: String,
    pub(super) bytes: u64,
    duration_s: f64,
    rate_bytes_per_s: f64,
    pub(super) direct: bool,
    pub(super) cached: Option<bool>,
    resident_before: Option<f64>,
    resident_after: Option<f64>,
    cpu_s: f64,
    cpu_wait_s: f64,
    threads: u16,
    #[serde(flatten)]
    file_system: FileSystem,
}

/// Reads a file until a limit.
pub(super) fn read(arguments: &ReadArgs) -> Result<ReadResult, MeasureError> {
    let path = arguments.file.as_path();
    let failed = |operation| move |error| MeasureError::io(operation, path.display(), error);
    let plain = File::open(path).map_err(failed("open"))?;
    let size = plain.metadata().map_err(failed("read the size"))?.len();
    if size == 0 {
        return Err(MeasureError::Option {
            option: "FILE",
            problem: format!(
                "expected a file with data, found {} without data",
                path.display()
            ),
        });
    }
    let _ = cache::evict(&plain); // without permission the pages stay, and the result says so
    let resident_before = cache::resident_ratio(&plain);
    let file_system = FileSystem::of(&plain).map_err(failed("read the file system"))?;
    let direct = (!arguments.buffered)
        .then(|| open_direct(path, arguments.limits.block))
        .flatten();
    let is_direct = direct.is_some();
    let file = direct.unwrap_or(plain);
    let cpu_before_s = crate::own_cpu_s();
    let started = Instant::now();
    let (bytes, wait_ns) = read_blocks(
        &file,
        size,
        is_direct,
        arguments.threads,
        arguments.limits,
        started,
    )
    .map_err(failed("read"))?;
    let duration_s = started.elapsed().as_secs_f64();
    let cached = match file_system.memory {
        Memory::Yes => Some(true),
        Memory::Unknown => None,
        Memory::No if is_direct => Some(false),
        Memory::No => resident_before.map(|ratio| ratio > CACHED_RATIO),
    };
    Ok(ReadResult {
        operation: "read",
        file: path.display().to_string(),
        bytes,
        duration_s,
        rate_bytes_per_s: bytes as f64 / duration_s,
        direct: is_direct,
        cached,
        resident_before,
        resident_after: cache::resident_ratio(&file),
        cpu_s: crate::own_cpu_s() - cpu_before_s,
        cpu_wait_s: wait_ns as f64 / 1e9,
        threads: arguments.threads,
        file_system,
    })
}

/// Opens a file past the page cache, if one read succeeds that way.
fn open_direct(path: &Path, block_bytes: usize) -> Option<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .ok()?;
    // Some file systems accept the flag and reject the read. The read is small: a limited disk would add its time to the first blocks.
    file.read_at(
        &mut AlignedBuffer::new(TRIAL_BYTES.min(block_bytes)).ok()?,
        0,
    )
    .ok()?;
    Some(file)
}

/// Reads block after block with several threads. Past the cache it starts again at the end; through the cache not, as
/// the second pass would come from memory. Returns bytes, and nanoseconds of waiting for a CPU.
fn read_blocks(
    file: &File,
    size: u64,
    repeats: bool,
    threads: u16,
    limits: LimitArgs,
    started: Instant,
) -> io::Result<(u64, u64)> {
    let block = limits.block as u64;
    let blocks = size.div_ceil(block);
    let limit_blocks = limits.bytes.div_ceil(block).max(1);
    let (next, total, wait_ns) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let work = || -> io::Result<()> {
        let mut buffer = AlignedBuffer::new(limits.block)?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let is_over = number >= limit_blocks
                || (!repeats && number >= blocks)
                || started.elapsed().as_secs_f64() >= limits.time_s;
            if is_over {
                wait_ns.fetch_add(crate::thread_wait_ns(), Ordering::Relaxed);
                return Ok(());
            }
            let count = read_block(file, &mut buffer, number % blocks * block)?;
            total.fetch_add(count as u64, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().expect("readers do not panic"))
    })?;
    Ok((
        total.load(Ordering::Relaxed),
        wait_ns.load(Ordering::Relaxed),
    ))
}

fn read_block(file: &File, buffer: &mut AlignedBuffer, offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
