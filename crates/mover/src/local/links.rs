//! Hard links among the files of one tree: the first name is copied, the others become links to its copy.

use std::collections::HashMap;
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, FileType};
use rustix::io::Errno;

use super::context::Context;
use super::directory::{Dir, Side, Tree};
use super::walk::{Entry, Task};
use crate::attributes::Facts;
use crate::error::Failure;
use crate::order::Existing;

/// What is known of files with several names, by device and inode; forgotten when all names were seen.
pub(crate) type Links = HashMap<(u64, u64), Link>;

/// A file with several names.
#[derive(Debug)]
pub(crate) enum Link {
    /// One name is being copied; these wait for it.
    Busy(Vec<(Arc<Dir>, Entry)>),
    /// It was copied to this path; so many names were not seen yet.
    Done(PathBuf, u64),
}

/// What to do with a name of a file that has several.
#[derive(Debug)]
pub(crate) enum Claim {
    /// Copy it; then [`settle`].
    First,
    /// Link it to this copy.
    Like(PathBuf),
    /// Nothing: it will be linked when the first is copied.
    Wait,
}

/// Says what to do with a name.
pub(crate) fn claim(dir: &Arc<Dir>, entry: &Entry, facts: &Facts) -> Claim {
    let mut links = locked(&dir.tree);
    match links.get_mut(&facts.id) {
        None => {
            links.insert(facts.id, Link::Busy(Vec::new()));
            Claim::First
        }
        Some(Link::Busy(waiting)) => {
            waiting.push((Arc::clone(dir), entry.clone()));
            Claim::Wait
        }
        Some(Link::Done(path, left)) => {
            let path = path.clone();
            *left -= 1;
            if *left == 0 {
                links.remove(&facts.id);
            }
            Claim::Like(path)
        }
    }
}

/// Says that the first name is there (or, without a path, that it is not), and sees to those that wait.
pub(crate) fn settle(cx: &Context<'_>, dir: &Dir, facts: &Facts, copy: Option<PathBuf>) {
    if facts.links < 2 || !cx.order.preserve.links {
        return;
    }
    let waiting = {
        let mut links = locked(&dir.tree);
        let Some(Link::Busy(waiting)) = links.get_mut(&facts.id) else {
            return;
        };
        let waiting = std::mem::take(waiting);
        links.remove(&facts.id);
        // More waiting than there were links: somebody made another meanwhile.
        let left = (facts.links - 1).saturating_sub(waiting.len() as u64);
        if let Some(path) = copy.as_ref().filter(|_| left > 0) {
            links.insert(facts.id, Link::Done(path.clone(), left));
        }
        waiting
    };
    for (dir, entry) in waiting {
        match &copy {
            Some(path) => match make(cx, &dir, &entry, facts, path) {
                Ok(true) => Dir::release(cx, dir),
                Ok(false) => again(cx, dir, entry, false),
                Err(failure) => {
                    cx.fail(&dir.tree, &failure);
                    Dir::release(cx, dir);
                }
            },
            // The next may be luckier.
            None => again(cx, dir, entry, true),
        }
    }
}

fn again(cx: &Context<'_>, dir: Arc<Dir>, entry: Entry, linked: bool) {
    let entry = Entry { linked, ..entry };
    cx.pool.push([Task::Files {
        dir,
        entries: vec![entry],
    }]);
}

/// Links a name to a copy. False if the name is to be seen to apart: the file system does not, or something is there that is not to be replaced.
pub(crate) fn make(
    cx: &Context<'_>,
    dir: &Dir,
    entry: &Entry,
    facts: &Facts,
    copy: &std::path::Path,
) -> Result<bool, Failure> {
    let target = entry.target();
    let failure = |errno| {
        Failure::kernel(
            dir.path(Side::Copy, target),
            format!("to be made a hard link to {}", copy.display()),
            errno,
        )
    };
    let first = match rustix::fs::statat(CWD, copy, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(first) => first,
        Err(Errno::NAMETOOLONG) => return Ok(false),
        Err(errno) => return Err(failure(errno)),
    };
    let there = rustix::fs::statat(dir.to(), target, AtFlags::SYMLINK_NOFOLLOW);
    if let Ok(there) = there {
        if (there.st_dev, there.st_ino) == (first.st_dev, first.st_ino) {
            cx.kept(dir, target, facts.size);
            return Ok(true);
        }
        let kind = FileType::from_raw_mode(there.st_mode);
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

fn locked(tree: &Tree) -> MutexGuard<'_, Links> {
    tree.links.lock().unwrap_or_else(PoisonError::into_inner)
}
