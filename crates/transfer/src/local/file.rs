//! Copy of one file: skip check, temporary file, verification, rename into place.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::context::LocalContext;
use super::copy_bytes::{CopyFault, FileCopier, Pair, file_system};
use super::directory::{CopySide, Dir};
use super::large;
use super::links::{self, LinkClaim};
use super::part::PartialFile;
use super::skip_check::{FileAction, check};
use super::walk::SourceEntry;
use crate::attributes::{self, LocalMetadata};
use crate::error::{Failure, reason};
use crate::options::Existing;
use crate::temporary;

/// Copy a regular file, or queue its copy (a large file, or a hard link).
///
/// # Errors
/// No partial file has the final name then, and an existing destination stays.
pub(crate) fn copy<'c>(
    cx: &LocalContext<'c>,
    copier: &mut FileCopier<'c>,
    dir: &Arc<Dir>,
    entry: &SourceEntry,
) -> Result<(), Failure> {
    let (source, metadata) = open(cx, dir, entry)?;
    if metadata.kind != FileType::RegularFile {
        return Err(changed(dir, entry));
    }
    if metadata.links > 1 && cx.order.preserve.links && entry.linked && !cx.order.dry_run {
        match links::claim(dir, entry, &metadata) {
            LinkClaim::First => {}
            LinkClaim::Wait => return Ok(()),
            LinkClaim::LinkTo(copy) => {
                if links::make(cx, dir, entry, &metadata, &copy)? {
                    return Ok(());
                }
            }
        }
    }
    let result = copy_one(cx, copier, dir, entry, source, &metadata);
    match result {
        Ok(FileResult::Present) => links::finish_first(
            cx,
            dir,
            &metadata,
            Some(dir.path_if(metadata.links > 1, entry.target())),
        ),
        // A large file finishes with its last chunk.
        Ok(FileResult::Later) => {}
        Ok(FileResult::Another) | Err(_) => links::finish_first(cx, dir, &metadata, None),
    }
    result.map(|_| ())
}

/// Result of a file.
enum FileResult {
    /// Copied, or up to date.
    Present,
    /// An existing file stays, which may differ: no other name becomes a hard link to it.
    Another,
    /// Other workers finish it.
    Later,
}

fn copy_one<'c>(
    cx: &LocalContext<'c>,
    copier: &mut FileCopier<'c>,
    dir: &Arc<Dir>,
    entry: &SourceEntry,
    source: OwnedFd,
    metadata: &LocalMetadata,
) -> Result<FileResult, Failure> {
    let skipped_file = match check(cx, copier, dir, entry, &source, metadata)? {
        FileAction::Copy => None,
        FileAction::Kept => Some(FileResult::Present),
        FileAction::Occupied => Some(FileResult::Another),
    };
    if let Some(skipped_file) = skipped_file {
        cx.skipped_file(dir, entry.target(), metadata.size);
        return Ok(skipped_file);
    }
    if metadata.links > 1 && !cx.order.preserve.links {
        cx.totals.count(&cx.totals.hard_links_copied);
    }
    if cx.order.dry_run {
        cx.copied(dir, entry.target(), metadata.size, "would copy", None);
        return Ok(FileResult::Present);
    }
    if metadata.size >= 2 * cx.plan.chunk_bytes {
        return large::start(cx, dir, entry, source, metadata).map(|()| FileResult::Later);
    }
    let (part, sink) = PartialFile::make(dir, entry, metadata)?;
    let written =
        fill(cx, copier, dir, entry, source, sink, metadata).and_then(|(pair, technique)| {
            commit(cx, copier, dir, entry, &part, &pair, metadata).map(|size| (size, technique))
        });
    match written {
        Ok((size, technique)) => {
            cx.copied(dir, entry.target(), size, "copied", Some(technique));
            Ok(FileResult::Present)
        }
        Err(failure) => {
            part.discard(dir);
            Err(failure)
        }
    }
}

