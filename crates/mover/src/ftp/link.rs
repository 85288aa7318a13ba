//! A data connection.

use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;
use venturi_gridftp::{DataSecurity, Error};

use super::guard::{Guard, Read};
use super::messages::Event;
use super::sender::{Out, Outgoing};
use crate::error::said;
use crate::net::buffers::{Block, Buffers};
use crate::net::intake::Intake;
use crate::net::straight::Straight;
use crate::net::tcp_info;

/// A data connection: what came on it and is not taken, and the thread that sends on it.
#[derive(Debug)]
pub(crate) struct Link {
    socket: TcpStream,
    /// A block, and how much of it is taken.
    pub(super) unread: Option<(Arc<Block>, usize)>,
    /// Whether the client takes no more before the server says something.
    blocked: bool,
    pub(super) intake: Intake,
    cover: Cover,
    outgoing: Option<Outgoing>,
    watch: tcp_info::Watch,
}

/// What is between a socket and the session.
#[derive(Debug)]
enum Cover {
    /// Nothing: bytes pass as they are.
    None,
    Guard(Box<Guard>),
    /// The sender has it. Nobody on this side can read any more, and nothing is to be said to one who sends.
    Given,
}

impl Link {
    /// A connection, secured by a layer if there is one.
    pub(super) fn new(
        socket: TcpStream,
        layer: Option<Box<dyn DataSecurity>>,
    ) -> Result<Self, Error> {
        let cover = match layer {
            Some(layer) => Cover::Guard(Box::new(Guard::new(layer)?)),
            None => Cover::None,
        };
        Ok(Self {
            socket,
            unread: None,
            blocked: false,
            intake: Intake::new(),
            cover,
            outgoing: None,
            watch: tcp_info::Watch::default(),
        })
    }

    /// Whether both ends have shown who they are, where that is asked for.
    pub(super) fn is_ready(&self) -> bool {
        match &self.cover {
            Cover::Guard(guard) => guard.is_ready(),
            Cover::None | Cover::Given => true,
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

    /// Whether bytes pass as they are, and none is read that is not taken.
    pub(super) fn is_bare(&self) -> bool {
        matches!(self.cover, Cover::None) && self.unread.is_none()
    }

    /// So many bytes of a file are known to come next.
    pub(super) fn expect(&mut self, coming: u64) {
        let bare = matches!(self.cover, Cover::None);
        self.intake
            .expect(&self.socket, if bare { coming } else { 0 });
    }

    /// Takes payload the straight way: at most so many bytes, none at the end of the connection.
    pub(super) fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        straight: &mut Straight,
        most: u64,
    ) -> Poll<io::Result<usize>> {
        straight.poll_fill(cx, &self.socket, most)
    }

    /// Reads a block of at most so many bytes, if nothing is unread. Ready with nothing: there is something to be taken; else the connection is of no more use.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut Buffers,
        most: usize,
    ) -> Poll<Option<Read>> {
        if self.unread.is_some() {
            if !self.blocked {
                return Poll::Ready(None);
            }
            return Poll::Pending;
        }
        loop {
            let read = match &mut self.cover {
                Cover::Guard(guard) => ready!(guard.poll_read(cx, &self.socket, buffers)),
                Cover::None | Cover::Given => {
                    ready!(poll_socket(&self.socket, cx, buffers, most))
                }
            };
            match read {
                Read::Block(_) if matches!(self.cover, Cover::Given) => {}
                Read::Block(block) => {
                    self.unread = Some((block, 0));
                    return Poll::Ready(None);
                }
                Read::Bare(block) => {
                    self.cover = Cover::None;
                    if let Some(block) = block {
                        self.unread = Some((block, 0));
                        return Poll::Ready(None);
                    }
                }
                ended => return Poll::Ready(Some(ended)),
            }
        }
    }

    /// What the kernel tells of it, and whether packets were lost since that was asked last.
    pub(super) fn seen(&mut self) -> Option<(tcp_info::Seen, bool)> {
        self.watch.see(&self.socket)
    }

    /// Whether it may be given more to send.
    pub(super) fn has_room(&self) -> bool {
        self.is_ready() && self.outgoing.as_ref().is_none_or(Outgoing::has_room)
    }

    /// Sends something, by a thread that the first one starts.
    pub(super) fn send(
        &mut self,
        number: u64,
        out: Out,
        events: &UnboundedSender<Event>,
        moved: &Arc<AtomicU64>,
    ) {
        if self.outgoing.is_none() {
            match self.socket.as_fd().try_clone_to_owned() {
                Ok(socket) => {
                    let layer = self.take_layer();
                    let (events, moved) = (events.clone(), Arc::clone(moved));
                    self.outgoing = Some(Outgoing::start(number, socket, layer, events, moved));
                }
                Err(error) => {
                    let (connection, why) = (number, Some(said(&error)));
                    let _ = events.send(Event::Broken { connection, why });
                    return;
                }
            }
        }
        if let Some(outgoing) = &self.outgoing {
            outgoing.give(out);
        }
    }
}

impl Link {
    /// What secures the connection, for its sender.
    fn take_layer(&mut self) -> Option<Box<dyn DataSecurity>> {
        match mem::replace(&mut self.cover, Cover::None) {
            Cover::Guard(guard) if guard.is_needless() => None,
            Cover::Guard(guard) => {
                self.cover = Cover::Given;
                Some(guard.into_layer())
            }
            other => {
                self.cover = other;
                None
            }
        }
    }
}

/// Reads a block as it comes.
fn poll_socket(
    socket: &TcpStream,
    cx: &mut Context<'_>,
    buffers: &mut Buffers,
    most: usize,
) -> Poll<Read> {
    // Asked again after it was found empty, the socket wakes us.
    loop {
        if ready!(socket.poll_read_ready(cx)).is_err() {
            return Poll::Ready(Read::Ended { cleanly: false });
        }
        let mut block = ready!(buffers.poll_take(cx));
        let most = most.min(block.len());
        match socket.try_read(&mut block[..most]) {
            Ok(count) if count > 0 => {
                return Poll::Ready(Read::Block(Arc::new(buffers.filled(block, count))));
            }
            result => {
                buffers.put_back(block);
                let empty =
                    matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
                if !empty {
                    let cleanly = result.is_ok();
                    return Poll::Ready(Read::Ended { cleanly });
                }
            }
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
