//! A large file: its chunks are copied by several workers, and those that are there need not be copied again.

use std::ffi::CString;
use std::iter;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::context::Context;
use super::directory::{Dir, Side};
use super::file;
use super::lane::{Fault, Lane, Moved, Pair, data};
use super::links;
use super::part::Part;
use super::walk::{Entry, Task};
use crate::attributes::Facts;
use crate::error::Failure;
use crate::journal::reliance;

/// Bytes of the head of the record of chunks, padded: behind it is one byte a chunk.
const HEAD_BYTES: usize = 512;

/// A file that several workers copy.
#[derive(Debug)]
pub(crate) struct Large {
    dir: Arc<Dir>,
    entry: Entry,
    facts: Facts,
    pair: Pair,
    part: Part,
    record: Record,
    next: AtomicU64,
    /// Whether all of it is there at once, and no chunk is left to anybody.
    cloned: bool,
    by_kernel: AtomicBool,
    failed: Mutex<Option<Failure>>,
}

/// Which chunks are there.
#[derive(Debug)]
struct Record {
    file: OwnedFd,
    name: CString,
    chunk_bytes: u64,
    /// Those that were there when we came.
    done: Vec<u8>,
    sync: bool,
}

/// Begins to copy a large file: cloned at once, or by whoever has time.
pub(crate) fn begin(
    cx: &Context<'_>,
    dir: &Arc<Dir>,
    entry: &Entry,
    source: OwnedFd,
    facts: &Facts,
) -> Result<(), Failure> {
    let (part, sink) = Part::take_over(dir, entry, facts)?;
    let at_copy = |errno| {
        Failure::kernel(
            dir.path(Side::Copy, entry.target()),
            "a place that can be written to",
            errno,
        )
    };
    let opened = Record::open(cx, dir, entry, facts, part.made.size == facts.size).map_err(at_copy);
    let record = opened.inspect_err(|_| part.discard(dir))?;
    let helpers = facts
        .size
        .div_ceil(cx.plan.chunk_bytes)
        .clamp(1, cx.plan.helpers as u64);
    let pair = file::pair(cx, dir, entry, source, sink, facts).inspect_err(|_| {
        record.remove(dir);
        part.discard(dir);
    })?;
    let pair = Pair {
        shared: helpers > 1,
        ..pair
    };
    let mut large = Large {
        dir: Arc::clone(dir),
        entry: entry.clone(),
        facts: *facts,
        pair,
        part,
        record,
        next: AtomicU64::new(0),
        cloned: false,
        by_kernel: AtomicBool::new(false),
        failed: Mutex::new(None),
    };
    let ready = large.prepare(cx);
    if let Err(failure) = ready {
        large.discard();
        return Err(failure);
    }
    // None is kept here: the last one to let it go finishes the file.
    let helpers = usize::try_from(helpers).unwrap_or(usize::MAX);
    let tasks = iter::repeat_n(Arc::new(large), helpers).map(Task::Help);
    cx.pool.push(tasks);
    Ok(())
}

impl Large {
    fn prepare(&mut self, cx: &Context<'_>) -> Result<(), Failure> {
        if self.record.done.is_empty() {
            self.empty()?;
            if self.dir.tree.ways.clone(&self.pair) {
                self.cloned = true;
                return Ok(());
            }
            self.see_room()?;
        } else {
            let there = self.record.done.iter().filter(|chunk| **chunk != 0).count() as u64;
            cx.resumed(&self.dir, self.entry.target(), there, self.chunks());
        }
        let reserved = self.dir.tree.ways.reserve(&self.pair);
        reserved.map_err(|errno| file::no_room(&self.dir, &self.entry, &self.pair, errno))
    }

    /// Cuts off what a killed copy has left, and nothing else: ext4 has a file that was cut to 0 written to the device when it is closed, and that
    /// tripled the time of a copy.
    fn empty(&self) -> Result<(), Failure> {
        if self.part.made.size == 0 {
            return Ok(());
        }
        let emptied = rustix::fs::ftruncate(&self.pair.sink, 0);
        emptied.map_err(|errno| {
            Failure::kernel(
                self.dir.path(Side::Copy, self.entry.target()),
                "a file to write to",
                errno,
            )
        })
    }

    /// Refuses what the disk has no room for, before it is full of it.
    fn see_room(&self) -> Result<(), Failure> {
        let needed = self.facts.size.min(self.facts.allocated);
        match rustix::fs::fstatvfs(&self.pair.sink) {
            // A file system without blocks has no count of them.
            Ok(room)
                if room.f_blocks > 0 && room.f_bavail.saturating_mul(room.f_frsize) < needed =>
            {
                let free = room.f_bavail.saturating_mul(room.f_frsize);
                let path = self.dir.path(Side::Copy, self.entry.target());
                let advice =
                    "free some space, then run the same command again: what is whole stays";
                Err(Failure::found(
                    path,
                    format!("room for {needed} bytes"),
                    format!("{free} bytes"),
                    advice,
                ))
            }
            _ => Ok(()),
        }
    }

