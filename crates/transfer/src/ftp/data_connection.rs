//! Data connection of a session.

use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;
use venturi_gridftp::{DataSecurity, FtpError};

use super::messages::SessionEvent;
use super::secure_channel::{Read, SecureChannel};
use super::sender::{Out, Outgoing};
use crate::error::describe;
use crate::net::buffers::{Block, Buffers};
use crate::net::receive_tuning::ReceiveTuner;
use crate::net::splice::SplicePipe;
use crate::net::tcp_info;

/// Data connection with its unread data, and the thread that sends on it.
#[derive(Debug)]
pub(crate) struct DataConnection {
    socket: TcpStream,
    /// Block, and the number of consumed bytes.
    pub(super) unread: Option<(Arc<Block>, usize)>,
    /// True if the client accepts no data before the next reply.
    blocked: bool,
    pub(super) intake: ReceiveTuner,
    channel_layer: ChannelLayer,
    outgoing: Option<Outgoing>,
    watch: tcp_info::Watch,
}

/// Security layer between socket and session.
#[derive(Debug)]
enum ChannelLayer {
    /// Plain data.
    None,
    Secured(Box<SecureChannel>),
    /// The sender owns the layer. The session cannot read any more, and has nothing to send.
    Sending,
}

impl DataConnection {
    /// Returns a connection, with a security layer if given.
    pub(super) fn new(
        socket: TcpStream,
        layer: Option<Box<dyn DataSecurity>>,
    ) -> Result<Self, FtpError> {
        let channel_layer = match layer {
            Some(layer) => ChannelLayer::Secured(Box::new(SecureChannel::new(layer)?)),
            None => ChannelLayer::None,
        };
        Ok(Self {
            socket,
            unread: None,
            blocked: false,
            intake: ReceiveTuner::new(),
            channel_layer,
            outgoing: None,
            watch: tcp_info::Watch::default(),
        })
    }

    /// True if the handshake is complete, or not needed.
    pub(super) fn is_ready(&self) -> bool {
        match &self.channel_layer {
            ChannelLayer::Secured(secured) => secured.is_ready(),
            ChannelLayer::None | ChannelLayer::Sending => true,
        }
    }

    /// Accepts unread data again after a reply of the server.
    pub(super) fn unblock(&mut self) {
        self.blocked = false;
    }

    /// Keeps data that the client does not accept yet.
    pub(super) fn wait_with(&mut self, block: Arc<Block>, consumed: usize) {
        self.unread = Some((block, consumed));
        self.blocked = true;
    }

    /// True if data is plain and all received data is consumed.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.channel_layer, ChannelLayer::None) && self.unread.is_none()
    }

    /// Announces the number of bytes of a file that follow.
    pub(super) fn expect(&mut self, coming: u64) {
        let bare = matches!(self.channel_layer, ChannelLayer::None);
        self.intake
            .expect(&self.socket, if bare { coming } else { 0 });
    }

    /// Receives payload by splice: at most `most` bytes, 0 at the end of the connection.
    pub(super) fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        splice: &mut SplicePipe,
        most: u64,
    ) -> Poll<io::Result<usize>> {
        splice.poll_fill(cx, &self.socket, most)
    }

    /// Reads a block of at most `most` bytes, if there is no unread data. `Ready(None)`: data is available; otherwise the connection has ended.
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
            let read = match &mut self.channel_layer {
                ChannelLayer::Secured(secured) => {
                    ready!(secured.poll_read(cx, &self.socket, buffers))
                }
                ChannelLayer::None | ChannelLayer::Sending => {
                    ready!(poll_socket(&self.socket, cx, buffers, most))
                }
            };
            match read {
                Read::Block(_) if matches!(self.channel_layer, ChannelLayer::Sending) => {}
                Read::Block(block) => {
                    self.unread = Some((block, 0));
                    return Poll::Ready(None);
                }
                Read::Bare(block) => {
                    self.channel_layer = ChannelLayer::None;
                    if let Some(block) = block {
                        self.unread = Some((block, 0));
                        return Poll::Ready(None);
                    }
                }
                ended => return Poll::Ready(Some(ended)),
            }
        }
    }

    /// Returns the TCP state, and whether packets were lost since the last call.
    pub(super) fn poll_snapshot(&mut self) -> Option<(tcp_info::TcpSnapshot, bool)> {
        self.watch.read(&self.socket)
    }

    /// True if it accepts more data to send.
    pub(super) fn has_capacity(&self) -> bool {
        self.is_ready() && self.outgoing.as_ref().is_none_or(Outgoing::has_capacity)
    }

    /// Sends data, on a thread that starts with the first data.
    pub(super) fn send(
        &mut self,
        number: u64,
        out: Out,
        events: &UnboundedSender<SessionEvent>,
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
                    let (connection, why) = (number, Some(describe(&error)));
                    let _ = events.send(SessionEvent::Broken { connection, why });
                    return;
                }
            }
        }
        if let Some(outgoing) = &self.outgoing {
            outgoing.enqueue(out);
        }
    }
}

impl DataConnection {
    /// Takes the security layer for the sender.
    fn take_layer(&mut self) -> Option<Box<dyn DataSecurity>> {
        match mem::replace(&mut self.channel_layer, ChannelLayer::None) {
            ChannelLayer::Secured(secured) if secured.can_bypass() => None,
            ChannelLayer::Secured(secured) => {
                self.channel_layer = ChannelLayer::Sending;
                Some(secured.into_layer())
            }
            other => {
                self.channel_layer = other;
                None
            }
        }
    }
}

/// Reads a plain block.
fn poll_socket(
    socket: &TcpStream,
    cx: &mut Context<'_>,
    buffers: &mut Buffers,
    most: usize,
) -> Poll<Read> {
    // A further read after the socket was empty registers the waker.
    loop {
        if ready!(socket.poll_read_ready(cx)).is_err() {
            return Poll::Ready(Read::SessionEnd { cleanly: false });
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
                    return Poll::Ready(Read::SessionEnd { cleanly });
                }
            }
        }
    }
}

impl Drop for DataConnection {
    fn drop(&mut self) {
        // The sender also has the socket: close it, so that the other host sees the end immediately.
        if self.outgoing.is_some() {
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        }
    }
}
