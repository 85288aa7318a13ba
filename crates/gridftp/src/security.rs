//! The security of a control connection (RFC 2228), without its cryptography: tokens go in and come out.

use crate::Error;

/// What a side of a handshake has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handshake {
    /// What the other side is to be told, if anything.
    pub token: Option<Vec<u8>>,
    /// Whether this side is content.
    pub done: bool,
}

/// A mechanism, such as TLS with proxy certificates. One value is one side of one connection.
pub trait Security: Send {
    /// What AUTH calls it, such as `GSSAPI`.
    fn mechanism(&self) -> &'static str;

    /// Takes the other side's token; the client's side begins with none.
    ///
    /// # Errors
    /// A token that is refused.
    fn step(&mut self, token: Option<&[u8]>) -> Result<Handshake, Error>;

    /// Protects bytes. Called in the order in which they are sent.
    ///
    /// # Errors
    /// If they cannot be protected.
    fn wrap(&mut self, plain: &[u8]) -> Result<Vec<u8>, Error>;

    /// Takes the protection off. Called in the order of arrival.
    ///
    /// # Errors
    /// Bytes that the other side did not protect.
    fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, Error>;
}
