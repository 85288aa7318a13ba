//! A file that comes: what was read from sockets is written here as long as that waits for nothing, else by other threads, at most so
//! much at a time.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustix::io::Errno;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::checksum::Adler32;
use crate::net::straight::Straight;
use crate::serve::buffers::Buffer;
use crate::serve::host::Host;
use crate::serve::root::upload::Upload;

/// Buffers of a session that are being written, or wait for it.
const MAX_WRITES: usize = 16;
/// Stretches of a file whose checksums are not one yet; beyond, the file is read once more.
const MAX_STRETCHES: usize = 4096;

/// Bytes of a file that are in a buffer.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) buffer: Buffer,
    pub(super) segments: Vec<Segment>,
}

/// Where bytes of a file are in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) start: usize,
    pub(super) bytes: usize,
    /// Position in the file.
    pub(super) offset: u64,
}

/// Begin → end and checksum.
type Stretches = BTreeMap<u64, (u64, Adler32)>;
/// The checksums of what one buffer held.
type Sums = Vec<(u64, u64, Adler32)>;

/// A file that comes.
#[derive(Debug)]
pub(super) struct Writing {
    host: Arc<Host>,
    upload: Arc<Upload>,
    /// What waits for the thread that writes: one at a time, for others would spin on the lock of the file.
    waiting: Vec<Filled>,
    /// What it writes, and of how many buffers.
    write: Option<(usize, JoinHandle<Result<Sums, Errno>>)>,
    failed: Option<Errno>,
    straight: Straight,
    /// Where a checksum was asked for.
    stretches: Option<Stretches>,
}

impl Writing {
    /// Into an upload; with a checksum of Adler-32 on the way, or without.
    pub(super) fn new(upload: Upload, sums: bool, host: Arc<Host>) -> Self {
        Self {
            host,
            upload: Arc::new(upload),
            waiting: Vec::new(),
            write: None,
            failed: None,
            straight: Straight::default(),
            stretches: sums.then(BTreeMap::new),
        }
    }

    /// Whether more may come now. On a fast disk, what waits goes first: what comes then goes the short ways.
    pub(super) fn has_room(&self) -> bool {
        let writing = self.write.as_ref().map_or(0, |(buffers, _)| *buffers);
        let most = if self.host.pace.is_fast() {
            1
        } else {
            MAX_WRITES
        };
        writing + self.waiting.len() < most
    }

    /// Has a buffer written.
    pub(super) fn write(&mut self, filled: Filled) {
        if filled.segments.is_empty() {
            return;
        }
        if self.is_written() && self.host.pace.is_fast() {
            let sums = self.stretches.is_some();
            let written = self.host.pace.of(|| put(&self.upload, &filled, sums));
            return self.written(written);
        }
        self.waiting.push(filled);
        self.begin_write();
    }

    /// Has a thread write what waits, unless one writes.
    fn begin_write(&mut self) {
        if self.write.is_some() || self.waiting.is_empty() {
            return;
        }
        let (upload, sums) = (Arc::clone(&self.upload), self.stretches.is_some());
        let count = self.waiting.len().min(MAX_WRITES / 2);
        let filled: Vec<_> = self.waiting.drain(..count).collect();
        let write = tokio::task::spawn_blocking(move || {
            let mut found = Sums::new();
            for filled in filled {
                found.extend(put(&upload, &filled, sums)?);
            }
            Ok(found)
        });
        self.write = Some((count, write));
    }

    /// Whether bytes may go straight from a socket to the file now: nobody has to see them, and the disk is fast.
    pub(super) fn is_straight(&self) -> bool {
        self.stretches.is_none()
            && self.failed.is_none()
            && self.is_written()
            && self.straight.is_open()
            && self.host.pace.is_fast()
    }

    /// Takes at most so many bytes from a socket; none at its end. [`drain`](Self::drain) is next.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        socket: &TcpStream,
        most: u64,
    ) -> Poll<io::Result<usize>> {
        self.straight.poll_fill(cx, socket, most)
    }

    /// Writes what was taken to this position; nothing: it is not wanted.
    pub(super) fn drain(&mut self, offset: Option<u64>) {
        let Some(offset) = offset else {
            return self.straight.forget();
        };
        let (straight, file) = (&mut self.straight, self.upload.file());
        let written = self.host.pace.of(|| straight.drain(file, offset));
        self.failed = self.failed.or(written.err());
    }

    /// Lets writes end. True: one has. The first that failed is kept.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while let Some((_, write)) = &mut self.write {
            let Poll::Ready(written) = Pin::new(write).poll(cx) else {
                break;
            };
            self.write = None;
            moved = true;
            // A thread that panicked wrote nothing.
            self.written(written.unwrap_or(Err(Errno::IO)));
            self.begin_write();
        }
        moved
    }

    fn written(&mut self, written: Result<Sums, Errno>) {
        match written {
            Ok(sums) => {
                let sums = sums.into_iter();
                sums.for_each(|(begin, end, sum)| self.stretch(begin, end, sum));
            }
            Err(errno) => self.failed = self.failed.or(Some(errno)),
        }
    }

    /// Whether all that came is written.
    pub(super) fn is_written(&self) -> bool {
        self.write.is_none()
    }

    /// Why not all of it could be.
    pub(super) fn failed(&self) -> Option<Errno> {
        self.failed
    }

    /// The Adler-32 of the file, if it came by as a whole and there is nothing else in it.
    pub(super) fn sum_of_all(&self) -> Option<u32> {
        let stretches = self.stretches.as_ref()?;
        sum_of(stretches, self.upload.facts().ok()?.bytes)
    }

    /// The file, for whoever is to read or finish it, when all is written.
    pub(super) fn upload(&self) -> Arc<Upload> {
        Arc::clone(&self.upload)
    }

    /// The file alone; nothing while somebody else has it.
    pub(super) fn into_upload(self) -> Option<Upload> {
        Arc::into_inner(self.upload)
    }

    fn stretch(&mut self, begin: u64, end: u64, sum: Adler32) {
        let known = self
            .stretches
            .as_mut()
            .map(|stretches| add(stretches, begin, end, sum));
        if known == Some(false) {
            self.stretches = None;
        }
    }
}

