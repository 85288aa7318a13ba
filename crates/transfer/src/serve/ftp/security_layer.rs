//! Security layer between the socket of a data connection and the session.

use venturi_gridftp::{DataSecurity, FtpError};

/// Bytes of a read from the socket: a TLS record with its header.
pub(super) const RAW_BYTES: usize = 16 * 1024 + 512;

/// Security layer of a data connection and its decrypted bytes.
pub(super) struct SecurityLayer {
    security: Box<dyn DataSecurity>,
    plaintext: Vec<u8>,
    read_bytes: usize,
}

impl std::fmt::Debug for SecurityLayer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "Layer({} bytes)",
            self.plaintext.len() - self.read_bytes
        )
    }
}

impl SecurityLayer {
    pub(super) fn new(security: Box<dyn DataSecurity>) -> Self {
        Self {
            security,
            plaintext: Vec::new(),
            read_bytes: 0,
        }
    }

    /// Return whether both sides are authenticated.
    pub(super) fn is_ready(&self) -> bool {
        self.security.is_ready()
    }

    /// Return whether no work remains.
    pub(super) fn is_done(&self) -> bool {
        self.security.is_ready()
            && self.security.is_clear()
            && self.read_bytes == self.plaintext.len()
    }

    /// Append pending output for the socket.
    ///
    /// # Errors
    /// No output is possible.
    pub(super) fn queue(&mut self, socket: &mut Vec<u8>) -> Result<(), FtpError> {
        self.security.output(socket)
    }

    /// Process bytes of the socket and append responses for the socket.
    ///
    /// # Errors
    /// Invalid bytes, or a rejected peer.
    pub(super) fn feed(&mut self, bytes: &[u8], socket: &mut Vec<u8>) -> Result<(), FtpError> {
        self.plaintext.drain(..self.read_bytes);
        self.read_bytes = 0;
        let consumed = self.security.handle_input(bytes, &mut self.plaintext);
        // The peer receives the error in any case.
        let sent = self.security.output(socket);
        consumed.and(sent)
    }

    /// Return whether it has bytes for the session.
    pub(super) fn has_plaintext(&self) -> bool {
        self.read_bytes < self.plaintext.len()
    }

    /// Copy decrypted bytes for the session, as many as fit; 0 if there are none.
    pub(super) fn read_plaintext(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.plaintext.len() - self.read_bytes);
        into[..count].copy_from_slice(&self.plaintext[self.read_bytes..self.read_bytes + count]);
        self.read_bytes += count;
        count
    }

    /// Encrypt bytes of the session and append them.
    ///
    /// # Errors
    /// Not ready.
    pub(super) fn protect(
        &mut self,
        plaintext: &[u8],
        socket: &mut Vec<u8>,
    ) -> Result<(), FtpError> {
        self.security.protect(plaintext, socket)
    }
}
