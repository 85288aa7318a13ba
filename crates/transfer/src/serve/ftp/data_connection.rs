//! Data connection: sends ([`sending`]) or receives ([`receiving`]) bytes of a file.

mod receiving;
mod sending;

use std::net::IpAddr;

use tokio::net::TcpStream;

use super::file_writer::Segment;
use super::security_layer::SecurityLayer;
use crate::net::receive_tuning::ReceiveTuner;
use crate::net::tcp_info::Acknowledged;
use crate::serve::buffers::Buffer;
use crate::serve::limits::Connected;

/// Maximum bytes of one connection before the others continue.
const TURN_BYTES: u64 = 4 << 20;

/// Data connection.
#[derive(Debug)]
pub(super) struct ServerDataConnection {
    pub(super) number: u64,
    pub(super) peer: IpAddr,
    _counted: Connected,
    socket: TcpStream,
    unsent: Vec<u8>,
    sent: usize,
    /// Bytes that the socket accepted since the last query.
    sent_bytes: u64,
    acknowledged: Acknowledged,
    /// Offset and size of the file data that follows the unsent bytes.
    chunk: Option<(u64, u64)>,
    closing: bool,
    input: Option<Buffer>,
    /// End of received bytes, and end of consumed bytes.
    filled: usize,
    consumed: usize,
    /// Segments of file data among the consumed bytes.
    segments: Vec<Segment>,
    intake: ReceiveTuner,
    /// True if the peer closed the connection cleanly, false if not; none while open.
    ended: Option<bool>,
    /// Security layer, while it processes the bytes.
    layer: Option<SecurityLayer>,
}

/// Result of an I/O step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IoProgress {
    /// No bytes moved.
    Nothing,
    /// Some bytes moved.
    Some,
    /// The connection is closed, cleanly if true.
    Closed(bool),
    /// The file cannot be read.
    FileFailed,
}

impl ServerDataConnection {
    pub(super) fn new(
        number: u64,
        (peer, counted): (IpAddr, Connected),
        socket: TcpStream,
        mut layer: Option<SecurityLayer>,
    ) -> Self {
        let mut unsent = Vec::new();
        let started = layer
            .as_mut()
            .map_or(Ok(()), |layer| layer.queue(&mut unsent));
        Self {
            number,
            peer,
            _counted: counted,
            socket,
            layer,
            unsent,
            sent: 0,
            sent_bytes: 0,
            acknowledged: Acknowledged::default(),
            chunk: None,
            closing: false,
            input: None,
            filled: 0,
            consumed: 0,
            segments: Vec::new(),
            intake: ReceiveTuner::new(),
            // A layer that cannot start has failed.
            ended: started.err().map(|_| false),
        }
    }

    /// Return the bytes that the socket accepted since the last call.
    pub(super) fn take_sent(&mut self) -> u64 {
        std::mem::take(&mut self.sent_bytes)
    }

    /// Return the bytes that the peer acknowledged since the last call.
    pub(super) fn acknowledged(&mut self) -> u64 {
        self.acknowledged.more(&self.socket)
    }

    /// Return the size of the send buffer of the socket.
    pub(super) fn buffer_bytes(&self) -> usize {
        rustix::net::sockopt::socket_send_buffer_size(&self.socket).unwrap_or(0)
    }
}
