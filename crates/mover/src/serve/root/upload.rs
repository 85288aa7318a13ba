//! A file that is being written. It is under a temporary name beside its place until it is whole, so that whoever reads it
//! sees the old one or the new one, never half of one.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::resolve::names;
use super::{Facts, READING, Root};
use crate::temporary::{self, has_name};

/// What the temporary names of a server begin with. Those of our client are names like any other: it stores under one, and renames.
pub(super) const OWN: &str = ".venturi-served-";
/// Of a new file, less what the process' mask takes away.
pub(super) const MODE: Mode = Mode::from_raw_mode(0o666);
/// How often a temporary file is opened again that somebody else has just finished.
const MAX_ATTEMPTS: u32 = 16;

const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;
const SHARED: FlockOperation = FlockOperation::NonBlockingLockShared;

/// How writing begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// With nothing: it replaces what is there when it is committed. [`Errno::BUSY`] while somebody else writes it.
    New,
    /// With the first bytes up to here of what an upload has left that was [kept](Upload::keep); or, where that has not so many, with the file
    /// itself. [`Errno::NOENT`] if neither has: a hole would be taken for zeros.
    Kept {
        /// Position behind the last byte that is counted on.
        bytes: u64,
    },
    /// With the file itself, if it has exactly these bytes: whoever has asked for its size counts on it. Else as [`Kept`](Self::Kept).
    Behind {
        /// Position behind the last byte that is counted on.
        bytes: u64,
    },
    /// In the file itself, made where there is none: several may write parts of it at once.
    InPlace,
    /// At the end of the file itself, made where there is none. [`Errno::BUSY`] while somebody else writes to it.
    AtEnd,
}

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Upload {
    file: OwnedFd,
    /// Where it is not written in place.
    aside: Option<Aside>,
}

#[derive(Debug)]
struct Aside {
    parent: OwnedFd,
    part: CString,
    name: CString,
    /// Whether it stays when it is not committed.
    kept: AtomicBool,
}

/// The temporary name of a file: the same for the same name, so that who goes on finds it.
pub(super) fn part(name: &CStr) -> CString {
    let digest = Sha256::digest(name.to_bytes());
    let number = u64::from_be_bytes(digest[..8].try_into().expect("8 bytes of 32"));
    CString::new(format!("{OWN}{number:016x}.part")).expect("no zero byte in digits")
}

impl Upload {
    pub(super) fn begin(root: &Root, path: &[u8], begin: Begin) -> Result<Self, Errno> {
        match begin {
            Begin::New => Self::new(root, path),
            Begin::InPlace => Self::in_place(root, path, OFlags::CREATE, SHARED),
            Begin::AtEnd => Self::in_place(root, path, OFlags::CREATE, EXCLUSIVE),
            Begin::Behind { bytes } if is_whole(root, path, bytes) => {
                Self::itself(root, path, bytes)
            }
            Begin::Kept { bytes } | Begin::Behind { bytes } => Self::kept(root, path, bytes),
        }
    }

    /// The open file.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The open file once more, for a thread that writes to it.
    ///
    /// # Errors
    /// If there are too many open files.
    pub(crate) fn share(&self) -> Result<OwnedFd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.file, 0)
    }

    /// What it is so far.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn facts(&self) -> Result<Facts, Errno> {
        rustix::fs::fstat(&self.file).map(|found| Facts::of(&found))
    }

    /// Writes all of `bytes` at `offset`. Several threads may do so at once.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Errno> {
        crate::bytes::put(&self.file, bytes, offset)
    }

    /// Has it stay for [`Begin::Kept`] when it is dropped.
    pub(crate) fn keep(&self) {
        if let Some(aside) = &self.aside {
            aside.kept.store(true, Ordering::Relaxed);
        }
    }

    /// Gives it its name, which nothing else may have unless `replace`; on stable storage before, where `sync`. Gives what it is then: a name changes
    /// the time of change.
    ///
    /// # Errors
    /// What the kernel says; [`Errno::EXIST`]; [`Errno::BUSY`] if its temporary name is another's, [`Errno::STALE`] if it was written in place and has
    /// no name any more: it was removed or replaced meanwhile. It is gone then.
    pub(crate) fn commit(mut self, sync: bool, replace: bool) -> Result<Facts, Errno> {
        if sync {
            rustix::fs::fsync(&self.file)?;
        }
        self.hand_over()?;
        let Some(aside) = &self.aside else {
            return match rustix::fs::fstat(&self.file)? {
                found if found.st_nlink == 0 => Err(Errno::STALE),
                found => Ok(Facts::of(&found)),
            };
        };
        let Aside {
            parent, part, name, ..
        } = aside;
        if !has_name(&self.file, parent.as_fd(), part) {
            return Err(Errno::BUSY);
        }
        temporary::rename((parent, &**part), (parent, &**name), replace)?;
        let Some(aside) = self.aside.take() else {
            return self.facts();
        };
        if sync {
            // The name too. Opened for it alone: the other is a mere place.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let parent = rustix::fs::openat(&aside.parent, c".", flags, Mode::empty())?;
            rustix::fs::fsync(parent)?;
        }
        self.facts()
    }

    /// Hands what was written over to its file system. Those of networks say only at a close that there was no room, or that it
    /// is gone; of a copy, since the file itself is locked until it has its name.
    fn hand_over(&self) -> Result<(), Errno> {
        let again = self.share()?;
        nix::unistd::close(again.into_raw_fd())
            .map_err(|errno| Errno::from_raw_os_error(errno as i32))
    }

    fn new(root: &Root, path: &[u8]) -> Result<Self, Errno> {
        let (parent, name) = root.place(path)?;
        let there = rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW);
        let there = match there {
            Ok(there) => Some(Facts::of(&there)),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno),
        };
        if there.is_some_and(|there| there.is_directory()) {
            return Err(Errno::ISDIR);
        }
        let upload = Self::aside(parent, name, OFlags::RDWR | OFlags::CREATE)?;
        rustix::fs::ftruncate(&upload.file, 0)?;
        if let Some(there) = there.filter(Facts::is_file) {
            // Whoever may read the old one may read the new one.
            rustix::fs::fchmod(&upload.file, Mode::from_raw_mode(there.mode & 0o777))?;
        }
        Ok(upload)
    }

    fn kept(root: &Root, path: &[u8], bytes: u64) -> Result<Self, Errno> {
        let (parent, name) = root.place(path)?;
        let upload = match Self::aside(parent, name, OFlags::RDWR) {
            Err(Errno::NOENT) => return Self::itself(root, path, bytes),
            other => other?,
        };
        if upload.facts()?.bytes < bytes {
            upload.keep();
            return Self::itself(root, path, bytes);
        }
        // What is behind came with another upload.
        rustix::fs::ftruncate(&upload.file, bytes)?;
        Ok(upload)
    }

    /// With a file that has at least these bytes.
    fn itself(root: &Root, path: &[u8], bytes: u64) -> Result<Self, Errno> {
        let upload = Self::in_place(root, path, OFlags::empty(), EXCLUSIVE)?;
        match upload.facts()?.bytes >= bytes {
            true => Ok(upload),
            false => Err(Errno::NOENT),
        }
    }

    fn in_place(
        root: &Root,
        path: &[u8],
        create: OFlags,
        lock: FlockOperation,
    ) -> Result<Self, Errno> {
        root.changes()?;
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | create;
        let file = root.resolve(&names(path)?, flags, ResolveFlags::empty())?;
        let upload = Self { file, aside: None };
        if !upload.facts()?.is_file() {
            return Err(Errno::ACCESS);
        }
        flock(&upload.file, lock)?;
        Ok(upload)
    }

    /// With the temporary file of a name.
    fn aside(parent: OwnedFd, name: CString, how: OFlags) -> Result<Self, Errno> {
        let part = part(&name);
        let file = locked(&parent, &part, how)?;
        let aside = Some(Aside {
            parent,
            part,
            name,
            kept: AtomicBool::new(false),
        });
        Ok(Self { file, aside })
    }
}

