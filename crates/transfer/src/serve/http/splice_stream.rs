//! Socket of plain HTTP that sends file ranges from the page cache with `sendfile`.
//!
//! For hyper a range is a slice of placeholder memory that is never read or written. When such a slice is written
//! to the socket, the socket sends the file instead. This requires that hyper passes slices on without a copy, as
//! it does for sockets that support vectored writes (`is_write_vectored`). Otherwise the connection would end at
//! the next flush, before the response could look complete.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::session::ConnectionActivity;
use crate::serve::ftp::file_reader::FileReader;

/// Maximum bytes of one placeholder.
pub(super) const PLACEHOLDER_BYTES: usize = 1 << 20;

/// Return placeholder memory. It is never written, so it takes no memory.
fn placeholder() -> &'static [u8] {
    static PLACEHOLDER: OnceLock<&'static [u8]> = OnceLock::new();
    PLACEHOLDER.get_or_init(|| Box::leak(vec![0; PLACEHOLDER_BYTES].into_boxed_slice()))
}

fn stands_for_a_file(bytes: &[u8]) -> bool {
    !bytes.is_empty() && placeholder().as_ptr_range().contains(&bytes.as_ptr())
}

/// Ranges to send, in order. Body and socket of a connection share them.
#[derive(Debug, Default)]
pub(super) struct PendingFiles(RefCell<PendingRanges>);

#[derive(Debug, Default)]
struct PendingRanges {
    ranges: VecDeque<FileRange>,
    /// Placeholder bytes that were not sent yet.
    bytes: u64,
}

#[derive(Debug)]
struct FileRange {
    reading: FileReader,
    at: u64,
    remaining: u64,
}

impl PendingFiles {
    /// Start a range; placeholders must follow for all its bytes.
    pub(super) fn start(&self, file: OwnedFd, range: &std::ops::Range<u64>) {
        let sent = FileRange {
            reading: FileReader::new(file),
            at: range.start,
            remaining: range.end - range.start,
        };
        self.0.borrow_mut().ranges.push_back(sent);
    }

    /// Return a placeholder for the next bytes of the range.
    pub(super) fn add_range(&self, max: u64) -> Bytes {
        let length = usize::try_from(max)
            .unwrap_or(PLACEHOLDER_BYTES)
            .min(PLACEHOLDER_BYTES);
        self.0.borrow_mut().bytes += length as u64;
        Bytes::from_static(&placeholder()[..length])
    }
}

/// Socket that can be inspected while it is in use.
#[derive(Debug, Clone)]
pub(super) struct SharedSocket(Rc<TcpStream>);

impl SharedSocket {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self(Rc::new(socket))
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.0
    }
}

/// Retry until the operation does not block.
fn try_when_ready<T>(
    mut ready: impl FnMut() -> Poll<io::Result<()>>,
    mut work: impl FnMut() -> io::Result<T>,
) -> Poll<io::Result<T>> {
    loop {
        ready!(ready())?;
        match work() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return Poll::Ready(done),
        }
    }
}

impl AsyncRead for SharedSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = || self.0.try_read_buf(buffer).map(drop);
        try_when_ready(|| self.0.poll_read_ready(context), read)
    }
}

impl AsyncWrite for SharedSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        try_when_ready(
            || self.0.poll_write_ready(context),
            || self.0.try_write(bytes),
        )
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = || self.0.try_write_vectored(slices);
        try_when_ready(|| self.0.poll_write_ready(context), write)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(shutdown(&*self.0, Shutdown::Write)?))
    }
}

/// Socket that replaces placeholders by file data.
pub(super) struct SpliceStream {
    socket: TokioIo<SharedSocket>,
    pending: Rc<PendingFiles>,
    activity: Rc<ConnectionActivity>,
}

impl SpliceStream {
    pub(super) fn new(
        socket: SharedSocket,
        pending: Rc<PendingFiles>,
        activity: Rc<ConnectionActivity>,
    ) -> Self {
        Self {
            socket: TokioIo::new(socket),
            pending,
            activity,
        }
    }

    fn poll_pass(&self, context: &mut Context<'_>, max: usize) -> Poll<io::Result<usize>> {
        let mut pending_ranges = self.pending.0.borrow_mut();
        let Some(range) = pending_ranges.ranges.front_mut() else {
            return Poll::Ready(Err(io::Error::other(
                "more bytes than the announced size of the file",
            )));
        };
        let max = range.remaining.min(max as u64);
        let sent = ready!(range.reading.send(
            context,
            self.socket.inner().socket(),
            range.at,
            max
        ))?;
        range.at += sent;
        range.remaining -= sent;
        if range.remaining == 0 {
            pending_ranges.ranges.pop_front();
        }
        pending_ranges.bytes -= sent;
        self.activity.moved(sent);
        Poll::Ready(Ok(
            usize::try_from(sent).expect("at most the requested length")
        ))
    }

    fn count_written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = written {
            self.activity.moved(count as u64);
        }
        written
    }
}

impl Read for SpliceStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl Write for SpliceStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if stands_for_a_file(bytes) {
            return self.poll_pass(context, bytes.len());
        }
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.count_written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = slices
            .iter()
            .position(|slice| !slice.is_empty())
            .unwrap_or(0);
        let slices = &slices[first..];
        match slices.iter().position(|slice| stands_for_a_file(slice)) {
            Some(0) => self.poll_pass(context, slices[0].len()),
            until => {
                let plain = &slices[..until.unwrap_or(slices.len())];
                let written = Pin::new(&mut self.socket).poll_write_vectored(context, plain);
                self.count_written(written)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.pending.0.borrow().bytes > 0 {
            return Poll::Ready(Err(io::Error::other(
                "bytes of a file were sent without splice",
            )));
        }
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
