//! A large file from a server: its chunks are transfers of their own, over all sessions, and those that are there need not come again.

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

/// What comes again at most for each transfer that was under way when a copy was killed. A transfer of such a size costs little beside its bytes: at 10 Gb/s it
/// takes 25 ms.
pub(crate) const CHUNK_BYTES: u64 = 32 << 20;
/// The smallest to begin with: a file is cut into 64 chunks or so.
pub(crate) const LEAST_CHUNK_BYTES: u64 = 8 << 20;
const CHUNKS: u64 = 64;
/// Chunks of each size towards the end: about as many as there are sessions.
const OF_A_SIZE: u64 = 16;
/// The size of the last ones: of eight sessions on 1 Gb/s one takes 0.1 s for it.
const LAST_CHUNK_BYTES: u64 = 2 << 20;
/// A file of this size comes in chunks.
pub(crate) const LARGE_BYTES: u64 = 4 * CHUNK_BYTES;
/// One of several files goes to a server in chunks from this size on: of sessions some are slow, and others can do what those have left.
pub(crate) const SHARED_BYTES: u64 = 4 * LEAST_CHUNK_BYTES;

/// Bytes of the head of the record of chunks, padded: behind it is one byte a chunk.
const HEAD_BYTES: usize = 512;

/// A large file that is on its way.
#[derive(Debug)]
pub(crate) struct Large {
    pub(crate) fetch: Arc<Fetch>,
    pub(crate) size: u64,
    pub(crate) file: File,
    record: File,
    record_path: PathBuf,
    left: AtomicU64,
    /// The first chunk that is missing; and where it began when this was opened.
    first: AtomicU64,
    begin: u64,
    failed: std::sync::atomic::AtomicBool,
    sync: bool,
    /// Whether what is missing comes in order, as one transfer.
    pub(crate) in_order: bool,
}

impl Large {
    /// Opens what a copy has left of the file, or begins it; with whether it is to be on stable storage, and comes in order. Gives also the chunks that
    /// are missing.
    ///
    /// # Errors
    /// As the kernel says; `EWOULDBLOCK` where another copy writes to it.
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
        let there = rustix::fs::fstat(&file)?;
        let record = open(&record_path, 0o600)?;
        let chunks = usize::try_from(count(size)).map_err(|_| Errno::FBIG)?;
        let head = head(source, size, fetch.known.modify_s, sync);
        let mut before = vec![0; HEAD_BYTES + chunks];
        let length = rustix::io::pread(&record, &mut before, 0)?;
        let goes_on = u64::try_from(there.st_size) == Ok(size)
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
            .filter(|(_, there)| **there == 0)
            .map(|(index, _)| index)
            .collect();
        // All were there, but it has not got its name: the last comes again, and who writes it gives it.
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
            left: AtomicU64::new(missing.len() as u64),
            first: first.into(),
            begin: end_before(first, size),
            failed: false.into(),
            sync,
            in_order,
        };
        Ok((large, missing))
    }

    /// The bytes of a chunk.
    pub(crate) fn range(&self, index: u64) -> Range<u64> {
        range(index, self.size)
    }

    /// A chunk is there. True for the last one: the file is whole.
    ///
    /// # Errors
    /// If that cannot be noted down.
    pub(crate) fn mark(&self, index: u64) -> Result<bool, Errno> {
        if self.sync {
            rustix::fs::fdatasync(&self.file)?;
        }
        rustix::io::pwrite(&self.record, b"1", HEAD_BYTES as u64 + index)?;
        Ok(self.left.fetch_sub(1, Ordering::AcqRel) == 1)
    }

    /// Where what is missing begins, for one who gets all that is behind it, in order.
    pub(crate) fn rest(&self) -> u64 {
        end_before(self.first.load(Ordering::Acquire), self.size)
    }

    /// The same when it was opened.
    pub(crate) fn begin(&self) -> u64 {
        self.begin
    }

    /// These bytes were written, of one that comes in order: the chunks that end before their end are there. Where they are some that were there
    /// already it comes anew, and what is behind them counts no more: a server that was asked to go on may have begun at the first byte. To be called
    /// by one writer at a time.
    ///
    /// # Errors
    /// If that cannot be noted down.
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

    /// A chunk will not come. True for the first one that says so.
    pub(crate) fn fail(&self) -> bool {
        !self.failed.swap(true, Ordering::AcqRel)
    }

    /// Whether a chunk will not come.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Where its record is.
    pub(crate) fn record(&self) -> PathBuf {
        self.record_path.clone()
    }

    /// Takes the record away. First, so that a whole file never has one beside it.
    pub(crate) fn forget(&self) {
        let _ = std::fs::remove_file(&self.record_path);
    }
}

/// Bytes of the first chunk of a file of this size.
fn largest_bytes(size: u64) -> u64 {
    let wanted = (size / CHUNKS).clamp(LEAST_CHUNK_BYTES, CHUNK_BYTES);
    wanted.next_power_of_two()
}

/// Bytes of the chunks of a file of this size, and how many of each come one after the other: towards the end they are halved, so that what one session
/// has left to do when the others are done is never more than a part of what all had left.
fn steps(size: u64) -> impl Iterator<Item = (u64, u64)> {
    let largest = largest_bytes(size);
    let whole = size.saturating_sub(OF_A_SIZE * (largest - LAST_CHUNK_BYTES)) / largest;
    let halves = successors(Some(largest / 2), |bytes| Some(bytes / 2));
    once((largest, whole))
        .chain(halves.map_while(|bytes| (bytes > LAST_CHUNK_BYTES).then_some((bytes, OF_A_SIZE))))
        .chain(once((LAST_CHUNK_BYTES, u64::MAX)))
}

