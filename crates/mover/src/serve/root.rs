//! The directory that is served. Nothing outside of it can be reached, whatever a path or a link in it says, and whoever
//! moves things about meanwhile: the kernel resolves every path from an open directory and refuses to leave it
//! (`openat2` with `RESOLVE_BENEATH`); a kernel without that resolves name by name and follows no link at all.
//!
//! How to use it: open one [`Root`] a server, share it by reference. Paths are bytes with slashes, `/` being the root, with
//! nothing encoded in them; `.` and doubled slashes mean nothing, `..` is refused. Links that lead to something within the
//! root are followed, all others are refused. What a path may not reach is [`Errno::ACCESS`], what it does not find
//! [`Errno::NOENT`]. A root that is not writable refuses every change with [`Errno::ROFS`].
//!
//! - [`Root::read`] opens a file (or directory: look at `facts.kind`), [`Root::read_at_once`] only if that cannot block; [`Root::stat`] likewise;
//! - [`Root::upload`] begins an [`Upload`](upload::Upload): written under a temporary name, there when it is committed, gone when dropped;
//! - [`Root::list`] gives a [`Listing`](listing::Listing), to be asked for some entries at a time.
//!
//! All but those `…_at_once` may wait for a disk: call them where that stops nobody else.

pub(crate) mod listing;
mod resolve;
#[cfg(test)]
mod tests;
pub(crate) mod upload;

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Timespec, Timestamps,
};
use rustix::io::Errno;

use crate::attributes;
use crate::checksum::{Algorithm, Checksum};
use crate::error::{Error, reason};
use crate::temporary;
use resolve::names;

/// Bytes that a checksum reads at a time.
const READ_BYTES: usize = 256 * 1024;

/// A directory that is served.
#[derive(Debug)]
pub(crate) struct Root {
    directory: OwnedFd,
    writable: bool,
    /// Whether the kernel has `openat2`.
    confines: bool,
}

/// What is known of something in the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    /// File, directory, or what it is.
    pub(crate) kind: FileType,
    /// Size of its content.
    pub(crate) bytes: u64,
    /// When its content changed last, in seconds since 1970.
    pub(crate) modified_s: i64,
    /// The part of a second of that.
    pub(crate) modified_ns: u32,
    /// When anything of it changed last, in seconds since 1970 and ns: nobody sets that back.
    pub(crate) changed: (i64, u32),
    /// Permission bits.
    pub(crate) mode: u32,
    /// Number of the device and on it: the same for the same file under another name.
    pub(crate) identity: (u64, u64),
}

/// Something that is open for reading.
#[derive(Debug)]
pub(crate) struct Opened {
    /// It.
    pub(crate) file: OwnedFd,
    /// What it was when it was opened.
    pub(crate) facts: Facts,
}

impl Facts {
    pub(crate) fn of(found: &Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(found.st_mode),
            bytes: u64::try_from(found.st_size).unwrap_or(0),
            modified_s: found.st_mtime,
            modified_ns: u32::try_from(found.st_mtime_nsec).unwrap_or(0),
            changed: (
                found.st_ctime,
                u32::try_from(found.st_ctime_nsec).unwrap_or(0),
            ),
            mode: found.st_mode & 0o7777,
            identity: (found.st_dev, found.st_ino),
        }
    }

    pub(crate) fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }
}

