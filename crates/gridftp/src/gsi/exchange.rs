//! The handshake of the Grid Security Infrastructure: TLS, then one byte that says whether a proxy is delegated, then the
//! proxy. The order is that of `init_sec_context.c` and `accept_sec_context.c` of the Grid Community Toolkit.

use super::credential::Credential;
use super::proxy::{Requested, delegate, request};
use super::tls::Tls;
use crate::Error;

/// Most bytes of a certificate, or of a request for one.
const MAX_CERTIFICATE_BYTES: usize = 64 * 1024;

/// A side of a connection, from the first byte to the last.
pub(super) struct Exchange {
    pub tls: Tls,
    side: Side,
    state: State,
}

pub(super) enum Side {
    /// It connected; it may delegate this.
    Initiator { delegates: Option<Credential> },
    /// It was connected to.
    Acceptor { takes: bool },
    /// Nothing follows the handshake of TLS, on either side: the "SSL compatible" way of data connections that are protected.
    Bare,
}

enum State {
    Handshake,
    /// The byte that tells about delegation is due.
    Flag,
    /// The initiator waits for a request.
    Request,
    /// The acceptor waits for a proxy.
    Proxy(Box<Requested>),
    Done,
}

/// What the other side delegated.
pub(super) type Delegated = Option<Credential>;

impl Exchange {
    pub fn new(tls: Tls, side: Side) -> Self {
        Self {
            tls,
            side,
            state: State::Handshake,
        }
    }

    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Goes on with what came; what it has to say is added to `out`. To be called for every token, be it empty.
    pub fn advance(&mut self, out: &mut Vec<u8>, now_s: u64) -> Result<Delegated, Error> {
        self.tls.output(out)?;
        match &self.side {
            Side::Initiator { .. } => self.initiate(out, now_s).map(|()| None),
            Side::Acceptor { .. } => self.accept(out),
            Side::Bare => {
                if !self.tls.is_handshaking() {
                    self.tls.verified()?;
                    self.state = State::Done;
                }
                Ok(None)
            }
        }
    }

    fn initiate(&mut self, out: &mut Vec<u8>, now_s: u64) -> Result<(), Error> {
        match &self.state {
            State::Handshake if self.tls.is_handshaking() => Ok(()),
            State::Handshake => {
                self.state = State::Flag;
                // In TLS 1.3 the last word of the handshake is this side's; the other one says something too before it
                // goes on.
                if self.tls.ends_silently() {
                    Ok(())
                } else {
                    self.tell(out)
                }
            }
            State::Flag => {
                // A zero byte; servers of Java send none.
                if !matches!(self.tls.plain[..], [] | [0]) {
                    return Err(violation("a zero byte", &self.tls.plain));
                }
                self.tls.plain.clear();
                self.tell(out)
            }
            State::Request => self.delegate(out, now_s),
            State::Proxy(_) => Err(violation("nothing", b"a proxy")),
            State::Done => Ok(()),
        }
    }

    fn tell(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        let delegates = matches!(self.side, Side::Initiator { delegates: Some(_) });
        let (flag, next) = if delegates {
            (b"D", State::Request)
        } else {
            (b"0", State::Done)
        };
        self.state = next;
        self.tls.write(flag, out)
    }

    fn delegate(&mut self, out: &mut Vec<u8>, now_s: u64) -> Result<(), Error> {
        let Side::Initiator {
            delegates: Some(credential),
        } = &self.side
        else {
            return Ok(());
        };
        if !is_whole(&self.tls.plain)? {
            return Ok(());
        }
        let proxy = delegate(credential, &self.tls.plain, now_s)?;
        self.tls.plain.clear();
        self.state = State::Done;
        self.tls.write(&proxy, out)
    }

    fn accept(&mut self, out: &mut Vec<u8>) -> Result<Delegated, Error> {
        if matches!(self.state, State::Handshake) && !self.tls.is_handshaking() {
            self.tls.verified()?;
            self.state = State::Flag;
            if self.tls.ends_silently() {
                self.tls.write(&[0], out)?;
            }
        }
        if matches!(self.state, State::Flag) && !self.tls.plain.is_empty() {
            match (self.tls.plain.remove(0), &self.side) {
                (b'0', _) => self.state = State::Done,
                (b'D', Side::Acceptor { takes: true }) => {
                    let requested = request(&self.tls.verified()?.chain[0])?;
                    self.tls.write(&requested.request, out)?;
                    self.state = State::Proxy(Box::new(requested));
                    return Ok(None);
                }
                (other, _) => return Err(violation("0 or D", &[other])),
            }
        }
        self.take_proxy()
    }

    fn take_proxy(&mut self) -> Result<Delegated, Error> {
        if !matches!(self.state, State::Proxy(_)) || !is_whole(&self.tls.plain)? {
            return Ok(None);
        }
        let State::Proxy(requested) = std::mem::replace(&mut self.state, State::Done) else {
            return Ok(None);
        };
        let proxy = std::mem::take(&mut self.tls.plain);
        requested
            .accept(&proxy, &self.tls.verified()?.chain)
            .map(Some)
    }
}

/// Whether a value in DER has come to its end. It comes in one record, but nothing forbids two.
fn is_whole(der: &[u8]) -> Result<bool, Error> {
    let length = match *der {
        [] | [0x30] | [0x30, 0x81] | [0x30, 0x82] | [0x30, 0x82, _] => return Ok(false),
        [0x30, short @ 0..=0x7f, ..] => usize::from(short) + 2,
        [0x30, 0x81, length, ..] => usize::from(length) + 3,
        [0x30, 0x82, high, low, ..] => usize::from(u16::from_be_bytes([high, low])) + 4,
        _ => return Err(violation("a certificate or a request for one", der)),
    };
    if der.len() > length || der.len() > MAX_CERTIFICATE_BYTES {
        return Err(violation("one certificate or request", der));
    }
    Ok(der.len() == length)
}

fn violation(expected: &'static str, found: &[u8]) -> Error {
    Error::malformed("delegation", expected, found)
}
