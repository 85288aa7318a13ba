//! Whatever has a name in a directory: files go on elsewhere; links, pipes, sockets and devices, which have no content, are made here.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use super::context::Context;
use super::directory::{Dir, Side};
use super::lane::Lane;
use super::walk::{Entry, Task};
use super::{file, judge};
use crate::attributes::{self, Facts};
use crate::error::Failure;
use crate::order::Existing;

/// Copies whatever has a name.
pub(crate) fn copy<'c>(
    cx: &Context<'c>,
    lane: &mut Lane<'c>,
    dir: &Arc<Dir>,
    entry: &Entry,
) -> Result<(), Failure> {
    let follow = cx.order.follow || entry.named;
    let unclear = entry.kind == FileType::Unknown || (entry.kind == FileType::Symlink && follow);
    let kind = if unclear {
        see(dir, entry, follow)?.kind
    } else {
        entry.kind
    };
    match kind {
        FileType::RegularFile => file::copy(cx, lane, dir, entry),
        FileType::Directory => {
            cx.pool.push([Task::Enter {
                parent: Arc::clone(dir),
                name: (*entry.name).to_owned(),
            }]);
            Ok(())
        }
        FileType::Symlink => link(cx, dir, entry),
        _ => special(cx, dir, entry, see(dir, entry, follow)?),
    }
}

fn see(dir: &Dir, entry: &Entry, follow: bool) -> Result<Facts, Failure> {
    let flags = if follow {
        AtFlags::empty()
    } else {
        AtFlags::SYMLINK_NOFOLLOW
    };
    let facts = rustix::fs::statat(&dir.source, &*entry.name, flags);
    facts.map(Facts::from).map_err(|errno| {
        let path = dir.path(Side::Source, &entry.name);
        let failure = Failure::kernel(path, "to see what it is", errno);
        if follow && entry.kind == FileType::Symlink {
            let advice = "mend the link, or leave --follow out";
            return Failure { advice, ..failure };
        }
        failure
    })
}

fn link(cx: &Context<'_>, dir: &Dir, entry: &Entry) -> Result<(), Failure> {
    let at_source = |errno| {
        Failure::kernel(
            dir.path(Side::Source, &entry.name),
            "a link that can be read",
            errno,
        )
    };
    let points_to =
        rustix::fs::readlinkat(&dir.source, &*entry.name, Vec::new()).map_err(at_source)?;
    if is_there(cx, dir, entry, FileType::Symlink, |copy| {
        rustix::fs::readlinkat(copy, entry.target(), Vec::new())
            .is_ok_and(|there| there == points_to)
    })? {
        return Ok(());
    }
    let facts = see(dir, entry, false)?;
    make(cx, dir, entry, "link", &facts, |copy, part| {
        rustix::fs::symlinkat(points_to.as_c_str(), copy, part)
    })
}

fn special(cx: &Context<'_>, dir: &Dir, entry: &Entry, facts: Facts) -> Result<(), Failure> {
    if !cx.order.preserve.special {
        let reason = format!(
            "{} (--preserve special makes one)",
            judge::special(facts.kind)
        );
        cx.left_out(dir, &entry.name, &reason);
        return Ok(());
    }
    let same = |copy: &OwnedFd| {
        let there =
            rustix::fs::statat(copy, entry.target(), AtFlags::SYMLINK_NOFOLLOW).map(Facts::from);
        there.is_ok_and(|there| (there.kind, there.device) == (facts.kind, facts.device))
    };
    if is_there(cx, dir, entry, facts.kind, same)? {
        return Ok(());
    }
    let mode = Mode::from_raw_mode(facts.mode);
    make(cx, dir, entry, "special", &facts, |copy, part| {
        rustix::fs::mknodat(copy, part, facts.kind, mode, facts.device as _)
    })
}

/// Whether what is there may be replaced. A pipe or a device may by one, which was asked for.
fn replaces(kind: FileType, there: FileType) -> bool {
    kind != FileType::Symlink || matches!(there, FileType::RegularFile | FileType::Symlink)
}

/// Whether something without content is at the destination already, or is to be left.
fn is_there(
    cx: &Context<'_>,
    dir: &Dir,
    entry: &Entry,
    kind: FileType,
    same: impl Fn(&OwnedFd) -> bool,
) -> Result<bool, Failure> {
    let (false, Some(copy)) = (dir.fresh, &dir.copy) else {
        return Ok(false);
    };
    let there = match rustix::fs::statat(copy, entry.target(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => Facts::from(there),
        Err(_) => return Ok(false),
    };
    let found = |what, advice| {
        let path = dir.path(Side::Copy, entry.target());
        Err(Failure::found(path, "a link or nothing", what, advice))
    };
    if there.kind == FileType::Directory {
        return found("a directory", "remove it, or name another destination");
    }
    let kept = match cx.order.existing {
        Existing::Keep => true,
        Existing::Update => same(copy),
        Existing::Replace => false,
    };
    if kept {
        cx.kept(dir, entry.target(), 0);
    } else if !replaces(kind, there.kind) {
        return found(judge::special(there.kind), judge::OTHERS_USE_IT);
    }
    Ok(kept)
}

/// Makes something without content, under a temporary name first.
fn make(
    cx: &Context<'_>,
    dir: &Dir,
    entry: &Entry,
    outcome: &str,
    facts: &Facts,
    create: impl Fn(&OwnedFd, &CStr) -> Result<(), Errno>,
) -> Result<(), Failure> {
    let Some(copy) = dir.copy.as_ref().filter(|_| !cx.order.dry_run) else {
        cx.made(dir, entry.target(), outcome);
        return Ok(());
    };
    let part = dir.tree.token.part(entry.target().to_bytes());
    let path = || dir.path(Side::Copy, entry.target());
    let created = match create(copy, &part) {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(copy, &part, AtFlags::empty()).and_then(|()| create(copy, &part))
        }
        other => other,
    };
    created.map_err(|errno| Failure::kernel(path(), "to be made", errno))?;
    attributes::give_unopened(dir.to(), &part, facts, cx.order.preserve)
        .map_err(|unset| Failure::unset(path(), unset))?;
    file::rename(cx, dir, &part, entry.target())?;
    cx.made(dir, entry.target(), outcome);
    Ok(())
}
