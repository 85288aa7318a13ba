//! Skip check of local files: by size and time, or by content.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::context::LocalContext;
use super::copy_bytes::FileCopier;
use super::directory::{CopySide, Dir};
use super::file::blame;
use super::walk::SourceEntry;
use crate::attributes::{self, LocalMetadata};
use crate::error::Failure;
use crate::options::Existing;
use crate::roots;

/// Action for a file.
pub(crate) enum FileAction {
    Copy,
    /// Skip: up to date.
    Kept,
    /// Skip: another file exists and must stay.
    Occupied,
}

pub(crate) fn check<'c>(
    cx: &LocalContext<'c>,
    copier: &mut FileCopier<'c>,
    dir: &Dir,
    entry: &SourceEntry,
    source: &OwnedFd,
    metadata: &LocalMetadata,
) -> Result<FileAction, Failure> {
    let (false, Some(copy)) = (dir.fresh, &dir.copy) else {
        return Ok(FileAction::Copy);
    };
    let failure = |errno| {
        Failure::kernel(
            dir.path(CopySide::Copy, entry.target()),
            "to read its metadata",
            errno,
        )
    };
    let existing = match rustix::fs::statat(copy, entry.target(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(existing) => LocalMetadata::from(existing),
        Err(Errno::NOENT) => return Ok(FileAction::Copy),
        Err(errno) => return Err(failure(errno)),
    };
    let found = |problem: &str, advice| {
        Err(Failure::found(
            dir.path(CopySide::Copy, entry.target()),
            "a file or a free name",
            problem,
            advice,
        ))
    };
    let trusted = dir.tree.reliable && !cx.order.checksum;
    match (existing.kind, cx.order.existing) {
        _ if existing.id == metadata.id => found("the source itself", "choose another destination"),
        (FileType::Directory, _) => {
            found("a directory", "delete it, or choose another destination")
        }
        (FileType::RegularFile, Existing::Keep) if trusted && metadata.like(&existing) => {
            Ok(FileAction::Kept)
        }
        (_, Existing::Keep) => Ok(FileAction::Occupied),
        (FileType::RegularFile, Existing::Update) => {
            let whole = if trusted {
                metadata.like(&existing)
            } else {
                same(cx, copier, dir, entry, source, metadata, &existing)?
            };
            Ok(if whole {
                FileAction::Kept
            } else {
                FileAction::Copy
            })
        }
        (FileType::RegularFile | FileType::Symlink, _) => Ok(FileAction::Copy),
        (kind, _) => found(special(kind), OTHERS_USE_IT),
    }
}

/// Return the name of a special file type.
pub(crate) fn special(kind: FileType) -> &'static str {
    roots::obstacle(kind).unwrap_or("another type of file")
}

/// Advice for a special file at the destination: a copy does not replace it, because other programs may use it.
pub(crate) const OTHERS_USE_IT: &str =
    "choose another destination, or delete it if no program uses it";

/// Return whether the copy has the content of the source, and then update its attributes.
fn same<'c>(
    cx: &LocalContext<'c>,
    copier: &mut FileCopier<'c>,
    dir: &Dir,
    entry: &SourceEntry,
    source: &OwnedFd,
    metadata: &LocalMetadata,
    existing: &LocalMetadata,
) -> Result<bool, Failure> {
    if metadata.size != existing.size {
        return Ok(false);
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    // An unreadable copy is written again.
    let Ok(copy) = rustix::fs::openat(dir.to(), entry.target(), flags, Mode::empty()) else {
        return Ok(false);
    };
    let whole = copier
        .same(source, &copy, metadata.size)
        .map_err(|fault| blame(dir, entry, fault))?;
    if whole && !cx.order.dry_run {
        let applied = attributes::apply(
            source.as_fd(),
            copy.as_fd(),
            metadata,
            existing,
            cx.order.preserve,
            metadata.last_mode(cx.order.preserve, cx.umask),
        );
        applied.map_err(|unset| Failure::unset(dir.path(CopySide::Copy, entry.target()), unset))?;
    }
    Ok(whole)
}
