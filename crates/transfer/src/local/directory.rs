//! Open directory of the source and its copy, and the tree of both.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::context::LocalContext;
use super::copy_bytes::CopyMethods;
use super::links::HardLinks;
use crate::attributes::{self, LocalMetadata};
use crate::error::Failure;
use crate::journal::{self, Journal};
use crate::temporary::Token;

/// State that all directories of a root share.
#[derive(Debug)]
pub(crate) struct LocalTree {
    pub(crate) token: Token,
    /// Names in messages: the root, or the parent directory of a single file.
    pub(crate) source: PathBuf,
    pub(crate) destination: PathBuf,
    /// Identity of the copy of the root, which must not be copied itself.
    pub(crate) copy: Option<(u64, u64)>,
    pub(crate) methods: CopyMethods,
    pub(crate) links: Mutex<HardLinks>,
    /// Journal; none for a single file, which needs none.
    pub(crate) journal: Mutex<Option<Journal>>,
    /// True if size and time prove that a file is complete.
    pub(crate) reliable: bool,
    pub(crate) failures: AtomicU64,
}

/// Directory of the source and its copy. It is finished when its last owner releases it
/// ([`Dir::release`]).
#[derive(Debug)]
pub(crate) struct Dir {
    pub(crate) tree: Arc<LocalTree>,
    pub(crate) parent: Option<Arc<Dir>>,
    /// Its name in its parent; empty for the root.
    pub(crate) name: Box<CStr>,
    pub(crate) source: OwnedFd,
    /// Open copy; none in a dry run that would create it.
    pub(crate) copy: Option<OwnedFd>,
    pub(crate) metadata: LocalMetadata,
    /// True if this copy created the directory, so it has no other entries.
    pub(crate) fresh: bool,
    /// Final attributes of the copy.
    pub(crate) ending: DirEnding,
}

/// Completion of a copied directory.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DirEnding {
    /// No completion: the directory contains a single copied file, or this is a dry run.
    Nothing,
    /// Set the attributes of the source, or this mode if they are not preserved.
    Finish {
        /// Original or default mode.
        mode: u32,
    },
}

/// The two sides of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopySide {
    Source,
    Copy,
}

impl LocalTree {
    pub(crate) fn new(
        token: Token,
        source: PathBuf,
        destination: PathBuf,
        methods: CopyMethods,
    ) -> Self {
        Self {
            token,
            source,
            destination,
            copy: None,
            methods,
            links: Mutex::new(HashMap::new()),
            journal: Mutex::new(None),
            reliable: true,
            failures: AtomicU64::new(0),
        }
    }
}

impl Dir {
    /// Return the copy for writing.
    ///
    /// # Panics
    /// In a dry run, which writes no data.
    pub(crate) fn to(&self) -> BorrowedFd<'_> {
        self.copy
            .as_ref()
            .expect("only a dry run has none, and it writes nothing")
            .as_fd()
    }

    /// Return the path of an entry, for messages.
    pub(crate) fn path(&self, side: CopySide, name: &CStr) -> PathBuf {
        let mut names = vec![name];
        let mut at = Some(self);
        while let Some(dir) = at {
            names.push(&dir.name);
            at = dir.parent.as_deref();
        }
        let mut path = match side {
            CopySide::Source => self.tree.source.clone(),
            CopySide::Copy => self.tree.destination.clone(),
        };
        let named = names.into_iter().rev().filter(|name| !name.is_empty());
        named.for_each(|name| path.push(OsStr::from_bytes(name.to_bytes())));
        path
    }

    /// Return the path of an entry of the copy, or an empty path if not needed, because building it
    /// costs memory.
    pub(crate) fn path_if(&self, needed: bool, name: &CStr) -> PathBuf {
        if needed {
            self.path(CopySide::Copy, name)
        } else {
            PathBuf::new()
        }
    }

    /// Release a directory. The last owner finishes it and releases its parent.
    pub(crate) fn release(cx: &LocalContext<'_>, dir: Arc<Self>) {
        let mut next = Some(dir);
        // A loop instead of a recursion, because a tree may be deeper than a stack.
        while let Some(dir) = next.take() {
            if let Some(last) = Arc::into_inner(dir) {
                // A resumed copy must be able to write to it.
                if !cx.stop.is_cancelled() {
                    last.finish(cx);
                }
                next = last.parent;
            }
        }
    }

    fn finish(&self, cx: &LocalContext<'_>) {
        let ended = match self.ending {
            DirEnding::Nothing => Ok(()),
            DirEnding::Finish { mode } => self
                .close_journal()
                .and_then(|()| self.apply_metadata(cx, mode)),
        };
        if let Err(failure) = ended.and_then(|()| self.sync_name(cx)) {
            cx.fail(&self.tree, &failure);
        }
    }

    /// Write the name of a copied root to stable storage, which is in a directory outside of the copy.
    fn sync_name(&self, cx: &LocalContext<'_>) -> Result<(), Failure> {
        let length = cx.order.sync && !cx.order.dry_run && self.parent.is_none();
        let Some(copy) = self.copy.as_ref().filter(|_| length) else {
            return Ok(());
        };
        let synced = match self.ending {
            DirEnding::Nothing => rustix::fs::fsync(copy),
            DirEnding::Finish { .. } => {
                match rustix::fs::openat(copy, c"..", DIRECTORY, Mode::empty()) {
                    // A directory with a newly created name is readable.
                    Err(Errno::ACCESS) => Ok(()),
                    parent => parent.and_then(rustix::fs::fsync),
                }
            }
        };
        synced.map_err(|errno| {
            let path = self.path(CopySide::Copy, c"");
            Failure::kernel(path, "to write its name to stable storage", errno)
        })
    }

    /// Remove the journal of a root if all entries are complete.
    fn close_journal(&self) -> Result<(), Failure> {
        if self.parent.is_some() || self.tree.failures.load(Ordering::Relaxed) > 0 {
            return Ok(());
        }
        let journal = self
            .tree
            .journal
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        let closed = journal.map_or(Ok(()), |journal| journal.close(self.to()));
        closed.map_err(|errno| journal::stays(self.path(CopySide::Copy, c""), errno))
    }

    fn apply_metadata(&self, cx: &LocalContext<'_>, mode: u32) -> Result<(), Failure> {
        let failure = |expected| {
            move |errno| Failure::kernel(self.path(CopySide::Copy, c""), expected, errno)
        };
        let copy = self.to();
        let made = rustix::fs::fstat(copy).map_err(failure("to read its metadata"))?;
        let preserve = cx.order.preserve;
        let mode = if preserve.mode {
            self.metadata.mode
        } else {
            mode
        };
        attributes::apply(
            self.source.as_fd(),
            copy,
            &self.metadata,
            &made.into(),
            preserve,
            mode,
        )
        .map_err(|unset| Failure::unset(self.path(CopySide::Copy, c""), unset))?;
        if cx.order.sync {
            rustix::fs::fsync(copy).map_err(failure("to write it to stable storage"))?;
        }
        Ok(())
    }
}

/// Flags to open a directory.
pub(crate) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// Mode of a directory while its entries are copied.
pub(crate) const FILLING: Mode = Mode::RWXU;
