//! File attributes other than the data.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use crate::error::is_unsupported;
use crate::options::Preserve;

/// Metadata of a local file, with types that are the same on all machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalMetadata {
    pub(crate) kind: FileType,
    pub(crate) id: (u64, u64),
    pub(crate) links: u64,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) device: u64,
    pub(crate) size: u64,
    /// Allocated size on the disk, bytes.
    pub(crate) allocated: u64,
    pub(crate) accessed: (i64, i64),
    pub(crate) modified: (i64, i64),
    changed: (i64, i64),
}

/// All bits that `chmod` sets.
const ALL_BITS: u32 = 0o7777;
const IDENTITY_BITS: u32 = 0o6000;
/// Set-group-ID bit of a directory: new files inherit its group.
const SET_GROUP_ID: u32 = 0o2000;
const XATTR_BUFFER_BYTES: usize = 1 << 16;

#[allow(
    clippy::unnecessary_cast,
    clippy::cast_sign_loss,
    reason = "the widths of these fields depend on the machine; sizes are not negative"
)]
impl From<Stat> for LocalMetadata {
    fn from(stat: Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(stat.st_mode),
            id: (stat.st_dev as u64, stat.st_ino as u64),
            links: stat.st_nlink as u64,
            mode: stat.st_mode & ALL_BITS,
            uid: stat.st_uid,
            gid: stat.st_gid,
            device: stat.st_rdev as u64,
            size: stat.st_size as u64,
            allocated: stat.st_blocks as u64 * 512,
            accessed: (stat.st_atime as i64, stat.st_atime_nsec as i64),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

impl LocalMetadata {
    /// True if no process wrote the file in between. The access time does not count, because reading changes it.
    pub(crate) fn unchanged(&self, later: &Self) -> bool {
        (self.size, self.modified, self.changed) == (later.size, later.modified, later.changed)
    }

    /// True if the copy has the same size and modification time.
    pub(crate) fn like(&self, copy: &Self) -> bool {
        (self.size, self.modified) == (copy.size, copy.modified)
    }

    /// Access and modification times for `utimensat`.
    pub(crate) fn times(&self) -> Timestamps {
        let time = |(seconds, nanoseconds): (i64, i64)| Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds as _,
        };
        Timestamps {
            last_access: time(self.accessed),
            last_modification: time(self.modified),
        }
    }

    /// Mode for the creation of the copy, with access for its owner; the kernel applies the umask.
    pub(crate) fn first_mode(&self) -> Mode {
        Mode::from_raw_mode(self.mode & 0o777 | 0o600)
    }

    /// Set-group-ID bit that a directory inherits from its parent. A preserved mode must not clear it.
    pub(crate) fn inherited(&self) -> u32 {
        match self.kind {
            FileType::Directory => self.mode & SET_GROUP_ID,
            _ => 0,
        }
    }

    /// Final mode of a new copy.
    pub(crate) fn last_mode(&self, preserve: Preserve, umask: u32) -> u32 {
        if preserve.mode {
            self.mode
        } else {
            self.mode & 0o777 & !umask
        }
    }
}

/// Applies the attributes of the source and this mode to a file or directory. `found` is the current state of the copy.
///
/// Set-user-ID and set-group-ID bits are kept only if owner and group are the same.
///
/// # Errors
/// The attribute that could not be set, and the errno.
pub(crate) fn apply(
    source: BorrowedFd<'_>,
    copy: BorrowedFd<'_>,
    metadata: &LocalMetadata,
    found: &LocalMetadata,
    preserve: Preserve,
    mode: u32,
) -> Result<(), (&'static str, Errno)> {
    let mut owner = (found.uid, found.gid);
    if preserve.owner && owner != (metadata.uid, metadata.gid) {
        owner = set_owner(metadata, owner, |uid, gid| {
            rustix::fs::fchown(copy, uid, gid)
        })?;
    }
    if preserve.xattr {
        copy_xattrs(source, copy).map_err(|errno| ("to set extended attributes", errno))?;
    }
    let lends = preserve.mode && owner != (metadata.uid, metadata.gid);
    let mode = if lends { mode & !IDENTITY_BITS } else { mode };
    let mode = if preserve.owner {
        mode
    } else {
        mode | found.inherited()
    };
    // A change of owner clears bits, and an access control list can set others.
    if mode != found.mode || preserve.xattr || owner != (found.uid, found.gid) {
        match rustix::fs::fchmod(copy, Mode::from_raw_mode(mode)) {
            // On a file system with fixed modes, the user did not request another mode.
            Err(errno) if !preserve.mode && is_unsupported(errno) => {}
            set => set.map_err(|errno| ("to set the mode", errno))?,
        }
    }
    if preserve.times {
        rustix::fs::futimens(copy, &metadata.times())
            .map_err(|errno| ("to set the times", errno))?;
    }
    Ok(())
}

/// Applies the attributes of the source to a link or another file that cannot be opened.
pub(crate) fn apply_unopened(
    directory: BorrowedFd<'_>,
    name: &std::ffi::CStr,
    source: &LocalMetadata,
    preserve: Preserve,
) -> Result<(), (&'static str, Errno)> {
    if preserve.owner {
        let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        let found = LocalMetadata::from(found.map_err(|errno| ("to read its metadata", errno))?);
        set_owner(source, (found.uid, found.gid), |uid, gid| {
            rustix::fs::chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
        })?;
    }
    // Restores bits that the umask cleared; links have no mode.
    if preserve.mode && source.kind != FileType::Symlink {
        let mode = Mode::from_raw_mode(source.mode);
        rustix::fs::chmodat(directory, name, mode, AtFlags::empty())
            .map_err(|errno| ("to set the mode", errno))?;
    }
    if preserve.times {
        let set =
            rustix::fs::utimensat(directory, name, &source.times(), AtFlags::SYMLINK_NOFOLLOW);
        set.map_err(|errno| ("to set the times", errno))?;
    }
    Ok(())
}

/// Sets owner and group, or only the group if the kernel permits no more. Returns the resulting owner and group.
fn set_owner(
    source: &LocalMetadata,
    found: (u32, u32),
    set: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
) -> Result<(u32, u32), (&'static str, Errno)> {
    let (uid, gid) = (Uid::from_raw(source.uid), Gid::from_raw(source.gid));
    let mut result = set(Some(uid), Some(gid)).map(|()| source.uid);
    // Only root can change the owner. Other users can set their own groups.
    if result == Err(Errno::PERM) && found.1 != source.gid {
        result = set(None, Some(gid)).map(|()| found.0);
    }
    match result {
        Ok(uid) => Ok((uid, source.gid)),
        // An error for every file would not help the user.
        Err(Errno::PERM) => Ok(found),
        Err(errno) => Err(("to set owner and group", errno)),
    }
}

fn copy_xattrs(source: BorrowedFd<'_>, copy: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut names = Vec::with_capacity(XATTR_BUFFER_BYTES);
    match rustix::fs::flistxattr(source, rustix::buffer::spare_capacity(&mut names)) {
        Ok(_) => {}
        Err(Errno::NOTSUP) => return Ok(()),
        Err(errno) => return Err(errno),
    }
    let mut value = Vec::with_capacity(XATTR_BUFFER_BYTES);
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        value.clear();
        rustix::fs::fgetxattr(source, name, rustix::buffer::spare_capacity(&mut value))?;
        match rustix::fs::fsetxattr(copy, name, &value, XattrFlags::empty()) {
            // Ordinary users cannot set attributes of the system.
            Err(Errno::PERM | Errno::NOTSUP) if !name.starts_with(b"user.") => {}
            other => other?,
        }
    }
    Ok(())
}
