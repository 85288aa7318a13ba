//! A socket of plain HTTP: ranges of files go from the page cache to it without passing through us (`sendfile`).
//!
//! To hyper a range is bytes like all others: a stretch of a place that nobody reads or writes. Whoever writes such a stretch to the socket sends
//! the file instead. That holds as long as hyper hands on the bytes that it got and no copy of them: it does so for sockets that write several
//! at once (`is_write_vectored`), and if it ever did not, the connection would end at the next flush, before the answer could pass for whole.

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

use super::session::Pulse;
use crate::serve::ftp::reading::Reading;

/// Bytes that one stretch can stand for.
pub(super) const PLACE_BYTES: usize = 1 << 20;

/// Never written to, so that it takes no memory.
fn place() -> &'static [u8] {
    static PLACE: OnceLock<&'static [u8]> = OnceLock::new();
    PLACE.get_or_init(|| Box::leak(vec![0; PLACE_BYTES].into_boxed_slice()))
}

fn stands_for_a_file(bytes: &[u8]) -> bool {
    !bytes.is_empty() && place().as_ptr_range().contains(&bytes.as_ptr())
}

/// Ranges that are to be sent, in their order. Body and socket of a connection share them.
#[derive(Debug, Default)]
pub(super) struct Passing(RefCell<Owed>);

#[derive(Debug, Default)]
struct Owed {
    ranges: VecDeque<Sent>,
    /// Bytes that were stood for and are not sent yet.
    bytes: u64,
}

#[derive(Debug)]
struct Sent {
    reading: Reading,
    at: u64,
    left: u64,
}

impl Passing {
    /// Begins a range: all its bytes are to be stood for.
    pub(super) fn begin(&self, file: OwnedFd, range: &std::ops::Range<u64>) {
        let sent = Sent {
            reading: Reading::new(file),
            at: range.start,
            left: range.end - range.start,
        };
        self.0.borrow_mut().ranges.push_back(sent);
    }

    /// What stands for the next bytes of it, at most so many.
    pub(super) fn stretch(&self, most: u64) -> Bytes {
        let length = usize::try_from(most)
            .unwrap_or(PLACE_BYTES)
            .min(PLACE_BYTES);
        self.0.borrow_mut().bytes += length as u64;
        Bytes::from_static(&place()[..length])
    }
}

/// A socket that who waits for its client can look at meanwhile.
#[derive(Debug, Clone)]
pub(super) struct Shared(Rc<TcpStream>);

impl Shared {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self(Rc::new(socket))
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.0
    }
}

/// Tries as soon as that is worth it, until it is not put off.
fn when<T>(
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

impl AsyncRead for Shared {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = || self.0.try_read_buf(buffer).map(drop);
        when(|| self.0.poll_read_ready(context), read)
    }
}

impl AsyncWrite for Shared {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        when(
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
        when(|| self.0.poll_write_ready(context), write)
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

/// A socket that knows what stands for files.
pub(super) struct Wire {
    socket: TokioIo<Shared>,
    passing: Rc<Passing>,
    pulse: Rc<Pulse>,
}

impl Wire {
    pub(super) fn new(socket: Shared, passing: Rc<Passing>, pulse: Rc<Pulse>) -> Self {
        Self {
            socket: TokioIo::new(socket),
            passing,
            pulse,
        }
    }

    fn poll_pass(&self, context: &mut Context<'_>, most: usize) -> Poll<io::Result<usize>> {
        let mut owed = self.passing.0.borrow_mut();
        let Some(range) = owed.ranges.front_mut() else {
            return Poll::Ready(Err(io::Error::other(
                "more bytes than the file was said to have",
            )));
        };
        let most = range.left.min(most as u64);
        let sent = ready!(range.reading.send(
            context,
            self.socket.inner().socket(),
            range.at,
            most
        ))?;
        range.at += sent;
        range.left -= sent;
        if range.left == 0 {
            owed.ranges.pop_front();
        }
        owed.bytes -= sent;
        self.pulse.moved(sent);
        Poll::Ready(Ok(usize::try_from(sent).expect("at most as asked for")))
    }

    fn beaten(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = written {
            self.pulse.moved(count as u64);
        }
        written
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if stands_for_a_file(bytes) {
            return self.poll_pass(context, bytes.len());
        }
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.beaten(written)
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
                self.beaten(written)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.passing.0.borrow().bytes > 0 {
            return Poll::Ready(Err(io::Error::other(
                "bytes of a file were not sent as such",
            )));
        }
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
