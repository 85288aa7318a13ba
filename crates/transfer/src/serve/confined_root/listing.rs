//! Listing of a directory in parts.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::resolve::joined;
use super::upload::OWN;
use super::{ConfinedRoot, READING, ServedMetadata};

/// Maximum depth of a recursive listing: each level holds a directory open.
const MAX_DEPTH: usize = 256;
/// Maximum length of a path below the listed directory.
const MAX_PATH_BYTES: usize = 4096;

/// Entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RootEntry {
    /// Its name, with parent directories in a recursive listing.
    pub(crate) name: Vec<u8>,
    /// Metadata; of the target for a link within the root.
    pub(crate) metadata: ServedMetadata,
    /// True if its entries follow: not for links, unreadable or too deep directories.
    pub(crate) entered: bool,
}

/// Directory listing in progress, without temporary files.
#[derive(Debug)]
pub(crate) struct RootListing {
    recursive: bool,
    /// Path of the listed directory, to resolve links.
    path: Vec<CString>,
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    directory: OwnedFd,
    entries: Dir,
    /// Prefix of names: empty, or with a slash at the end.
    prefix: Vec<u8>,
}

impl Level {
    fn new(directory: OwnedFd, prefix: Vec<u8>) -> Result<Self, Errno> {
        let entries = Dir::read_from(&directory)?;
        Ok(Self {
            directory,
            entries,
            prefix,
        })
    }
}

impl RootListing {
    pub(super) fn new(
        directory: OwnedFd,
        path: Vec<CString>,
        recursive: bool,
    ) -> Result<Self, Errno> {
        Ok(Self {
            recursive,
            path,
            levels: vec![Level::new(directory, Vec::new())?],
        })
    }

    /// Append at most `max` entries. Return false at the end.
    ///
    /// # Errors
    /// An unreadable directory, or an unreadable entry of a recursive listing. Other unreadable entries are
    /// skipped, or [not entered](RootEntry::entered).
    pub(crate) fn next(
        &mut self,
        root: &ConfinedRoot,
        max: usize,
        into: &mut Vec<RootEntry>,
    ) -> Result<bool, Errno> {
        let full = into.len() + max;
        while let Some(level) = self.levels.last_mut() {
            if into.len() >= full {
                return Ok(true);
            }
            let Some(entry) = level.entries.read() else {
                self.levels.pop();
                continue;
            };
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..")
                || name.to_bytes().starts_with(OWN.as_bytes())
            {
                continue;
            }
            let full_name = [&level.prefix, name.to_bytes()].concat();
            let found = rustix::fs::statat(&level.directory, name, AtFlags::SYMLINK_NOFOLLOW);
            let mut metadata = match found {
                Ok(found) => ServedMetadata::of(&found),
                Err(errno) if self.recursive && errno != Errno::NOENT => return Err(errno),
                // It was removed since, or is a broken mount.
                Err(_) => continue,
            };
            let enters = self.recursive && metadata.is_directory();
            let below = enters.then(|| enter(level, name, &full_name)).flatten();
            if metadata.kind == FileType::Symlink {
                metadata = self.behind(root, &full_name).unwrap_or(metadata);
            }
            let below = below.filter(|_| self.levels.len() < MAX_DEPTH);
            into.push(RootEntry {
                name: full_name,
                metadata,
                entered: below.is_some(),
            });
            self.levels.extend(below);
        }
        Ok(false)
    }

    /// Return the metadata of a link target within the root.
    fn behind(&self, root: &ConfinedRoot, name: &[u8]) -> Option<ServedMetadata> {
        let mut path = self.path.clone();
        path.push(CString::new(name).ok()?);
        root.stat(joined(&path).ok()?.to_bytes()).ok()
    }
}

fn enter(level: &Level, name: &CStr, full_name: &[u8]) -> Option<Level> {
    if full_name.len() >= MAX_PATH_BYTES {
        return None;
    }
    let flags = READING | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(level.directory.as_fd(), name, flags, Mode::empty()).ok()?;
    Level::new(directory, [full_name, b"/"].concat()).ok()
}
