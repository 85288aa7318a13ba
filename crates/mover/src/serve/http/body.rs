//! What an answer carries: bytes at hand, what a channel brings, or ranges of a file.

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

use super::going::Going;
use super::session::Active;
use super::wire::Passing;
use crate::http::outgoing::Outgoing;
use crate::serve::metrics;

/// Bytes that are read of a file at a time.
const BLOCK_BYTES: usize = 128 << 10;

/// The body of an answer.
pub(crate) enum Reply {
    /// What is at hand.
    Plain(Outgoing),
    /// What is at hand, for as long as its request counts as one that is answered.
    Watched(Outgoing, Active),
    /// Ranges of a file.
    File(FileBody),
}

/// Of an answer of several ranges: text between them, and ranges.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    Text(Bytes),
    Range(Range<u64>),
}

/// Ranges of a file as a body.
pub(crate) struct FileBody {
    file: Arc<OwnedFd>,
    parts: VecDeque<Part>,
    passing: Option<Rc<Passing>>,
    /// Whether the first part is sent by the socket itself.
    passed: bool,
    left: u64,
    reading: Option<JoinHandle<Result<Vec<u8>, Errno>>>,
    active: Active,
    going: Going,
    /// What the transfer comes to when all has gone.
    status: StatusCode,
    sent: u64,
}

impl FileBody {
    pub(crate) fn new(
        (going, status): (Going, StatusCode),
        file: Arc<OwnedFd>,
        parts: Vec<Part>,
        (active, passing): (Active, Option<Rc<Passing>>),
    ) -> Self {
        let length = |part: &Part| match part {
            Part::Text(text) => text.len() as u64,
            Part::Range(range) => range.end - range.start,
        };
        Self {
            file,
            left: parts.iter().map(length).sum(),
            parts: parts.into(),
            passing,
            passed: false,
            reading: None,
            active,
            going,
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
                    read.map(|bytes| self.took(bytes.into()))
                        .map_err(Into::into),
                ));
            }
            match self.parts.front() {
                None => return Poll::Ready(None),
                Some(Part::Range(range)) if range.is_empty() => {
                    self.parts.pop_front();
                    self.passed = false;
                }
                Some(Part::Text(_)) => {
                    let Some(Part::Text(text)) = self.parts.pop_front() else {
                        continue;
                    };
                    self.left -= text.len() as u64;
                    return Poll::Ready(Some(Ok(text)));
                }
                Some(Part::Range(range)) => {
                    let range = range.clone();
                    if let Some(stretch) = self.stretch(&range)? {
                        return Poll::Ready(Some(Ok(self.took(stretch))));
                    }
                    let most = usize::try_from(range.end - range.start)
                        .unwrap_or(BLOCK_BYTES)
                        .min(BLOCK_BYTES);
                    let start = range.start;
                    match at_once(&self.file, most, start) {
                        Some(bytes) => return Poll::Ready(Some(Ok(self.took(bytes.into())))),
                        None => {
                            let file = Arc::clone(&self.file);
                            self.reading = Some(tokio::task::spawn_blocking(move || {
                                waited(&file, most, start)
                            }));
                        }
                    }
                }
            }
        }
    }

    /// What stands for the range on a socket that sends files itself; none if it does not, or if there is little of it, which goes with the head.
    fn stretch(&mut self, range: &Range<u64>) -> io::Result<Option<Bytes>> {
        let Some(passing) = &self.passing else {
            return Ok(None);
        };
        if !self.passed {
            if range.end - range.start <= BLOCK_BYTES as u64 {
                return Ok(None);
            }
            passing.begin(self.file.try_clone()?, range);
            self.passed = true;
        }
        Ok(Some(passing.stretch(range.end - range.start)))
    }

    fn took(&mut self, bytes: Bytes) -> Bytes {
        let length = bytes.len() as u64;
        if let Some(Part::Range(range)) = self.parts.front_mut() {
            range.start += length;
        }
        self.left -= length;
        self.sent += length;
        metrics::add(&self.going.host.metrics.sent_bytes, length);
        self.active.beat();
        bytes
    }
}

/// What the kernel has in memory; none if it would have to wait, or there is none.
pub(crate) fn at_once(file: &OwnedFd, most: usize, at: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; most];
    let mut slices = [io::IoSliceMut::new(&mut bytes)];
    match rustix::io::preadv2(file, &mut slices, at, ReadWriteFlags::NOWAIT) {
        Ok(count) if count > 0 => {
            bytes.truncate(count);
            Some(bytes)
        }
        _ => None,
    }
}

fn waited(file: &OwnedFd, most: usize, at: u64) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; most];
    match rustix::io::pread(file, &mut bytes, at)? {
        // Cut short since it was opened: what was promised cannot be kept.
        0 => Err(Errno::IO),
        count => {
            bytes.truncate(count);
            Ok(bytes)
        }
    }
}

impl Drop for FileBody {
    fn drop(&mut self) {
        self.going.moved(self.sent);
        if self.left == 0 {
            self.going.ended(self.status);
        }
    }
}

impl Body for Reply {
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
            Self::File(body) => body.left == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Plain(body) | Self::Watched(body, _) => body.size_hint(),
            Self::File(body) => SizeHint::with_exact(body.left),
        }
    }
}
