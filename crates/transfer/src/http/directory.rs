//! Local directory that contains sources or copies.

use std::ffi::{CStr, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::work::HttpContext;
use crate::error::Failure;

/// Open local directory and its name in messages.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    pub(crate) fd: OwnedFd,
    pub(crate) path: PathBuf,
    /// False if a dry run would create it; it has no entries then.
    pub(crate) exists: bool,
}

impl OpenDirectory {
    /// Open a directory by its path; the empty path is the current directory.
    ///
    /// # Errors
    /// Unreadable, or not a directory.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| Failure {
            advice: if errno == Errno::NOENT {
                "create it, or add --mkpath"
            } else {
                "choose another path"
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
            exists: true,
        })
    }

    /// Return a directory that a dry run would create.
    ///
    /// # Errors
    /// Too many open files.
    pub(super) fn absent(path: PathBuf) -> Result<Self, Failure> {
        // Not a directory, so no name is found in it.
        let nothing = rustix::fs::open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        match nothing {
            Ok(fd) => Ok(Self {
                fd,
                path,
                exists: false,
            }),
            Err(errno) => Err(Failure::kernel(path, "a directory", errno)),
        }
    }

    /// Open a subdirectory.
    ///
    /// # Errors
    /// Kernel errors.
    pub(crate) fn enter(&self, name: &CStr, flags: OFlags) -> Result<Self, Errno> {
        if !self.exists {
            return Err(Errno::NOENT);
        }
        let flags = flags | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty())?;
        Ok(Self {
            fd,
            path: self.at(name),
            exists: true,
        })
    }

    /// Return the path of an entry, for messages.
    pub(crate) fn at(&self, name: &CStr) -> PathBuf {
        self.path.join(OsStr::from_bytes(name.to_bytes()))
    }

    /// Release a directory. The last owner writes its entries to stable storage once, if `--sync` is set.
    pub(crate) fn release(cx: &HttpContext<'_>, directory: Arc<Self>) {
        let requested = cx.order.sync && !cx.order.dry_run && !cx.stop.is_cancelled();
        let Some(last) = Arc::into_inner(directory).filter(|_| requested) else {
            return;
        };
        if let Err(errno) = rustix::fs::fsync(&last.fd) {
            let expected = "to write its entries to stable storage";
            cx.report_failure(&Failure::kernel(last.path, expected, errno));
        }
    }
}
