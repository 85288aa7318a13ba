//! From a path to something open, with no way out: by the kernel, or name by name where it cannot.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{Facts, Root, upload};

/// How often a path is resolved again that changed under the kernel's hands.
const MAX_ATTEMPTS: u32 = 16;
/// Directories on the way up from something to the root.
const MAX_LEVELS: u32 = 10_000;

impl Root {
    /// Opens what is at a path, within the root.
    pub(super) fn resolve(
        &self,
        names: &[CString],
        flags: OFlags,
        how: ResolveFlags,
    ) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        if !self.confines {
            return self.walk(names, flags);
        }
        let path = joined(names)?;
        // The kernel takes a mode only with a file that may be made.
        let mode = if flags.contains(OFlags::CREATE) {
            upload::MODE
        } else {
            Mode::empty()
        };
        let how = how | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..MAX_ATTEMPTS {
            match rustix::fs::openat2(&self.directory, &path, flags, mode, how) {
                // A link led out.
                Err(Errno::XDEV) => return Err(Errno::ACCESS),
                // Something was renamed while `..` in a link was looked up.
                Err(Errno::AGAIN) if !how.contains(ResolveFlags::CACHED) => {}
                other => return other,
            }
        }
        Err(Errno::ACCESS)
    }

    /// Whether what is at a path, or would be, is in a directory, whatever links lead there; or what a link there leads to is.
    ///
    /// # Errors
    /// As [`read`](Self::read), of the directory of the path.
    pub(crate) fn is_in(&self, path: &[u8], directory: &Facts) -> Result<bool, Errno> {
        let (parent, _) = self.place(path)?;
        if self.is_below(parent, directory)? {
            return Ok(true);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match self.resolve(&names(path)?, flags, ResolveFlags::empty()) {
            Ok(found) => self.is_below(found, directory),
            // No directory, or nothing: it has no other place.
            Err(_) => Ok(false),
        }
    }

    /// Whether an open directory is another, or below it: upwards, since only that is the same by all ways.
    fn is_below(&self, mut at: OwnedFd, directory: &Facts) -> Result<bool, Errno> {
        let top = Facts::of(&rustix::fs::fstat(&self.directory)?).identity;
        for _ in 0..MAX_LEVELS {
            let here = Facts::of(&rustix::fs::fstat(&at)?).identity;
            if here == directory.identity {
                return Ok(true);
            }
            if here == top {
                return Ok(false);
            }
            let up = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            at = rustix::fs::openat(&at, c"..", up, Mode::empty())?;
        }
        Err(Errno::LOOP)
    }

    /// The same as [`resolve`](Self::resolve) without `openat2`: name by name, and no link is followed.
    fn walk(&self, names: &[CString], flags: OFlags) -> Result<OwnedFd, Errno> {
        let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (last, before) = match names.split_last() {
            Some((last, before)) => (last.as_c_str(), before),
            None => (c".", names),
        };
        let mut directory = rustix::fs::openat(&self.directory, c".", way, Mode::empty())?;
        for name in before {
            directory = rustix::fs::openat(&directory, name, way, Mode::empty())?;
        }
        let found = rustix::fs::openat(&directory, last, flags | OFlags::NOFOLLOW, upload::MODE)
            .map_err(|errno| {
                if errno == Errno::LOOP {
                    Errno::ACCESS
                } else {
                    errno
                }
            })?;
        // With O_PATH a link is opened, not refused.
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
        if kind == FileType::Symlink {
            return Err(Errno::ACCESS);
        }
        Ok(found)
    }
}

/// The names of a path. Those of files that are not whole stand for nothing.
pub(super) fn names(path: &[u8]) -> Result<Vec<CString>, Errno> {
    let named = path.split(|&byte| byte == b'/');
    let named = named.filter(|name| !name.is_empty() && *name != b".");
    named
        .map(|name| {
            if name == b".." {
                return Err(Errno::ACCESS);
            }
            if name.starts_with(upload::OWN.as_bytes()) {
                return Err(Errno::NOENT);
            }
            CString::new(name).map_err(|_| Errno::INVAL)
        })
        .collect()
}

pub(super) fn joined(names: &[CString]) -> Result<CString, Errno> {
    if names.is_empty() {
        return Ok(c".".to_owned());
    }
    let names: Vec<&[u8]> = names.iter().map(|name| name.to_bytes()).collect();
    CString::new(names.join(&b'/')).map_err(|_| Errno::INVAL)
}
