//! A data connection: bytes of a file that go ([`sending`]), or come ([`receiving`]).

mod receiving;
mod sending;

use std::net::IpAddr;

use tokio::net::TcpStream;

use super::layer::Layer;
use super::writing::Segment;
use crate::net::intake::Intake;
use crate::net::tcp_info::Acknowledged;
use crate::serve::buffers::Buffer;
use crate::serve::limits::Connected;

/// Bytes that one connection moves before the others have their turn.
const TURN_BYTES: u64 = 4 << 20;

/// A data connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) peer: IpAddr,
    _counted: Connected,
    socket: TcpStream,
    unsent: Vec<u8>,
    sent: usize,
    /// Bytes that the socket took since the session asked last.
    gone: u64,
    acknowledged: Acknowledged,
    /// Offset and number of bytes of the file that follow what is unsent.
    piece: Option<(u64, u64)>,
    closing: bool,
    input: Option<Buffer>,
    /// Up to where there are bytes, and up to where they are taken.
    filled: usize,
    taken: usize,
    /// Where, of those taken, bytes of the file are.
    segments: Vec<Segment>,
    intake: Intake,
    /// How the other end closed it.
    ended: Option<bool>,
    /// What secures it, for as long as that has to see the bytes.
    layer: Option<Layer>,
}

/// What came of moving bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    /// None could be.
    Nothing,
    /// Some were.
    Some,
    /// The connection is over: cleanly or not.
    Closed(bool),
    /// The file cannot be read.
    FileFailed,
}

impl Link {
    pub(super) fn new(
        number: u64,
        (peer, counted): (IpAddr, Connected),
        socket: TcpStream,
        mut layer: Option<Layer>,
    ) -> Self {
        let mut unsent = Vec::new();
        let begun = layer
            .as_mut()
            .map_or(Ok(()), |layer| layer.say(&mut unsent));
        Self {
            number,
            peer,
            _counted: counted,
            socket,
            layer,
            unsent,
            sent: 0,
            gone: 0,
            acknowledged: Acknowledged::default(),
            piece: None,
            closing: false,
            input: None,
            filled: 0,
            taken: 0,
            segments: Vec::new(),
            intake: Intake::new(),
            // One that cannot begin has failed.
            ended: begun.err().map(|_| false),
        }
    }

    /// Bytes that the socket took since this was asked last.
    pub(super) fn take_gone(&mut self) -> u64 {
        std::mem::take(&mut self.gone)
    }

    /// Bytes that have come to the other end since this was asked last.
    pub(super) fn acknowledged(&mut self) -> u64 {
        self.acknowledged.more(&self.socket)
    }

    /// Bytes of the socket's buffer that sends.
    pub(super) fn buffer_bytes(&self) -> usize {
        rustix::net::sockopt::socket_send_buffer_size(&self.socket).unwrap_or(0)
    }
}
