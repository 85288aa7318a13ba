//! Copies directory entries: files are delegated; links, pipes, sockets and devices have no content
//! and are created here.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use super::context::LocalContext;
use super::copy_bytes::FileCopier;
use super::directory::{CopySide, Dir};
use super::walk::{LocalTask, SourceEntry};
use super::{file, skip_check};
use crate::attributes::{self, LocalMetadata};
use crate::error::Failure;
use crate::options::Existing;

/// Copy any entry.
pub(crate) fn copy<'c>(
    cx: &LocalContext<'c>,
    copier: &mut FileCopier<'c>,
    dir: &Arc<Dir>,
    entry: &SourceEntry,
) -> Result<(), Failure> {
    let follow = cx.order.follow || entry.named;
    let unclear = entry.kind == FileType::Unknown || (entry.kind == FileType::Symlink && follow);
    let kind = if unclear {
        stat(dir, entry, follow)?.kind
    } else {
        entry.kind
    };
    match kind {
        FileType::RegularFile => file::copy(cx, copier, dir, entry),
        FileType::Directory => {
            cx.pool.push([LocalTask::Enter {
                parent: Arc::clone(dir),
                name: (*entry.name).to_owned(),
            }]);
            Ok(())
        }
        FileType::Symlink => link(cx, dir, entry),
        _ => special(cx, dir, entry, stat(dir, entry, follow)?),
    }
}

fn stat(dir: &Dir, entry: &SourceEntry, follow: bool) -> Result<LocalMetadata, Failure> {
    let flags = if follow {
        AtFlags::empty()
    } else {
        AtFlags::SYMLINK_NOFOLLOW
    };
    let metadata = rustix::fs::statat(&dir.source, &*entry.name, flags);
    metadata.map(LocalMetadata::from).map_err(|errno| {
        let path = dir.path(CopySide::Source, &entry.name);
        let failure = Failure::kernel(path, "to read its type", errno);
        if follow && entry.kind == FileType::Symlink {
            let advice = "fix the link, or remove --follow";
            return Failure { advice, ..failure };
        }
        failure
    })
}

fn link(cx: &LocalContext<'_>, dir: &Dir, entry: &SourceEntry) -> Result<(), Failure> {
    let at_source = |errno| {
        Failure::kernel(
            dir.path(CopySide::Source, &entry.name),
            "a readable link",
            errno,
        )
    };
    let points_to =
        rustix::fs::readlinkat(&dir.source, &*entry.name, Vec::new()).map_err(at_source)?;
    if is_up_to_date(cx, dir, entry, FileType::Symlink, |copy| {
        rustix::fs::readlinkat(copy, entry.target(), Vec::new())
            .is_ok_and(|existing| existing == points_to)
    })? {
        return Ok(());
    }
    let metadata = stat(dir, entry, false)?;
    make(cx, dir, entry, "link", &metadata, |copy, part| {
        rustix::fs::symlinkat(points_to.as_c_str(), copy, part)
    })
}

fn special(
    cx: &LocalContext<'_>,
    dir: &Dir,
    entry: &SourceEntry,
    metadata: LocalMetadata,
) -> Result<(), Failure> {
    if !cx.order.preserve.special {
        let reason = format!(
            "{} (--preserve special recreates it)",
            skip_check::special(metadata.kind)
        );
        cx.skipped(dir, &entry.name, &reason);
        return Ok(());
    }
    let same = |copy: &OwnedFd| {
        let existing = rustix::fs::statat(copy, entry.target(), AtFlags::SYMLINK_NOFOLLOW)
            .map(LocalMetadata::from);
        existing.is_ok_and(|existing| {
            (existing.kind, existing.device) == (metadata.kind, metadata.device)
        })
    };
    if is_up_to_date(cx, dir, entry, metadata.kind, same)? {
        return Ok(());
    }
    let mode = Mode::from_raw_mode(metadata.mode);
    make(cx, dir, entry, "special", &metadata, |copy, part| {
        rustix::fs::mknodat(copy, part, metadata.kind, mode, metadata.device as _)
    })
}

/// Return whether an existing entry may be replaced. Only a pipe or a device may replace a pipe or a device.
fn replaces(kind: FileType, existing: FileType) -> bool {
    kind != FileType::Symlink || matches!(existing, FileType::RegularFile | FileType::Symlink)
}

/// Return whether an entry without content exists already, or must be skipped.
fn is_up_to_date(
    cx: &LocalContext<'_>,
    dir: &Dir,
    entry: &SourceEntry,
    kind: FileType,
    same: impl Fn(&OwnedFd) -> bool,
) -> Result<bool, Failure> {
    let (false, Some(copy)) = (dir.fresh, &dir.copy) else {
        return Ok(false);
    };
    let existing = match rustix::fs::statat(copy, entry.target(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(existing) => LocalMetadata::from(existing),
        Err(_) => return Ok(false),
    };
    let found = |problem, advice| {
        let path = dir.path(CopySide::Copy, entry.target());
        Err(Failure::found(
            path,
            "a link or a free name",
            problem,
            advice,
        ))
    };
    if existing.kind == FileType::Directory {
        return found("a directory", "delete it, or choose another destination");
    }
    let skipped_file = match cx.order.existing {
        Existing::Keep => true,
        Existing::Update => same(copy),
        Existing::Replace => false,
    };
    if skipped_file {
        cx.skipped_file(dir, entry.target(), 0);
    } else if !replaces(kind, existing.kind) {
        return found(
            skip_check::special(existing.kind),
            skip_check::OTHERS_USE_IT,
        );
    }
    Ok(skipped_file)
}

/// Create an entry without content, under a temporary name first.
fn make(
    cx: &LocalContext<'_>,
    dir: &Dir,
    entry: &SourceEntry,
    outcome: &str,
    metadata: &LocalMetadata,
    create: impl Fn(&OwnedFd, &CStr) -> Result<(), Errno>,
) -> Result<(), Failure> {
    let Some(copy) = dir.copy.as_ref().filter(|_| !cx.order.dry_run) else {
        cx.made(dir, entry.target(), outcome);
        return Ok(());
    };
    let part = dir.tree.token.part(entry.target().to_bytes());
    let path = || dir.path(CopySide::Copy, entry.target());
    let created = match create(copy, &part) {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(copy, &part, AtFlags::empty()).and_then(|()| create(copy, &part))
        }
        other => other,
    };
    created.map_err(|errno| Failure::kernel(path(), "to create it", errno))?;
    attributes::apply_unopened(dir.to(), &part, metadata, cx.order.preserve)
        .map_err(|unset| Failure::unset(path(), unset))?;
    file::rename(cx, dir, &part, entry.target())?;
    cx.made(dir, entry.target(), outcome);
    Ok(())
}
