//! Chunked download of a large file: any session can transfer a chunk, and complete chunks are not
//! transferred again.

use std::fs::File;
use std::iter::{once, successors};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::files::Fetch;
use crate::journal::reliance;
use crate::temporary;

/// Maximum chunk size: the loss per transfer if a copy is killed. The fixed cost of a transfer of this size is small: at 10 Gb/s it
/// takes 25 ms.
pub(crate) const CHUNK_BYTES: u64 = 32 << 20;
/// Minimum size of the first chunks: a file has about 64 chunks.
pub(crate) const MIN_CHUNK_BYTES: u64 = 8 << 20;
const CHUNKS: u64 = 64;
/// Chunks of each size towards the end: about the number of sessions.
const CHUNKS_PER_SIZE: u64 = 16;
/// Size of the last chunks: one of eight sessions on 1 Gb/s needs 0.1 s for it.
const LAST_CHUNK_BYTES: u64 = 2 << 20;
/// Minimum size of a file in chunks.
pub(crate) const LARGE_BYTES: u64 = 4 * CHUNK_BYTES;
/// Minimum size of an upload in chunks if there are several files: idle sessions can help slow ones.
pub(crate) const SHARED_BYTES: u64 = 4 * MIN_CHUNK_BYTES;

/// Size of the padded header of the chunk map, bytes; one byte per chunk follows.
const HEAD_BYTES: usize = 512;

/// Chunked download in progress.
#[derive(Debug)]
pub(crate) struct ChunkedDownload {
    pub(crate) fetch: Arc<Fetch>,
    pub(crate) size: u64,
    pub(crate) file: File,
    record: File,
    record_path: PathBuf,
    remaining: AtomicU64,
    /// Offset of the first missing chunk, now and when the file was opened.
    first: AtomicU64,
    start: u64,
    failed: std::sync::atomic::AtomicBool,
    sync: bool,
    /// True if one transfer delivers all missing data in order.
    pub(crate) in_order: bool,
}