impl Root {
    /// Opens a directory to be served, for reading only or for writing too.
    ///
    /// # Errors
    /// If it is none, or may not be read.
    pub(crate) fn open(path: &Path, writable: bool) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| Error::Place {
                place: path.to_owned(),
                expected: "a directory to serve",
                found: reason(errno),
                advice: "name one that you may read",
            })?;
        let probe = rustix::fs::openat2(
            &directory,
            c".",
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH,
        );
        Ok(Self {
            directory,
            writable,
            // Old kernels do not know it; some containers refuse what they do not know.
            confines: !matches!(probe, Err(Errno::NOSYS | Errno::PERM)),
        })
    }

    /// Opens a file or a directory for reading.
    ///
    /// # Errors
    /// What the kernel says; [`Errno::ACCESS`] for what leads out.
    pub(crate) fn read(&self, path: &[u8]) -> Result<Opened, Errno> {
        opened(self.resolve(&names(path)?, READING, ResolveFlags::empty())?)
    }

    /// The same where the kernel has all that it needs in memory; nothing where it would have to wait.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_at_once(&self, path: &[u8]) -> Result<Option<Opened>, Errno> {
        if !self.confines {
            return Ok(None);
        }
        match self.resolve(&names(path)?, READING, ResolveFlags::CACHED) {
            // EINVAL: the kernel is too old to be asked.
            Err(Errno::AGAIN | Errno::INVAL) => Ok(None),
            other => opened(other?).map(Some),
        }
    }

    /// What is at a path.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn stat(&self, path: &[u8]) -> Result<Facts, Errno> {
        let found = self.resolve(&names(path)?, OFlags::PATH, ResolveFlags::empty())?;
        rustix::fs::fstat(&found).map(|found| Facts::of(&found))
    }

    /// The same where the kernel has all that it needs in memory; nothing where it would have to wait.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn stat_at_once(&self, path: &[u8]) -> Result<Option<Facts>, Errno> {
        if !self.confines {
            return Ok(None);
        }
        match self.resolve(&names(path)?, OFlags::PATH, ResolveFlags::CACHED) {
            Err(Errno::AGAIN | Errno::INVAL) => Ok(None),
            found => rustix::fs::fstat(&found?).map(|found| Some(Facts::of(&found))),
        }
    }

    /// Lists a directory, or all that is below it.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Errno::NOTDIR`].
    pub(crate) fn list(&self, path: &[u8], recursive: bool) -> Result<listing::Listing, Errno> {
        let names = names(path)?;
        let flags = READING | OFlags::DIRECTORY;
        let directory = self.resolve(&names, flags, ResolveFlags::empty())?;
        listing::Listing::new(directory, names, recursive)
    }

    /// Begins to write a file.
    ///
    /// # Errors
    /// As [`read`](Self::read), and see [`upload::Begin`].
    pub(crate) fn upload(
        &self,
        path: &[u8],
        begin: upload::Begin,
    ) -> Result<upload::Upload, Errno> {
        self.changes()?;
        upload::Upload::begin(self, path, begin)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Errno::EXIST`].
    pub(crate) fn make_directory(&self, path: &[u8]) -> Result<(), Errno> {
        let (parent, name) = self.place(path)?;
        rustix::fs::mkdirat(&parent, &name, Mode::from_raw_mode(0o777))
    }

    /// Removes a directory in which nothing is, but what uploads have left.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Errno::NOTEMPTY`]; [`Errno::BUSY`] while something in it is being written.
    pub(crate) fn remove_directory(&self, path: &[u8]) -> Result<(), Errno> {
        let (parent, name) = self.place(path)?;
        let remove = || rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR);
        match remove() {
            Err(Errno::NOTEMPTY) => {
                upload::remove_all_left(&parent, &name)?;
                remove()
            }
            other => other,
        }
    }

    /// Removes a file, or a link, and what an upload of it has left, unless somebody is writing that.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Errno::ISDIR`].
    pub(crate) fn remove_file(&self, path: &[u8]) -> Result<(), Errno> {
        let (parent, name) = self.place(path)?;
        let removed = rustix::fs::unlinkat(&parent, &name, AtFlags::empty());
        let left = upload::remove_left(&parent, &upload::part(&name));
        match removed {
            // Half of it was there, and who asked does not want it.
            Err(Errno::NOENT) => left.map_err(|_| Errno::NOENT),
            other => other,
        }
    }

    /// Renames, over a file that is there if it may be replaced.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Errno::EXIST`].
    pub(crate) fn rename(&self, from: &[u8], to: &[u8], replace: bool) -> Result<(), Errno> {
        let (from, old) = self.place(from)?;
        let (to, new) = self.place(to)?;
        temporary::rename((&from, &*old), (&to, &*new), replace)
    }

    /// Gives each of two the other's name.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Errno::INVAL`] or [`Errno::NOSYS`] if the file system cannot.
    pub(crate) fn exchange(&self, one: &[u8], other: &[u8]) -> Result<(), Errno> {
        let (one, its) = self.place(one)?;
        let (other, others) = self.place(other)?;
        rustix::fs::renameat_with(&one, &its, &other, &others, RenameFlags::EXCHANGE)
    }

    /// Sets the time of modification.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn set_modified(&self, path: &[u8], seconds: i64) -> Result<(), Errno> {
        rustix::fs::futimens(self.opened_for_change(path)?, &modified(seconds))
    }

    /// Sets permission bits; those that give a program the rights of its owner are left out, and a directory that gives what is made in it its
    /// group goes on with that.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn set_mode(&self, path: &[u8], mode: u32) -> Result<(), Errno> {
        let opened = self.opened_for_change(path)?;
        let there = attributes::Facts::from(rustix::fs::fstat(&opened)?);
        rustix::fs::fchmod(
            opened,
            Mode::from_raw_mode(mode & 0o1777 | there.inherited()),
        )
    }

    /// Cuts or extends a file.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn truncate(&self, path: &[u8], bytes: u64) -> Result<(), Errno> {
        self.changes()?;
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = self.resolve(&names(path)?, flags, ResolveFlags::empty())?;
        rustix::fs::ftruncate(file, bytes)
    }

    /// The checksum of `length` bytes of a file from `offset` on, or of all that follow, for as long as somebody wants it.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Errno::ISDIR`]; [`Errno::INVAL`] if there are not so many; [`Errno::CANCELED`].
    pub(crate) fn checksum(
        &self,
        path: &[u8],
        algorithm: Algorithm,
        offset: u64,
        length: Option<u64>,
        wanted: impl Fn() -> bool,
    ) -> Result<Vec<u8>, Errno> {
        let Opened { file, facts } = self.read(path)?;
        if !facts.is_file() {
            return Err(Errno::ISDIR);
        }
        checksum_while(wanted, file.as_fd(), algorithm, offset, length)
    }

    /// An open directory and the last name of a path, for something that is made, moved or removed there.
    fn place(&self, path: &[u8]) -> Result<(OwnedFd, CString), Errno> {
        self.changes()?;
        let mut names = names(path)?;
        // The root itself is nobody's to change.
        let name = names.pop().ok_or(Errno::ACCESS)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let parent = self.resolve(&names, flags, ResolveFlags::empty())?;
        Ok((parent, name))
    }

    fn opened_for_change(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.changes()?;
        let names = names(path)?;
        if names.is_empty() {
            return Err(Errno::ACCESS);
        }
        self.resolve(&names, READING, ResolveFlags::empty())
    }

    fn changes(&self) -> Result<(), Errno> {
        if self.writable {
            Ok(())
        } else {
            Err(Errno::ROFS)
        }
    }
}

