//! Hard links among the files of one tree: the first name is copied, the others become links to its copy.

use std::collections::HashMap;
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, FileType};
use rustix::io::Errno;

use super::context::LocalContext;
use super::directory::{CopySide, Dir, LocalTree};
use super::walk::{LocalTask, SourceEntry};
use crate::attributes::LocalMetadata;
use crate::error::Failure;
use crate::options::Existing;

/// Files with several hard links, by device and inode; dropped after the last name.
pub(crate) type HardLinks = HashMap<(u64, u64), HardLink>;

/// A file with several names.
#[derive(Debug)]
pub(crate) enum HardLink {
    /// One name is being copied; these wait for it.
    Busy(Vec<(Arc<Dir>, SourceEntry)>),
    /// Path of the copy, and the number of names that were not processed yet.
    Done(PathBuf, u64),
}

/// Action for one name of a file with several hard links.
#[derive(Debug)]
pub(crate) enum LinkClaim {
    /// Copy it; then [`finish_first`].
    First,
    /// Link it to this copy.
    LinkTo(PathBuf),
    /// Wait: it is linked after the copy of the first name.
    Wait,
}

/// Return the action for a name.
pub(crate) fn claim(dir: &Arc<Dir>, entry: &SourceEntry, metadata: &LocalMetadata) -> LinkClaim {
    let mut links = locked(&dir.tree);
    match links.get_mut(&metadata.id) {
        None => {
            links.insert(metadata.id, HardLink::Busy(Vec::new()));
            LinkClaim::First
        }
        Some(HardLink::Busy(waiting)) => {
            waiting.push((Arc::clone(dir), entry.clone()));
            LinkClaim::Wait
        }
        Some(HardLink::Done(path, leftover)) => {
            let path = path.clone();
            *leftover -= 1;
            if *leftover == 0 {
                links.remove(&metadata.id);
            }
            LinkClaim::LinkTo(path)
        }
    }
}

/// Record the copy of the first name (none if it failed) and continue the waiting names.
pub(crate) fn finish_first(
    cx: &LocalContext<'_>,
    dir: &Dir,
    metadata: &LocalMetadata,
    copy: Option<PathBuf>,
) {
    if metadata.links < 2 || !cx.order.preserve.links {
        return;
    }
    let waiting = {
        let mut links = locked(&dir.tree);
        let Some(HardLink::Busy(waiting)) = links.get_mut(&metadata.id) else {
            return;
        };
        let waiting = std::mem::take(waiting);
        links.remove(&metadata.id);
        // There can be more names than links if another program added a link during the copy.
        let leftover = (metadata.links - 1).saturating_sub(waiting.len() as u64);
        if let Some(path) = copy.as_ref().filter(|_| leftover > 0) {
            links.insert(metadata.id, HardLink::Done(path.clone(), leftover));
        }
        waiting
    };
    for (dir, entry) in waiting {
        match &copy {
            Some(path) => match make(cx, &dir, &entry, metadata, path) {
                Ok(true) => Dir::release(cx, dir),
                Ok(false) => again(cx, dir, entry, false),
                Err(failure) => {
                    cx.fail(&dir.tree, &failure);
                    Dir::release(cx, dir);
                }
            },
            // The next name may succeed.
            None => again(cx, dir, entry, true),
        }
    }
}

fn again(cx: &LocalContext<'_>, dir: Arc<Dir>, entry: SourceEntry, linked: bool) {
    let entry = SourceEntry { linked, ..entry };
    cx.pool.push([LocalTask::Files {
        dir,
        entries: vec![entry],
    }]);
}

/// Create a hard link to a copy. False if the name must be copied separately: no support, or an existing entry must
/// stay.
pub(crate) fn make(
    cx: &LocalContext<'_>,
    dir: &Dir,
    entry: &SourceEntry,
    metadata: &LocalMetadata,
    copy: &std::path::Path,
) -> Result<bool, Failure> {
    let target = entry.target();
    let failure = |errno| {
        Failure::kernel(
            dir.path(CopySide::Copy, target),
            format!("to create a hard link to {}", copy.display()),
            errno,
        )
    };
    let first = match rustix::fs::statat(CWD, copy, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(first) => first,
        Err(Errno::NAMETOOLONG) => return Ok(false),
        Err(errno) => return Err(failure(errno)),
    };
    let existing = rustix::fs::statat(dir.to(), target, AtFlags::SYMLINK_NOFOLLOW);
    if let Ok(existing) = existing {
        if (existing.st_dev, existing.st_ino) == (first.st_dev, first.st_ino) {
            cx.skipped_file(dir, target, metadata.size);
            return Ok(true);
        }
        let kind = FileType::from_raw_mode(existing.st_mode);
        let replaced = matches!(kind, FileType::RegularFile | FileType::Symlink);
        if cx.order.existing == Existing::Keep || !replaced {
            return Ok(false);
        }
    }
    let part = dir.tree.token.part(target.to_bytes());
    match link(dir, copy, &part) {
        Ok(()) => {}
        Err(Errno::MLINK | Errno::NAMETOOLONG | Errno::XDEV | Errno::OPNOTSUPP | Errno::PERM) => {
            return Ok(false);
        }
        Err(errno) => return Err(failure(errno)),
    }
    super::file::rename(cx, dir, &part, target)?;
    cx.linked(dir, target);
    Ok(true)
}

fn link(dir: &Dir, copy: &std::path::Path, part: &CStr) -> Result<(), Errno> {
    match rustix::fs::linkat(CWD, copy, dir.to(), part, AtFlags::empty()) {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(dir.to(), part, AtFlags::empty())?;
            rustix::fs::linkat(CWD, copy, dir.to(), part, AtFlags::empty())
        }
        other => other,
    }
}

fn locked(tree: &LocalTree) -> MutexGuard<'_, HardLinks> {
    tree.links.lock().unwrap_or_else(PoisonError::into_inner)
}
