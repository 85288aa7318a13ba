//! The control connection: what is to be said waits here until the client takes it.

use std::io::{self, ErrorKind};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::net::TcpStream;

/// Bytes of commands that are read at a time.
const READ_BYTES: usize = 4096;
/// Bytes that may wait while more of a listing is made: one answer more is held at most.
const MAX_UNSENT_BYTES: usize = 256 * 1024;
/// Memory that is kept where nothing is to be said; a listing may have needed more.
const KEPT_BYTES: usize = 4096;

/// A control connection.
#[derive(Debug)]
pub(super) struct Control {
    socket: TcpStream,
    unsent: Vec<u8>,
    sent: usize,
    /// Since when the client takes nothing.
    stuck: Option<Instant>,
}

/// What came of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// Nothing yet.
    Nothing,
    /// So many bytes.
    Bytes(usize),
    /// The end.
    End,
}

impl Control {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self {
            socket,
            unsent: Vec::new(),
            sent: 0,
            stuck: None,
        }
    }

    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// Whether all has been said.
    pub(super) fn is_said(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Whether so much waits to be taken that no more should be made.
    pub(super) fn is_full(&self) -> bool {
        self.unsent.len() - self.sent > MAX_UNSENT_BYTES
    }

    /// Since when the client takes nothing of what is said.
    pub(super) fn stuck(&self) -> Option<Instant> {
        self.stuck
    }

    /// Sends what waits, as far as it goes.
    ///
    /// # Errors
    /// If the connection is gone.
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

    /// Reads at most so many bytes.
    ///
    /// # Errors
    /// If the connection is gone.
    pub(super) fn read(
        &self,
        cx: &mut Context<'_>,
        most: usize,
        take: impl FnOnce(&[u8]),
    ) -> io::Result<Came> {
        let mut bytes = [0; READ_BYTES];
        let most = most.min(READ_BYTES);
        // Twice: the first time readiness may be an old one.
        while let Poll::Ready(ready) = self.socket.poll_read_ready(cx) {
            ready?;
            match self.socket.try_read(&mut bytes[..most]) {
                Ok(0) => return Ok(Came::End),
                Ok(count) => {
                    take(&bytes[..count]);
                    return Ok(Came::Bytes(count));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Came::Nothing)
    }
}
