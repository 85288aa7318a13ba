//! Resolves paths to open files without leaving the root: by the kernel, or name by name if it does
//! not support this.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{ConfinedRoot, ServedMetadata, upload};

/// Maximum attempts to resolve a path that changes during the resolution.
const MAX_ATTEMPTS: u32 = 16;
/// Maximum number of directories between a path and the root.
const MAX_LEVELS: u32 = 10_000;

impl ConfinedRoot {
    /// Open a path within the root.
    pub(super) fn resolve(
        &self,
        names: &[CString],
        flags: OFlags,
        how: ResolveFlags,
    ) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        let Some((directory, below)) = self.locate(names) else {
            return self.above(names, flags);
        };
        if !self.confines {
            return walk(directory, below, flags);
        }
        let path = joined(below)?;
        // The kernel accepts a mode only with a file that may be created.
        let mode = if flags.contains(OFlags::CREATE) {
            upload::MODE
        } else {
            Mode::empty()
        };
        let how = how | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..MAX_ATTEMPTS {
            match rustix::fs::openat2(directory, &path, flags, mode, how) {
                // A link leads out of the root.
                Err(Errno::XDEV) => return Err(Errno::ACCESS),
                // A path was renamed during the lookup of `..` in a link.
                Err(Errno::AGAIN) if !how.contains(ResolveFlags::CACHED) => {}
                other => return other,
            }
        }
        Err(Errno::ACCESS)
    }

    /// Return the served directory that contains a path, and the path within it.
    pub(super) fn locate<'path>(
        &self,
        names: &'path [CString],
    ) -> Option<(&OwnedFd, &'path [CString])> {
        self.directories.iter().find_map(|served| {
            let below = names.strip_prefix(served.path.as_slice())?;
            Some((&served.directory, below))
        })
    }

    /// Return whether a path is a served directory of a larger tree, or a directory above one.
    pub(super) fn is_above(&self, names: &[CString]) -> bool {
        let mut served = self.directories.iter().map(|served| &served.path);
        served.any(|path| !path.is_empty() && path.starts_with(names))
    }

    /// Open a directory above a served one for its metadata. The administrator has chosen its path.
    fn above(&self, names: &[CString], flags: OFlags) -> Result<OwnedFd, Errno> {
        if !self.is_above(names) || !flags.contains(OFlags::PATH) {
            return Err(Errno::ACCESS);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.top, joined(names)?, flags, Mode::empty())
    }

    /// Return whether a path, existing or not, is in a directory after resolving links, or whether its link target
    /// is.
    ///
    /// # Errors
    /// Errors of [`read`](Self::read) for the parent directory.
    pub(crate) fn is_in(&self, path: &[u8], directory: &ServedMetadata) -> Result<bool, Errno> {
        let (parent, _) = self.parent_and_name(path)?;
        if self.is_below(parent, directory)? {
            return Ok(true);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match self.resolve(&names(path)?, flags, ResolveFlags::empty()) {
            Ok(found) => self.is_below(found, directory),
            // Not a directory, or missing: it has no other path.
            Err(_) => Ok(false),
        }
    }

    /// Return whether an open directory is another one, or below it. The check goes upwards,
    /// because every path to a directory has the same parents.
    fn is_below(&self, mut at: OwnedFd, directory: &ServedMetadata) -> Result<bool, Errno> {
        let tops = self
            .directories
            .iter()
            .map(|served| Ok(ServedMetadata::of(&rustix::fs::fstat(&served.directory)?).identity))
            .collect::<Result<Vec<_>, Errno>>()?;
        for _ in 0..MAX_LEVELS {
            let current = ServedMetadata::of(&rustix::fs::fstat(&at)?).identity;
            if current == directory.identity {
                return Ok(true);
            }
            if tops.contains(&current) {
                return Ok(false);
            }
            let up = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            at = rustix::fs::openat(&at, c"..", up, Mode::empty())?;
        }
        Err(Errno::LOOP)
    }
}

/// Resolve as [`ConfinedRoot::resolve`] without `openat2`: name by name, without following links.
fn walk(root: &OwnedFd, names: &[CString], flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let (last, before) = match names.split_last() {
        Some((last, before)) => (last.as_c_str(), before),
        None => (c".", names),
    };
    let mut directory = rustix::fs::openat(root, c".", path, Mode::empty())?;
    for name in before {
        directory = rustix::fs::openat(&directory, name, path, Mode::empty())?;
    }
    let found = rustix::fs::openat(&directory, last, flags | OFlags::NOFOLLOW, upload::MODE)
        .map_err(|errno| {
            if errno == Errno::LOOP {
                Errno::ACCESS
            } else {
                errno
            }
        })?;
    // With O_PATH, a link is opened instead of rejected.
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
    if kind == FileType::Symlink {
        return Err(Errno::ACCESS);
    }
    Ok(found)
}

/// Return the components of a path. Names of temporary files do not exist.
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
