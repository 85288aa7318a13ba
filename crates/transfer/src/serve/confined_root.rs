//! Served directory with path confinement. No path or link leads out of it, even during concurrent renames: the
//! kernel resolves every path from an open directory and does not leave it (`openat2` with `RESOLVE_BENEATH`). On a
//! kernel without it, the server resolves each name and follows no links.
//!
//! Open one [`ConfinedRoot`] per server and share it by reference. Paths are bytes with slashes, `/` is the root,
//! without encoding. `.` and repeated slashes are ignored, `..` is rejected. Links within the root are followed,
//! others are rejected. A forbidden path is [`Errno::ACCESS`], a missing one [`Errno::NOENT`]. A read-only root
//! rejects every change with [`Errno::ROFS`].
//!
//! - [`ConfinedRoot::read`] opens a file or directory (see `metadata.kind`), [`ConfinedRoot::read_at_once`] only if
//!   that cannot block; [`ConfinedRoot::stat`] likewise.
//! - [`ConfinedRoot::upload`] starts an [`UploadFile`](upload::UploadFile): written to a temporary file, visible
//!   after commit, removed when dropped.
//! - [`ConfinedRoot::list`] returns a [`RootListing`](listing::RootListing) that is read some entries at a time.
//!
//! With [`ConfinedRoot::open_only`] a root serves some directories of a tree under their paths in the tree. Directories
//! above them have metadata, but no listing and no changes; all other paths are forbidden.
//!
//! All functions except `…_at_once` may wait for a disk.

pub(crate) mod listing;
mod resolve;
#[cfg(test)]
mod tests;
pub(crate) mod upload;

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Timespec, Timestamps,
};
use rustix::io::Errno;

use crate::attributes;
use crate::checksum::{Algorithm, Checksum};
use crate::error::{CopyError, reason};
use crate::temporary;
use resolve::{joined, names};

/// Bytes of a read for a checksum.
const READ_BYTES: usize = 256 * 1024;

/// Served directory, or some directories of a tree.
#[derive(Debug)]
pub(crate) struct ConfinedRoot {
    top: OwnedFd,
    /// Served directories; none is inside another.
    directories: Vec<ServedDirectory>,
    writable: bool,
    /// True if the kernel has `openat2`.
    confines: bool,
}

/// Directory in a root.
#[derive(Debug)]
struct ServedDirectory {
    /// Its path in the root; empty for the root itself.
    path: Vec<CString>,
    directory: OwnedFd,
}

/// Metadata of a path in the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServedMetadata {
    /// Type of the file.
    pub(crate) kind: FileType,
    /// Size of its content.
    pub(crate) bytes: u64,
    /// Modification time, in seconds since 1970.
    pub(crate) modified_s: i64,
    /// Nanoseconds of the modification time.
    pub(crate) modified_ns: u32,
    /// Time of the last change of any attribute, in seconds since 1970 and ns; it cannot be set back.
    pub(crate) changed: (i64, u32),
    /// Permission bits.
    pub(crate) mode: u32,
    /// Device and inode: equal for hard links to the same file.
    pub(crate) identity: (u64, u64),
}

/// File or directory opened for reading.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    /// Open file.
    pub(crate) file: OwnedFd,
    /// Metadata at opening.
    pub(crate) metadata: ServedMetadata,
}

impl ServedMetadata {
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

impl ConfinedRoot {
    /// Open a directory to serve, for reading only or for writing too.
    ///
    /// # Errors
    /// Not a directory, or unreadable.
    #[cfg(test)]
    pub(crate) fn open(path: &Path, writable: bool) -> Result<Self, CopyError> {
        Self::open_only(path, &[], writable)
    }

    /// Open a directory and serve only these directories in it, or all of it if there are none.
    /// Their paths are relative to the directory, as in URLs. Links in these paths are followed,
    /// because they do not come from clients.
    ///
    /// # Errors
    /// A path is no directory, or is unreadable.
    pub(crate) fn open_only(
        path: &Path,
        only: &[PathBuf],
        writable: bool,
    ) -> Result<Self, CopyError> {
        let top = rustix::fs::open(path, DIRECTORY, Mode::empty()).map_err(|errno| {
            CopyError::Location {
                location: path.to_owned(),
                expected: "a directory to serve",
                found: reason(errno),
                advice: "choose a readable directory",
            }
        })?;
        let mut directories: Vec<ServedDirectory> = Vec::new();
        let whole = [PathBuf::new()];
        for served in if only.is_empty() { &whole } else { only } {
            let unusable = |errno: Errno| CopyError::Location {
                location: served.clone(),
                expected: "a directory in the served one",
                found: reason(errno),
                advice: "choose with --only a readable directory, by its path in URLs",
            };
            let path = names(served.as_os_str().as_bytes()).map_err(unusable)?;
            let opened = joined(&path)
                .and_then(|path| rustix::fs::openat(&top, &path, DIRECTORY, Mode::empty()));
            let directory = opened.map_err(unusable)?;
            if directories
                .iter()
                .any(|other| path.starts_with(&other.path))
            {
                continue;
            }
            directories.retain(|other| !other.path.starts_with(&path));
            directories.push(ServedDirectory { path, directory });
        }
        let probe = rustix::fs::openat2(
            &top,
            c".",
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH,
        );
        Ok(Self {
            top,
            directories,
            writable,
            // Old kernels do not support it; some containers reject unknown calls.
            confines: !matches!(probe, Err(Errno::NOSYS | Errno::PERM)),
        })
    }