/// How many chunks a file of this size has.
pub(crate) fn count(size: u64) -> u64 {
    let (mut left, mut count) = (size, 0);
    for (bytes, most) in steps(size) {
        let chunks = left.div_ceil(bytes).min(most);
        count += chunks;
        left = left.saturating_sub(chunks * bytes);
    }
    count
}

/// The bytes of a chunk of a file of this size.
pub(crate) fn range(index: u64, size: u64) -> Range<u64> {
    let (mut begin, mut before) = (0, 0);
    for (bytes, chunks) in steps(size) {
        if index - before < chunks {
            begin += (index - before) * bytes;
            return begin.min(size)..(begin + bytes).min(size);
        }
        begin += chunks * bytes;
        before += chunks;
    }
    unreachable!("of the last size there are any number")
}

/// Where the chunk before this one ends.
fn end_before(index: u64, size: u64) -> u64 {
    index
        .checked_sub(1)
        .map_or(0, |before| range(before, size).end)
}

fn head(source: &str, size: u64, modify_s: Option<i64>, sync: bool) -> [u8; HEAD_BYTES] {
    use sha2::{Digest, Sha256};
    // The name of the source may be longer than the head.
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
    use crate::ftp::files::Known;

    fn open(folder: &std::path::Path, size: u64, modify_s: i64) -> (Large, Vec<u64>) {
        open_as(folder, size, modify_s, false)
    }

    fn open_as(
        folder: &std::path::Path,
        size: u64,
        modify_s: i64,
        in_order: bool,
    ) -> (Large, Vec<u64>) {
        let fetch = Arc::new(Fetch {
            from: venturi_gridftp::Path::new("/a").expect("a path"),
            to: folder.join("a"),
            part: folder.join("part"),
            known: crate::ftp::files::Known {
                size: Some(size),
                modify_s: Some(modify_s),
                ..Known::default()
            },
            changes: 0,
        });
        Large::open(
            fetch,
            size,
            "ftp://h/a",
            folder.join("record"),
            (false, in_order),
        )
        .expect("files")
    }

    #[test]
    fn a_chunk_is_little_of_its_file_but_no_transfer_of_its_own_costs_more_than_its_bytes() {
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
    fn chunks_follow_each_other_and_become_small_towards_the_end() {
        for size in [
            0,
            1,
            LEAST_CHUNK_BYTES,
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
    fn chunks_that_are_there_do_not_come_again_unless_the_source_is_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let size = 3 * LEAST_CHUNK_BYTES / 2 + 1;
        let (large, missing) = open(folder.path(), size, 7);
        assert_eq!(missing, [0, 1, 2, 3]);
        assert_eq!(large.range(3), size - 1..size);
        assert!(!large.mark(1).expect("a record"));
        drop(large);
        let (large, missing) = open(folder.path(), size, 7);
        assert_eq!(missing, [0, 2, 3]);
        assert!(!large.mark(3).expect("a record") && !large.mark(0).expect("a record"));
        assert!(large.mark(2).expect("a record"), "the last one");
        drop(large);
        for (size, modify_s) in [(size, 8), (size + 1, 8)] {
            let (_, missing) = open(folder.path(), size, modify_s);
            assert_eq!(missing, [0, 1, 2, 3]);
        }
    }

    #[test]
    fn what_comes_in_order_goes_on_behind_the_last_chunk_that_is_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let size = 3 * LEAST_CHUNK_BYTES / 2 + 1;
        let ends: Vec<u64> = (0..count(size))
            .map(|index| range(index, size).end)
            .collect();
        let steps = [
            (0..1, 0),
            (1..ends[0], 1),
            (ends[0]..ends[2], 3),
            // The first one again, and all behind it.
            (0..ends[1], 2),
            (ends[1]..ends[2], 3),
        ];
        for (written, there) in steps {
            let (large, missing) = open_as(folder.path(), size, 7, true);
            assert_eq!(missing.len() as u64, large.left.load(Ordering::Relaxed));
            let begin = large.begin();
            assert_eq!(begin, large.rest());
            large.reach(written.clone()).expect("a record");
            let end = if there > 0 { ends[there - 1] } else { 0 };
            assert_eq!((large.rest(), large.begin()), (end, begin), "{written:?}");
        }
        let (large, missing) = open_as(folder.path(), size, 7, true);
        assert_eq!((missing, large.begin()), (vec![3], ends[2]));
        large.reach(ends[2]..size).expect("a record");
        assert_eq!(large.rest(), size);
        drop(large);
        // All but its name: the last chunk comes again.
        assert_eq!(open_as(folder.path(), size, 7, true).0.begin(), ends[2]);
    }

    #[test]
    fn a_file_that_is_there_but_for_its_name_is_not_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let (large, missing) = open(folder.path(), LEAST_CHUNK_BYTES / 2 + 1, 7);
        for index in missing {
            large.mark(index).expect("a record");
        }
        drop(large);
        // It was killed before the rename: something must come, so that somebody gives it its name.
        let (large, missing) = open(folder.path(), LEAST_CHUNK_BYTES / 2 + 1, 7);
        assert_eq!(missing, [1]);
        assert!(large.mark(1).expect("a record"));
    }

    #[test]
    fn two_copies_of_the_same_do_not_mix() {
        let folder = tempfile::tempdir().expect("a folder");
        let (large, _) = open(folder.path(), LEAST_CHUNK_BYTES, 7);
        let again = Large::open(
            Arc::clone(&large.fetch),
            LEAST_CHUNK_BYTES,
            "ftp://h/a",
            folder.path().join("record"),
            (false, false),
        );
        assert_eq!(again.err(), Some(Errno::WOULDBLOCK));
    }
}