impl ChunkedDownload {
    /// Opens or creates the temporary file and the chunk map, for stable storage and for data in order if set. Also returns the missing
    /// chunks.
    ///
    /// # Errors
    /// The error of the kernel; `EWOULDBLOCK` if another copy writes the file.
    pub(crate) fn open(
        fetch: Arc<Fetch>,
        size: u64,
        source: &str,
        record_path: PathBuf,
        (sync, in_order): (bool, bool),
    ) -> Result<(Self, Vec<u64>), Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |path: &PathBuf, mode| rustix::fs::open(path, flags, Mode::from_raw_mode(mode));
        let file = open(
            &fetch.part,
            fetch.known.mode.unwrap_or(0o666) & 0o777 | 0o600,
        )?;
        temporary::lock(&file, rustix::fs::CWD, &fetch.part)?;
        let found = rustix::fs::fstat(&file)?;
        let record = open(&record_path, 0o600)?;
        let chunks = usize::try_from(count(size)).map_err(|_| Errno::FBIG)?;
        let head = head(source, size, fetch.known.modify_s, sync);
        let mut before = vec![0; HEAD_BYTES + chunks];
        let length = rustix::io::pread(&record, &mut before, 0)?;
        let goes_on = u64::try_from(found.st_size) == Ok(size)
            && length >= HEAD_BYTES
            && before[..HEAD_BYTES] == head;
        if !goes_on {
            rustix::fs::ftruncate(&record, 0)?;
            rustix::io::pwrite(&record, &head, 0)?;
            before[HEAD_BYTES..].fill(0);
        }
        rustix::fs::ftruncate(&file, size)?;
        let missing: Vec<u64> = (0..)
            .zip(&before[HEAD_BYTES..])
            .filter(|(_, found)| **found == 0)
            .map(|(index, _)| index)
            .collect();
        // All chunks are complete, but the file was not renamed: transfer the last one again, so that the writer renames the file.
        let missing = match (missing.is_empty(), chunks as u64) {
            (true, 1..) => vec![chunks as u64 - 1],
            _ => missing,
        };
        let first = missing.first().copied().unwrap_or(0);
        let large = Self {
            fetch,
            size,
            file: file.into(),
            record: record.into(),
            record_path,
            remaining: AtomicU64::new(missing.len() as u64),
            first: first.into(),
            start: end_before(first, size),
            failed: false.into(),
            sync,
            in_order,
        };
        Ok((large, missing))
    }

    /// Returns the byte range of a chunk.
    pub(crate) fn range(&self, index: u64) -> Range<u64> {
        range(index, self.size)
    }

    /// Records a complete chunk. Returns true for the last one: the file is complete.
    ///
    /// # Errors
    /// The chunk map cannot be written.
    pub(crate) fn mark(&self, index: u64) -> Result<bool, Errno> {
        if self.sync {
            rustix::fs::fdatasync(&self.file)?;
        }
        rustix::io::pwrite(&self.record, b"1", HEAD_BYTES as u64 + index)?;
        Ok(self.remaining.fetch_sub(1, Ordering::AcqRel) == 1)
    }

    /// Returns the offset of the first missing byte for a transfer in order.
    pub(crate) fn remaining_bytes(&self) -> u64 {
        end_before(self.first.load(Ordering::Acquire), self.size)
    }

    /// Returns this offset at the time of opening.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Records written data of a transfer in order: all chunks that end before its end are complete. If the data overlaps complete chunks,
    /// the server started at the first byte, and later chunks do not count any more. Only one writer at a time can
    /// call this.
    ///
    /// # Errors
    /// The chunk map cannot be written.
    pub(crate) fn reach(&self, written: Range<u64>) -> Result<(), Errno> {
        if !self.in_order {
            return Ok(());
        }
        let before = self.first.load(Ordering::Acquire);
        let mut from = before;
        while end_before(from, self.size) > written.start {
            from -= 1;
        }
        let mut first = from;
        while first < count(self.size) && self.range(first).end <= written.end {
            first += 1;
        }
        if first == before {
            return Ok(());
        }
        if self.sync {
            rustix::fs::fdatasync(&self.file)?;
        }
        let mut marks =
            vec![0; usize::try_from(before.max(first) - from).map_err(|_| Errno::FBIG)?];
        marks[..usize::try_from(first - from).map_err(|_| Errno::FBIG)?].fill(b'1');
        rustix::io::pwrite(&self.record, &marks, HEAD_BYTES as u64 + from)?;
        self.first.store(first, Ordering::Release);
        Ok(())
    }

    /// Records a failed chunk. Returns true for the first one.
    pub(crate) fn fail(&self) -> bool {
        !self.failed.swap(true, Ordering::AcqRel)
    }

    /// True if a chunk has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Returns the path of the chunk map.
    pub(crate) fn record(&self) -> PathBuf {
        self.record_path.clone()
    }

    /// Deletes the chunk map before the rename, so that a complete file never has one.
    pub(crate) fn forget(&self) {
        let _ = std::fs::remove_file(&self.record_path);
    }
}

/// Returns the size of the first chunk.
fn largest_bytes(size: u64) -> u64 {
    let target = (size / CHUNKS).clamp(MIN_CHUNK_BYTES, CHUNK_BYTES);
    target.next_power_of_two()
}

/// Returns chunk sizes and how many chunks of each size follow. The sizes are halved towards the end, so that the remaining work of one
/// session is always a limited part of all remaining work.
fn steps(size: u64) -> impl Iterator<Item = (u64, u64)> {
    let largest = largest_bytes(size);
    let whole = size.saturating_sub(CHUNKS_PER_SIZE * (largest - LAST_CHUNK_BYTES)) / largest;
    let halves = successors(Some(largest / 2), |bytes| Some(bytes / 2));
    once((largest, whole))
        .chain(
            halves
                .map_while(|bytes| (bytes > LAST_CHUNK_BYTES).then_some((bytes, CHUNKS_PER_SIZE))),
        )
        .chain(once((LAST_CHUNK_BYTES, u64::MAX)))
}

