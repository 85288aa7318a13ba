//! Whether a file is there already: by size and time, or by its content.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::context::Context;
use super::directory::{Dir, Side};
use super::file::blame;
use super::lane::Lane;
use super::walk::Entry;
use crate::attributes::{self, Facts};
use crate::error::Failure;
use crate::order::Existing;
use crate::roots;

/// What becomes of a file whose name is taken at the destination, or not.
pub(crate) enum Verdict {
    Copy,
    /// It is there.
    Kept,
    /// Something is there that is to be left, and may be another file.
    Left,
}

pub(crate) fn judge<'c>(
    cx: &Context<'c>,
    lane: &mut Lane<'c>,
    dir: &Dir,
    entry: &Entry,
    source: &OwnedFd,
    facts: &Facts,
) -> Result<Verdict, Failure> {
    let (false, Some(copy)) = (dir.fresh, &dir.copy) else {
        return Ok(Verdict::Copy);
    };
    let failure = |errno| {
        Failure::kernel(
            dir.path(Side::Copy, entry.target()),
            "to see what is there",
            errno,
        )
    };
    let there = match rustix::fs::statat(copy, entry.target(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => Facts::from(there),
        Err(Errno::NOENT) => return Ok(Verdict::Copy),
        Err(errno) => return Err(failure(errno)),
    };
    let found = |what: &str, advice| {
        Err(Failure::found(
            dir.path(Side::Copy, entry.target()),
            "a file or nothing",
            what,
            advice,
        ))
    };
    let trusted = dir.tree.reliable && !cx.order.checksum;
    match (there.kind, cx.order.existing) {
        _ if there.id == facts.id => found("the source itself", "name another destination"),
        (FileType::Directory, _) => found("a directory", "remove it, or name another destination"),
        (FileType::RegularFile, Existing::Keep) if trusted && facts.like(&there) => {
            Ok(Verdict::Kept)
        }
        (_, Existing::Keep) => Ok(Verdict::Left),
        (FileType::RegularFile, Existing::Update) => {
            let whole = if trusted {
                facts.like(&there)
            } else {
                same(cx, lane, dir, entry, source, facts, &there)?
            };
            Ok(if whole { Verdict::Kept } else { Verdict::Copy })
        }
        (FileType::RegularFile | FileType::Symlink, _) => Ok(Verdict::Copy),
        (kind, _) => found(special(kind), OTHERS_USE_IT),
    }
}

/// What is neither file nor directory nor link is called.
pub(crate) fn special(kind: FileType) -> &'static str {
    roots::in_the_way(kind).unwrap_or("something else")
}

/// What to do where such a thing is in the place of a copy: no file replaces it, since others go on writing to what has its name.
pub(crate) const OTHERS_USE_IT: &str = "name another destination, or remove it if nobody needs it";

/// Whether the copy has the content of the source; then it gets what else the source has.
fn same<'c>(
    cx: &Context<'c>,
    lane: &mut Lane<'c>,
    dir: &Dir,
    entry: &Entry,
    source: &OwnedFd,
    facts: &Facts,
    there: &Facts,
) -> Result<bool, Failure> {
    if facts.size != there.size {
        return Ok(false);
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    // What cannot be read is written anew.
    let Ok(copy) = rustix::fs::openat(dir.to(), entry.target(), flags, Mode::empty()) else {
        return Ok(false);
    };
    let whole = lane
        .same(source, &copy, facts.size)
        .map_err(|fault| blame(dir, entry, fault))?;
    if whole && !cx.order.dry_run {
        let given = attributes::give(
            source.as_fd(),
            copy.as_fd(),
            facts,
            there,
            cx.order.preserve,
            facts.last_mode(cx.order.preserve, cx.umask),
        );
        given.map_err(|unset| Failure::unset(dir.path(Side::Copy, entry.target()), unset))?;
    }
    Ok(whole)
}
