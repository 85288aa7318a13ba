//! Security layer of a data connection: handshake, and decryption of received data. The sender thread encrypts sent data.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;
use venturi_gridftp::{DataSecurity, FtpError};

use crate::net::buffers::{Block, Buffers};

/// Maximum part of a record that was read before.
const MAX_RECORD_BYTES: usize = 32 << 10;

/// Result of a read.
#[derive(Debug)]
pub(super) enum Read {
    /// Received data.
    Block(Arc<Block>),
    /// The layer is not needed any more; this plain data follows.
    Bare(Option<Arc<Block>>),
    /// The connection has ended.
    SessionEnd { cleanly: bool },
    /// The layer rejects the other host.
    Rejected(String),
}

/// Security layer between the socket of a data connection and a session.
pub(super) struct SecureChannel {
    layer: Box<dyn DataSecurity>,
    /// Unsent data of the handshake.
    due: Vec<u8>,
    /// Last received data.
    sealed: Vec<u8>,
}

impl std::fmt::Debug for SecureChannel {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl SecureChannel {
    /// Returns the layer of a new connection.
    pub fn new(mut layer: Box<dyn DataSecurity>) -> Result<Self, FtpError> {
        let mut due = Vec::new();
        layer.output(&mut due)?;
        Ok(Self {
            layer,
            due,
            sealed: Vec::new(),
        })
    }

    /// True if the handshake is complete and sent.
    pub fn is_ready(&self) -> bool {
        self.layer.is_ready() && self.due.is_empty()
    }

    /// True if data is plain from now on.
    pub fn can_bypass(&self) -> bool {
        self.is_ready() && self.layer.is_clear()
    }

    /// Returns the layer for the sender, after the handshake.
    pub fn into_layer(self) -> Box<dyn DataSecurity> {
        self.layer
    }

    /// Continues the handshake; after it, reads and decrypts a block.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        socket: &TcpStream,
        buffers: &mut Buffers,
    ) -> Poll<Read> {
        loop {
            if ready!(self.poll_send(cx, socket)).is_err() {
                return Poll::Ready(Read::SessionEnd { cleanly: false });
            }
            if self.can_bypass() {
                return Poll::Ready(Read::Bare(None));
            }
            if ready!(socket.poll_read_ready(cx)).is_err() {
                return Poll::Ready(Read::SessionEnd { cleanly: false });
            }
            let mut plain = ready!(buffers.poll_take(cx));
            let capacity = plain.len();
            self.sealed.resize(capacity - MAX_RECORD_BYTES, 0);
            let count = match socket.try_read(&mut self.sealed) {
                Ok(count) if count > 0 => count,
                result => {
                    buffers.put_back(plain);
                    if matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
                        continue;
                    }
                    let cleanly = result.is_ok() && self.is_ready();
                    return Poll::Ready(Read::SessionEnd { cleanly });
                }
            };
            plain.clear();
            let opened = self.open(count, &mut plain);
            let length = plain.len();
            plain.resize(capacity, 0);
            if let Err(error) = opened {
                buffers.put_back(plain);
                // Sends the reason to the other host, if it still reads.
                let _ = self.poll_send(cx, socket);
                return Poll::Ready(Read::Rejected(error.to_string()));
            }
            if length == 0 {
                buffers.put_back(plain);
                continue;
            }
            let block: Arc<Block> = Arc::new(buffers.filled(plain, length));
            return Poll::Ready(match self.can_bypass() {
                true => Read::Bare(Some(block)),
                false => Read::Block(block),
            });
        }
    }

    fn open(&mut self, count: usize, plain: &mut Vec<u8>) -> Result<(), FtpError> {
        let opened = self.layer.handle_input(&self.sealed[..count], plain);
        let output = self.layer.output(&mut self.due);
        opened.and(output)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, socket: &TcpStream) -> Poll<io::Result<()>> {
        while !self.due.is_empty() {
            ready!(socket.poll_write_ready(cx))?;
            match socket.try_write(&self.due) {
                Ok(count) => drop(self.due.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}
