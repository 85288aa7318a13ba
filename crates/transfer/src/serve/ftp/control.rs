//! Control connection: buffers replies until the client reads them.

use std::io::{self, ErrorKind};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::net::TcpStream;

/// Bytes of commands per read.
const READ_BYTES: usize = 4096;
/// Maximum unsent bytes before a listing pauses; one further reply may follow.
const MAX_UNSENT_BYTES: usize = 256 * 1024;
/// Buffer memory that is kept while idle; a listing may have needed more.
const KEPT_BYTES: usize = 4096;

/// Control connection.
#[derive(Debug)]
pub(super) struct ControlSocket {
    socket: TcpStream,
    unsent: Vec<u8>,
    sent: usize,
    /// Time since the client stopped reading.
    stuck: Option<Instant>,
}

/// Result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ControlRead {
    /// No data yet.
    Nothing,
    /// Number of bytes.
    Bytes(usize),
    /// The connection is closed.
    Closed,
}

impl ControlSocket {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self {
            socket,
            unsent: Vec::new(),
            sent: 0,
            stuck: None,
        }
    }

    pub(super) fn queue(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// Return whether all replies were sent.
    pub(super) fn is_sent(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Return whether unsent replies reach the limit.
    pub(super) fn is_full(&self) -> bool {
        self.unsent.len() - self.sent > MAX_UNSENT_BYTES
    }

    /// Return the time since the client stopped reading replies.
    pub(super) fn stuck(&self) -> Option<Instant> {
        self.stuck
    }

    /// Send waiting replies as far as possible.
    ///
    /// # Errors
    /// The connection is closed.
    pub(super) fn send(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut moved = false;
        while self.sent < self.unsent.len() {
            if self.socket.poll_write_ready(cx)?.is_pending() {
                break;
            }
            match self.socket.try_write(&self.unsent[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        if self.sent == self.unsent.len() {
            self.unsent.clear();
            self.unsent.shrink_to(KEPT_BYTES);
            self.sent = 0;
            self.stuck = None;
        } else if moved || self.stuck.is_none() {
            self.stuck = Some(Instant::now());
        }
        Ok(moved)
    }

    /// Read at most this many bytes.
    ///
    /// # Errors
    /// The connection is closed.
    pub(super) fn read(
        &self,
        cx: &mut Context<'_>,
        max: usize,
        feed: impl FnOnce(&[u8]),
    ) -> io::Result<ControlRead> {
        let mut bytes = [0; READ_BYTES];
        let max = max.min(READ_BYTES);
        // The first readiness may be stale, so the loop tries twice.
        while let Poll::Ready(ready) = self.socket.poll_read_ready(cx) {
            ready?;
            match self.socket.try_read(&mut bytes[..max]) {
                Ok(0) => return Ok(ControlRead::Closed),
                Ok(count) => {
                    feed(&bytes[..count]);
                    return Ok(ControlRead::Bytes(count));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(ControlRead::Nothing)
    }
}
