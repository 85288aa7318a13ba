//! File that is received: buffers are written on this thread if this does not block, otherwise on
//! other threads, with a limit.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustix::io::Errno;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::checksum::Adler32;
use crate::net::splice::SplicePipe;
use crate::serve::buffers::Buffer;
use crate::serve::confined_root::upload::UploadFile;
use crate::serve::state::ServerState;

/// Maximum number of buffers of a session that are being written, or wait for it.
const MAX_WRITES: usize = 16;
/// Maximum number of separate byte ranges with checksums; beyond it, the file is read again.
const MAX_SUMMED_RANGES: usize = 4096;

/// Buffer with bytes of a file.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) buffer: Buffer,
    pub(super) segments: Vec<Segment>,
}

/// Range of file data in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) start: usize,
    pub(super) bytes: usize,
    /// Position in the file.
    pub(super) offset: u64,
}

/// Start → end and checksum of each range.
type SummedRanges = BTreeMap<u64, (u64, Adler32)>;
/// Checksums of one buffer.
type Sums = Vec<(u64, u64, Adler32)>;

/// File that is received.
#[derive(Debug)]
pub(super) struct FileWriter {
    host: Arc<ServerState>,
    upload: Arc<UploadFile>,
    /// Buffers for the writer thread. Only one thread writes, because others would spin on the file lock.
    waiting: Vec<Filled>,
    /// Running write and its number of buffers.
    write: Option<(usize, JoinHandle<Result<Sums, Errno>>)>,
    failed: Option<Errno>,
    splice: SplicePipe,
    /// Checksums by range, if requested.
    summed: Option<SummedRanges>,
}

impl FileWriter {
    /// Create a writer for an upload, with an Adler-32 of the received bytes if `sums`.
    pub(super) fn new(upload: UploadFile, sums: bool, host: Arc<ServerState>) -> Self {
        Self {
            host,
            upload: Arc::new(upload),
            waiting: Vec::new(),
            write: None,
            failed: None,
            splice: SplicePipe::default(),
            summed: sums.then(BTreeMap::new),
        }
    }

    /// Return whether more data is accepted. On a fast disk, waiting buffers go first so that new data can take the
    /// direct path.
    pub(super) fn has_capacity(&self) -> bool {
        let writer = self.write.as_ref().map_or(0, |(buffers, _)| *buffers);
        let max = if self.host.pace.is_fast() {
            1
        } else {
            MAX_WRITES
        };
        writer + self.waiting.len() < max
    }

    /// Write a buffer.
    pub(super) fn write(&mut self, filled: Filled) {
        if filled.segments.is_empty() {
            return;
        }
        if self.is_written() && self.host.pace.is_fast() {
            let sums = self.summed.is_some();
            let written = self.host.pace.of(|| put(&self.upload, &filled, sums));
            return self.written(written);
        }
        self.waiting.push(filled);
        self.start_write();
    }

    /// Start a thread for waiting buffers, unless one is running.
    fn start_write(&mut self) {
        if self.write.is_some() || self.waiting.is_empty() {
            return;
        }
        let (upload, sums) = (Arc::clone(&self.upload), self.summed.is_some());
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

    /// Return whether data can be spliced from the socket to the file: no other reader of the bytes, and a fast
    /// disk.
    pub(super) fn can_splice(&self) -> bool {
        self.summed.is_none()
            && self.failed.is_none()
            && self.is_written()
            && self.splice.is_open()
            && self.host.pace.is_fast()
    }

    /// Take at most this many bytes from a socket; none at its end. Call [`drain`](Self::drain)
    /// next.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        socket: &TcpStream,
        max: u64,
    ) -> Poll<io::Result<usize>> {
        self.splice.poll_fill(cx, socket, max)
    }

    /// Write spliced data at this position; none discards it.
    pub(super) fn drain(&mut self, offset: Option<u64>) {
        let Some(offset) = offset else {
            return self.splice.forget();
        };
        let (splice, file) = (&mut self.splice, self.upload.file());
        let written = self.host.pace.of(|| splice.drain(file, offset));
        self.failed = self.failed.or(written.err());
    }

    /// Handle completed writes and keep the first error. Return whether a write completed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while let Some((_, write)) = &mut self.write {
            let Poll::Ready(written) = Pin::new(write).poll(cx) else {
                break;
            };
            self.write = None;
            moved = true;
            // A thread that panicked wrote no data.
            self.written(written.unwrap_or(Err(Errno::IO)));
            self.start_write();
        }
        moved
    }

    fn written(&mut self, written: Result<Sums, Errno>) {
        match written {
            Ok(sums) => {
                let sums = sums.into_iter();
                sums.for_each(|(start, finish, sum)| self.add_range(start, finish, sum));
            }
            Err(errno) => self.failed = self.failed.or(Some(errno)),
        }
    }

    /// Return whether all received data is written.
    pub(super) fn is_written(&self) -> bool {
        self.write.is_none()
    }

    /// Return the first error, if any.
    pub(super) fn failed(&self) -> Option<Errno> {
        self.failed
    }

    /// Return the Adler-32 of the file, if all of its bytes were seen exactly once.
    pub(super) fn checksum(&self) -> Option<u32> {
        let summed = self.summed.as_ref()?;
        checksum(summed, self.upload.metadata().ok()?.bytes)
    }

    /// Return the file for reading or completion after all writes.
    pub(super) fn upload(&self) -> Arc<UploadFile> {
        Arc::clone(&self.upload)
    }

    /// Return the file; none while another owner exists.
    pub(super) fn into_upload(self) -> Option<UploadFile> {
        Arc::into_inner(self.upload)
    }

    fn add_range(&mut self, start: u64, finish: u64, sum: Adler32) {
        let known = self
            .summed
            .as_mut()
            .map(|summed| add(summed, start, finish, sum));
        if known == Some(false) {
            self.summed = None;
        }
    }
}

