//! Security layer of a data connection: the GSI handshake without delegation, as plain TLS records,
//! and the data after it.
//!
//! With PROT C, the delegation byte ends the handshake, and the data follows unprotected. With PROT
//! S and P, there is no delegation byte, and all data is sent over TLS. PROT S is encrypted like
//! PROT P.

use super::exchange::{Exchange, GsiRole};
use super::tls::{Tls, TlsSetup, record_bytes};
use crate::{ConnectionRole, DataSecurity, FtpError, Protection};

/// Security layer between a socket and a session.
pub(super) struct DataLayer {
    exchange: Exchange,
    /// Incomplete record. TLS gets only complete records, because bytes after the last record of a
    /// handshake can be plain data.
    partial_record: Vec<u8>,
    /// Handshake bytes to send.
    pending: Vec<u8>,
    clear: bool,
    ready: bool,
    now_s: u64,
}

impl DataLayer {
    pub fn new(
        parts: &TlsSetup<'_>,
        role: ConnectionRole,
        protection: Protection,
    ) -> Result<Self, FtpError> {
        let clear = protection == Protection::Clear;
        let tls = match role {
            ConnectionRole::Connects => Tls::client(parts)?,
            ConnectionRole::Accepts => Tls::server(parts)?,
        };
        // Without protection, an additional byte marks the end of the handshake
        // (`globus_io_xio_compat.c`: protected data connections are "SSL compatible", others are
        // not).
        let side = match role {
            _ if !clear => GsiRole::Bare,
            ConnectionRole::Connects => GsiRole::Initiator { delegates: None },
            ConnectionRole::Accepts => GsiRole::Acceptor { accepts: false },
        };
        let exchange = Exchange::new(tls, side);
        let mut layer = Self {
            exchange,
            partial_record: Vec::new(),
            pending: Vec::new(),
            clear,
            ready: false,
            now_s: parts.now_s,
        };
        layer.exchange.tls.output(&mut layer.pending)?;
        Ok(layer)
    }

    fn record(&mut self, record: &[u8], plain: &mut Vec<u8>) -> Result<(), FtpError> {
        self.exchange.tls.take_record(record)?;
        if !self.ready {
            self.exchange.advance(&mut self.pending, self.now_s)?;
            self.ready = self.exchange.is_done();
        }
        if self.ready {
            plain.append(&mut self.exchange.tls.plain);
        }
        Ok(())
    }

    fn passes(&self) -> bool {
        self.ready && self.clear
    }
}

impl DataSecurity for DataLayer {
    fn handle_input(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), FtpError> {
        while !bytes.is_empty() && !self.passes() {
            // Missing bytes of the incomplete record, header first.
            let needed = match record_bytes(&self.partial_record)? {
                Some(whole) => whole - self.partial_record.len(),
                None if self.partial_record.is_empty() => match record_bytes(bytes)? {
                    Some(whole) if whole <= bytes.len() => {
                        let (record, rest) = bytes.split_at(whole);
                        self.record(record, plain)?;
                        bytes = rest;
                        continue;
                    }
                    _ => HEADER_BYTES,
                },
                None => HEADER_BYTES - self.partial_record.len(),
            };
            let (part, rest) = bytes.split_at(needed.min(bytes.len()));
            self.partial_record.extend_from_slice(part);
            bytes = rest;
            if record_bytes(&self.partial_record)? == Some(self.partial_record.len()) {
                let record = std::mem::take(&mut self.partial_record);
                self.record(&record, plain)?;
            }
        }
        plain.extend_from_slice(bytes);
        Ok(())
    }

    fn output(&mut self, socket: &mut Vec<u8>) -> Result<(), FtpError> {
        socket.append(&mut self.pending);
        self.exchange.tls.output(socket)
    }

    fn is_ready(&self) -> bool {
        self.ready
    }

    fn is_clear(&self) -> bool {
        self.clear
    }

    fn protect(&mut self, plain: &[u8], socket: &mut Vec<u8>) -> Result<(), FtpError> {
        if !self.ready {
            return Err(FtpError::Order {
                expected: "a handshake",
                found: "bytes to be protected".to_owned(),
            });
        }
        if self.clear {
            socket.extend_from_slice(plain);
            return Ok(());
        }
        self.output(socket)?;
        self.exchange.tls.write(plain, socket)
    }
}

/// Kind, version and length of a record.
const HEADER_BYTES: usize = 5;