/// Whether a file has exactly these bytes.
fn is_whole(root: &Root, path: &[u8], bytes: u64) -> bool {
    let there = root.stat(path);
    there.is_ok_and(|there| there.is_file() && there.bytes == bytes)
}

/// Removes what an upload has left: [`Errno::BUSY`] while it is being written.
pub(super) fn remove_left(parent: &OwnedFd, part: &CStr) -> Result<(), Errno> {
    // It is locked until it is gone.
    let _file = locked(parent, part, READING)?;
    rustix::fs::unlinkat(parent, part, AtFlags::empty())
}

impl Root {
    /// Sees that nothing in a directory is being written; those below it are not looked into.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Errno::BUSY`] if something is.
    pub(crate) fn at_rest(&self, path: &[u8]) -> Result<(), Errno> {
        let flags = READING | OFlags::DIRECTORY;
        let directory = self.resolve(&names(path)?, flags, ResolveFlags::empty())?;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            if entry.file_name().to_bytes().starts_with(OWN.as_bytes()) {
                match locked(&directory, entry.file_name(), READING) {
                    Ok(_) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(())
    }
}

/// Removes what uploads have left in a directory in which nothing else is; else [`Errno::NOTEMPTY`].
pub(super) fn remove_all_left(parent: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    let flags = READING | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    let mut parts = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        match entry.file_name() {
            name if matches!(name.to_bytes(), b"." | b"..") => {}
            name if name.to_bytes().starts_with(OWN.as_bytes()) => parts.push(name.to_owned()),
            _ => return Err(Errno::NOTEMPTY),
        }
    }
    parts
        .iter()
        .try_for_each(|part| remove_left(&directory, part))
}

/// Opens a temporary file, which is nobody else's then.
fn locked(parent: &OwnedFd, part: &CStr, how: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | how;
    for _ in 0..MAX_ATTEMPTS {
        let file = rustix::fs::openat(parent, part, flags, MODE)?;
        flock(&file, EXCLUSIVE)?;
        // Else its writer gave it its name between the two, and it is whole.
        if has_name(&file, parent.as_fd(), part) {
            return Ok(file);
        }
    }
    Err(Errno::BUSY)
}

/// Locks a file; [`Errno::BUSY`] while somebody else has it.
fn flock(file: &OwnedFd, how: FlockOperation) -> Result<(), Errno> {
    match rustix::fs::flock(file, how) {
        Err(Errno::AGAIN) => Err(Errno::BUSY),
        // Some network file systems have no locks (NFS without its daemon, FUSE, Lustre); there, who writes last wins.
        Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        other => other,
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(aside) = self
            .aside
            .as_ref()
            .filter(|aside| !aside.kept.load(Ordering::Relaxed))
            .filter(|aside| has_name(&self.file, aside.parent.as_fd(), &aside.part))
        {
            // Whoever cannot remove it now finds it when the same file comes again.
            let _ = rustix::fs::unlinkat(&aside.parent, &aside.part, AtFlags::empty());
        }
    }
}