    /// Open a file or a directory for reading.
    ///
    /// # Errors
    /// Kernel errors; [`Errno::ACCESS`] for a path that leads out.
    pub(crate) fn read(&self, path: &[u8]) -> Result<OpenedFile, Errno> {
        opened(self.resolve(&names(path)?, READING, ResolveFlags::empty())?)
    }

    /// Open a path for reading if the kernel has it in memory; none if it would block.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read).
    pub(crate) fn read_at_once(&self, path: &[u8]) -> Result<Option<OpenedFile>, Errno> {
        if !self.confines {
            return Ok(None);
        }
        match self.resolve(&names(path)?, READING, ResolveFlags::CACHED) {
            // EINVAL: the kernel does not support the flag.
            Err(Errno::AGAIN | Errno::INVAL) => Ok(None),
            other => opened(other?).map(Some),
        }
    }

    /// Return the metadata of a path.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read).
    pub(crate) fn stat(&self, path: &[u8]) -> Result<ServedMetadata, Errno> {
        let found = self.resolve(&names(path)?, OFlags::PATH, ResolveFlags::empty())?;
        rustix::fs::fstat(&found).map(|found| ServedMetadata::of(&found))
    }

    /// Return the metadata of a path if the kernel has it in memory; none if it would block.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read).
    pub(crate) fn stat_at_once(&self, path: &[u8]) -> Result<Option<ServedMetadata>, Errno> {
        if !self.confines {
            return Ok(None);
        }
        match self.resolve(&names(path)?, OFlags::PATH, ResolveFlags::CACHED) {
            Err(Errno::AGAIN | Errno::INVAL) => Ok(None),
            found => rustix::fs::fstat(&found?).map(|found| Some(ServedMetadata::of(&found))),
        }
    }

    /// List a directory, recursively if set.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read); [`Errno::NOTDIR`].
    pub(crate) fn list(&self, path: &[u8], recursive: bool) -> Result<listing::RootListing, Errno> {
        let names = names(path)?;
        let flags = READING | OFlags::DIRECTORY;
        let directory = self.resolve(&names, flags, ResolveFlags::empty())?;
        listing::RootListing::new(directory, names, recursive)
    }

    /// Start to write a file.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read), and see [`upload::UploadStart`].
    pub(crate) fn upload(
        &self,
        path: &[u8],
        start: upload::UploadStart,
    ) -> Result<upload::UploadFile, Errno> {
        self.changes()?;
        upload::UploadFile::start(self, path, start)
    }

    /// Create a directory.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read); [`Errno::EXIST`].
    pub(crate) fn make_directory(&self, path: &[u8]) -> Result<(), Errno> {
        if self.is_above(&names(path)?) {
            self.changes()?;
            return Err(Errno::EXIST);
        }
        let (parent, name) = self.parent_and_name(path)?;
        rustix::fs::mkdirat(&parent, &name, Mode::from_raw_mode(0o777))
    }

    /// Remove an empty directory; leftovers of uploads do not count.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read); [`Errno::NOTEMPTY`]; [`Errno::BUSY`] during an upload into it.
    pub(crate) fn remove_directory(&self, path: &[u8]) -> Result<(), Errno> {
        let (parent, name) = self.parent_and_name(path)?;
        let remove = || rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR);
        match remove() {
            Err(Errno::NOTEMPTY) => {
                upload::remove_partials(&parent, &name)?;
                remove()
            }
            other => other,
        }
    }

    /// Remove a file or a link, and the leftover of its upload, unless that is being written.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read); [`Errno::ISDIR`].
    pub(crate) fn remove_file(&self, path: &[u8]) -> Result<(), Errno> {
        let (parent, name) = self.parent_and_name(path)?;
        let removed = rustix::fs::unlinkat(&parent, &name, AtFlags::empty());
        let remaining = upload::remove_partial(&parent, &upload::part(&name));
        match removed {
            // Only a partial file existed, which the client wants to remove.
            Err(Errno::NOENT) => remaining.map_err(|_| Errno::NOENT),
            other => other,
        }
    }

    /// Rename a path; replace an existing file only if `replace` is set.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read); [`Errno::EXIST`].
    pub(crate) fn rename(&self, from: &[u8], to: &[u8], replace: bool) -> Result<(), Errno> {
        let (from, old) = self.parent_and_name(from)?;
        let (to, new) = self.parent_and_name(to)?;
        temporary::rename((&from, &*old), (&to, &*new), replace)
    }

