//! What a file has besides its bytes.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use crate::error::is_not_taken;
use crate::order::Preserve;

/// What the kernel says of a file, in types that are the same on all machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) kind: FileType,
    pub(crate) id: (u64, u64),
    pub(crate) links: u64,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) device: u64,
    pub(crate) size: u64,
    /// What it takes on the disk, bytes.
    pub(crate) allocated: u64,
    pub(crate) accessed: (i64, i64),
    pub(crate) modified: (i64, i64),
    changed: (i64, i64),
}

/// All bits that `chmod` sets.
const ALL_BITS: u32 = 0o7777;
const IDENTITY_BITS: u32 = 0o6000;
/// Of a directory: what is made in it belongs to its group.
const SET_GROUP_ID: u32 = 0o2000;
const ROOM_FOR_ATTRIBUTES: usize = 1 << 16;

#[allow(
    clippy::unnecessary_cast,
    clippy::cast_sign_loss,
    reason = "the widths of these fields depend on the machine; sizes are not negative"
)]
impl From<Stat> for Facts {
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

impl Facts {
    /// Whether nobody wrote to it in between. Reading alone moves its time of access, which does not count.
    pub(crate) fn unchanged(&self, later: &Self) -> bool {
        (self.size, self.modified, self.changed) == (later.size, later.modified, later.changed)
    }

    /// Whether another file is the same by size and time.
    pub(crate) fn like(&self, copy: &Self) -> bool {
        (self.size, self.modified) == (copy.size, copy.modified)
    }

    /// Its times, for `utimensat`.
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

    /// The mode that its copy is made with, so that whoever made it can go on with it; the kernel takes away what the umask says.
    pub(crate) fn first_mode(&self) -> Mode {
        Mode::from_raw_mode(self.mode & 0o777 | 0o600)
    }

    /// What a directory has of the one that it was made in, and a mode that comes from elsewhere does not take away: how a place is shared.
    pub(crate) fn inherited(&self) -> u32 {
        match self.kind {
            FileType::Directory => self.mode & SET_GROUP_ID,
            _ => 0,
        }
    }

    /// The mode that its copy ends with, if that is new.
    pub(crate) fn last_mode(&self, preserve: Preserve, umask: u32) -> u32 {
        if preserve.mode {
            self.mode
        } else {
            self.mode & 0o777 & !umask
        }
    }
}

/// Gives a file or directory what its source has, and this mode. `made` is what the copy has now.
///
/// The bits that lend an identity are kept only where it is the same identity.
///
/// # Errors
/// With what could not be set.
pub(crate) fn give(
    source: BorrowedFd<'_>,
    copy: BorrowedFd<'_>,
    facts: &Facts,
    made: &Facts,
    preserve: Preserve,
    mode: u32,
) -> Result<(), (&'static str, Errno)> {
    let mut owner = (made.uid, made.gid);
    if preserve.owner && owner != (facts.uid, facts.gid) {
        owner = give_owner(facts, owner, |uid, gid| rustix::fs::fchown(copy, uid, gid))?;
    }
    if preserve.xattr {
        give_attributes(source, copy).map_err(|errno| ("to set extended attributes", errno))?;
    }
    let lends = preserve.mode && owner != (facts.uid, facts.gid);
    let mode = if lends { mode & !IDENTITY_BITS } else { mode };
    let mode = if preserve.owner {
        mode
    } else {
        mode | made.inherited()
    };
    // A change of owner takes bits away, an access control list may set others.
    if mode != made.mode || preserve.xattr || owner != (made.uid, made.gid) {
        match rustix::fs::fchmod(copy, Mode::from_raw_mode(mode)) {
            // A file system that gives all the same mode, or goes by its lists alone: nobody has asked for another.
            Err(errno) if !preserve.mode && is_not_taken(errno) => {}
            set => set.map_err(|errno| ("to set the mode", errno))?,
        }
    }
    if preserve.times {
        rustix::fs::futimens(copy, &facts.times()).map_err(|errno| ("to set the times", errno))?;
    }
    Ok(())
}

/// Gives a link, or another thing that cannot be opened, what its source has.
pub(crate) fn give_unopened(
    folder: BorrowedFd<'_>,
    name: &std::ffi::CStr,
    facts: &Facts,
    preserve: Preserve,
) -> Result<(), (&'static str, Errno)> {
    if preserve.owner {
        let made = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let made = Facts::from(made.map_err(|errno| ("to see it", errno))?);
        give_owner(facts, (made.uid, made.gid), |uid, gid| {
            rustix::fs::chownat(folder, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
        })?;
    }
    // What the umask has taken away; links have no mode.
    if preserve.mode && facts.kind != FileType::Symlink {
        let mode = Mode::from_raw_mode(facts.mode);
        rustix::fs::chmodat(folder, name, mode, AtFlags::empty())
            .map_err(|errno| ("to set the mode", errno))?;
    }
    if preserve.times {
        let set = rustix::fs::utimensat(folder, name, &facts.times(), AtFlags::SYMLINK_NOFOLLOW);
        set.map_err(|errno| ("to set the times", errno))?;
    }
    Ok(())
}

/// Gives owner and group, or the group alone where that is all that is allowed. Returns what the copy has then.
fn give_owner(
    facts: &Facts,
    made: (u32, u32),
    set: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
) -> Result<(u32, u32), (&'static str, Errno)> {
    let (uid, gid) = (Uid::from_raw(facts.uid), Gid::from_raw(facts.gid));
    let mut result = set(Some(uid), Some(gid)).map(|()| facts.uid);
    // Who is not root gives a file to nobody else, but to groups that he is in.
    if result == Err(Errno::PERM) && made.1 != facts.gid {
        result = set(None, Some(gid)).map(|()| made.0);
    }
    match result {
        Ok(uid) => Ok((uid, facts.gid)),
        // He does not want to be told for every file.
        Err(Errno::PERM) => Ok(made),
        Err(errno) => Err(("to set owner and group", errno)),
    }
}

fn give_attributes(source: BorrowedFd<'_>, copy: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut names = Vec::with_capacity(ROOM_FOR_ATTRIBUTES);
    match rustix::fs::flistxattr(source, rustix::buffer::spare_capacity(&mut names)) {
        Ok(_) => {}
        Err(Errno::NOTSUP) => return Ok(()),
        Err(errno) => return Err(errno),
    }
    let mut value = Vec::with_capacity(ROOM_FOR_ATTRIBUTES);
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        value.clear();
        rustix::fs::fgetxattr(source, name, rustix::buffer::spare_capacity(&mut value))?;
        match rustix::fs::fsetxattr(copy, name, &value, XattrFlags::empty()) {
            // What only the system may set, a copy by an ordinary user does not have.
            Err(Errno::PERM | Errno::NOTSUP) if !name.starts_with(b"user.") => {}
            other => other?,
        }
    }
    Ok(())
}
