//! A directory of this host that files come from or come to be in.

use std::ffi::{CStr, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::work::Context;
use crate::error::Failure;

/// A directory of this host, open, and what it is called in messages.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) fd: OwnedFd,
    pub(crate) path: PathBuf,
    /// False of one that would be made, if this were no dry run: nothing is in it.
    pub(crate) is_there: bool,
}

impl Folder {
    /// Opens one by its path: the empty one is that which we are in.
    ///
    /// # Errors
    /// If it cannot be read, or is none.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| Failure {
            advice: if errno == Errno::NOENT {
                "make it, or say --mkpath"
            } else {
                "name another"
            },
            ..Failure::kernel(path.to_owned(), "a directory", errno)
        })?;
        let shown = if path == Path::new(".") {
            PathBuf::new()
        } else {
            path.to_owned()
        };
        Ok(Self {
            fd,
            path: shown,
            is_there: true,
        })
    }

    /// One that would be made.
    ///
    /// # Errors
    /// If there are too many open files.
    pub(super) fn absent(path: PathBuf) -> Result<Self, Failure> {
        // No directory, so that nothing is found in it.
        let nothing = rustix::fs::open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        match nothing {
            Ok(fd) => Ok(Self {
                fd,
                path,
                is_there: false,
            }),
            Err(errno) => Err(Failure::kernel(path, "a directory", errno)),
        }
    }

    /// Opens one that is in this one.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn enter(&self, name: &CStr, flags: OFlags) -> Result<Self, Errno> {
        if !self.is_there {
            return Err(Errno::NOENT);
        }
        let flags = flags | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty())?;
        Ok(Self {
            fd,
            path: self.at(name),
            is_there: true,
        })
    }

    /// The path of something in it, for messages.
    pub(crate) fn at(&self, name: &CStr) -> PathBuf {
        self.path.join(OsStr::from_bytes(name.to_bytes()))
    }

    /// Lets it go, where things come to be in it. Whoever is the last has their names on stable storage, if that was asked for: once for all of them.
    pub(crate) fn release(cx: &Context<'_>, folder: Arc<Self>) {
        let wanted = cx.order.sync && !cx.order.dry_run && !cx.stop.asked();
        let Some(last) = Arc::into_inner(folder).filter(|_| wanted) else {
            return;
        };
        if let Err(errno) = rustix::fs::fsync(&last.fd) {
            let expected = "to have what is in it on stable storage by name";
            cx.tell(&Failure::kernel(last.path, expected, errno));
        }
    }
}
