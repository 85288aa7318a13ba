//! Through a tree: directories are read a buffer at a time, and what is in them is done before more is read.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::context::Context;
use super::directory::{Dir, Ending, FILLING, Side};
use super::lane::Lane;
use super::large::Large;
use super::{begin, thing};
use crate::attributes::Facts;
use crate::error::Failure;
use crate::journal::NAMES_BYTES;
use crate::roots::Root;

/// Something to be done.
#[derive(Debug)]
pub(crate) enum Task {
    /// Begin a source.
    Root(Root),
    /// Open a directory and make its copy.
    Enter { parent: Arc<Dir>, name: CString },
    /// Read more of a directory.
    Read(Arc<Dir>),
    /// Copy what has these names.
    Files { dir: Arc<Dir>, entries: Vec<Entry> },
    /// Copy chunks of a file.
    Help(Arc<Large>),
}

/// A name in a directory of the source.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: Box<CStr>,
    /// Its name at the destination, where that is another.
    pub(crate) other: Option<Box<CStr>>,
    pub(crate) kind: FileType,
    /// Whether a user named it, so that a link to it is followed.
    pub(crate) named: bool,
    /// Whether it may be a hard link to another copy.
    pub(crate) linked: bool,
}

impl Entry {
    pub(crate) fn target(&self) -> &CStr {
        self.other.as_deref().unwrap_or(&self.name)
    }
}

/// Carries out a task; if we are to stop, it only lets go what the task holds.
pub(crate) fn carry_out<'c>(cx: &Context<'c>, lane: &mut Lane<'c>, task: Task) {
    let going_on = !cx.stop.asked();
    match task {
        Task::Root(root) if going_on => begin::begin(cx, lane, &root),
        Task::Root(_) => {}
        Task::Enter { parent, name } => {
            if going_on {
                match enter(cx, &parent, &name) {
                    Ok(dir) => cx.pool.push([Task::Read(Arc::new(dir))]),
                    Err(failure) => cx.fail(&parent.tree, &failure),
                }
            }
            Dir::release(cx, parent);
        }
        Task::Read(dir) => {
            let found = if going_on { read(cx, &dir) } else { Ok(()) };
            if let Err(errno) = found {
                cx.fail(
                    &dir.tree,
                    &Failure::kernel(
                        dir.path(Side::Source, c""),
                        "a directory that can be read",
                        errno,
                    ),
                );
            }
            Dir::release(cx, dir);
        }
        Task::Files { dir, entries } => {
            files(cx, lane, &dir, entries);
            Dir::release(cx, dir);
        }
        Task::Help(large) => large.help(cx, lane),
    }
}

/// Reads one buffer of names and puts them on the stack: files above directories above the rest of this one.
fn read(cx: &Context<'_>, dir: &Arc<Dir>) -> Result<(), Errno> {
    let mut buffer = Vec::with_capacity(NAMES_BYTES);
    let mut names = RawDir::new(&dir.source, buffer.spare_capacity_mut());
    let (mut folders, mut entries) = (Vec::new(), Vec::new());
    let mut ended = true;
    while let Some(entry) = names.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
        } else if entry.file_type() == FileType::Directory {
            folders.push(Task::Enter {
                parent: Arc::clone(dir),
                name: name.to_owned(),
            });
        } else {
            entries.push(Entry {
                name: name.into(),
                other: None,
                kind: entry.file_type(),
                named: false,
                linked: true,
            });
        }
        if names.is_buffer_empty() {
            ended = false;
            break;
        }
    }
    if !ended {
        cx.pool.push([Task::Read(Arc::clone(dir))]);
    }
    cx.pool.push(folders);
    // All to one worker: two that make names in one directory wait for each other. If there is nothing else to do it gives half away.
    let batch = Task::Files {
        dir: Arc::clone(dir),
        entries,
    };
    cx.pool.push([batch]);
    Ok(())
}

