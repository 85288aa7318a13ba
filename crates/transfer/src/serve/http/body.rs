//! Response bodies: bytes in memory, blocks of a channel, or ranges of a file.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Body, Frame, SizeHint};
use rustix::io::{Errno, ReadWriteFlags};
use tokio::task::JoinHandle;

use super::session::RequestGuard;
use super::splice_stream::PendingFiles;
use super::transfer_guard::TransferGuard;
use crate::http::outgoing::OutgoingBody;
use crate::serve::metrics;

/// Bytes of a read.
const BLOCK_BYTES: usize = 128 << 10;

/// Body of a response.
pub(crate) enum ResponseBody {
    /// Bytes or blocks.
    Plain(OutgoingBody),
    /// Bytes or blocks of a request that counts as active until the end.
    Watched(OutgoingBody, RequestGuard),
    /// Ranges of a file.
    File(FileBody),
}

/// Section of a response with several ranges: text between them, or a range.
#[derive(Debug, Clone)]
pub(crate) enum MultipartSection {
    Text(Bytes),
    Range(Range<u64>),
}

/// Ranges of a file as a body.
pub(crate) struct FileBody {
    file: Arc<OwnedFd>,
    parts: VecDeque<MultipartSection>,
    pending: Option<Rc<PendingFiles>>,
    /// True if the first part is sent by the socket itself.
    passed: bool,
    remaining: u64,
    reading: Option<JoinHandle<Result<Vec<u8>, Errno>>>,
    active: RequestGuard,
    guard: TransferGuard,
    /// Status of the transfer after the last byte.
    status: StatusCode,
    sent: u64,
}

impl FileBody {
    pub(crate) fn new(
        (guard, status): (TransferGuard, StatusCode),
        file: Arc<OwnedFd>,
        parts: Vec<MultipartSection>,
        (active, pending): (RequestGuard, Option<Rc<PendingFiles>>),
    ) -> Self {
        let length = |part: &MultipartSection| match part {
            MultipartSection::Text(text) => text.len() as u64,
            MultipartSection::Range(range) => range.end - range.start,
        };
        Self {
            file,
            remaining: parts.iter().map(length).sum(),
            parts: parts.into(),
            pending,
            passed: false,
            reading: None,
            active,
            guard,
            status,
            sent: 0,
        }
    }

    fn poll_block(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            if let Some(reading) = &mut self.reading {
                let read = std::task::ready!(Pin::new(reading).poll(context));
                self.reading = None;
                let read = read.unwrap_or(Err(Errno::IO));
                return Poll::Ready(Some(
                    read.map(|bytes| self.count_sent(bytes.into()))
                        .map_err(Into::into),
                ));
            }
            match self.parts.front() {
                None => return Poll::Ready(None),
                Some(MultipartSection::Range(range)) if range.is_empty() => {
                    self.parts.pop_front();
                    self.passed = false;
                }
                Some(MultipartSection::Text(_)) => {
                    let Some(MultipartSection::Text(text)) = self.parts.pop_front() else {
                        continue;
                    };
                    self.remaining -= text.len() as u64;
                    return Poll::Ready(Some(Ok(text)));
                }
                Some(MultipartSection::Range(range)) => {
                    let range = range.clone();
                    if let Some(add_range) = self.add_range(&range)? {
                        return Poll::Ready(Some(Ok(self.count_sent(add_range))));
                    }
                    let max = usize::try_from(range.end - range.start)
                        .unwrap_or(BLOCK_BYTES)
                        .min(BLOCK_BYTES);
                    let start = range.start;
                    match at_once(&self.file, max, start) {
                        Some(bytes) => return Poll::Ready(Some(Ok(self.count_sent(bytes.into())))),
                        None => {
                            let file = Arc::clone(&self.file);
                            self.reading = Some(tokio::task::spawn_blocking(move || {
                                waited(&file, max, start)
                            }));
                        }
                    }
                }
            }
        }
    }

    /// Return placeholder bytes of the range on a socket that uses `sendfile`; none without it, or for few bytes,
    /// which go with the head.
    fn add_range(&mut self, range: &Range<u64>) -> io::Result<Option<Bytes>> {
        let Some(pending) = &self.pending else {
            return Ok(None);
        };
        if !self.passed {
            if range.end - range.start <= BLOCK_BYTES as u64 {
                return Ok(None);
            }
            pending.start(self.file.try_clone()?, range);
            self.passed = true;
        }
        Ok(Some(pending.add_range(range.end - range.start)))
    }

    fn count_sent(&mut self, bytes: Bytes) -> Bytes {
        let length = bytes.len() as u64;
        if let Some(MultipartSection::Range(range)) = self.parts.front_mut() {
            range.start += length;
        }
        self.remaining -= length;
        self.sent += length;
        metrics::add(&self.guard.host.metrics.sent_bytes, length);
        self.active.beat();
        bytes
    }
}

/// Read bytes that are in the page cache; none if the read would block or has no data.
pub(crate) fn at_once(file: &OwnedFd, max: usize, at: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; max];
    let mut slices = [io::IoSliceMut::new(&mut bytes)];
    match rustix::io::preadv2(file, &mut slices, at, ReadWriteFlags::NOWAIT) {
        Ok(count) if count > 0 => {
            bytes.truncate(count);
            Some(bytes)
        }
        _ => None,
    }
}

fn waited(file: &OwnedFd, max: usize, at: u64) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; max];
    match rustix::io::pread(file, &mut bytes, at)? {
        // The file was truncated after opening, so the announced size is wrong.
        0 => Err(Errno::IO),
        count => {
            bytes.truncate(count);
            Ok(bytes)
        }
    }
}

impl Drop for FileBody {
    fn drop(&mut self) {
        self.guard.moved(self.sent);
        if self.remaining == 0 {
            self.guard.ended(self.status);
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Plain(body) => Pin::new(body).poll_frame(context),
            Self::Watched(body, active) => {
                let frame = Pin::new(body).poll_frame(context);
                if frame.is_ready() {
                    active.beat();
                }
                frame
            }
            Self::File(body) => body
                .poll_block(context)
                .map(|block| block.map(|block| block.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Plain(body) | Self::Watched(body, _) => body.is_end_stream(),
            Self::File(body) => body.remaining == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Plain(body) | Self::Watched(body, _) => body.size_hint(),
            Self::File(body) => SizeHint::with_exact(body.remaining),
        }
    }
}
