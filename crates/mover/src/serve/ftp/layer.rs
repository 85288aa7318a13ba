//! What secures a data connection, between its socket and the session.

use venturi_gridftp::{DataSecurity, Error};

/// Bytes of the socket that are taken at a time: a record of TLS and its head.
pub(super) const RAW_BYTES: usize = 16 * 1024 + 512;

/// The security of a data connection, and what it has for the session.
pub(super) struct Layer {
    security: Box<dyn DataSecurity>,
    plain: Vec<u8>,
    given: usize,
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Layer({} bytes)", self.plain.len() - self.given)
    }
}

impl Layer {
    pub(super) fn new(security: Box<dyn DataSecurity>) -> Self {
        Self {
            security,
            plain: Vec::new(),
            given: 0,
        }
    }

    /// Whether both ends have shown who they are.
    pub(super) fn is_ready(&self) -> bool {
        self.security.is_ready()
    }

    /// Whether it has nothing more to do.
    pub(super) fn is_done(&self) -> bool {
        self.security.is_ready() && self.security.is_clear() && self.given == self.plain.len()
    }

    /// Adds what it has to say to what goes to the socket.
    ///
    /// # Errors
    /// If nothing can be sent.
    pub(super) fn say(&mut self, socket: &mut Vec<u8>) -> Result<(), Error> {
        self.security.output(socket)
    }

    /// Takes bytes of the socket, and answers to the socket.
    ///
    /// # Errors
    /// Bytes, or somebody at the other end, to be refused.
    pub(super) fn take(&mut self, bytes: &[u8], socket: &mut Vec<u8>) -> Result<(), Error> {
        self.plain.drain(..self.given);
        self.given = 0;
        let taken = self.security.handle_input(bytes, &mut self.plain);
        // Whatever is wrong, the other end is told.
        let said = self.security.output(socket);
        taken.and(said)
    }

    /// Whether it has bytes for the session.
    pub(super) fn has_plain(&self) -> bool {
        self.given < self.plain.len()
    }

    /// Gives bytes to the session, as many as fit; none: it has none.
    pub(super) fn give(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.plain.len() - self.given);
        into[..count].copy_from_slice(&self.plain[self.given..self.given + count]);
        self.given += count;
        count
    }

    /// Adds what is to be sent for bytes of the session.
    ///
    /// # Errors
    /// If it is not ready.
    pub(super) fn protect(&mut self, plain: &[u8], socket: &mut Vec<u8>) -> Result<(), Error> {
        self.security.protect(plain, socket)
    }
}
