//! File that is being written under a temporary name next to its destination, so readers see the old or the new
//! file, never a partial one.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::resolve::names;
use super::{ConfinedRoot, READING, ServedMetadata};
use crate::temporary::{self, has_name};

/// Prefix of temporary names of the server. Temporary names of the Venturi client are ordinary names here.
pub(super) const OWN: &str = ".venturi-served-";
/// Mode of a new file before the umask.
pub(super) const MODE: Mode = Mode::from_raw_mode(0o666);
/// Maximum attempts to open a temporary file that another upload has just finished.
const MAX_ATTEMPTS: u32 = 16;

const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;
const SHARED: FlockOperation = FlockOperation::NonBlockingLockShared;

/// Start mode of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UploadStart {
    /// New file that replaces the existing one at commit. [`Errno::BUSY`] during another upload.
    New,
    /// Continue a [kept](UploadFile::keep) partial file after these bytes, or the file itself if the partial file
    /// is shorter. [`Errno::NOENT`] if neither is long enough: a hole would read as zeros.
    Kept {
        /// Position after the last reliable byte.
        bytes: u64,
    },
    /// Continue the file itself if it has exactly these bytes, because the client has requested its
    /// size. Otherwise as [`Kept`](Self::Kept).
    Behind {
        /// Position after the last reliable byte.
        bytes: u64,
    },
    /// Write into the file itself, created if missing; several uploads may write parts concurrently.
    InPlace,
    /// Append to the file itself, created if missing. [`Errno::BUSY`] during another append.
    AtEnd,
}

/// File that is being written.
#[derive(Debug)]
pub(crate) struct UploadFile {
    file: OwnedFd,
    /// Temporary file, if not written in place.
    aside: Option<Aside>,
}

#[derive(Debug)]
struct Aside {
    parent: OwnedFd,
    part: CString,
    name: CString,
    /// True if the partial file is kept without a commit.
    kept: AtomicBool,
}

/// Return the temporary name of a file. It depends only on the name, so a later upload finds it.
///
/// If the name is a temporary name of the client, it ends as that one, with the digest of the destination: programs that remove the
/// partial files of a destination find both.
pub(super) fn part(name: &CStr) -> CString {
    let digest = Sha256::digest(name.to_bytes());
    let number = u64::from_be_bytes(digest[..8].try_into().expect("8 bytes of 32"));
    let end =
        temporary::destination(name.to_bytes()).map_or(String::new(), |end| format!("-{end}"));
    CString::new(format!("{OWN}{number:016x}{end}.part")).expect("no zero byte in digits")
}

impl UploadFile {
    pub(super) fn start(
        root: &ConfinedRoot,
        path: &[u8],
        start: UploadStart,
    ) -> Result<Self, Errno> {
        match start {
            UploadStart::New => Self::new(root, path),
            UploadStart::InPlace => Self::open_in_place(root, path, OFlags::CREATE, SHARED),
            UploadStart::AtEnd => Self::open_in_place(root, path, OFlags::CREATE, EXCLUSIVE),
            UploadStart::Behind { bytes } if is_whole(root, path, bytes) => {
                Self::itself(root, path, bytes)
            }
            UploadStart::Kept { bytes } | UploadStart::Behind { bytes } => {
                Self::kept(root, path, bytes)
            }
        }
    }

