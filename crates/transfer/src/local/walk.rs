//! Walk through a tree: directories are read one buffer at a time, and their entries are processed before the next
//! buffer.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::context::LocalContext;
use super::copy_bytes::FileCopier;
use super::directory::{CopySide, Dir, DirEnding, FILLING};
use super::large::LargeCopy;
use super::{source, special};
use crate::attributes::LocalMetadata;
use crate::error::Failure;
use crate::journal::NAMES_BYTES;
use crate::roots::Root;

/// Unit of work.
#[derive(Debug)]
pub(crate) enum LocalTask {
    /// Start a source.
    Root(Root),
    /// Open a directory and create its copy.
    Enter { parent: Arc<Dir>, name: CString },
    /// Read more of a directory.
    Read(Arc<Dir>),
    /// Copy these entries.
    Files {
        dir: Arc<Dir>,
        entries: Vec<SourceEntry>,
    },
    /// Copy chunks of a file.
    Help(Arc<LargeCopy>),
}

/// Name in a directory of the source.
#[derive(Debug, Clone)]
pub(crate) struct SourceEntry {
    pub(crate) name: Box<CStr>,
    /// Its name at the destination, if different.
    pub(crate) other: Option<Box<CStr>>,
    pub(crate) kind: FileType,
    /// True if the user named it, so links to it are followed.
    pub(crate) named: bool,
    /// True if it may be a hard link to another copy.
    pub(crate) linked: bool,
}

impl SourceEntry {
    pub(crate) fn target(&self) -> &CStr {
        self.other.as_deref().unwrap_or(&self.name)
    }
}

/// Execute a task; after a stop, only release its resources.
pub(crate) fn execute<'c>(cx: &LocalContext<'c>, copier: &mut FileCopier<'c>, task: LocalTask) {
    let resuming = !cx.stop.is_cancelled();
    match task {
        LocalTask::Root(root) if resuming => source::start(cx, copier, &root),
        LocalTask::Root(_) => {}
        LocalTask::Enter { parent, name } => {
            if resuming {
                match enter(cx, &parent, &name) {
                    Ok(dir) => cx.pool.push([LocalTask::Read(Arc::new(dir))]),
                    Err(failure) => cx.fail(&parent.tree, &failure),
                }
            }
            Dir::release(cx, parent);
        }
        LocalTask::Read(dir) => {
            let found = if resuming { read(cx, &dir) } else { Ok(()) };
            if let Err(errno) = found {
                cx.fail(
                    &dir.tree,
                    &Failure::kernel(
                        dir.path(CopySide::Source, c""),
                        "a readable directory",
                        errno,
                    ),
                );
            }
            Dir::release(cx, dir);
        }
        LocalTask::Files { dir, entries } => {
            files(cx, copier, &dir, entries);
            Dir::release(cx, dir);
        }
        LocalTask::Help(large) => large.help(cx, copier),
    }
}

/// Read one buffer of names and push them on the stack: files above directories above the rest of
/// this directory.
fn read(cx: &LocalContext<'_>, dir: &Arc<Dir>) -> Result<(), Errno> {
    let mut buffer = Vec::with_capacity(NAMES_BYTES);
    let mut names = RawDir::new(&dir.source, buffer.spare_capacity_mut());
    let (mut directories, mut entries) = (Vec::new(), Vec::new());
    let mut ended = true;
    while let Some(entry) = names.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
        } else if entry.file_type() == FileType::Directory {
            directories.push(LocalTask::Enter {
                parent: Arc::clone(dir),
                name: name.to_owned(),
            });
        } else {
            entries.push(SourceEntry {
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
        cx.pool.push([LocalTask::Read(Arc::clone(dir))]);
    }
    cx.pool.push(directories);
    // All files go to one worker, because two workers in one directory wait for each other. If
    // workers are idle, it hands over half of them.
    let batch = LocalTask::Files {
        dir: Arc::clone(dir),
        entries,
    };
    cx.pool.push([batch]);
    Ok(())
}

fn files<'c>(
    cx: &LocalContext<'c>,
    copier: &mut FileCopier<'c>,
    dir: &Arc<Dir>,
    mut entries: Vec<SourceEntry>,
) {
    while let Some(entry) = entries.pop() {
        if cx.stop.is_cancelled() {
            return;
        }
        if cx.pool.hungry() && entries.len() > 1 {
            let half = entries.split_off(entries.len() / 2);
            cx.pool.push([LocalTask::Files {
                dir: Arc::clone(dir),
                entries: half,
            }]);
        }
        if let Err(failure) = special::copy(cx, copier, dir, &entry) {
            cx.fail(&dir.tree, &failure);
        }
    }
}

