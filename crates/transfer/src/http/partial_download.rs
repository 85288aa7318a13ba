//! Local file during a download: a locked temporary file, with a chunk map if it is large.

use std::ffi::{CStr, CString};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::directory::OpenDirectory;
use crate::bytes::{fill, put};
use crate::error::Failure;
use crate::journal::reliance;
use crate::options::{CopyOptions, Existing};
use crate::temporary::{self, Token};

/// Bytes of one unit of the chunk map. An incomplete unit is downloaded again.
pub(crate) const UNIT: u64 = 1 << 20;
/// Minimum size of a file with a chunk map: downloading smaller files again is faster than writing
/// the map.
const WORTH_A_RECORD: u64 = 8 << 20;
/// Bytes of the padded head of a chunk map; one byte per unit follows.
const HEAD_BYTES: usize = 1024;
/// Bytes of one read for a checksum.
const READ_BYTES: usize = 256 << 10;

/// Local file during its download.
#[derive(Debug)]
pub(crate) struct PartialDownload {
    part: CString,
    pub(crate) file: OwnedFd,
    record: Option<ChunkMap>,
    pub(crate) path: PathBuf,
    sync: bool,
}

#[derive(Debug)]
struct ChunkMap {
    name: CString,
    file: OwnedFd,
    size: u64,
    /// Units that were complete at the start.
    done: Vec<u8>,
}

impl PartialDownload {
    /// Create the file, or resume an interrupted copy.
    ///
    /// `identity` identifies the version of the source, so that two versions do not mix; none if the server does
    /// not distinguish versions.
    ///
    /// # Errors
    /// Kernel errors, or another copy has the file.
    pub(crate) fn open(
        directory: &OpenDirectory,
        name: &CStr,
        token: Token,
        size: Option<u64>,
        identity: Option<&str>,
        sync: bool,
    ) -> Result<Self, Failure> {
        let path = directory.at(name);
        let failure = |errno| match errno {
            Errno::WOULDBLOCK => Failure::found(
                path.clone(),
                "a file without other writers",
                "another copy of the same source writing to it",
                "wait until it ends",
            ),
            errno => Failure::kernel(path.clone(), "a writable directory", errno),
        };
        let part = token.part(name.to_bytes());
        let recorded = size.filter(|size| *size >= WORTH_A_RECORD).zip(identity);
        let Some((size, identity)) = recorded else {
            let file = fresh(directory, &part).map_err(failure)?;
            return Ok(Self {
                part,
                file,
                record: None,
                path,
                sync,
            });
        };
        let file = take_over_file(directory, &part).map_err(failure)?;
        let present_bytes = rustix::fs::fstat(&file).map_err(failure)?;
        let head = head(identity, size, sync);
        let whole_size = u64::try_from(present_bytes.st_size).is_ok_and(|found| found == size);
        let record = ChunkMap::open(
            directory,
            token.progress(name.to_bytes()),
            &head,
            size,
            whole_size,
        )
        .map_err(failure)?;
        if record.done.is_empty() {
            rustix::fs::ftruncate(&file, 0).map_err(failure)?;
        }
        rustix::fs::ftruncate(&file, size).map_err(failure)?;
        Ok(Self {
            part,
            file,
            record: Some(record),
            path,
            sync,
        })
    }

    /// Write received bytes and mark completed units. `from` is the start of the contiguous range that these bytes
    /// extend.
    ///
    /// # Errors
    /// Kernel errors.
    pub(crate) fn write(&self, bytes: &[u8], at: u64, from: u64) -> Result<(), Failure> {
        put(&self.file, bytes, at)
            .and_then(|()| self.mark(at, at + bytes.len() as u64, from))
            .map_err(|errno| Failure::kernel(self.path.clone(), "to write bytes", errno))
    }

    fn mark(&self, at: u64, end: u64, from: u64) -> Result<(), Errno> {
        let Some(record) = &self.record else {
            return Ok(());
        };
        // Units that end in these bytes and start in the same contiguous range.
        let first = (at / UNIT).max(from.div_ceil(UNIT));
        let size = record.size;
        let last = if end == size {
            size.div_ceil(UNIT)
        } else {
            end / UNIT
        };
        if first >= last {
            return Ok(());
        }
        if self.sync {
            rustix::fs::fdatasync(&self.file)?;
        }
        let count = usize::try_from(last - first).map_err(|_| Errno::FBIG)?;
        rustix::io::pwrite(&record.file, &vec![b'1'; count], HEAD_BYTES as u64 + first).map(|_| ())
    }

