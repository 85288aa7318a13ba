//! What secures a data connection: its handshake, and what is read behind it. What is sent behind it is sealed by the sender's thread.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;
use venturi_gridftp::{DataSecurity, Error};

use crate::net::buffers::{Block, Buffers};

/// Part of a record that may have been read before.
const MOST_BEGUN_BYTES: usize = 32 << 10;

/// What came of reading.
#[derive(Debug)]
pub(super) enum Read {
    /// Bytes.
    Block(Arc<Block>),
    /// There is no guard any more, and these bytes came behind it.
    Bare(Option<Arc<Block>>),
    /// The connection has ended.
    Ended { cleanly: bool },
    /// The guard refuses what is at the other end.
    Refused(String),
}

/// Between the socket of a data connection and a session.
pub(super) struct Guard {
    layer: Box<dyn DataSecurity>,
    /// What the handshake has to send, and is not sent.
    due: Vec<u8>,
    /// What was read last.
    sealed: Vec<u8>,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Guard {
    /// The guard of a connection that is new.
    pub fn new(mut layer: Box<dyn DataSecurity>) -> Result<Self, Error> {
        let mut due = Vec::new();
        layer.output(&mut due)?;
        Ok(Self {
            layer,
            due,
            sealed: Vec::new(),
        })
    }

    /// Whether both ends have shown who they are, and all of that was sent.
    pub fn is_ready(&self) -> bool {
        self.layer.is_ready() && self.due.is_empty()
    }

    /// Whether bytes pass as they are from now on.
    pub fn is_needless(&self) -> bool {
        self.is_ready() && self.layer.is_clear()
    }

    /// For the sender, once it is ready.
    pub fn into_layer(self) -> Box<dyn DataSecurity> {
        self.layer
    }

    /// Goes on with the handshake; behind it reads a block and opens it.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        socket: &TcpStream,
        buffers: &mut Buffers,
    ) -> Poll<Read> {
        loop {
            if ready!(self.poll_send(cx, socket)).is_err() {
                return Poll::Ready(Read::Ended { cleanly: false });
            }
            if self.is_needless() {
                return Poll::Ready(Read::Bare(None));
            }
            if ready!(socket.poll_read_ready(cx)).is_err() {
                return Poll::Ready(Read::Ended { cleanly: false });
            }
            let mut plain = ready!(buffers.poll_take(cx));
            let room = plain.len();
            self.sealed.resize(room - MOST_BEGUN_BYTES, 0);
            let count = match socket.try_read(&mut self.sealed) {
                Ok(count) if count > 0 => count,
                result => {
                    buffers.put_back(plain);
                    if matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
                        continue;
                    }
                    let cleanly = result.is_ok() && self.is_ready();
                    return Poll::Ready(Read::Ended { cleanly });
                }
            };
            plain.clear();
            let opened = self.open(count, &mut plain);
            let length = plain.len();
            plain.resize(room, 0);
            if let Err(error) = opened {
                buffers.put_back(plain);
                // The other side is told why, if it still listens.
                let _ = self.poll_send(cx, socket);
                return Poll::Ready(Read::Refused(error.to_string()));
            }
            if length == 0 {
                buffers.put_back(plain);
                continue;
            }
            let block: Arc<Block> = Arc::new(buffers.filled(plain, length));
            return Poll::Ready(match self.is_needless() {
                true => Read::Bare(Some(block)),
                false => Read::Block(block),
            });
        }
    }

    fn open(&mut self, count: usize, plain: &mut Vec<u8>) -> Result<(), Error> {
        let opened = self.layer.handle_input(&self.sealed[..count], plain);
        let told = self.layer.output(&mut self.due);
        opened.and(told)
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
