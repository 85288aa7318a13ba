//! Temporary file of a copy, locked so that two copies do not mix.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::directory::{CopySide, Dir};
use super::walk::SourceEntry;
use crate::attributes::LocalMetadata;
use crate::error::Failure;
use crate::temporary;

/// A file under its temporary name, locked.
#[derive(Debug)]
pub(crate) struct PartialFile {
    pub(crate) name: CString,
    /// Its metadata at creation.
    pub(crate) made: LocalMetadata,
}

impl PartialFile {
    /// Create a new temporary file; delete the leftover of a killed copy.
    pub(crate) fn make(
        dir: &Dir,
        entry: &SourceEntry,
        metadata: &LocalMetadata,
    ) -> Result<(Self, OwnedFd), Failure> {
        let name = dir.tree.token.part(entry.target().to_bytes());
        let failure = |errno| {
            Failure::kernel(
                dir.path(CopySide::Copy, entry.target()),
                "a writable directory",
                errno,
            )
        };
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = || rustix::fs::openat(dir.to(), &name, flags, metadata.first_mode());
        let made = match create() {
            Err(Errno::EXIST) => {
                let _leftover = Self::leftover(dir, entry, &name, OFlags::RDONLY)?;
                rustix::fs::unlinkat(dir.to(), &name, AtFlags::empty()).map_err(failure)?;
                create()
            }
            other => other,
        };
        let file = made.map_err(failure)?;
        // On failure, another copy took the file as a leftover between creation and lock.
        let locked = temporary::lock(&file, dir.to(), &name);
        locked.map_err(|_| lock_error(dir, entry))?;
        Self::adopt(dir, entry, name, file)
    }

    /// Open the leftover of a copy, or create the temporary file.
    pub(crate) fn adopt_or_create(
        dir: &Dir,
        entry: &SourceEntry,
        metadata: &LocalMetadata,
    ) -> Result<(Self, OwnedFd), Failure> {
        let name = dir.tree.token.part(entry.target().to_bytes());
        match Self::leftover(dir, entry, &name, OFlags::RDWR)? {
            Some(file) => Self::adopt(dir, entry, name, file),
            None => Self::make(dir, entry, metadata),
        }
    }

    /// Open and lock a leftover; none if missing or not accessible.
    fn leftover(
        dir: &Dir,
        entry: &SourceEntry,
        name: &CStr,
        access: OFlags,
    ) -> Result<Option<OwnedFd>, Failure> {
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let Ok(file) = rustix::fs::openat(dir.to(), name, flags, Mode::empty()) else {
            return Ok(None);
        };
        let locked = temporary::lock(&file, dir.to(), name);
        locked.map_err(|_| lock_error(dir, entry))?;
        Ok(Some(file))
    }

    fn adopt(
        dir: &Dir,
        entry: &SourceEntry,
        name: CString,
        file: OwnedFd,
    ) -> Result<(Self, OwnedFd), Failure> {
        let made = rustix::fs::fstat(&file).map_err(|errno| {
            Failure::kernel(
                dir.path(CopySide::Copy, entry.target()),
                "to read its metadata",
                errno,
            )
        })?;
        let made = LocalMetadata::from(made);
        Ok((Self { name, made }, file))
    }

    pub(crate) fn discard(&self, dir: &Dir) {
        // The next copy takes over a file that cannot be removed.
        let _ = rustix::fs::unlinkat(dir.to(), &self.name, AtFlags::empty());
    }
}

fn lock_error(dir: &Dir, entry: &SourceEntry) -> Failure {
    let path = dir.path(CopySide::Copy, entry.target());
    Failure::found(
        path,
        "a file without other writers",
        "another copy of the same source writing to it",
        "wait until it ends",
    )
}
