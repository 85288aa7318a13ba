//! Large file: several workers copy its chunks, and completed chunks are not copied again.

use std::ffi::CString;
use std::iter;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::context::LocalContext;
use super::copy_bytes::{CopyFault, CopyTechnique, FileCopier, Pair, data};
use super::directory::{CopySide, Dir};
use super::file;
use super::links;
use super::part::PartialFile;
use super::walk::{LocalTask, SourceEntry};
use crate::attributes::LocalMetadata;
use crate::error::Failure;
use crate::journal::reliance;

/// Bytes of the padded head of the chunk map; one byte per chunk follows.
const HEAD_BYTES: usize = 512;

/// File that several workers copy.
#[derive(Debug)]
pub(crate) struct LargeCopy {
    dir: Arc<Dir>,
    entry: SourceEntry,
    metadata: LocalMetadata,
    pair: Pair,
    part: PartialFile,
    record: ChunkMap,
    next: AtomicU64,
    /// True if the file was cloned, so no chunks remain.
    cloned: bool,
    by_kernel: AtomicBool,
    failed: Mutex<Option<Failure>>,
}

/// Completed chunks.
#[derive(Debug)]
struct ChunkMap {
    file: OwnedFd,
    name: CString,
    chunk_bytes: u64,
    /// Chunks completed by an earlier copy.
    done: Vec<u8>,
    sync: bool,
}

