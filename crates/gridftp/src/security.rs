//! The security of a session (RFC 2228), without its cryptography: tokens go in and come out. [`gsi`](crate::gsi) has one.

use crate::{Dcau, Error, Protection, Secret};

/// What a side of a handshake has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handshake {
    /// What the other side is to be told, if anything.
    pub token: Option<Vec<u8>>,
    /// Whether this side is content.
    pub done: bool,
}

/// Who is at the other end, in names such as `/O=Grid/CN=Somebody`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Of the certificate that was shown.
    pub subject: String,
    /// Whom it stands for: what a grid-mapfile maps.
    pub identity: String,
    /// Whether its rights are limited.
    pub limited: bool,
}

/// Which end of a data connection this side is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It has connected.
    Connects,
    /// It has accepted.
    Accepts,
}

/// How a data connection is to be secured.
#[derive(Debug, Clone, Copy)]
pub struct DataWish<'a> {
    /// Which end this is.
    pub end: End,
    /// Who has to be at the other one.
    pub who: &'a Dcau,
    /// What becomes of the bytes behind the handshake.
    pub protection: Protection,
    /// Seconds since 1970.
    pub now_s: u64,
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

    /// Who is at the other end, once this side is content.
    fn peer(&self) -> Option<&Peer> {
        None
    }

    /// Whether data connections can be secured: there is a credential for them.
    fn secures_data(&self) -> bool {
        false
    }

    /// Takes another credential for data connections (DCSC P), or goes back to the usual one (DCSC D).
    ///
    /// # Errors
    /// What is no credential, or not valid at `now_s` (seconds since 1970).
    fn set_data_credential(
        &mut self,
        _credential: Option<&Secret>,
        _now_s: u64,
    ) -> Result<(), Error> {
        Err(Error::Security(
            "this mechanism has no data connections".to_owned(),
        ))
    }

    /// The layer of a data connection. Nothing: its bytes go as they are.
    ///
    /// # Errors
    /// If there is no credential for it, or the credential has ended.
    fn data_layer(&self, wish: DataWish<'_>) -> Result<Option<Box<dyn DataSecurity>>, Error> {
        match wish.who {
            Dcau::None => Ok(None),
            _ => Err(Error::Security(
                "this mechanism has no data connections".to_owned(),
            )),
        }
    }
}

/// The security of one data connection, between a socket and a session. How a driver puts it there:
/// [`gsi`](crate::gsi).
pub trait DataSecurity: Send {
    /// Takes bytes of the socket, and adds to `plain` what they say to the session.
    ///
    /// # Errors
    /// Bytes, or somebody at the other end, to be refused: send what [`output`](Self::output) has, and close.
    fn handle_input(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), Error>;

    /// Adds to `socket` what the layer itself has to send; to be called when it is new, and after each input.
    ///
    /// # Errors
    /// If nothing can be sent.
    fn output(&mut self, socket: &mut Vec<u8>) -> Result<(), Error>;

    /// Whether both ends have shown who they are. Nothing is to be protected before.
    fn is_ready(&self) -> bool;

    /// Whether the bytes behind the handshake pass as they are (PROT C). Once it is ready such a layer has nothing to do: drop
    /// it.
    fn is_clear(&self) -> bool;

    /// Adds to `socket` what is to be sent for `plain`.
    ///
    /// # Errors
    /// If it is not ready.
    fn protect(&mut self, plain: &[u8], socket: &mut Vec<u8>) -> Result<(), Error>;
}
