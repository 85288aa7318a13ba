//! A local file while it comes from elsewhere: under its temporary name, locked; with a record of what is there if it is large.

use std::ffi::{CStr, CString};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::folder::Folder;
use crate::bytes::{fill, put};
use crate::error::Failure;
use crate::journal::reliance;
use crate::order::{Existing, Order};
use crate::temporary::{self, Token};

/// Bytes that the record of a file tells apart: what is in a unit that is not whole is fetched again.
pub(crate) const UNIT: u64 = 1 << 20;
/// Files of less have no record: they are fetched again sooner than it is written.
const WORTH_A_RECORD: u64 = 8 << 20;
/// Bytes of the head of a record, padded: behind it is one byte a unit.
const HEAD_BYTES: usize = 1024;
/// The file that is read again, bytes at a time.
const READ_BYTES: usize = 256 << 10;

/// A file that comes to be.
#[derive(Debug)]
pub(crate) struct Landing {
    part: CString,
    pub(crate) file: OwnedFd,
    record: Option<Record>,
    pub(crate) path: PathBuf,
    sync: bool,
}

#[derive(Debug)]
struct Record {
    name: CString,
    file: OwnedFd,
    size: u64,
    /// Units that were there when we came.
    done: Vec<u8>,
}

impl Landing {
    /// Makes the file, or goes on with what an earlier copy of the same has left.
    ///
    /// `identity` says what is copied, so that two versions of a file do not mix: none if the server does not tell versions apart.
    ///
    /// # Errors
    /// As the kernel says, or if another copy has it.
    pub(crate) fn open(
        folder: &Folder,
        name: &CStr,
        token: Token,
        size: Option<u64>,
        identity: Option<&str>,
        sync: bool,
    ) -> Result<Self, Failure> {
        let path = folder.at(name);
        let failure = |errno| match errno {
            Errno::WOULDBLOCK => Failure::found(
                path.clone(),
                "a file that nobody writes to",
                "another copy of the same that is writing it",
                "wait for it to end",
            ),
            errno => Failure::kernel(path.clone(), "a place that can be written to", errno),
        };
        let part = token.part(name.to_bytes());
        let recorded = size.filter(|size| *size >= WORTH_A_RECORD).zip(identity);
        let Some((size, identity)) = recorded else {
            let file = fresh(folder, &part).map_err(failure)?;
            return Ok(Self {
                part,
                file,
                record: None,
                path,
                sync,
            });
        };
        let file = taken_over(folder, &part).map_err(failure)?;
        let there = rustix::fs::fstat(&file).map_err(failure)?;
        let head = head(identity, size, sync);
        let whole_size = u64::try_from(there.st_size).is_ok_and(|found| found == size);
        let record = Record::open(
            folder,
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

    /// Writes what came, and marks the units that are whole with it. `from` is where the unbroken stretch of bytes begins that it ends.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn write(&self, bytes: &[u8], at: u64, from: u64) -> Result<(), Failure> {
        put(&self.file, bytes, at)
            .and_then(|()| self.mark(at, at + bytes.len() as u64, from))
            .map_err(|errno| Failure::kernel(self.path.clone(), "bytes to be written", errno))
    }

    fn mark(&self, at: u64, end: u64, from: u64) -> Result<(), Errno> {
        let Some(record) = &self.record else {
            return Ok(());
        };
        // Units that end in what was written now, and began in the same stretch.
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

    /// What is missing of a range, as an earlier copy has left it.
    pub(crate) fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let done = self.record.as_ref().map_or(&[][..], |record| &record.done);
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let end = ((at / UNIT + 1) * UNIT).min(range.end);
            let there = usize::try_from(at / UNIT)
                .ok()
                .and_then(|unit| done.get(unit));
            if there.is_none_or(|unit| *unit == 0) {
                match found.last_mut() {
                    Some(last) if last.end == at => last.end = end,
                    _ => found.push(at..end),
                }
            }
            at = end;
        }
        found
    }