fn files<'c>(cx: &Context<'c>, lane: &mut Lane<'c>, dir: &Arc<Dir>, mut entries: Vec<Entry>) {
    while let Some(entry) = entries.pop() {
        if cx.stop.asked() {
            return;
        }
        if cx.pool.hungry() && entries.len() > 1 {
            let half = entries.split_off(entries.len() / 2);
            cx.pool.push([Task::Files {
                dir: Arc::clone(dir),
                entries: half,
            }]);
        }
        if let Err(failure) = thing::copy(cx, lane, dir, &entry) {
            cx.fail(&dir.tree, &failure);
        }
    }
}

/// Opens a directory of the source and its copy, which is made if it is not there.
fn enter(cx: &Context<'_>, parent: &Arc<Dir>, name: &CStr) -> Result<Dir, Failure> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if !cx.order.follow {
        flags |= OFlags::NOFOLLOW;
    }
    let at_source = |errno| {
        Failure::kernel(
            parent.path(Side::Source, name),
            "a directory that can be read",
            errno,
        )
    };
    let source =
        rustix::fs::openat(&parent.source, name, flags, Mode::empty()).map_err(at_source)?;
    let facts = Facts::from(rustix::fs::fstat(&source).map_err(at_source)?);
    refuse_circles(cx, parent, name, &facts)?;
    let (copy, fresh, mode) = match &parent.copy {
        Some(within) => {
            let at_copy = |errno| {
                Failure::kernel(
                    parent.path(Side::Copy, name),
                    "a directory, or a place for one",
                    errno,
                )
            };
            copy_of(cx, within, name, facts.mode).map_err(at_copy)?
        }
        None => (None, true, 0),
    };
    cx.totals.count(&cx.totals.directories);
    let ending = if copy.is_some() && !cx.order.dry_run {
        Ending::Finish { mode }
    } else {
        Ending::Nothing
    };
    Ok(Dir {
        tree: Arc::clone(&parent.tree),
        parent: Some(Arc::clone(parent)),
        name: name.into(),
        source,
        copy,
        facts,
        fresh,
        ending,
    })
}

/// Opens the copy of a directory: itself, whether it is new, and the mode that it would have without ours. None in a dry run that
/// would make it.
pub(crate) fn copy_of(
    cx: &Context<'_>,
    within: &OwnedFd,
    name: &CStr,
    mode: u32,
) -> Result<(Option<OwnedFd>, bool, u32), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fresh = if cx.order.dry_run {
        false
    } else {
        match rustix::fs::mkdirat(within, name, FILLING) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(errno),
        }
    };
    let copy = match rustix::fs::openat(within, name, flags, Mode::empty()) {
        Err(Errno::NOENT) if cx.order.dry_run => return Ok((None, true, 0)),
        other => other?,
    };
    let there = Facts::from(rustix::fs::fstat(&copy)?);
    let usual = if fresh {
        mode & 0o777 & !cx.umask
    } else {
        there.mode
    };
    if !cx.order.dry_run {
        open_up(&copy, &there)?;
    }
    Ok((Some(copy), fresh, usual))
}

/// Has the owner of a directory write to it, if that is us: a copy that was stopped, or one of a source that may not be written to.
pub(crate) fn open_up(copy: &OwnedFd, there: &Facts) -> Result<(), Errno> {
    let locked = there.mode & FILLING.as_raw_mode() != FILLING.as_raw_mode();
    if locked && there.uid == rustix::process::geteuid().as_raw() {
        rustix::fs::fchmod(copy, Mode::from_raw_mode(there.mode) | FILLING)?;
    }
    Ok(())
}

/// A directory that is the copy itself, or, through links, one that we are in.
fn refuse_circles(
    cx: &Context<'_>,
    parent: &Arc<Dir>,
    name: &CStr,
    facts: &Facts,
) -> Result<(), Failure> {
    let found = |what: &str, advice| {
        Err(Failure::found(
            parent.path(Side::Source, name),
            "a directory to be copied",
            what,
            advice,
        ))
    };
    if parent.tree.copy == Some(facts.id) {
        return found(
            "the copy itself, which is within its source",
            "name a destination outside of the source",
        );
    }
    let mut at = Some(parent).filter(|_| cx.order.follow);
    while let Some(dir) = at {
        if dir.facts.id == facts.id {
            return found(
                "one that it is in, through a link",
                "leave --follow out, or remove the link",
            );
        }
        at = dir.parent.as_ref();
    }
    Ok(())
}