/// The checksum of part of an open file.
pub(crate) fn checksum_of(
    file: BorrowedFd<'_>,
    algorithm: Algorithm,
    offset: u64,
    length: Option<u64>,
) -> Result<Vec<u8>, Errno> {
    checksum_while(|| true, file, algorithm, offset, length)
}

/// The same for as long as somebody wants it; then [`Errno::CANCELED`].
pub(crate) fn checksum_while(
    wanted: impl Fn() -> bool,
    file: BorrowedFd<'_>,
    algorithm: Algorithm,
    offset: u64,
    length: Option<u64>,
) -> Result<Vec<u8>, Errno> {
    let mut sum = Checksum::new(algorithm);
    let mut buffer = vec![0; READ_BYTES];
    let mut at = offset;
    let mut left = length.unwrap_or(u64::MAX);
    while left > 0 {
        if !wanted() {
            return Err(Errno::CANCELED);
        }
        let most = usize::try_from(left).unwrap_or(READ_BYTES).min(READ_BYTES);
        match rustix::io::pread(file, &mut buffer[..most], at)? {
            0 if length.is_none() => break,
            0 => return Err(Errno::INVAL),
            count => {
                sum.update(&buffer[..count]);
                at += count as u64;
                left -= count as u64;
            }
        }
    }
    Ok(sum.finish())
}

/// Never waits for the other end of a named pipe.
const READING: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);

fn opened(file: OwnedFd) -> Result<Opened, Errno> {
    let facts = Facts::of(&rustix::fs::fstat(&file)?);
    if facts.is_file() || facts.is_directory() {
        Ok(Opened { file, facts })
    } else {
        Err(Errno::ACCESS)
    }
}

/// Times that leave that of access as it is.
fn modified(seconds: i64) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT as _,
        },
        last_modification: Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        },
    }
}
