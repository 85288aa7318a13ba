//! One data connection: the same handshake without delegation, as bare records of TLS, and what comes behind it.
//!
//! With PROT C the byte about delegation ends the handshake, then bytes pass as they are. With PROT S and P there is no such
//! byte, and all else is TLS; S is encrypted as P is.

use super::exchange::{Exchange, Side};
use super::tls::{Parts, Tls, record_bytes};
use crate::{DataSecurity, End, Error, Protection};

/// Between a socket and a session.
pub(super) struct DataLayer {
    exchange: Exchange,
    /// Part of a record. Only whole ones are given to TLS: behind the last one of a handshake there may be bytes that
    /// are not its.
    begun: Vec<u8>,
    /// What the handshake has to send.
    due: Vec<u8>,
    clear: bool,
    ready: bool,
    now_s: u64,
}

impl DataLayer {
    pub fn new(parts: &Parts<'_>, end: End, protection: Protection) -> Result<Self, Error> {
        let clear = protection == Protection::Clear;
        let tls = match end {
            End::Connects => Tls::client(parts)?,
            End::Accepts => Tls::server(parts)?,
        };
        // Where bytes pass as they are behind the handshake, a byte more tells that it is over (`globus_io_xio_compat.c`:
        // protected data connections are "SSL compatible", others are not).
        let side = match end {
            _ if !clear => Side::Bare,
            End::Connects => Side::Initiator { delegates: None },
            End::Accepts => Side::Acceptor { takes: false },
        };
        let exchange = Exchange::new(tls, side);
        let mut layer = Self {
            exchange,
            begun: Vec::new(),
            due: Vec::new(),
            clear,
            ready: false,
            now_s: parts.now_s,
        };
        layer.exchange.tls.output(&mut layer.due)?;
        Ok(layer)
    }

    fn record(&mut self, record: &[u8], plain: &mut Vec<u8>) -> Result<(), Error> {
        self.exchange.tls.take_record(record)?;
        if !self.ready {
            self.exchange.advance(&mut self.due, self.now_s)?;
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
    fn handle_input(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), Error> {
        while !bytes.is_empty() && !self.passes() {
            // What a record that was begun lacks, its header first.
            let needed = match record_bytes(&self.begun)? {
                Some(whole) => whole - self.begun.len(),
                None if self.begun.is_empty() => match record_bytes(bytes)? {
                    Some(whole) if whole <= bytes.len() => {
                        let (record, rest) = bytes.split_at(whole);
                        self.record(record, plain)?;
                        bytes = rest;
                        continue;
                    }
                    _ => HEADER_BYTES,
                },
                None => HEADER_BYTES - self.begun.len(),
            };
            let (part, rest) = bytes.split_at(needed.min(bytes.len()));
            self.begun.extend_from_slice(part);
            bytes = rest;
            if record_bytes(&self.begun)? == Some(self.begun.len()) {
                let record = std::mem::take(&mut self.begun);
                self.record(&record, plain)?;
            }
        }
        plain.extend_from_slice(bytes);
        Ok(())
    }

    fn output(&mut self, socket: &mut Vec<u8>) -> Result<(), Error> {
        socket.append(&mut self.due);
        self.exchange.tls.output(socket)
    }

    fn is_ready(&self) -> bool {
        self.ready
    }

    fn is_clear(&self) -> bool {
        self.clear
    }

    fn protect(&mut self, plain: &[u8], socket: &mut Vec<u8>) -> Result<(), Error> {
        if !self.ready {
            return Err(Error::Order {
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
