//! A file while it is not whole: under its temporary name, locked, so that two copies of the same do not mix.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::directory::{Dir, Side};
use super::walk::Entry;
use crate::attributes::Facts;
use crate::error::Failure;
use crate::temporary;

/// A file under its temporary name, locked.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: CString,
    /// What it was made with.
    pub(crate) made: Facts,
}

impl Part {
    /// Makes a new file under the temporary name; one that a killed copy has left goes.
    pub(crate) fn make(
        dir: &Dir,
        entry: &Entry,
        facts: &Facts,
    ) -> Result<(Self, OwnedFd), Failure> {
        let name = dir.tree.token.part(entry.target().to_bytes());
        let failure = |errno| {
            Failure::kernel(
                dir.path(Side::Copy, entry.target()),
                "a place that can be written to",
                errno,
            )
        };
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = || rustix::fs::openat(dir.to(), &name, flags, facts.first_mode());
        let made = match create() {
            Err(Errno::EXIST) => {
                let _left = Self::left(dir, entry, &name, OFlags::RDONLY)?;
                rustix::fs::unlinkat(dir.to(), &name, AtFlags::empty()).map_err(failure)?;
                create()
            }
            other => other,
        };
        let file = made.map_err(failure)?;
        // Else another copy took it for a leftover between its making and its lock.
        let locked = temporary::lock(&file, dir.to(), &name);
        locked.map_err(|_| taken(dir, entry))?;
        Self::seen(dir, entry, name, file)
    }

    /// Opens what a copy has left under the temporary name, or makes it.
    pub(crate) fn take_over(
        dir: &Dir,
        entry: &Entry,
        facts: &Facts,
    ) -> Result<(Self, OwnedFd), Failure> {
        let name = dir.tree.token.part(entry.target().to_bytes());
        match Self::left(dir, entry, &name, OFlags::RDWR)? {
            Some(file) => Self::seen(dir, entry, name, file),
            None => Self::make(dir, entry, facts),
        }
    }

    /// What is there under a temporary name, locked; none if it is not there or not for us to open.
    fn left(
        dir: &Dir,
        entry: &Entry,
        name: &CStr,
        access: OFlags,
    ) -> Result<Option<OwnedFd>, Failure> {
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let Ok(file) = rustix::fs::openat(dir.to(), name, flags, Mode::empty()) else {
            return Ok(None);
        };
        let locked = temporary::lock(&file, dir.to(), name);
        locked.map_err(|_| taken(dir, entry))?;
        Ok(Some(file))
    }

    fn seen(
        dir: &Dir,
        entry: &Entry,
        name: CString,
        file: OwnedFd,
    ) -> Result<(Self, OwnedFd), Failure> {
        let made = rustix::fs::fstat(&file).map_err(|errno| {
            Failure::kernel(dir.path(Side::Copy, entry.target()), "to see it", errno)
        })?;
        let made = Facts::from(made);
        Ok((Self { name, made }, file))
    }

    pub(crate) fn discard(&self, dir: &Dir) {
        // What cannot be removed is taken over by the next copy.
        let _ = rustix::fs::unlinkat(dir.to(), &self.name, AtFlags::empty());
    }
}

fn taken(dir: &Dir, entry: &Entry) -> Failure {
    let path = dir.path(Side::Copy, entry.target());
    Failure::found(
        path,
        "a file that nobody writes to",
        "another copy of the same that is writing it",
        "wait for it to end",
    )
}