fn open(
    cx: &LocalContext<'_>,
    dir: &Dir,
    entry: &SourceEntry,
) -> Result<(OwnedFd, LocalMetadata), Failure> {
    // Not a pipe that replaced the file: opening it would wait for a writer.
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if !(cx.order.follow || entry.named) {
        flags |= OFlags::NOFOLLOW;
    }
    let failure = |errno| match errno {
        Errno::LOOP => changed(dir, entry),
        _ => Failure::kernel(
            dir.path(CopySide::Source, &entry.name),
            "a readable file",
            errno,
        ),
    };
    let opened = rustix::fs::openat(&dir.source, &*entry.name, flags, Mode::empty());
    let source = opened.map_err(failure)?;
    let metadata = rustix::fs::fstat(&source).map_err(failure)?;
    Ok((source, metadata.into()))
}

fn changed(dir: &Dir, entry: &SourceEntry) -> Failure {
    let path = dir.path(CopySide::Source, &entry.name);
    Failure::found(
        path,
        "the listed file",
        "another file of the same name",
        "the file was replaced during the copy; run the same command again",
    )
}

fn fill<'c>(
    cx: &LocalContext<'c>,
    copier: &mut FileCopier<'c>,
    dir: &Dir,
    entry: &SourceEntry,
    source: OwnedFd,
    sink: OwnedFd,
    metadata: &LocalMetadata,
) -> Result<(Pair, &'static str), Failure> {
    let pair = pair(cx, dir, entry, source, sink, metadata)?;
    let fault = |fault| blame(dir, entry, fault);
    if dir.tree.methods.clone(&pair) {
        return Ok((pair, "clone"));
    }
    if pair.size == 0 {
        let size = copier.copy_unsized(&pair).map_err(fault)?;
        return Ok((Pair { size, ..pair }, "buffers"));
    }
    if !pair.dense {
        set_size(dir, entry, &pair)?;
    }
    match copier.copy(&dir.tree.methods, &pair, 0..pair.size) {
        Ok(technique) => Ok((pair, technique.name())),
        Err(CopyFault::Short) if has_no_sizes(&pair.source) => {
            let pair = Pair { size: 0, ..pair };
            set_size(dir, entry, &pair)?;
            let size = copier.copy_unsized(&pair).map_err(fault)?;
            Ok((Pair { size, ..pair }, "buffers"))
        }
        Err(stopped) => Err(fault(stopped)),
    }
}

/// File systems that report the page size as file size, regardless of the content.
const WITHOUT_SIZES: [u64; 2] = [
    0x6265_6572, // sysfs
    0x6265_6570, // configfs
];

fn has_no_sizes(source: &OwnedFd) -> bool {
    file_system(source).is_some_and(|kind| WITHOUT_SIZES.contains(&kind))
}

/// Smaller files use the page cache despite `--direct`: without it each file waits for the device, while many small
/// writes in memory are one request (a source tree took 0.8 of the time; `bench/mover.py`).
const MIN_DIRECT_BYTES: u64 = 64 << 10;

/// Return both files, without the page cache if requested and supported.
pub(crate) fn pair(
    cx: &LocalContext<'_>,
    dir: &Dir,
    entry: &SourceEntry,
    source: OwnedFd,
    sink: OwnedFd,
    metadata: &LocalMetadata,
) -> Result<Pair, Failure> {
    let mut direct = dir.tree.methods.direct() && metadata.size >= MIN_DIRECT_BYTES;
    if direct && set_direct(&source, &sink, OFlags::DIRECT).is_err() {
        cx.no_direct(&dir.tree);
        direct = false;
        let cleared = set_direct(&source, &sink, OFlags::empty());
        cleared.map_err(|errno| {
            Failure::kernel(
                dir.path(CopySide::Source, &entry.name),
                "to read it through the page cache",
                errno,
            )
        })?;
    }
    Ok(Pair {
        source,
        sink,
        size: metadata.size,
        dense: metadata.allocated >= metadata.size,
        direct,
        shared: false,
    })
}

fn set_direct(source: &OwnedFd, sink: &OwnedFd, flags: OFlags) -> Result<(), Errno> {
    rustix::fs::fcntl_setfl(source, flags)?;
    rustix::fs::fcntl_setfl(sink, flags)
}

/// Set the size of the copy, so that unwritten ranges are holes.
fn set_size(dir: &Dir, entry: &SourceEntry, pair: &Pair) -> Result<(), Failure> {
    let set = rustix::fs::ftruncate(&pair.sink, pair.size);
    set.map_err(|errno| reserve_error(dir, entry, pair, errno))
}