/// Returns the number of chunks.
pub(crate) fn count(size: u64) -> u64 {
    let (mut remaining, mut count) = (size, 0);
    for (bytes, most) in steps(size) {
        let chunks = remaining.div_ceil(bytes).min(most);
        count += chunks;
        remaining = remaining.saturating_sub(chunks * bytes);
    }
    count
}

/// Returns the byte range of a chunk.
pub(crate) fn range(index: u64, size: u64) -> Range<u64> {
    let (mut start, mut before) = (0, 0);
    for (bytes, chunks) in steps(size) {
        if index - before < chunks {
            start += (index - before) * bytes;
            return start.min(size)..(start + bytes).min(size);
        }
        start += chunks * bytes;
        before += chunks;
    }
    unreachable!("of the last size there are any number")
}

/// Returns the end of the previous chunk.
fn end_before(index: u64, size: u64) -> u64 {
    index
        .checked_sub(1)
        .map_or(0, |before| range(before, size).end)
}

fn head(source: &str, size: u64, modify_s: Option<i64>, sync: bool) -> [u8; HEAD_BYTES] {
    use sha2::{Digest, Sha256};
    // The name of the source can be longer than the header.
    let source: String = Sha256::digest(source)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let text = format!(
        "venturi copy of one file of a server 2\n{source} {size} {modify_s:?} {}\n{}\n",
        largest_bytes(size),
        reliance(sync)
    );
    let mut head = [b'\n'; HEAD_BYTES];
    let length = text.len().min(HEAD_BYTES);
    head[..length].copy_from_slice(&text.as_bytes()[..length]);
    head
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use super::*;
    use crate::ftp::files::FtpMetadata;

    fn open(directory: &std::path::Path, size: u64, modify_s: i64) -> (ChunkedDownload, Vec<u64>) {
        open_as(directory, size, modify_s, false)
    }

    fn open_as(
        directory: &std::path::Path,
        size: u64,
        modify_s: i64,
        in_order: bool,
    ) -> (ChunkedDownload, Vec<u64>) {
        let fetch = Arc::new(Fetch {
            from: venturi_gridftp::Path::new("/a").expect("a path"),
            to: directory.join("a"),
            part: directory.join("part"),
            known: crate::ftp::files::FtpMetadata {
                size: Some(size),
                modify_s: Some(modify_s),
                ..FtpMetadata::default()
            },
            changes: 0,
        });
        ChunkedDownload::open(
            fetch,
            size,
            "ftp://h/a",
            directory.join("record"),
            (false, in_order),
        )
        .expect("files")
    }

    #[test]
    fn the_chunk_size_grows_with_the_file_up_to_a_limit() {
        let check = |size, expected: u64| {
            assert_eq!(range(0, size).end, expected, "{size}");
            assert_eq!(range(count(size) - 1, size).end, size);
        };
        check(LARGE_BYTES, 8 << 20);
        check(1 << 30, 16 << 20);
        check(4_000_000_000, 32 << 20);
        check(5_000_000_000_000, 32 << 20);
    }

    #[test]
    fn chunks_are_contiguous_and_become_small_towards_the_end() {
        for size in [
            0,
            1,
            MIN_CHUNK_BYTES,
            LARGE_BYTES - 1,
            LARGE_BYTES,
            4_000_000_000,
        ] {
            let ranges: Vec<_> = (0..count(size)).map(|index| range(index, size)).collect();
            let mut end = 0;
            for range in &ranges {
                assert_eq!(range.start, end);
                assert!(range.end > end);
                end = range.end;
            }
            assert_eq!(end, size);
            assert!(ranges.is_sorted_by_key(|range| Reverse(range.end - range.start)));
        }
        let last = range(count(4_000_000_000) - 1, 4_000_000_000);
        assert!(last.end - last.start <= LAST_CHUNK_BYTES);
        assert_eq!((count(LARGE_BYTES), count(4_000_000_000)), (36, 172));
    }

    #[test]
    fn completed_chunks_are_not_transferred_again_unless_the_source_changed() {
        let directory = tempfile::tempdir().expect("a folder");
        let size = 3 * MIN_CHUNK_BYTES / 2 + 1;
        let (large, missing) = open(directory.path(), size, 7);
        assert_eq!(missing, [0, 1, 2, 3]);
        assert_eq!(large.range(3), size - 1..size);
        assert!(!large.mark(1).expect("a record"));
        drop(large);
        let (large, missing) = open(directory.path(), size, 7);
        assert_eq!(missing, [0, 2, 3]);
        assert!(!large.mark(3).expect("a record") && !large.mark(0).expect("a record"));
        assert!(large.mark(2).expect("a record"), "the last one");
        drop(large);
        for (size, modify_s) in [(size, 8), (size + 1, 8)] {
            let (_, missing) = open(directory.path(), size, modify_s);
            assert_eq!(missing, [0, 1, 2, 3]);
        }
    }

    #[test]
    fn an_ordered_transfer_resumes_after_the_last_complete_chunk() {
        let directory = tempfile::tempdir().expect("a folder");
        let size = 3 * MIN_CHUNK_BYTES / 2 + 1;
        let ends: Vec<u64> = (0..count(size))
            .map(|index| range(index, size).end)
            .collect();
        let steps = [
            (0..1, 0),
            (1..ends[0], 1),
            (ends[0]..ends[2], 3),
            // The first chunk again, and all following ones.
            (0..ends[1], 2),
            (ends[1]..ends[2], 3),
        ];
        for (written, found) in steps {
            let (large, missing) = open_as(directory.path(), size, 7, true);
            assert_eq!(
                missing.len() as u64,
                large.remaining.load(Ordering::Relaxed)
            );
            let start = large.start();
            assert_eq!(start, large.remaining_bytes());
            large.reach(written.clone()).expect("a record");
            let end = if found > 0 { ends[found - 1] } else { 0 };
            assert_eq!(
                (large.remaining_bytes(), large.start()),
                (end, start),
                "{written:?}"
            );
        }
        let (large, missing) = open_as(directory.path(), size, 7, true);
        assert_eq!((missing, large.start()), (vec![3], ends[2]));
        large.reach(ends[2]..size).expect("a record");
        assert_eq!(large.remaining_bytes(), size);
        drop(large);
        // Only the rename is missing: transfer the last chunk again.
        assert_eq!(open_as(directory.path(), size, 7, true).0.start(), ends[2]);
    }

    #[test]
    fn a_complete_file_that_was_not_renamed_is_finished_by_the_next_copy() {
        let directory = tempfile::tempdir().expect("a folder");
        let (large, missing) = open(directory.path(), MIN_CHUNK_BYTES / 2 + 1, 7);
        for index in missing {
            large.mark(index).expect("a record");
        }
        drop(large);
        // It was killed before the rename: a chunk must be transferred, so that the writer renames the file.
        let (large, missing) = open(directory.path(), MIN_CHUNK_BYTES / 2 + 1, 7);
        assert_eq!(missing, [1]);
        assert!(large.mark(1).expect("a record"));
    }

    #[test]
    fn a_second_copy_of_the_same_file_is_rejected() {
        let directory = tempfile::tempdir().expect("a folder");
        let (large, _) = open(directory.path(), MIN_CHUNK_BYTES, 7);
        let again = ChunkedDownload::open(
            Arc::clone(&large.fetch),
            MIN_CHUNK_BYTES,
            "ftp://h/a",
            directory.path().join("record"),
            (false, false),
        );
        assert_eq!(again.err(), Some(Errno::WOULDBLOCK));
    }
}