    /// Copies chunks until none is left; whoever is the last to end finishes the file.
    pub(crate) fn help<'c>(self: Arc<Self>, cx: &Context<'c>, lane: &mut Lane<'c>) {
        if let Err(fault) = self.copy_chunks(cx, lane) {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert_with(|| file::blame(&self.dir, &self.entry, fault));
        }
        if let Some(last) = Arc::into_inner(self) {
            last.finish(cx, lane);
        }
    }

    fn copy_chunks<'c>(&self, cx: &Context<'c>, lane: &mut Lane<'c>) -> Result<(), Fault> {
        while !self.cloned && !cx.stop.asked() && !self.has_failed() {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.chunks() {
                return Ok(());
            }
            let Some(range) = self.worth_copying(index)? else {
                continue;
            };
            if lane.copy(&self.dir.tree.ways, &self.pair, range)? == Moved::Kernel {
                self.by_kernel.store(true, Ordering::Relaxed);
            }
            self.record
                .mark(&self.pair.sink, index)
                .map_err(Fault::Sink)?;
        }
        Ok(())
    }

    /// The range of a chunk; none if it is there, or a hole. All chunks of a long hole are passed over at once.
    fn worth_copying(&self, index: u64) -> Result<Option<Range<u64>>, Fault> {
        let there = usize::try_from(index)
            .ok()
            .and_then(|index| self.record.done.get(index));
        if there.is_some_and(|chunk| *chunk != 0) {
            return Ok(None);
        }
        let begin = index * self.record.chunk_bytes;
        let range = begin..(begin + self.record.chunk_bytes).min(self.pair.size);
        if self.pair.dense {
            return Ok(Some(range));
        }
        match data(&self.pair.source, begin..self.pair.size)? {
            Some(extent) if extent.start < range.end => Ok(Some(range)),
            Some(extent) => {
                self.next
                    .fetch_max(extent.start / self.record.chunk_bytes, Ordering::Relaxed);
                Ok(None)
            }
            None => {
                self.next.fetch_max(self.chunks(), Ordering::Relaxed);
                Ok(None)
            }
        }
    }

    fn finish<'c>(self, cx: &Context<'c>, lane: &mut Lane<'c>) {
        let failure = self
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let (dir, entry) = (Arc::clone(&self.dir), &self.entry);
        // What is there of it is of use to the next copy.
        let kept_for_later =
            cx.stop.asked() || failure.as_ref().is_some_and(|failure| failure.ends_all);
        let result = match failure {
            Some(failure) => Err(failure),
            None if cx.stop.asked() => Err(file::blame(&dir, entry, Fault::Stopped)),
            None => self.commit(cx, lane),
        };
        match result {
            Ok(size) => {
                cx.copied(
                    &dir,
                    entry.target(),
                    size,
                    "copied",
                    Some(self.how().name()),
                );
                links::settle(
                    cx,
                    &dir,
                    &self.facts,
                    Some(dir.path_if(self.facts.links > 1, entry.target())),
                );
            }
            Err(failure) => {
                if !kept_for_later {
                    self.discard();
                }
                cx.fail(&dir.tree, &failure);
                links::settle(cx, &dir, &self.facts, None);
            }
        }
        drop(self);
        Dir::release(cx, dir);
    }

    fn commit<'c>(&self, cx: &Context<'c>, lane: &mut Lane<'c>) -> Result<u64, Failure> {
        // First, so that a whole file never has one beside it; without it the file would be copied again from its beginning.
        self.record.remove(&self.dir);
        file::commit(
            cx,
            lane,
            &self.dir,
            &self.entry,
            &self.part,
            &self.pair,
            &self.facts,
        )
    }

    fn how(&self) -> Moved {
        match (self.cloned, self.by_kernel.load(Ordering::Relaxed)) {
            (true, _) => Moved::Cloned,
            (_, true) => Moved::Kernel,
            _ => Moved::Buffers,
        }
    }

    fn discard(&self) {
        self.record.remove(&self.dir);
        self.part.discard(&self.dir);
    }

    fn has_failed(&self) -> bool {
        self.failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    fn chunks(&self) -> u64 {
        self.pair.size.div_ceil(self.record.chunk_bytes)
    }
}

impl Record {
    /// Opens the record of a file, or begins one. What it says counts only for the same source, and if what was written then can be
    /// relied on now.
    fn open(
        cx: &Context<'_>,
        dir: &Dir,
        entry: &Entry,
        facts: &Facts,
        whole_size: bool,
    ) -> Result<Self, Errno> {
        let name = dir.tree.token.progress(entry.target().to_bytes());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir.to(), &name, flags, Mode::from_raw_mode(0o600))?;
        let chunk_bytes = cx.plan.chunk_bytes;
        let head = head(facts, chunk_bytes, cx.order.sync);
        let chunks = usize::try_from(facts.size.div_ceil(chunk_bytes)).map_err(|_| Errno::FBIG)?;
        let mut before = vec![0; HEAD_BYTES + chunks];
        let length = rustix::io::pread(&file, &mut before, 0)?;
        let known = whole_size && length >= HEAD_BYTES && before[..HEAD_BYTES] == head;
        let done = if known {
            before.split_off(HEAD_BYTES)
        } else {
            Vec::new()
        };
        if !known {
            rustix::fs::ftruncate(&file, 0)?;
            rustix::io::pwrite(&file, &head, 0)?;
        }
        Ok(Self {
            file,
            name,
            chunk_bytes,
            done,
            sync: cx.order.sync,
        })
    }

    fn mark(&self, sink: &OwnedFd, index: u64) -> Result<(), Errno> {
        if self.sync {
            rustix::fs::fdatasync(sink.as_fd())?;
        }
        rustix::io::pwrite(&self.file, b"1", HEAD_BYTES as u64 + index).map(|_| ())
    }

    fn remove(&self, dir: &Dir) {
        let _ = rustix::fs::unlinkat(dir.to(), &self.name, AtFlags::empty());
    }
}

fn head(facts: &Facts, chunk_bytes: u64, sync: bool) -> [u8; HEAD_BYTES] {
    let text = format!(
        "venturi copy of one file 1\n{:?} {} {:?} {chunk_bytes}\n{}\n",
        facts.id,
        facts.size,
        facts.modified,
        reliance(sync)
    );
    let mut head = [b'\n'; HEAD_BYTES];
    let length = text.len().min(HEAD_BYTES);
    head[..length].copy_from_slice(&text.as_bytes()[..length]);
    head
}