    /// Bytes that an earlier copy has left.
    pub(crate) fn there(&self) -> u64 {
        let Some(record) = &self.record else { return 0 };
        let size = record.size;
        size - self
            .missing(0..size)
            .iter()
            .map(|range| range.end - range.start)
            .sum::<u64>()
    }

    /// Goes through a range of it, for a checksum.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn read(
        &self,
        range: Range<u64>,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), Failure> {
        let mut buffer = vec![0; READ_BYTES];
        let mut at = range.start;
        while at < range.end {
            let most = usize::try_from(range.end - at)
                .unwrap_or(READ_BYTES)
                .min(READ_BYTES);
            match fill(&self.file, &mut buffer[..most], at) {
                Ok(0) => {
                    return Err(Failure::found(
                        self.path.clone(),
                        "the bytes that were written",
                        "fewer",
                        "see who else writes there",
                    ));
                }
                Ok(count) => {
                    take(&buffer[..count]);
                    at += count as u64;
                }
                Err(errno) => {
                    return Err(Failure::kernel(
                        self.path.clone(),
                        "bytes to be read",
                        errno,
                    ));
                }
            }
        }
        Ok(())
    }

    /// Gives it its time and its name.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn commit(
        self,
        folder: &Folder,
        name: &CStr,
        modified: Option<SystemTime>,
        order: &Order,
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
            rustix::fs::fsync(&self.file).map_err(failure("to have it on stable storage"))?;
        }
        // First, so that a whole file never has one beside it.
        if let Some(record) = &self.record {
            let _ = rustix::fs::unlinkat(&folder.fd, &record.name, AtFlags::empty());
        }
        let keep = order.existing == Existing::Keep;
        let renamed = temporary::rename((&folder.fd, &*self.part), (&folder.fd, name), !keep);
        renamed.map_err(|errno| {
            let failed = failure("a name that it can have")(errno);
            self.discard(folder);
            failed
        })
    }

    /// Whether what is there of it is of use to the next copy.
    pub(crate) fn is_recorded(&self) -> bool {
        self.record.is_some()
    }

    /// Takes it away.
    pub(crate) fn discard(&self, folder: &Folder) {
        // What cannot be removed is taken over by the next copy.
        let _ = rustix::fs::unlinkat(&folder.fd, &self.part, AtFlags::empty());
        if let Some(record) = &self.record {
            let _ = rustix::fs::unlinkat(&folder.fd, &record.name, AtFlags::empty());
        }
    }
}

impl Record {
    fn open(
        folder: &Folder,
        name: CString,
        head: &[u8; HEAD_BYTES],
        size: u64,
        whole_size: bool,
    ) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&folder.fd, &name, flags, Mode::from_raw_mode(0o600))?;
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

/// What a record is of.
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

/// A new file; what a killed copy has left under its name goes, unless that copy is still at work.
fn fresh(folder: &Folder, part: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let create = || rustix::fs::openat(&folder.fd, part, flags, Mode::from_raw_mode(0o666));
    let made = match create() {
        Err(Errno::EXIST) => {
            drop(taken_over(folder, part)?);
            rustix::fs::unlinkat(&folder.fd, part, AtFlags::empty())?;
            create()
        }
        other => other,
    };
    locked(made?, folder, part)
}

fn taken_over(folder: &Folder, part: &CStr) -> Result<OwnedFd, Errno> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mode = Mode::from_raw_mode(0o666);
    locked(
        rustix::fs::openat(&folder.fd, part, flags, mode)?,
        folder,
        part,
    )
}

/// Ours, and still under its temporary name.
fn locked(file: OwnedFd, folder: &Folder, part: &CStr) -> Result<OwnedFd, Errno> {
    temporary::lock(&file, folder.fd.as_fd(), part)?;
    Ok(file)
}

/// For `futimens`: the time of modification alone.
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
