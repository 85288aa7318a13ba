//! One file as a transaction: judged, written under a temporary name, seen to be whole, renamed.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::context::Context;
use super::directory::{Dir, Side};
use super::judge::{Verdict, judge};
use super::lane::{Fault, Lane, Pair, file_system};
use super::large;
use super::links::{self, Claim};
use super::part::Part;
use super::walk::Entry;
use crate::attributes::{self, Facts};
use crate::error::{Failure, reason};
use crate::order::Existing;
use crate::temporary;

/// Copies a regular file, or has it copied (a large one, or a name of several).
///
/// # Errors
/// Nothing of it is left under its own name then, and what was there before still is.
pub(crate) fn copy<'c>(
    cx: &Context<'c>,
    lane: &mut Lane<'c>,
    dir: &Arc<Dir>,
    entry: &Entry,
) -> Result<(), Failure> {
    let (source, facts) = open(cx, dir, entry)?;
    if facts.kind != FileType::RegularFile {
        return Err(changed(dir, entry));
    }
    if facts.links > 1 && cx.order.preserve.links && entry.linked && !cx.order.dry_run {
        match links::claim(dir, entry, &facts) {
            Claim::First => {}
            Claim::Wait => return Ok(()),
            Claim::Like(copy) => {
                if links::make(cx, dir, entry, &facts, &copy)? {
                    return Ok(());
                }
            }
        }
    }
    let result = one(cx, lane, dir, entry, source, &facts);
    match result {
        Ok(One::There) => links::settle(
            cx,
            dir,
            &facts,
            Some(dir.path_if(facts.links > 1, entry.target())),
        ),
        // A large one settles when its last chunk is there.
        Ok(One::Later) => {}
        Ok(One::Another) | Err(_) => links::settle(cx, dir, &facts, None),
    }
    result.map(|_| ())
}

/// What has come of one file.
enum One {
    /// It is there now.
    There,
    /// What was there before is, which may be another: no other name is to be a link to it.
    Another,
    /// Others go on with it.
    Later,
}

fn one<'c>(
    cx: &Context<'c>,
    lane: &mut Lane<'c>,
    dir: &Arc<Dir>,
    entry: &Entry,
    source: OwnedFd,
    facts: &Facts,
) -> Result<One, Failure> {
    let kept = match judge(cx, lane, dir, entry, &source, facts)? {
        Verdict::Copy => None,
        Verdict::Kept => Some(One::There),
        Verdict::Left => Some(One::Another),
    };
    if let Some(kept) = kept {
        cx.kept(dir, entry.target(), facts.size);
        return Ok(kept);
    }
    if facts.links > 1 && !cx.order.preserve.links {
        cx.totals.count(&cx.totals.copied_apart);
    }
    if cx.order.dry_run {
        cx.copied(dir, entry.target(), facts.size, "would copy", None);
        return Ok(One::There);
    }
    if facts.size >= 2 * cx.plan.chunk_bytes {
        return large::begin(cx, dir, entry, source, facts).map(|()| One::Later);
    }
    let (part, sink) = Part::make(dir, entry, facts)?;
    let written = fill(cx, lane, dir, entry, source, sink, facts).and_then(|(pair, how)| {
        commit(cx, lane, dir, entry, &part, &pair, facts).map(|size| (size, how))
    });
    match written {
        Ok((size, how)) => {
            cx.copied(dir, entry.target(), size, "copied", Some(how));
            Ok(One::There)
        }
        Err(failure) => {
            part.discard(dir);
            Err(failure)
        }
    }
}

fn open(cx: &Context<'_>, dir: &Dir, entry: &Entry) -> Result<(OwnedFd, Facts), Failure> {
    // Not a pipe that took the place of a file: opening that would wait for a writer.
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if !(cx.order.follow || entry.named) {
        flags |= OFlags::NOFOLLOW;
    }
    let failure = |errno| match errno {
        Errno::LOOP => changed(dir, entry),
        _ => Failure::kernel(
            dir.path(Side::Source, &entry.name),
            "a file that can be read",
            errno,
        ),
    };
    let opened = rustix::fs::openat(&dir.source, &*entry.name, flags, Mode::empty());
    let source = opened.map_err(failure)?;
    let facts = rustix::fs::fstat(&source).map_err(failure)?;
    Ok((source, facts.into()))
}

