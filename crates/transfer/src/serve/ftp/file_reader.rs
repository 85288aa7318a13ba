//! File that is sent with `sendfile` from the page cache to the socket. It does not wait for the disk: another
//! thread reads uncached data first.

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

/// Maximum bytes per call.
const CHUNK_BYTES: u64 = 1 << 20;
/// Bytes that the kernel reads ahead of uncached data.
const AHEAD_BYTES: u64 = 8 << 20;
/// Bytes of a read that only fills the page cache.
const WARMING_BYTES: usize = 256 * 1024;

/// File that is sent.
#[derive(Debug)]
pub(in crate::serve) struct FileReader {
    file: Arc<OwnedFd>,
    /// Known end of the cached data.
    warm: u64,
    /// True if the file system is in memory only.
    memory: bool,
    /// True if the file system does not support `sendfile`.
    opaque: bool,
    warming: Option<JoinHandle<Result<u64, Errno>>>,
}

impl FileReader {
    pub(in crate::serve) fn new(file: OwnedFd) -> Self {
        Self {
            file: Arc::new(file),
            warm: 0,
            memory: false,
            opaque: false,
            warming: None,
        }
    }

    /// Return the file.
    pub(super) fn file(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.file)
    }

    /// Append a few bytes of the file, if all of them are in the page cache. Return whether they
    /// are.
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

    /// Send some of `remaining` bytes from `offset` and return their number.
    ///
    /// # Errors
    /// Socket errors; [`io::ErrorKind::Other`] for the file, or if it ends there.
    pub(in crate::serve) fn send(
        &mut self,
        cx: &mut Context<'_>,
        socket: &TcpStream,
        offset: u64,
        remaining: u64,
    ) -> Poll<io::Result<u64>> {
        let chunk = remaining.min(CHUNK_BYTES);
        if offset + chunk > self.warm {
            ready!(self.warm_up(cx, offset, chunk))?;
        }
        let chunk = usize::try_from(chunk).expect("at most a mebibyte");
        loop {
            ready!(socket.poll_write_ready(cx))?;
            let sent = socket.try_io(Interest::WRITABLE, || {
                let mut at = offset;
                if self.opaque {
                    return Ok(copy_chunk(socket, &self.file, at, chunk)?);
                }
                Ok(rustix::fs::sendfile(
                    socket,
                    &self.file,
                    Some(&mut at),
                    chunk,
                )?)
            });
            match sent {
                Err(error) if !self.opaque && is_unable(&error) => self.opaque = true,
                Ok(0) => return Poll::Ready(Err(io::Error::other("the file was truncated"))),
                Ok(count) => return Poll::Ready(Ok(count as u64)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Read some bytes of the file for a security layer.
    ///
    /// # Errors
    /// File errors, or if the file ends there.
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
        // Not cached, contrary to the last check.
        self.warm = self.warm.min(offset);
        ready!(self.warm_up(cx, offset, bytes as u64))?;
        found.resize(bytes, 0);
        let read = rustix::io::pread(&self.file, &mut found, offset)?;
        if read == bytes {
            Poll::Ready(Ok(found))
        } else {
            Poll::Ready(Err(io::Error::other("the file was truncated")))
        }
    }

    /// Load a chunk into the page cache.
    fn warm_up(&mut self, cx: &mut Context<'_>, offset: u64, chunk: u64) -> Poll<io::Result<()>> {
        if self.warming.is_none() {
            // The last byte is sufficient, because the kernel reads from the front.
            if self.read_at_once(&mut [0], offset + chunk - 1) == Ok(1) {
                self.warm = offset + chunk;
                return Poll::Ready(Ok(()));
            }
            let file = Arc::clone(&self.file);
            self.warming = Some(tokio::task::spawn_blocking(move || {
                warm(&file, offset, chunk)
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

    /// Read bytes that are available without waiting.
    fn read_at_once(&mut self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        if !self.memory {
            let mut vector = [io::IoSliceMut::new(into)];
            let read = rustix::io::preadv2(&self.file, &mut vector, offset, ReadWriteFlags::NOWAIT);
            // tmpfs does not support the flag and never waits.
            if read != Err(Errno::OPNOTSUPP) || !is_memory(&self.file) {
                return read;
            }
            self.memory = true;
        }
        rustix::io::pread(&self.file, into, offset)
    }
}

/// Return whether a file system does not support `sendfile`.
fn is_unable(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::INVAL | Errno::NOSYS)
    )
}

/// Copy a chunk of a file through a buffer; 0 at the end of the file.
fn copy_chunk(
    socket: &TcpStream,
    file: &OwnedFd,
    offset: u64,
    chunk: usize,
) -> Result<usize, Errno> {
    let mut block = vec![0; chunk.min(WARMING_BYTES)];
    match rustix::io::pread(file, &mut block, offset)? {
        0 => Ok(0),
        read => rustix::net::send(socket, &block[..read], SendFlags::NOSIGNAL),
    }
}

/// Magic numbers of tmpfs and ramfs (`linux/magic.h`).
const MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

fn is_memory(file: &OwnedFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| MEMORY.contains(&found.f_type))
}

/// Read a chunk into the page cache and start to read ahead.
fn warm(file: &OwnedFd, offset: u64, chunk: u64) -> Result<u64, Errno> {
    let ahead = std::num::NonZeroU64::new(AHEAD_BYTES);
    // Advice only: the read works without it.
    let _ = rustix::fs::fadvise(file.as_fd(), offset, ahead, Advice::WillNeed);
    let mut nowhere = vec![0; WARMING_BYTES];
    let finish = offset + chunk;
    let mut at = offset;
    while at < finish {
        let max = WARMING_BYTES.min(usize::try_from(finish - at).unwrap_or(WARMING_BYTES));
        match rustix::io::pread(file, &mut nowhere[..max], at)? {
            0 => break,
            count => at += count as u64,
        }
    }
    Ok(finish)
}