/// Adds a stretch of a file and its checksum, joined with those before and behind it. False: the sum of the whole cannot be known any more.
fn add(stretches: &mut Stretches, begin: u64, end: u64, sum: Adler32) -> bool {
    let (mut begin, mut end, mut sum) = (begin, end, sum);
    if let Some((&before, &(to, first))) = stretches.range(..begin).next_back()
        && to >= begin
    {
        // Bytes that came twice: the second time decides, and their sum is not known.
        if to > begin {
            return false;
        }
        stretches.remove(&before);
        (begin, sum) = (before, first.followed_by(sum));
    }
    if let Some((&after, &(to, last))) = stretches.range(begin..).next()
        && after <= end
    {
        if after < end {
            return false;
        }
        stretches.remove(&after);
        (end, sum) = (to, sum.followed_by(last));
    }
    stretches.insert(begin, (end, sum));
    stretches.len() <= MAX_STRETCHES
}

/// The sum of all bytes from 0 to `bytes`, if there is nothing else.
fn sum_of(stretches: &Stretches, bytes: u64) -> Option<u32> {
    match stretches.first_key_value() {
        None if bytes == 0 => Some(Adler32::default().value()),
        Some((0, (end, sum))) if *end == bytes => Some(sum.value()),
        _ => None,
    }
}

/// Writes what is in a buffer.
pub(super) fn put(upload: &Upload, filled: &Filled, sums: bool) -> Result<Sums, Errno> {
    let mut found = Sums::new();
    for segment in &filled.segments {
        let bytes = &filled.buffer[segment.start..segment.start + segment.bytes];
        upload.write(bytes, segment.offset)?;
        if sums {
            let end = segment.offset + segment.bytes as u64;
            found.push((segment.offset, end, Adler32::of(bytes)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use clap::Parser;
    use proptest::prelude::*;

    use super::*;
    use crate::serve::arguments::Arguments;
    use crate::serve::buffers::BUFFER_BYTES;
    use crate::serve::root::upload::Begin;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    const LAST: u8 = MAX_WRITES as u8;

    #[test]
    fn on_a_slow_disk_buffers_are_written_in_their_order_and_no_more_come_than_may_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let words = [
            "serve".as_ref(),
            folder.path().as_os_str(),
            "--write".as_ref(),
        ];
        let (host, _log) = Host::new(&Line::parse_from(words).arguments).expect("a server");
        let host = Arc::new(host);
        let upload = host.root.upload(b"/file", Begin::New).expect("a file");
        let mut writing = Writing::new(upload, false, Arc::clone(&host));
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        let runtime = builder.build().expect("a runtime");
        runtime.block_on(async {
            for round in 1..=100_u8 {
                host.pace
                    .of(|| std::thread::sleep(Duration::from_millis(6)));
                for number in 1..=LAST {
                    assert!(writing.has_room());
                    let mut buffer = host.buffers.take();
                    buffer.fill(round + number);
                    // All of them to the same place: the last one stays.
                    let segment = Segment {
                        start: 0,
                        bytes: BUFFER_BYTES,
                        offset: 0,
                    };
                    let segments = vec![segment];
                    writing.write(Filled { buffer, segments });
                }
                assert!(!writing.has_room() && !writing.is_straight());
                while !writing.is_written() {
                    poll_fn(|cx| {
                        if writing.poll(cx) {
                            Poll::Ready(())
                        } else {
                            Poll::Pending
                        }
                    })
                    .await;
                }
                let mut found = vec![0; BUFFER_BYTES];
                let read = rustix::io::pread(writing.upload().file(), &mut found, 0);
                assert_eq!(read, Ok(BUFFER_BYTES));
                assert!(found.iter().all(|byte| *byte == round + LAST));
            }
        });
        assert_eq!(writing.failed(), None);
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_make_the_checksum_of_the_whole_and_twice_the_same_makes_none(
            cuts in prop::collection::btree_set(1_usize..1000, 0..20), order in any::<u64>(), twice in any::<bool>(),
        ) {
            let bytes: Vec<u8> = (0..1000_u32).map(|at| (at * 7 + at / 256) as u8).collect();
            let ends: Vec<usize> = cuts.into_iter().chain([1000]).collect();
            let mut pieces: Vec<_> = std::iter::once(0).chain(ends.iter().copied()).zip(ends.iter().copied()).collect();
            pieces.sort_by_key(|(begin, _)| (*begin as u64 + 1).wrapping_mul(order | 1));
            if twice {
                pieces.push(pieces[0]);
            }
            let mut stretches = Stretches::new();
            let known = pieces.into_iter().all(|(begin, end)| {
                add(&mut stretches, begin as u64, end as u64, Adler32::of(&bytes[begin..end]))
            });
            prop_assert_eq!(known, !twice);
            if known {
                prop_assert_eq!(sum_of(&stretches, 1000), Some(Adler32::of(&bytes).value()));
                prop_assert_eq!(sum_of(&stretches, 1001), None);
            }
        }
    }
}
