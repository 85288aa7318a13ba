//! Security of a session (RFC 2228) without its cryptography: tokens in, tokens out.
//! [`gsi`](crate::gsi) implements it.

use crate::{Dcau, FtpError, Protection, Secret};

/// Result of a handshake step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handshake {
    /// Token for the peer, if any.
    pub token: Option<Vec<u8>>,
    /// `true` if this side is done.
    pub done: bool,
}

/// Identity of the peer. Names have the form `/O=Grid/CN=Somebody`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Subject of its certificate.
    pub subject: String,
    /// Identity without proxies: the name that a grid-mapfile maps.
    pub identity: String,
    /// `true` if the proxy is limited.
    pub limited: bool,
}

/// Role of this side of a data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionRole {
    /// This side opened the connection.
    Connects,
    /// This side accepted the connection.
    Accepts,
}

/// Requested security of a data connection.
#[derive(Debug, Clone, Copy)]
pub struct DataSecurityRequest<'a> {
    /// Role of this side.
    pub role: ConnectionRole,
    /// Required peer.
    pub dcau: &'a Dcau,
    /// Protection of the bytes after the handshake.
    pub protection: Protection,
    /// Seconds since 1970.
    pub now_s: u64,
}

/// A security mechanism, such as TLS with proxy certificates. Each value is one side of one
/// connection.
pub trait Security: Send {
    /// Returns the name in AUTH, such as `GSSAPI`.
    fn mechanism(&self) -> &'static str;

    /// Handles a token of the peer; the client starts without one.
    ///
    /// # Errors
    /// If the token is rejected.
    fn step(&mut self, token: Option<&[u8]>) -> Result<Handshake, FtpError>;

    /// Protects bytes. Call it in sending order.
    ///
    /// # Errors
    /// If the bytes cannot be protected.
    fn wrap(&mut self, plain: &[u8]) -> Result<Vec<u8>, FtpError>;

    /// Removes the protection. Call it in order of arrival.
    ///
    /// # Errors
    /// If the peer did not protect the bytes.
    fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, FtpError>;

    /// Returns the identity of the peer, once this side is done.
    fn peer(&self) -> Option<&Peer> {
        None
    }

    /// Returns `true` if there is a credential to secure data connections.
    fn secures_data(&self) -> bool {
        false
    }

    /// Sets another credential for data connections (DCSC P), or restores the initial one (DCSC D).
    ///
    /// # Errors
    /// If the credential is malformed, or not valid at `now_s` (seconds since 1970).
    fn set_data_credential(
        &mut self,
        _credential: Option<&Secret>,
        _now_s: u64,
    ) -> Result<(), FtpError> {
        Err(FtpError::Security(
            "this mechanism has no data connections".to_owned(),
        ))
    }

    /// Returns the security layer of a data connection. `None`: no protection.
    ///
    /// # Errors
    /// If there is no credential, or it has expired.
    fn data_layer(
        &self,
        request: DataSecurityRequest<'_>,
    ) -> Result<Option<Box<dyn DataSecurity>>, FtpError> {
        match request.dcau {
            Dcau::None => Ok(None),
            _ => Err(FtpError::Security(
                "this mechanism has no data connections".to_owned(),
            )),
        }
    }
}

/// Security layer of one data connection, between a socket and a session. [`gsi`](crate::gsi)
/// describes its use by a driver.
pub trait DataSecurity: Send {
    /// Handles bytes of the socket; adds the plain text to `plain`.
    ///
    /// # Errors
    /// If the bytes are invalid or the peer is wrong. Send the bytes of [`output`](Self::output),
    /// then close.
    fn handle_input(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), FtpError>;

    /// Adds bytes of the layer itself to `socket`. Call it at the start and after each input.
    ///
    /// # Errors
    /// If nothing can be sent.
    fn output(&mut self, socket: &mut Vec<u8>) -> Result<(), FtpError>;

    /// Returns `true` if both sides are authenticated. Protect nothing before.
    fn is_ready(&self) -> bool;

    /// Returns `true` if bytes after the handshake are unprotected (PROT C). Drop the layer once it
    /// is ready.
    fn is_clear(&self) -> bool;

    /// Protects `plain` and appends the result to `socket`.
    ///
    /// # Errors
    /// If it is not ready.
    fn protect(&mut self, plain: &[u8], socket: &mut Vec<u8>) -> Result<(), FtpError>;
}