    /// Return the open file.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Return a duplicate of the open file, for a thread that writes to it.
    ///
    /// # Errors
    /// Too many open files.
    pub(crate) fn duplicate(&self) -> Result<OwnedFd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.file, 0)
    }

    /// Return the current metadata.
    ///
    /// # Errors
    /// Kernel errors.
    pub(crate) fn metadata(&self) -> Result<ServedMetadata, Errno> {
        rustix::fs::fstat(&self.file).map(|found| ServedMetadata::of(&found))
    }

    /// Write all of `bytes` at `offset`. Several threads may do so concurrently.
    ///
    /// # Errors
    /// Kernel errors.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Errno> {
        crate::bytes::put(&self.file, bytes, offset)
    }

    /// Keep the partial file for [`UploadStart::Kept`] after a drop.
    pub(crate) fn keep(&self) {
        if let Some(aside) = &self.aside {
            aside.kept.store(true, Ordering::Relaxed);
        }
    }

    /// Rename the file into place; an existing file is replaced only with `replace`. Write to stable storage first
    /// with `sync`. Return the final metadata, because a rename changes the change time.
    ///
    /// # Errors
    /// Kernel errors; [`Errno::EXIST`]; [`Errno::BUSY`] if the temporary name belongs to another upload;
    /// [`Errno::STALE`] if a file written in place was removed or replaced. The data is lost then.
    pub(crate) fn commit(mut self, sync: bool, replace: bool) -> Result<ServedMetadata, Errno> {
        if sync {
            rustix::fs::fsync(&self.file)?;
        }
        self.flush_close()?;
        let Some(aside) = &self.aside else {
            return match rustix::fs::fstat(&self.file)? {
                found if found.st_nlink == 0 => Err(Errno::STALE),
                found => Ok(ServedMetadata::of(&found)),
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
            return self.metadata();
        };
        if sync {
            // The name too. The directory is opened again, because the other descriptor is only a path.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let parent = rustix::fs::openat(&aside.parent, c".", flags, Mode::empty())?;
            rustix::fs::fsync(parent)?;
        }
        self.metadata()
    }

    /// Flush the file with a close of a copy of its descriptor. Network file systems report a full disk or a lost
    /// file only at close, and the file itself must stay locked until its rename.
    fn flush_close(&self) -> Result<(), Errno> {
        let again = self.duplicate()?;
        nix::unistd::close(again.into_raw_fd())
            .map_err(|errno| Errno::from_raw_os_error(errno as i32))
    }

    fn new(root: &ConfinedRoot, path: &[u8]) -> Result<Self, Errno> {
        let (parent, name) = root.parent_and_name(path)?;
        let existing = rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW);
        let existing = match existing {
            Ok(existing) => Some(ServedMetadata::of(&existing)),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno),
        };
        if existing.is_some_and(|existing| existing.is_directory()) {
            return Err(Errno::ISDIR);
        }
        let upload = Self::aside(parent, name, OFlags::RDWR | OFlags::CREATE)?;
        rustix::fs::ftruncate(&upload.file, 0)?;
        if let Some(existing) = existing.filter(ServedMetadata::is_file) {
            // The readers of the old file may read the new one.
            rustix::fs::fchmod(&upload.file, Mode::from_raw_mode(existing.mode & 0o777))?;
        }
        Ok(upload)
    }

    fn kept(root: &ConfinedRoot, path: &[u8], bytes: u64) -> Result<Self, Errno> {
        let (parent, name) = root.parent_and_name(path)?;
        let upload = match Self::aside(parent, name, OFlags::RDWR) {
            Err(Errno::NOENT) => return Self::itself(root, path, bytes),
            other => other?,
        };
        if upload.metadata()?.bytes < bytes {
            upload.keep();
            return Self::itself(root, path, bytes);
        }
        // The bytes behind it belong to another upload.
        rustix::fs::ftruncate(&upload.file, bytes)?;
        Ok(upload)
    }

    /// Open a file that has at least these bytes.
    fn itself(root: &ConfinedRoot, path: &[u8], bytes: u64) -> Result<Self, Errno> {
        let upload = Self::open_in_place(root, path, OFlags::empty(), EXCLUSIVE)?;
        match upload.metadata()?.bytes >= bytes {
            true => Ok(upload),
            false => Err(Errno::NOENT),
        }
    }

    fn open_in_place(
        root: &ConfinedRoot,
        path: &[u8],
        create: OFlags,
        lock: FlockOperation,
    ) -> Result<Self, Errno> {
        root.changes()?;
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | create;
        let file = root.resolve(&names(path)?, flags, ResolveFlags::empty())?;
        let upload = Self { file, aside: None };
        if !upload.metadata()?.is_file() {
            return Err(Errno::ACCESS);
        }
        flock(&upload.file, lock)?;
        Ok(upload)
    }

    /// Open the temporary file of a name.
    fn aside(parent: OwnedFd, name: CString, flags: OFlags) -> Result<Self, Errno> {
        let part = part(&name);
        let file = locked(&parent, &part, flags)?;
        let aside = Some(Aside {
            parent,
            part,
            name,
            kept: AtomicBool::new(false),
        });
        Ok(Self { file, aside })
    }
}

/// Return whether a file has exactly these bytes.
fn is_whole(root: &ConfinedRoot, path: &[u8], bytes: u64) -> bool {
    let existing = root.stat(path);
    existing.is_ok_and(|existing| existing.is_file() && existing.bytes == bytes)
}

/// Remove the leftover of an upload: [`Errno::BUSY`] while it is being written.
pub(super) fn remove_partial(parent: &OwnedFd, part: &CStr) -> Result<(), Errno> {
    // Locked until it is removed.
    let _file = locked(parent, part, READING)?;
    rustix::fs::unlinkat(parent, part, AtFlags::empty())
}

impl ConfinedRoot {
    /// Check that no upload writes into a directory; subdirectories are not checked.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read); [`Errno::BUSY`] during an upload.
    pub(crate) fn check_idle(&self, path: &[u8]) -> Result<(), Errno> {
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

/// Remove the leftovers of uploads in an otherwise empty directory; [`Errno::NOTEMPTY`] if there
/// are other entries.
pub(super) fn remove_partials(parent: &OwnedFd, name: &CStr) -> Result<(), Errno> {
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
        .try_for_each(|part| remove_partial(&directory, part))
}

/// Open and lock a temporary file.
fn locked(parent: &OwnedFd, part: &CStr, how: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | how;
    for _ in 0..MAX_ATTEMPTS {
        let file = rustix::fs::openat(parent, part, flags, MODE)?;
        flock(&file, EXCLUSIVE)?;
        // Otherwise its writer renamed it in between, and it is complete.
        if has_name(&file, parent.as_fd(), part) {
            return Ok(file);
        }
    }
    Err(Errno::BUSY)
}

/// Lock a file; [`Errno::BUSY`] while another upload has the lock.
fn flock(file: &OwnedFd, flags: FlockOperation) -> Result<(), Errno> {
    match rustix::fs::flock(file, flags) {
        Err(Errno::AGAIN) => Err(Errno::BUSY),
        // Some network file systems have no locks (NFS without its daemon, FUSE, Lustre); there, the last writer
        // wins.
        Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        other => other,
    }
}

impl Drop for UploadFile {
    fn drop(&mut self) {
        if let Some(aside) = self
            .aside
            .as_ref()
            .filter(|aside| !aside.kept.load(Ordering::Relaxed))
            .filter(|aside| has_name(&self.file, aside.parent.as_fd(), &aside.part))
        {
            // A leftover that cannot be removed is found by the next upload of the file.
            let _ = rustix::fs::unlinkat(&aside.parent, &aside.part, AtFlags::empty());
        }
    }
}
