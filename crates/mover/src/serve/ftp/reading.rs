//! A file that is sent: from the page cache to the socket without passing through us (`sendfile`), which waits for no disk, since what
//! is not in the cache is read into it by another thread first.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Bytes that are sent by one call.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes that the kernel is asked to read ahead of a cold place.
const AHEAD_BYTES: u64 = 8 << 20;
/// Bytes that are read into nowhere at a time.
const WARMING_BYTES: usize = 256 * 1024;

/// A file that is sent.
#[derive(Debug)]
pub(in crate::serve) struct Reading {
    file: Arc<OwnedFd>,
    /// Up to where it is in the page cache, as far as we know.
    warm: u64,
    /// Whether its file system is memory and has nothing else.
    memory: bool,
    /// Whether nothing goes from its file system without passing through us.
    opaque: bool,
    warming: Option<JoinHandle<Result<u64, Errno>>>,
}

impl Reading {
    pub(in crate::serve) fn new(file: OwnedFd) -> Self {
        Self {
            file: Arc::new(file),
            warm: 0,
            memory: false,
            opaque: false,
            warming: None,
        }
    }

    /// The file itself.
    pub(super) fn file(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.file)
    }

    /// Appends a few bytes of the file, where all of them are in the page cache.
    pub(super) fn append(&mut self, into: &mut Vec<u8>, offset: u64, bytes: usize) -> bool {
        let before = into.len();
        into.resize(before + bytes, 0);
        let found = self.read_at_once(&mut into[before..], offset);
        let whole = found == Ok(bytes);
        if !whole {
            into.truncate(before);
        }
        whole
    }

    /// Sends some of `left` bytes from `offset` on, and says how many.
    ///
    /// # Errors
    /// Of the socket; [`io::ErrorKind::Other`] of the file, or if it ends there.
    pub(in crate::serve) fn send(
        &mut self,
        cx: &mut Context<'_>,
        socket: &TcpStream,
        offset: u64,
        left: u64,
    ) -> Poll<io::Result<u64>> {
        let piece = left.min(PIECE_BYTES);
        if offset + piece > self.warm {
            ready!(self.warm_up(cx, offset, piece))?;
        }
        let piece = usize::try_from(piece).expect("at most a mebibyte");
        loop {
            ready!(socket.poll_write_ready(cx))?;
            let sent = socket.try_io(Interest::WRITABLE, || {
                let mut at = offset;
                if self.opaque {
                    return Ok(pass_on(socket, &self.file, at, piece)?);
                }
                Ok(rustix::fs::sendfile(
                    socket,
                    &self.file,
                    Some(&mut at),
                    piece,
                )?)
            });
            match sent {
                Err(error) if !self.opaque && is_unable(&error) => self.opaque = true,
                Ok(0) => return Poll::Ready(Err(io::Error::other("the file was cut"))),
                Ok(count) => return Poll::Ready(Ok(count as u64)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Reads some bytes of the file for one who has to see them.
    ///
    /// # Errors
    /// Of the file, or if it ends there.
    pub(super) fn read(
        &mut self,
        cx: &mut Context<'_>,
        offset: u64,
        bytes: usize,
    ) -> Poll<io::Result<Vec<u8>>> {
        let mut found = Vec::new();
        if self.append(&mut found, offset, bytes) {
            return Poll::Ready(Ok(found));
        }
        // Not warm, whatever was thought before.
        self.warm = self.warm.min(offset);
        ready!(self.warm_up(cx, offset, bytes as u64))?;
        found.resize(bytes, 0);
        let read = rustix::io::pread(&self.file, &mut found, offset)?;
        if read == bytes {
            Poll::Ready(Ok(found))
        } else {
            Poll::Ready(Err(io::Error::other("the file was cut")))
        }
    }

    /// Has a piece in the page cache.
    fn warm_up(&mut self, cx: &mut Context<'_>, offset: u64, piece: u64) -> Poll<io::Result<()>> {
        if self.warming.is_none() {
            // Its last byte: the kernel reads from the front.
            if self.read_at_once(&mut [0], offset + piece - 1) == Ok(1) {
                self.warm = offset + piece;
                return Poll::Ready(Ok(()));
            }
            let file = Arc::clone(&self.file);
            self.warming = Some(tokio::task::spawn_blocking(move || {
                warm(&file, offset, piece)
            }));
        }
        let Some(warming) = &mut self.warming else {
            return Poll::Ready(Ok(()));
        };
        let warmed = ready!(Pin::new(warming).poll(cx));
        self.warming = None;
        match warmed {
            Ok(Ok(warm)) => {
                self.warm = warm;
                Poll::Ready(Ok(()))
            }
            Ok(Err(errno)) => Poll::Ready(Err(io::Error::other(errno))),
            Err(error) => Poll::Ready(Err(io::Error::other(error))),
        }
    }

    /// Reads what needs no waiting for.
    fn read_at_once(&mut self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        if !self.memory {
            let mut vector = [io::IoSliceMut::new(into)];
            let read = rustix::io::preadv2(&self.file, &mut vector, offset, ReadWriteFlags::NOWAIT);
            // tmpfs cannot be asked, and never waits.
            if read != Err(Errno::OPNOTSUPP) || !is_memory(&self.file) {
                return read;
            }
            self.memory = true;
        }
        rustix::io::pread(&self.file, into, offset)
    }
}

/// Whether a file system has no way for `sendfile`.
fn is_unable(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::INVAL | Errno::NOSYS)
    )
}

/// Sends some of a piece of a file by way of a buffer; none where the file ends.
fn pass_on(socket: &TcpStream, file: &OwnedFd, offset: u64, piece: usize) -> Result<usize, Errno> {
    let mut block = vec![0; piece.min(WARMING_BYTES)];
    match rustix::io::pread(file, &mut block, offset)? {
        0 => Ok(0),
        read => rustix::net::send(socket, &block[..read], SendFlags::NOSIGNAL),
    }
}

/// Of tmpfs and ramfs (`linux/magic.h`).
const MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

fn is_memory(file: &OwnedFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| MEMORY.contains(&found.f_type))
}

/// Reads a piece, for the page cache to have it; more behind it is begun.
fn warm(file: &OwnedFd, offset: u64, piece: u64) -> Result<u64, Errno> {
    let ahead = std::num::NonZeroU64::new(AHEAD_BYTES);
    // Advice: who does not take it reads nevertheless.
    let _ = rustix::fs::fadvise(file.as_fd(), offset, ahead, Advice::WillNeed);
    let mut nowhere = vec![0; WARMING_BYTES];
    let end = offset + piece;
    let mut at = offset;
    while at < end {
        let most = WARMING_BYTES.min(usize::try_from(end - at).unwrap_or(WARMING_BYTES));
        match rustix::io::pread(file, &mut nowhere[..most], at)? {
            0 => break,
            count => at += count as u64,
        }
    }
    Ok(end)
}