/// Start to copy a large file: clone it, or queue its chunks.
pub(crate) fn start(
    cx: &LocalContext<'_>,
    dir: &Arc<Dir>,
    entry: &SourceEntry,
    source: OwnedFd,
    metadata: &LocalMetadata,
) -> Result<(), Failure> {
    let (part, sink) = PartialFile::adopt_or_create(dir, entry, metadata)?;
    let at_copy = |errno| {
        Failure::kernel(
            dir.path(CopySide::Copy, entry.target()),
            "a writable directory",
            errno,
        )
    };
    let opened =
        ChunkMap::open(cx, dir, entry, metadata, part.made.size == metadata.size).map_err(at_copy);
    let record = opened.inspect_err(|_| part.discard(dir))?;
    let helpers = metadata
        .size
        .div_ceil(cx.plan.chunk_bytes)
        .clamp(1, cx.plan.helpers as u64);
    let pair = file::pair(cx, dir, entry, source, sink, metadata).inspect_err(|_| {
        record.remove(dir);
        part.discard(dir);
    })?;
    let pair = Pair {
        shared: helpers > 1,
        ..pair
    };
    let mut large = LargeCopy {
        dir: Arc::clone(dir),
        entry: entry.clone(),
        metadata: *metadata,
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
    // This function keeps no reference: the last worker that drops its reference finishes the file.
    let helpers = usize::try_from(helpers).unwrap_or(usize::MAX);
    let tasks = iter::repeat_n(Arc::new(large), helpers).map(LocalTask::Help);
    cx.pool.push(tasks);
    Ok(())
}

impl LargeCopy {
    fn prepare(&mut self, cx: &LocalContext<'_>) -> Result<(), Failure> {
        if self.record.done.is_empty() {
            self.empty()?;
            if self.dir.tree.methods.clone(&self.pair) {
                self.cloned = true;
                return Ok(());
            }
            self.check_space()?;
        } else {
            let existing = self.record.done.iter().filter(|chunk| **chunk != 0).count() as u64;
            cx.resumed(&self.dir, self.entry.target(), existing, self.chunks());
        }
        let reserved = self.dir.tree.methods.reserve(&self.pair);
        reserved.map_err(|errno| file::reserve_error(&self.dir, &self.entry, &self.pair, errno))
    }

    /// Truncate only the leftover of a killed copy. ext4 flushes a file at close if it was
    /// truncated to 0, which tripled the time of a copy.
    fn empty(&self) -> Result<(), Failure> {
        if self.part.made.size == 0 {
            return Ok(());
        }
        let emptied = rustix::fs::ftruncate(&self.pair.sink, 0);
        emptied.map_err(|errno| {
            Failure::kernel(
                self.dir.path(CopySide::Copy, self.entry.target()),
                "a writable file",
                errno,
            )
        })
    }

    /// Check the free space of the disk in advance.
    fn check_space(&self) -> Result<(), Failure> {
        let needed = self.metadata.size.min(self.metadata.allocated);
        match rustix::fs::fstatvfs(&self.pair.sink) {
            // A file system without blocks reports no number of blocks.
            Ok(space)
                if space.f_blocks > 0 && space.f_bavail.saturating_mul(space.f_frsize) < needed =>
            {
                let free = space.f_bavail.saturating_mul(space.f_frsize);
                let path = self.dir.path(CopySide::Copy, self.entry.target());
                let advice =
                    "free some space, then run the same command again; complete files are kept";
                Err(Failure::found(
                    path,
                    format!("space for {needed} bytes"),
                    format!("{free} bytes"),
                    advice,
                ))
            }
            _ => Ok(()),
        }
    }

    /// Copy chunks until none remains; the last worker finishes the file.
    pub(crate) fn help<'c>(self: Arc<Self>, cx: &LocalContext<'c>, copier: &mut FileCopier<'c>) {
        if let Err(fault) = self.copy_chunks(cx, copier) {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert_with(|| file::blame(&self.dir, &self.entry, fault));
        }
        if let Some(last) = Arc::into_inner(self) {
            last.finish(cx, copier);
        }
    }

    fn copy_chunks<'c>(
        &self,
        cx: &LocalContext<'c>,
        copier: &mut FileCopier<'c>,
    ) -> Result<(), CopyFault> {
        while !self.cloned && !cx.stop.is_cancelled() && !self.has_failed() {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.chunks() {
                return Ok(());
            }
            let Some(range) = self.worth_copying(index)? else {
                continue;
            };
            if copier.copy(&self.dir.tree.methods, &self.pair, range)? == CopyTechnique::Kernel {
                self.by_kernel.store(true, Ordering::Relaxed);
            }
            self.record
                .mark(&self.pair.sink, index)
                .map_err(CopyFault::Sink)?;
        }
        Ok(())
    }

    /// Return the range of a chunk; none if it is complete or a hole. A long hole is skipped
    /// completely.
    fn worth_copying(&self, index: u64) -> Result<Option<Range<u64>>, CopyFault> {
        let existing = usize::try_from(index)
            .ok()
            .and_then(|index| self.record.done.get(index));
        if existing.is_some_and(|chunk| *chunk != 0) {
            return Ok(None);
        }
        let start = index * self.record.chunk_bytes;
        let range = start..(start + self.record.chunk_bytes).min(self.pair.size);
        if self.pair.dense {
            return Ok(Some(range));
        }
        match data(&self.pair.source, start..self.pair.size)? {
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

    fn finish<'c>(self, cx: &LocalContext<'c>, copier: &mut FileCopier<'c>) {
        let failure = self
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let (dir, entry) = (Arc::clone(&self.dir), &self.entry);
        // The present chunks help the next copy.
        let kept_for_later =
            cx.stop.is_cancelled() || failure.as_ref().is_some_and(|failure| failure.ends_all);
        let result = match failure {
            Some(failure) => Err(failure),
            None if cx.stop.is_cancelled() => Err(file::blame(&dir, entry, CopyFault::Stopped)),
            None => self.commit(cx, copier),
        };
        match result {
            Ok(size) => {
                cx.copied(
                    &dir,
                    entry.target(),
                    size,
                    "copied",
                    Some(self.technique().name()),
                );
                links::finish_first(
                    cx,
                    &dir,
                    &self.metadata,
                    Some(dir.path_if(self.metadata.links > 1, entry.target())),
                );
            }
            Err(failure) => {
                if !kept_for_later {
                    self.discard();
                }
                cx.fail(&dir.tree, &failure);
                links::finish_first(cx, &dir, &self.metadata, None);
            }
        }
        drop(self);
        Dir::release(cx, dir);
    }

    fn commit<'c>(
        &self,
        cx: &LocalContext<'c>,
        copier: &mut FileCopier<'c>,
    ) -> Result<u64, Failure> {
        // First, so that a complete file never has a chunk map; without the map the file would be copied again.
        self.record.remove(&self.dir);
        file::commit(
            cx,
            copier,
            &self.dir,
            &self.entry,
            &self.part,
            &self.pair,
            &self.metadata,
        )
    }

    fn technique(&self) -> CopyTechnique {
        match (self.cloned, self.by_kernel.load(Ordering::Relaxed)) {
            (true, _) => CopyTechnique::Cloned,
            (_, true) => CopyTechnique::Kernel,
            _ => CopyTechnique::Buffers,
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

impl ChunkMap {
    /// Open or create the chunk map of a file. Its entries count only for the same source, and only if the earlier
    /// data is reliable now.
    fn open(
        cx: &LocalContext<'_>,
        dir: &Dir,
        entry: &SourceEntry,
        metadata: &LocalMetadata,
        whole_size: bool,
    ) -> Result<Self, Errno> {
        let name = dir.tree.token.progress(entry.target().to_bytes());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir.to(), &name, flags, Mode::from_raw_mode(0o600))?;
        let chunk_bytes = cx.plan.chunk_bytes;
        let head = head(metadata, chunk_bytes, cx.order.sync);
        let chunks =
            usize::try_from(metadata.size.div_ceil(chunk_bytes)).map_err(|_| Errno::FBIG)?;
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

fn head(metadata: &LocalMetadata, chunk_bytes: u64, sync: bool) -> [u8; HEAD_BYTES] {
    let text = format!(
        "venturi copy of one file 1\n{:?} {} {:?} {chunk_bytes}\n{}\n",
        metadata.id,
        metadata.size,
        metadata.modified,
        reliance(sync)
    );
    let mut head = [b'\n'; HEAD_BYTES];
    let length = text.len().min(HEAD_BYTES);
    head[..length].copy_from_slice(&text.as_bytes()[..length]);
    head
}