/// Add a range with its checksum and join it with its neighbours. False if the checksum of the file is now unknown.
fn add(summed: &mut SummedRanges, start: u64, finish: u64, sum: Adler32) -> bool {
    let (mut start, mut finish, mut sum) = (start, finish, sum);
    if let Some((&before, &(to, first))) = summed.range(..start).next_back()
        && to >= start
    {
        // Bytes that arrived twice: the second write counts, and their checksum is unknown.
        if to > start {
            return false;
        }
        summed.remove(&before);
        (start, sum) = (before, first.followed_by(sum));
    }
    if let Some((&after, &(to, last))) = summed.range(start..).next()
        && after <= finish
    {
        if after < finish {
            return false;
        }
        summed.remove(&after);
        (finish, sum) = (to, sum.followed_by(last));
    }
    summed.insert(start, (finish, sum));
    summed.len() <= MAX_SUMMED_RANGES
}

/// Return the checksum of bytes 0 to `bytes`, if these are all.
fn checksum(summed: &SummedRanges, bytes: u64) -> Option<u32> {
    match summed.first_key_value() {
        None if bytes == 0 => Some(Adler32::default().value()),
        Some((0, (finish, sum))) if *finish == bytes => Some(sum.value()),
        _ => None,
    }
}

/// Write a buffer.
pub(super) fn put(upload: &UploadFile, filled: &Filled, sums: bool) -> Result<Sums, Errno> {
    let mut found = Sums::new();
    for segment in &filled.segments {
        let bytes = &filled.buffer[segment.start..segment.start + segment.bytes];
        upload.write(bytes, segment.offset)?;
        if sums {
            let finish = segment.offset + segment.bytes as u64;
            found.push((segment.offset, finish, Adler32::of(bytes)));
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
    use crate::serve::arguments::ServeArgs;
    use crate::serve::buffers::BUFFER_BYTES;
    use crate::serve::confined_root::upload::UploadStart;

    #[derive(Parser)]
    struct TestCli {
        #[command(flatten)]
        arguments: ServeArgs,
    }

    const LAST: u8 = MAX_WRITES as u8;

    #[test]
    fn on_a_slow_disk_buffers_are_written_in_order_and_pending_buffers_are_limited() {
        let directory = tempfile::tempdir().expect("a folder");
        let arguments = [
            "serve".as_ref(),
            directory.path().as_os_str(),
            "--write".as_ref(),
        ];
        let (host, _log) =
            ServerState::new(&TestCli::parse_from(arguments).arguments).expect("a server");
        let host = Arc::new(host);
        let upload = host
            .root
            .upload(b"/file", UploadStart::New)
            .expect("a file");
        let mut writer = FileWriter::new(upload, false, Arc::clone(&host));
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        let runtime = builder.build().expect("a runtime");
        runtime.block_on(async {
            for round in 1..=100_u8 {
                host.pace
                    .of(|| std::thread::sleep(Duration::from_millis(6)));
                for number in 1..=LAST {
                    assert!(writer.has_capacity());
                    let mut buffer = host.buffers.take();
                    buffer.fill(round + number);
                    // All segments have the same position, so the last one counts.
                    let segment = Segment {
                        start: 0,
                        bytes: BUFFER_BYTES,
                        offset: 0,
                    };
                    let segments = vec![segment];
                    writer.write(Filled { buffer, segments });
                }
                assert!(!writer.has_capacity() && !writer.can_splice());
                while !writer.is_written() {
                    poll_fn(|cx| {
                        if writer.poll(cx) {
                            Poll::Ready(())
                        } else {
                            Poll::Pending
                        }
                    })
                    .await;
                }
                let mut found = vec![0; BUFFER_BYTES];
                let read = rustix::io::pread(writer.upload().file(), &mut found, 0);
                assert_eq!(read, Ok(BUFFER_BYTES));
                assert!(found.iter().all(|byte| *byte == round + LAST));
            }
        });
        assert_eq!(writer.failed(), None);
    }

    proptest! {
        #[test]
        fn ranges_in_any_order_give_the_total_checksum_and_duplicates_give_none(
            cuts in prop::collection::btree_set(1_usize..1000, 0..20), order in any::<u64>(), twice in any::<bool>(),
        ) {
            let bytes: Vec<u8> = (0..1000_u32).map(|at| (at * 7 + at / 256) as u8).collect();
            let ends: Vec<usize> = cuts.into_iter().chain([1000]).collect();
            let mut chunks: Vec<_> = std::iter::once(0).chain(ends.iter().copied()).zip(ends.iter().copied()).collect();
            chunks.sort_by_key(|(start, _)| (*start as u64 + 1).wrapping_mul(order | 1));
            if twice {
                chunks.push(chunks[0]);
            }
            let mut summed = SummedRanges::new();
            let known = chunks.into_iter().all(|(start, finish)| {
                add(&mut summed, start as u64, finish as u64, Adler32::of(&bytes[start..finish]))
            });
            prop_assert_eq!(known, !twice);
            if known {
                prop_assert_eq!(checksum(&summed, 1000), Some(Adler32::of(&bytes).value()));
                prop_assert_eq!(checksum(&summed, 1001), None);
            }
        }
    }
}
