//! The GSI handshake: TLS, a byte that requests or declines delegation, then the proxy. The order
//! is that of `init_sec_context.c` and `accept_sec_context.c` of the Grid Community Toolkit.

use super::credential::Credential;
use super::proxy::{ProxyRequest, delegate, request};
use super::tls::Tls;
use crate::FtpError;

/// Maximum bytes of a certificate or a certificate request.
const MAX_CERTIFICATE_BYTES: usize = 64 * 1024;

/// One side of a connection, for its whole lifetime.
pub(super) struct Exchange {
    pub tls: Tls,
    side: GsiRole,
    state: ExchangeState,
}

pub(super) enum GsiRole {
    /// This side opened the connection and can delegate this credential.
    Initiator { delegates: Option<Credential> },
    /// This side accepted the connection.
    Acceptor { accepts: bool },
    /// Neither side sends anything after the TLS handshake. Protected data connections use this
    /// "SSL compatible" form.
    Bare,
}

enum ExchangeState {
    Handshake,
    /// The delegation byte is due.
    Flag,
    /// The initiator waits for a request.
    Request,
    /// The acceptor waits for a proxy.
    Proxy(Box<ProxyRequest>),
    Done,
}

/// Credential delegated by the peer.
pub(super) type Delegated = Option<Credential>;

impl Exchange {
    pub fn new(tls: Tls, side: GsiRole) -> Self {
        Self {
            tls,
            side,
            state: ExchangeState::Handshake,
        }
    }

    pub fn is_done(&self) -> bool {
        matches!(self.state, ExchangeState::Done)
    }

    /// Continues the handshake with received bytes and appends bytes to send to `out`. Call it for
    /// every token, even an empty one.
    pub fn advance(&mut self, out: &mut Vec<u8>, now_s: u64) -> Result<Delegated, FtpError> {
        self.tls.output(out)?;
        match &self.side {
            GsiRole::Initiator { .. } => self.initiate(out, now_s).map(|()| None),
            GsiRole::Acceptor { .. } => self.accept(out),
            GsiRole::Bare => {
                if !self.tls.is_handshaking() {
                    self.tls.verified()?;
                    self.state = ExchangeState::Done;
                }
                Ok(None)
            }
        }
    }

    fn initiate(&mut self, out: &mut Vec<u8>, now_s: u64) -> Result<(), FtpError> {
        match &self.state {
            ExchangeState::Handshake if self.tls.is_handshaking() => Ok(()),
            ExchangeState::Handshake => {
                self.state = ExchangeState::Flag;
                // In TLS 1.3 this side sends the last handshake message, so the peer sends another
                // token first.
                if self.tls.server_speaks_last() {
                    Ok(())
                } else {
                    self.send_flag(out)
                }
            }
            ExchangeState::Flag => {
                // A zero byte; Java servers send none.
                if !matches!(self.tls.plain[..], [] | [0]) {
                    return Err(violation("a zero byte", &self.tls.plain));
                }
                self.tls.plain.clear();
                self.send_flag(out)
            }
            ExchangeState::Request => self.delegate(out, now_s),
            ExchangeState::Proxy(_) => Err(violation("nothing", b"a proxy")),
            ExchangeState::Done => Ok(()),
        }
    }

    fn send_flag(&mut self, out: &mut Vec<u8>) -> Result<(), FtpError> {
        let delegates = matches!(self.side, GsiRole::Initiator { delegates: Some(_) });
        let (flag, next) = if delegates {
            (b"D", ExchangeState::Request)
        } else {
            (b"0", ExchangeState::Done)
        };
        self.state = next;
        self.tls.write(flag, out)
    }

    fn delegate(&mut self, out: &mut Vec<u8>, now_s: u64) -> Result<(), FtpError> {
        let GsiRole::Initiator {
            delegates: Some(credential),
        } = &self.side
        else {
            return Ok(());
        };
        if !is_complete(&self.tls.plain)? {
            return Ok(());
        }
        let proxy = delegate(credential, &self.tls.plain, now_s)?;
        self.tls.plain.clear();
        self.state = ExchangeState::Done;
        self.tls.write(&proxy, out)
    }

    fn accept(&mut self, out: &mut Vec<u8>) -> Result<Delegated, FtpError> {
        if matches!(self.state, ExchangeState::Handshake) && !self.tls.is_handshaking() {
            self.tls.verified()?;
            self.state = ExchangeState::Flag;
            if self.tls.server_speaks_last() {
                self.tls.write(&[0], out)?;
            }
        }
        if matches!(self.state, ExchangeState::Flag) && !self.tls.plain.is_empty() {
            match (self.tls.plain.remove(0), &self.side) {
                (b'0', _) => self.state = ExchangeState::Done,
                (b'D', GsiRole::Acceptor { accepts: true }) => {
                    let requested = request(&self.tls.verified()?.chain[0])?;
                    self.tls.write(&requested.request, out)?;
                    self.state = ExchangeState::Proxy(Box::new(requested));
                    return Ok(None);
                }
                (other, _) => return Err(violation("0 or D", &[other])),
            }
        }
        self.take_proxy()
    }

    fn take_proxy(&mut self) -> Result<Delegated, FtpError> {
        if !matches!(self.state, ExchangeState::Proxy(_)) || !is_complete(&self.tls.plain)? {
            return Ok(None);
        }
        let ExchangeState::Proxy(requested) =
            std::mem::replace(&mut self.state, ExchangeState::Done)
        else {
            return Ok(None);
        };
        let proxy = std::mem::take(&mut self.tls.plain);
        requested
            .accept(&proxy, &self.tls.verified()?.chain)
            .map(Some)
    }
}

/// Returns `true` if a DER value is complete. It usually arrives in one record, but two are
/// allowed.
fn is_complete(der: &[u8]) -> Result<bool, FtpError> {
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

fn violation(expected: &'static str, found: &[u8]) -> FtpError {
    FtpError::malformed("delegation", expected, found)
}