fn changed(dir: &Dir, entry: &Entry) -> Failure {
    let path = dir.path(Side::Source, &entry.name);
    Failure::found(
        path,
        "the file that was listed",
        "something else of that name",
        "it was replaced meanwhile; run the same command again",
    )
}

fn fill<'c>(
    cx: &Context<'c>,
    lane: &mut Lane<'c>,
    dir: &Dir,
    entry: &Entry,
    source: OwnedFd,
    sink: OwnedFd,
    facts: &Facts,
) -> Result<(Pair, &'static str), Failure> {
    let pair = pair(cx, dir, entry, source, sink, facts)?;
    let fault = |fault| blame(dir, entry, fault);
    if dir.tree.ways.clone(&pair) {
        return Ok((pair, "clone"));
    }
    if pair.size == 0 {
        let size = lane.copy_unsized(&pair).map_err(fault)?;
        return Ok((Pair { size, ..pair }, "buffers"));
    }
    if !pair.dense {
        set_size(dir, entry, &pair)?;
    }
    match lane.copy(&dir.tree.ways, &pair, 0..pair.size) {
        Ok(how) => Ok((pair, how.name())),
        Err(Fault::Short) if has_no_sizes(&pair.source) => {
            let pair = Pair { size: 0, ..pair };
            set_size(dir, entry, &pair)?;
            let size = lane.copy_unsized(&pair).map_err(fault)?;
            Ok((Pair { size, ..pair }, "buffers"))
        }
        Err(stopped) => Err(fault(stopped)),
    }
}

/// File systems whose files say that they have the size of a page, whatever comes when they are read.
const WITHOUT_SIZES: [u64; 2] = [
    0x6265_6572, // sysfs
    0x6265_6570, // configfs
];

fn has_no_sizes(source: &OwnedFd) -> bool {
    file_system(source).is_some_and(|kind| WITHOUT_SIZES.contains(&kind))
}

/// What is smaller passes through the page cache though `--direct` was asked for: past it each file waits for the device, and many small ones that wait
/// in memory are one request for it (a source tree took 0.8 of the time; `bench/mover.py`).
const LEAST_DIRECT: u64 = 64 << 10;

/// The two files, without the page cache if that was asked for and can be had.
pub(crate) fn pair(
    cx: &Context<'_>,
    dir: &Dir,
    entry: &Entry,
    source: OwnedFd,
    sink: OwnedFd,
    facts: &Facts,
) -> Result<Pair, Failure> {
    let mut direct = dir.tree.ways.direct() && facts.size >= LEAST_DIRECT;
    if direct && set_direct(&source, &sink, OFlags::DIRECT).is_err() {
        cx.no_direct(&dir.tree);
        direct = false;
        let cleared = set_direct(&source, &sink, OFlags::empty());
        cleared.map_err(|errno| {
            Failure::kernel(
                dir.path(Side::Source, &entry.name),
                "to be read through the page cache",
                errno,
            )
        })?;
    }
    Ok(Pair {
        source,
        sink,
        size: facts.size,
        dense: facts.allocated >= facts.size,
        direct,
        shared: false,
    })
}

fn set_direct(source: &OwnedFd, sink: &OwnedFd, flags: OFlags) -> Result<(), Errno> {
    rustix::fs::fcntl_setfl(source, flags)?;
    rustix::fs::fcntl_setfl(sink, flags)
}

/// Gives the copy its size, so that what is not written is a hole.
fn set_size(dir: &Dir, entry: &Entry, pair: &Pair) -> Result<(), Failure> {
    let set = rustix::fs::ftruncate(&pair.sink, pair.size);
    set.map_err(|errno| no_room(dir, entry, pair, errno))
}

/// The copy could not get its size.
pub(crate) fn no_room(dir: &Dir, entry: &Entry, pair: &Pair, errno: Errno) -> Failure {
    let path = dir.path(Side::Copy, entry.target());
    Failure::kernel(path, format!("room for {} bytes", pair.size), errno)
}

