//! A directory of the source and its copy, both open; and the tree that it belongs to.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::context::Context;
use super::lane::Ways;
use super::links::Links;
use crate::attributes::{self, Facts};
use crate::error::Failure;
use crate::journal::{self, Journal};
use crate::temporary::Token;

/// What all directories of one root share.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) token: Token,
    /// What directories are called in messages: the root's, or that which a single file is in.
    pub(crate) source: PathBuf,
    pub(crate) destination: PathBuf,
    /// The copy of the root, which must not be copied itself.
    pub(crate) copy: Option<(u64, u64)>,
    pub(crate) ways: Ways,
    pub(crate) links: Mutex<Links>,
    /// None for a single file, which needs none.
    pub(crate) journal: Mutex<Option<Journal>>,
    /// Whether files under their own names are whole if size and time say so.
    pub(crate) reliable: bool,
    pub(crate) failures: AtomicU64,
}

/// A directory of the source and its copy. It is finished when the last that is in it lets it go ([`Dir::release`]).
#[derive(Debug)]
pub(crate) struct Dir {
    pub(crate) tree: Arc<Tree>,
    pub(crate) parent: Option<Arc<Dir>>,
    /// Its name in its parent; empty for the first.
    pub(crate) name: Box<CStr>,
    pub(crate) source: OwnedFd,
    /// None where there is none and a dry run makes none.
    pub(crate) copy: Option<OwnedFd>,
    pub(crate) facts: Facts,
    /// Whether the copy was made by us and so has nothing that we did not put there.
    pub(crate) fresh: bool,
    /// What the copy gets at the end.
    pub(crate) ending: Ending,
}

/// What becomes of the copy of a directory when all is in it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ending {
    /// It is not a copy: a single file is in it, or this is a dry run.
    Nothing,
    /// It gets what its source has, or, where that is not kept, this mode.
    Finish {
        /// That it had, or would have had.
        mode: u32,
    },
}

/// The two sides of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Copy,
}

impl Tree {
    pub(crate) fn new(token: Token, source: PathBuf, destination: PathBuf, ways: Ways) -> Self {
        Self {
            token,
            source,
            destination,
            copy: None,
            ways,
            links: Mutex::new(HashMap::new()),
            journal: Mutex::new(None),
            reliable: true,
            failures: AtomicU64::new(0),
        }
    }
}

impl Dir {
    /// The copy, for whoever writes to it.
    ///
    /// # Panics
    /// In a dry run, which writes nothing.
    pub(crate) fn to(&self) -> BorrowedFd<'_> {
        self.copy
            .as_ref()
            .expect("only a dry run has none, and it writes nothing")
            .as_fd()
    }

    /// The path of something in it, for messages.
    pub(crate) fn path(&self, side: Side, name: &CStr) -> PathBuf {
        let mut names = vec![name];
        let mut at = Some(self);
        while let Some(dir) = at {
            names.push(&dir.name);
            at = dir.parent.as_deref();
        }
        let mut path = match side {
            Side::Source => self.tree.source.clone(),
            Side::Copy => self.tree.destination.clone(),
        };
        let named = names.into_iter().rev().filter(|name| !name.is_empty());
        named.for_each(|name| path.push(OsStr::from_bytes(name.to_bytes())));
        path
    }

    /// The path of something in its copy, where it is needed: putting it together costs memory.
    pub(crate) fn path_if(&self, needed: bool, name: &CStr) -> PathBuf {
        if needed {
            self.path(Side::Copy, name)
        } else {
            PathBuf::new()
        }
    }

    /// Lets a directory go. Whoever is the last finishes it, and lets its parent go.
    pub(crate) fn release(cx: &Context<'_>, dir: Arc<Self>) {
        let mut next = Some(dir);
        // A loop and no recursion: a tree may be deeper than a stack.
        while let Some(dir) = next.take() {
            if let Some(last) = Arc::into_inner(dir) {
                // Who resumes must be able to write to it.
                if !cx.stop.asked() {
                    last.finish(cx);
                }
                next = last.parent;
            }
        }
    }

    fn finish(&self, cx: &Context<'_>) {
        let ended = match self.ending {
            Ending::Nothing => Ok(()),
            Ending::Finish { mode } => self.end_tree().and_then(|()| self.give(cx, mode)),
        };
        if let Err(failure) = ended.and_then(|()| self.sync_name(cx)) {
            cx.fail(&self.tree, &failure);
        }
    }

    /// Has the name of what was copied, if this is its root, on stable storage as well: that is in a directory which is no copy.
    fn sync_name(&self, cx: &Context<'_>) -> Result<(), Failure> {
        let wanted = cx.order.sync && !cx.order.dry_run && self.parent.is_none();
        let Some(copy) = self.copy.as_ref().filter(|_| wanted) else {
            return Ok(());
        };
        let synced = match self.ending {
            Ending::Nothing => rustix::fs::fsync(copy),
            Ending::Finish { .. } => match rustix::fs::openat(copy, c"..", FOLDER, Mode::empty()) {
                // One that we have made the name in can be read.
                Err(Errno::ACCESS) => Ok(()),
                parent => parent.and_then(rustix::fs::fsync),
            },
        };
        synced.map_err(|errno| {
            let path = self.path(Side::Copy, c"");
            Failure::kernel(path, "to have its name on stable storage", errno)
        })
    }

    /// Takes away what an unfinished tree has, if this is its root and all is there.
    fn end_tree(&self) -> Result<(), Failure> {
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
        closed.map_err(|errno| journal::stays(self.path(Side::Copy, c""), errno))
    }

    fn give(&self, cx: &Context<'_>, mode: u32) -> Result<(), Failure> {
        let failure =
            |expected| move |errno| Failure::kernel(self.path(Side::Copy, c""), expected, errno);
        let copy = self.to();
        let made = rustix::fs::fstat(copy).map_err(failure("to see it"))?;
        let preserve = cx.order.preserve;
        let mode = if preserve.mode { self.facts.mode } else { mode };
        attributes::give(
            self.source.as_fd(),
            copy,
            &self.facts,
            &made.into(),
            preserve,
            mode,
        )
        .map_err(|unset| Failure::unset(self.path(Side::Copy, c""), unset))?;
        if cx.order.sync {
            rustix::fs::fsync(copy).map_err(failure("to have it on stable storage"))?;
        }
        Ok(())
    }
}

/// How a directory is opened.
pub(crate) const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// The mode of a directory that is being filled.
pub(crate) const FILLING: Mode = Mode::RWXU;