/// Open a directory of the source and its copy, which is created if missing.
fn enter(cx: &LocalContext<'_>, parent: &Arc<Dir>, name: &CStr) -> Result<Dir, Failure> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if !cx.order.follow {
        flags |= OFlags::NOFOLLOW;
    }
    let at_source = |errno| {
        Failure::kernel(
            parent.path(CopySide::Source, name),
            "a readable directory",
            errno,
        )
    };
    let source =
        rustix::fs::openat(&parent.source, name, flags, Mode::empty()).map_err(at_source)?;
    let metadata = LocalMetadata::from(rustix::fs::fstat(&source).map_err(at_source)?);
    reject_cycles(cx, parent, name, &metadata)?;
    let (copy, fresh, mode) = match &parent.copy {
        Some(within) => {
            let at_copy = |errno| {
                Failure::kernel(
                    parent.path(CopySide::Copy, name),
                    "a directory or a free name",
                    errno,
                )
            };
            open_copy(cx, within, name, metadata.mode).map_err(at_copy)?
        }
        None => (None, true, 0),
    };
    cx.totals.count(&cx.totals.directories);
    let ending = if copy.is_some() && !cx.order.dry_run {
        DirEnding::Finish { mode }
    } else {
        DirEnding::Nothing
    };
    Ok(Dir {
        tree: Arc::clone(&parent.tree),
        parent: Some(Arc::clone(parent)),
        name: name.into(),
        source,
        copy,
        metadata,
        fresh,
        ending,
    })
}

/// Open the copy of a directory. Return it, whether it is new, and its usual mode. None in a dry run that would
/// create it.
pub(crate) fn open_copy(
    cx: &LocalContext<'_>,
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
    let existing = LocalMetadata::from(rustix::fs::fstat(&copy)?);
    let usual = if fresh {
        mode & 0o777 & !cx.umask
    } else {
        existing.mode
    };
    if !cx.order.dry_run {
        make_writable(&copy, &existing)?;
    }
    Ok((Some(copy), fresh, usual))
}

/// Make a directory writable for its owner, if that is the user: it may come from an interrupted
/// copy, or from a read-only source.
pub(crate) fn make_writable(copy: &OwnedFd, existing: &LocalMetadata) -> Result<(), Errno> {
    let locked = existing.mode & FILLING.as_raw_mode() != FILLING.as_raw_mode();
    if locked && existing.uid == rustix::process::geteuid().as_raw() {
        rustix::fs::fchmod(copy, Mode::from_raw_mode(existing.mode) | FILLING)?;
    }
    Ok(())
}

/// Reject the copy itself, or a parent directory through a link.
fn reject_cycles(
    cx: &LocalContext<'_>,
    parent: &Arc<Dir>,
    name: &CStr,
    metadata: &LocalMetadata,
) -> Result<(), Failure> {
    let found = |problem: &str, advice| {
        Err(Failure::found(
            parent.path(CopySide::Source, name),
            "a directory outside of the copy",
            problem,
            advice,
        ))
    };
    if parent.tree.copy == Some(metadata.id) {
        return found(
            "the copy itself, inside its source",
            "choose a destination outside of the source",
        );
    }
    let mut at = Some(parent).filter(|_| cx.order.follow);
    while let Some(dir) = at {
        if dir.metadata.id == metadata.id {
            return found(
                "a parent directory, through a link",
                "remove --follow, or delete the link",
            );
        }
        at = dir.parent.as_ref();
    }
    Ok(())
}