    /// Exchange the names of two paths.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read); [`Errno::INVAL`] or [`Errno::NOSYS`] if the file system does
    /// not support this.
    pub(crate) fn exchange(&self, one: &[u8], other: &[u8]) -> Result<(), Errno> {
        let (one, its) = self.parent_and_name(one)?;
        let (other, others) = self.parent_and_name(other)?;
        rustix::fs::renameat_with(&one, &its, &other, &others, RenameFlags::EXCHANGE)
    }

    /// Set the modification time.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read).
    pub(crate) fn set_modified(&self, path: &[u8], seconds: i64) -> Result<(), Errno> {
        rustix::fs::futimens(self.opened_for_change(path)?, &modified(seconds))
    }

    /// Set permission bits. Set-user-ID and set-group-ID bits are dropped, and an inherited group bit of a
    /// directory is kept.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read).
    pub(crate) fn set_mode(&self, path: &[u8], mode: u32) -> Result<(), Errno> {
        let opened = self.opened_for_change(path)?;
        let existing = attributes::LocalMetadata::from(rustix::fs::fstat(&opened)?);
        rustix::fs::fchmod(
            opened,
            Mode::from_raw_mode(mode & 0o1777 | existing.inherited()),
        )
    }

    /// Truncate or extend a file.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read).
    pub(crate) fn truncate(&self, path: &[u8], bytes: u64) -> Result<(), Errno> {
        self.changes()?;
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = self.resolve(&names(path)?, flags, ResolveFlags::empty())?;
        rustix::fs::ftruncate(file, bytes)
    }

    /// Return the checksum of `length` bytes of a file from `offset`, or of all bytes until its
    /// end. Continue only while `requested` returns true.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read); [`Errno::ISDIR`]; [`Errno::INVAL`] for a shorter file; [`Errno::CANCELED`].
    pub(crate) fn checksum(
        &self,
        path: &[u8],
        algorithm: Algorithm,
        offset: u64,
        length: Option<u64>,
        requested: impl Fn() -> bool,
    ) -> Result<Vec<u8>, Errno> {
        let OpenedFile { file, metadata } = self.read(path)?;
        if !metadata.is_file() {
            return Err(Errno::ISDIR);
        }
        checksum_while(requested, file.as_fd(), algorithm, offset, length)
    }

    /// Return the open parent directory and the last name of a path that is created, renamed or
    /// removed.
    fn parent_and_name(&self, path: &[u8]) -> Result<(OwnedFd, CString), Errno> {
        self.changes()?;
        let mut names = names(path)?;
        // A served directory itself cannot be changed.
        let name = names.pop().ok_or(Errno::ACCESS)?;
        self.locate(&names).ok_or(Errno::ACCESS)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let parent = self.resolve(&names, flags, ResolveFlags::empty())?;
        Ok((parent, name))
    }

    fn opened_for_change(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.changes()?;
        let names = names(path)?;
        if self
            .locate(&names)
            .is_none_or(|(_, below)| below.is_empty())
        {
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

/// Return the checksum of a part of an open file.
pub(crate) fn compute_checksum(
    file: BorrowedFd<'_>,
    algorithm: Algorithm,
    offset: u64,
    length: Option<u64>,
) -> Result<Vec<u8>, Errno> {
    checksum_while(|| true, file, algorithm, offset, length)
}

/// Return the checksum, or [`Errno::CANCELED`] when `requested` returns false.
pub(crate) fn checksum_while(
    requested: impl Fn() -> bool,
    file: BorrowedFd<'_>,
    algorithm: Algorithm,
    offset: u64,
    length: Option<u64>,
) -> Result<Vec<u8>, Errno> {
    let mut sum = Checksum::new(algorithm);
    let mut buffer = vec![0; READ_BYTES];
    let mut at = offset;
    let mut remaining = length.unwrap_or(u64::MAX);
    while remaining > 0 {
        if !requested() {
            return Err(Errno::CANCELED);
        }
        let max = usize::try_from(remaining)
            .unwrap_or(READ_BYTES)
            .min(READ_BYTES);
        match rustix::io::pread(file, &mut buffer[..max], at)? {
            0 if length.is_none() => break,
            0 => return Err(Errno::INVAL),
            count => {
                sum.update(&buffer[..count]);
                at += count as u64;
                remaining -= count as u64;
            }
        }
    }
    Ok(sum.finish())
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// Flags for reading that never wait for the other end of a named pipe.
const READING: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);

fn opened(file: OwnedFd) -> Result<OpenedFile, Errno> {
    let metadata = ServedMetadata::of(&rustix::fs::fstat(&file)?);
    if metadata.is_file() || metadata.is_directory() {
        Ok(OpenedFile { file, metadata })
    } else {
        Err(Errno::ACCESS)
    }
}

/// Return times that change only the modification time.
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
