//! A data connection.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;

use super::sender::{Out, Outgoing};
use super::session::Event;
use crate::net::buffers::{Block, Buffers};

/// A data connection: what came on it and is not taken, and the thread that sends on it.
#[derive(Debug)]
pub(crate) struct Link {
    socket: TcpStream,
    /// A block, and how much of it is taken.
    pub(super) unread: Option<(Arc<Block>, usize)>,
    /// Whether the client takes no more before the server says something.
    blocked: bool,
    outgoing: Option<Outgoing>,
}

impl Link {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self {
            socket,
            unread: None,
            blocked: false,
            outgoing: None,
        }
    }

    /// The server has said something: what is unread may be taken now.
    pub(super) fn try_again(&mut self) {
        self.blocked = false;
    }

    /// Keeps what the client does not take yet.
    pub(super) fn wait_with(&mut self, block: Arc<Block>, taken: usize) {
        self.unread = Some((block, taken));
        self.blocked = true;
    }

    /// Reads a block, if nothing is unread. Ready with nothing: there is something to be taken. Ready with a word: the connection has
    /// ended, and whether cleanly.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut Buffers,
    ) -> Poll<Option<bool>> {
        if self.unread.is_some() {
            if !self.blocked {
                return Poll::Ready(None);
            }
            return Poll::Pending;
        }
        // Asked again after it was found empty, the socket wakes us.
        loop {
            if ready!(self.socket.poll_read_ready(cx)).is_err() {
                return Poll::Ready(Some(false));
            }
            let mut block = ready!(buffers.poll_take(cx));
            match self.socket.try_read(&mut block) {
                Ok(count) if count > 0 => {
                    self.unread = Some((Arc::new(buffers.filled(block, count)), 0));
                    return Poll::Ready(None);
                }
                result => {
                    buffers.put_back(block);
                    let empty =
                        matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
                    if !empty {
                        return Poll::Ready(Some(result.is_ok()));
                    }
                }
            }
        }
    }

    /// Whether it may be given more to send.
    pub(super) fn has_room(&self) -> bool {
        self.outgoing.as_ref().is_none_or(Outgoing::has_room)
    }

    /// Sends something, by a thread that the first one starts.
    pub(super) fn send(&mut self, number: u64, out: Out, events: &UnboundedSender<Event>) {
        if self.outgoing.is_none() {
            match self.socket.as_fd().try_clone_to_owned() {
                Ok(socket) => {
                    self.outgoing = Some(Outgoing::start(number, socket, events.clone()));
                }
                Err(_) => {
                    let _ = events.send(Event::Broken { connection: number });
                    return;
                }
            }
        }
        if let Some(outgoing) = &self.outgoing {
            outgoing.give(out);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The sender has the socket, too: the other side is to see the end at once.
        if self.outgoing.is_some() {
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        }
    }
}