    /// Return the missing ranges of a range after an interrupted copy.
    pub(crate) fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let done = self.record.as_ref().map_or(&[][..], |record| &record.done);
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let end = ((at / UNIT + 1) * UNIT).min(range.end);
            let present_bytes = usize::try_from(at / UNIT)
                .ok()
                .and_then(|unit| done.get(unit));
            if present_bytes.is_none_or(|unit| *unit == 0) {
                match found.last_mut() {
                    Some(last) if last.end == at => last.end = end,
                    _ => found.push(at..end),
                }
            }
            at = end;
        }
        found
    }

    /// Return the bytes of an earlier copy.
    pub(crate) fn present_bytes(&self) -> u64 {
        let Some(record) = &self.record else { return 0 };
        let size = record.size;
        size - self
            .missing(0..size)
            .iter()
            .map(|range| range.end - range.start)
            .sum::<u64>()
    }

    /// Read a range for a checksum.
    ///
    /// # Errors
    /// Kernel errors.
    pub(crate) fn read(
        &self,
        range: Range<u64>,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), Failure> {
        let mut buffer = vec![0; READ_BYTES];
        let mut at = range.start;
        while at < range.end {
            let max = usize::try_from(range.end - at)
                .unwrap_or(READ_BYTES)
                .min(READ_BYTES);
            match fill(&self.file, &mut buffer[..max], at) {
                Ok(0) => {
                    return Err(Failure::found(
                        self.path.clone(),
                        "the written bytes",
                        "fewer",
                        "stop other programs that write to the file",
                    ));
                }
                Ok(count) => {
                    take(&buffer[..count]);
                    at += count as u64;
                }
                Err(errno) => {
                    return Err(Failure::kernel(self.path.clone(), "to read bytes", errno));
                }
            }
        }
        Ok(())
    }

    /// Set times and rename into place.
    ///
    /// # Errors
    /// Kernel errors.
    pub(crate) fn commit(
        self,
        directory: &OpenDirectory,
        name: &CStr,
        modified: Option<SystemTime>,
        order: &CopyOptions,
    ) -> Result<(), Failure> {
        let failure = |expected: &'static str| {
            let path = self.path.clone();
            move |errno| Failure::kernel(path, expected, errno)
        };
        if let Some(time) = modified.filter(|_| order.preserve.times) {
            rustix::fs::futimens(&self.file, &at_time(time))
                .map_err(|errno| Failure::unset(self.path.clone(), ("to set the times", errno)))?;
        }
        if order.sync {
            rustix::fs::fsync(&self.file).map_err(failure("to write it to stable storage"))?;
        }
        // First, so that a complete file never has a chunk map.
        if let Some(record) = &self.record {
            let _ = rustix::fs::unlinkat(&directory.fd, &record.name, AtFlags::empty());
        }
        let keep = order.existing == Existing::Keep;
        let renamed = temporary::rename((&directory.fd, &*self.part), (&directory.fd, name), !keep);
        renamed.map_err(|errno| {
            let failed = failure("a free name")(errno);
            self.discard(directory);
            failed
        })
    }

    /// Return whether the present bytes are useful for the next copy.
    pub(crate) fn is_recorded(&self) -> bool {
        self.record.is_some()
    }

    /// Remove the file.
    pub(crate) fn discard(&self, directory: &OpenDirectory) {
        // The next copy takes over a file that cannot be removed.
        let _ = rustix::fs::unlinkat(&directory.fd, &self.part, AtFlags::empty());
        if let Some(record) = &self.record {
            let _ = rustix::fs::unlinkat(&directory.fd, &record.name, AtFlags::empty());
        }
    }
}

impl ChunkMap {
    fn open(
        directory: &OpenDirectory,
        name: CString,
        head: &[u8; HEAD_BYTES],
        size: u64,
        whole_size: bool,
    ) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory.fd, &name, flags, Mode::from_raw_mode(0o600))?;
        let units = usize::try_from(size.div_ceil(UNIT)).map_err(|_| Errno::FBIG)?;
        let mut before = vec![0; HEAD_BYTES + units];
        let length = rustix::io::pread(&file, &mut before, 0)?;
        let known = whole_size && length >= HEAD_BYTES && before[..HEAD_BYTES] == *head;
        let done = if known {
            before.split_off(HEAD_BYTES)
        } else {
            Vec::new()
        };
        if !known {
            rustix::fs::ftruncate(&file, 0)?;
            rustix::io::pwrite(&file, head, 0)?;
        }
        Ok(Self {
            name,
            file,
            size,
            done,
        })
    }
}

/// Return the header of a chunk map.
fn head(identity: &str, size: u64, sync: bool) -> [u8; HEAD_BYTES] {
    let identity = Sha256::digest(identity.as_bytes());
    let text = format!(
        "venturi copy of one remote file 1\n{size} {UNIT}\n{}\n{identity:x}\n",
        reliance(sync)
    );
    let mut head = [b'\n'; HEAD_BYTES];
    let length = text.len().min(HEAD_BYTES);
    head[..length].copy_from_slice(&text.as_bytes()[..length]);
    head
}

/// Create a new file and delete the leftover of a killed copy, unless that copy still runs.
fn fresh(directory: &OpenDirectory, part: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let create = || rustix::fs::openat(&directory.fd, part, flags, Mode::from_raw_mode(0o666));
    let made = match create() {
        Err(Errno::EXIST) => {
            drop(take_over_file(directory, part)?);
            rustix::fs::unlinkat(&directory.fd, part, AtFlags::empty())?;
            create()
        }
        other => other,
    };
    locked(made?, directory, part)
}

fn take_over_file(directory: &OpenDirectory, part: &CStr) -> Result<OwnedFd, Errno> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mode = Mode::from_raw_mode(0o666);
    locked(
        rustix::fs::openat(&directory.fd, part, flags, mode)?,
        directory,
        part,
    )
}

/// Return whether the file belongs to this copy and still has its temporary name.
fn locked(file: OwnedFd, directory: &OpenDirectory, part: &CStr) -> Result<OwnedFd, Errno> {
    temporary::lock(&file, directory.fd.as_fd(), part)?;
    Ok(file)
}

/// Return the times for `futimens`: only the modification time.
fn at_time(modified: SystemTime) -> Timestamps {
    let since = modified
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT as _,
        },
        last_modification: Timespec {
            tv_sec: since.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: since.subsec_nanos() as _,
        },
    }
}

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "a list of one range is what is meant"
)]
mod tests;
