//! What is in a directory, some of it at a time.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::resolve::joined;
use super::upload::OWN;
use super::{Facts, READING, Root};

/// Deepest tree that is listed as a whole: each level holds a directory open.
const MAX_DEPTH: usize = 256;
/// Longest name of something below the listed directory.
const MAX_PATH_BYTES: usize = 4096;

/// Something in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Its name; below other directories with their names before it.
    pub(crate) name: Vec<u8>,
    /// What it is; of a link that leads to something within the root, what that is.
    pub(crate) facts: Facts,
    /// Whether what is in it follows: never behind a link, nor where it cannot be read or is too deep.
    pub(crate) entered: bool,
}

/// A directory that is being listed. Temporary files are left out.
#[derive(Debug)]
pub(crate) struct Listing {
    recursive: bool,
    /// The path of the first, for links.
    path: Vec<CString>,
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    directory: OwnedFd,
    entries: Dir,
    /// Before the names in it: empty, or with a slash at the end.
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

impl Listing {
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

    /// At most so many entries, which it appends. False: there are no more.
    ///
    /// # Errors
    /// If the directory itself cannot be read, or something in it where all below is listed. What cannot be read otherwise is
    /// left out, or [not entered](Listed::entered).
    pub(crate) fn next(
        &mut self,
        root: &Root,
        most: usize,
        into: &mut Vec<Listed>,
    ) -> Result<bool, Errno> {
        let full = into.len() + most;
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
            let mut facts = match found {
                Ok(found) => Facts::of(&found),
                Err(errno) if self.recursive && errno != Errno::NOENT => return Err(errno),
                // It has gone meanwhile, or is a mount that is broken.
                Err(_) => continue,
            };
            let enters = self.recursive && facts.is_directory();
            let below = enters.then(|| enter(level, name, &full_name)).flatten();
            if facts.kind == FileType::Symlink {
                facts = self.behind(root, &full_name).unwrap_or(facts);
            }
            let below = below.filter(|_| self.levels.len() < MAX_DEPTH);
            into.push(Listed {
                name: full_name,
                facts,
                entered: below.is_some(),
            });
            self.levels.extend(below);
        }
        Ok(false)
    }

    /// What a link leads to, if that is within the root.
    fn behind(&self, root: &Root, name: &[u8]) -> Option<Facts> {
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