/// The copy could not get its size.
pub(crate) fn reserve_error(dir: &Dir, entry: &SourceEntry, pair: &Pair, errno: Errno) -> Failure {
    let path = dir.path(CopySide::Copy, entry.target());
    Failure::kernel(path, format!("space for {} bytes", pair.size), errno)
}

/// Check that the copy is complete, rename it into place and return its size.
pub(crate) fn commit<'c>(
    cx: &LocalContext<'c>,
    copier: &mut FileCopier<'c>,
    dir: &Dir,
    entry: &SourceEntry,
    part: &PartialFile,
    pair: &Pair,
    metadata: &LocalMetadata,
) -> Result<u64, Failure> {
    let target = entry.target();
    let at_source = |errno| {
        Failure::kernel(
            dir.path(CopySide::Source, &entry.name),
            "to read its metadata again",
            errno,
        )
    };
    if pair.direct {
        set_size(dir, entry, pair)?;
        // Later reads may have any length.
        set_direct(&pair.source, &pair.sink, OFlags::empty()).map_err(at_source)?;
    }
    if cx.order.verify {
        verify(copier, dir, entry, pair)?;
    }
    let later = LocalMetadata::from(rustix::fs::fstat(&pair.source).map_err(at_source)?);
    if !metadata.unchanged(&later) {
        return Err(short(dir, entry));
    }
    let mode = metadata.last_mode(cx.order.preserve, cx.umask);
    attributes::apply(
        pair.source.as_fd(),
        pair.sink.as_fd(),
        metadata,
        &part.made,
        cx.order.preserve,
        mode,
    )
    .map_err(|unset| Failure::unset(dir.path(CopySide::Copy, target), unset))?;
    if cx.order.sync {
        rustix::fs::fsync(&pair.sink).map_err(|errno| {
            let path = dir.path(CopySide::Copy, target);
            Failure::kernel(path, "to write it to stable storage", errno)
        })?;
    }
    rename(cx, dir, &part.name, target)?;
    Ok(pair.size)
}

fn verify<'c>(
    copier: &mut FileCopier<'c>,
    dir: &Dir,
    entry: &SourceEntry,
    pair: &Pair,
) -> Result<(), Failure> {
    let same = copier
        .same(&pair.source, &pair.sink, pair.size)
        .map_err(|fault| blame(dir, entry, fault))?;
    if same {
        return Ok(());
    }
    let path = dir.path(CopySide::Copy, entry.target());
    Err(Failure::found(
        path,
        "the bytes of the source",
        "others",
        "run the same command again; if the error remains, test memory and disk",
    ))
}

/// Rename a temporary file into place.
pub(crate) fn rename(
    cx: &LocalContext<'_>,
    dir: &Dir,
    part: &CStr,
    target: &CStr,
) -> Result<(), Failure> {
    let replace = cx.order.existing != Existing::Keep;
    let renamed = temporary::rename((dir.to(), part), (dir.to(), target), replace);
    renamed.map_err(|errno| {
        // It is useless: its destination is not available.
        let _ = rustix::fs::unlinkat(dir.to(), part, AtFlags::empty());
        Failure::kernel(dir.path(CopySide::Copy, target), "a free name", errno)
    })
}

/// Return the failure with the side that caused it.
pub(crate) fn blame(dir: &Dir, entry: &SourceEntry, fault: CopyFault) -> Failure {
    match fault {
        CopyFault::Source(errno) => Failure::kernel(
            dir.path(CopySide::Source, &entry.name),
            "to read bytes",
            errno,
        ),
        CopyFault::Sink(errno) => Failure::kernel(
            dir.path(CopySide::Copy, entry.target()),
            "to write bytes",
            errno,
        ),
        CopyFault::Short => short(dir, entry),
        CopyFault::Memory(errno) => Failure::found(
            dir.path(CopySide::Copy, entry.target()),
            "memory for a block",
            reason(errno),
            "reduce `--block` or `--concurrency`, then run the same command again",
        ),
        CopyFault::Stopped => Failure::found(
            dir.path(CopySide::Copy, entry.target()),
            "to finish the copy",
            "an interruption",
            "run the same command again",
        ),
    }
}

fn short(dir: &Dir, entry: &SourceEntry) -> Failure {
    let path = dir.path(CopySide::Source, &entry.name);
    Failure::found(
        path,
        "an unchanged file",
        "a file that changed during the copy",
        "wait until its writers finish, then run the same command again",
    )
}