/// Sees that the copy is whole, and gives it its name. Returns its size.
pub(crate) fn commit<'c>(
    cx: &Context<'c>,
    lane: &mut Lane<'c>,
    dir: &Dir,
    entry: &Entry,
    part: &Part,
    pair: &Pair,
    facts: &Facts,
) -> Result<u64, Failure> {
    let target = entry.target();
    let at_source = |errno| {
        Failure::kernel(
            dir.path(Side::Source, &entry.name),
            "to see it again",
            errno,
        )
    };
    if pair.direct {
        set_size(dir, entry, pair)?;
        // What follows reads whatever length it likes.
        set_direct(&pair.source, &pair.sink, OFlags::empty()).map_err(at_source)?;
    }
    if cx.order.verify {
        verify(lane, dir, entry, pair)?;
    }
    let later = Facts::from(rustix::fs::fstat(&pair.source).map_err(at_source)?);
    if !facts.unchanged(&later) {
        return Err(short(dir, entry));
    }
    let mode = facts.last_mode(cx.order.preserve, cx.umask);
    attributes::give(
        pair.source.as_fd(),
        pair.sink.as_fd(),
        facts,
        &part.made,
        cx.order.preserve,
        mode,
    )
    .map_err(|unset| Failure::unset(dir.path(Side::Copy, target), unset))?;
    if cx.order.sync {
        rustix::fs::fsync(&pair.sink).map_err(|errno| {
            let path = dir.path(Side::Copy, target);
            Failure::kernel(path, "to have it on stable storage", errno)
        })?;
    }
    rename(cx, dir, &part.name, target)?;
    Ok(pair.size)
}

fn verify<'c>(lane: &mut Lane<'c>, dir: &Dir, entry: &Entry, pair: &Pair) -> Result<(), Failure> {
    let same = lane
        .same(&pair.source, &pair.sink, pair.size)
        .map_err(|fault| blame(dir, entry, fault))?;
    if same {
        return Ok(());
    }
    let path = dir.path(Side::Copy, entry.target());
    Err(Failure::found(
        path,
        "the bytes of the source",
        "others",
        "run the same command again; if it stays so, test memory and disk",
    ))
}

/// Gives a thing under its temporary name its own.
pub(crate) fn rename(
    cx: &Context<'_>,
    dir: &Dir,
    part: &CStr,
    target: &CStr,
) -> Result<(), Failure> {
    let replace = cx.order.existing != Existing::Keep;
    let renamed = temporary::rename((dir.to(), part), (dir.to(), target), replace);
    renamed.map_err(|errno| {
        // It cannot be of use: what it was made for is not to be had.
        let _ = rustix::fs::unlinkat(dir.to(), part, AtFlags::empty());
        Failure::kernel(
            dir.path(Side::Copy, target),
            "a name that it can have",
            errno,
        )
    })
}

/// Who is to blame, in words.
pub(crate) fn blame(dir: &Dir, entry: &Entry, fault: Fault) -> Failure {
    match fault {
        Fault::Source(errno) => Failure::kernel(
            dir.path(Side::Source, &entry.name),
            "bytes to be read",
            errno,
        ),
        Fault::Sink(errno) => Failure::kernel(
            dir.path(Side::Copy, entry.target()),
            "bytes to be written",
            errno,
        ),
        Fault::Short => short(dir, entry),
        Fault::Memory(errno) => Failure::found(
            dir.path(Side::Copy, entry.target()),
            "memory for a block",
            reason(errno),
            "ask for less (`--block`, `--concurrency`), and run the same command again",
        ),
        Fault::Stopped => Failure::found(
            dir.path(Side::Copy, entry.target()),
            "to be finished",
            "that we were stopped",
            "run the same command again",
        ),
    }
}

fn short(dir: &Dir, entry: &Entry) -> Failure {
    let path = dir.path(Side::Source, &entry.name);
    Failure::found(
        path,
        "a file at rest",
        "that it was written to while it was copied",
        "run the same command again when nobody writes to it",
    )
}
