//! The two sides of a control connection: `AUTH GSSAPI`.

use std::sync::Arc;

use super::authorities::Authorities;
use super::credential::Credential;
use super::data::DataLayer;
use super::exchange::{Exchange, Side};
use super::tls::{Parts, Tls, record_bytes};
use super::verifier::Expected;
use crate::{DataSecurity, DataWish, Dcau, Error, Handshake, Peer, Secret, Security};

/// What AUTH calls it.
const MECHANISM: &str = "GSSAPI";

/// Whom a client talks to, and what it gives away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The host that the user named; its certificate has to be that of this host.
    pub host: String,
    /// The name that its certificate has to have instead, where it has not that of the host.
    pub subject: Option<String>,
    /// Whether the server gets a proxy: it needs one to secure data connections (DCAU A), and for copies between servers.
    pub delegates: bool,
}

/// The GSI of one control connection.
pub struct Gsi {
    exchange: Exchange,
    authorities: Arc<Authorities>,
    /// This side's on data connections: a client's own, a server's what was delegated.
    data: Option<Credential>,
    /// Instead of it (DCSC).
    replaced: Option<Credential>,
    peer: Option<Peer>,
    now_s: u64,
}

impl Gsi {
    /// A client's side, at `now_s` (seconds since 1970).
    ///
    /// # Errors
    /// A credential that has ended, or cannot be used.
    pub fn client(
        credential: &Credential,
        authorities: &Arc<Authorities>,
        target: &Target,
        now_s: u64,
    ) -> Result<Self, Error> {
        let expected = match &target.subject {
            Some(subject) => Expected::Identity(subject.clone()),
            None => Expected::Host(target.host.clone()),
        };
        let parts = Parts {
            credential,
            authorities,
            expected,
            now_s,
        };
        let delegates = target.delegates.then(|| credential.clone());
        let exchange = Exchange::new(Tls::client(&parts)?, Side::Initiator { delegates });
        let data = Some(credential.clone());
        Ok(Self::new(exchange, authorities, data, now_s))
    }

    /// A server's side, with the credential of its host, at `now_s` (seconds since 1970).
    ///
    /// # Errors
    /// A credential that has ended, or cannot be used.
    pub fn server(
        credential: &Credential,
        authorities: &Arc<Authorities>,
        now_s: u64,
    ) -> Result<Self, Error> {
        let parts = Parts {
            credential,
            authorities,
            expected: Expected::Anybody,
            now_s,
        };
        let exchange = Exchange::new(Tls::server(&parts)?, Side::Acceptor { takes: true });
        Ok(Self::new(exchange, authorities, None, now_s))
    }

    fn new(
        exchange: Exchange,
        authorities: &Arc<Authorities>,
        data: Option<Credential>,
        now_s: u64,
    ) -> Self {
        Self {
            exchange,
            authorities: Arc::clone(authorities),
            data,
            replaced: None,
            peer: None,
            now_s,
        }
    }

    fn data_credential(&self) -> Option<&Credential> {
        self.replaced.as_ref().or(self.data.as_ref())
    }

    fn take(&mut self, token: &[u8]) -> Result<(), Error> {
        let mut rest = token;
        while !rest.is_empty() {
            let (record, behind) = record_bytes(rest)?
                .and_then(|bytes| rest.split_at_checked(bytes))
                .ok_or_else(|| Error::malformed("token", "whole records of TLS", rest))?;
            self.exchange.tls.take_record(record)?;
            rest = behind;
        }
        Ok(())
    }
}

impl Security for Gsi {
    fn mechanism(&self) -> &'static str {
        MECHANISM
    }

    fn step(&mut self, token: Option<&[u8]>) -> Result<Handshake, Error> {
        self.take(token.unwrap_or_default())?;
        let was_done = self.exchange.is_done();
        if was_done {
            // Behind the end there is nothing to be said but what some servers of Java say late: the zero byte.
            self.exchange.tls.plain.clear();
        }
        let mut out = Vec::new();
        if let Some(delegated) = self.exchange.advance(&mut out, self.now_s)? {
            self.data = Some(delegated);
        }
        let done = self.exchange.is_done();
        if done && !was_done {
            self.peer = Some(self.exchange.tls.verified()?.peer.clone());
        }
        // Where the other side waits for a token it gets one, be it empty; behind the last one nothing is due.
        let token = (!out.is_empty() || !done).then_some(out);
        Ok(Handshake { token, done })
    }

    fn wrap(&mut self, plain: &[u8]) -> Result<Vec<u8>, Error> {
        let mut token = Vec::with_capacity(plain.len() + 64);
        self.exchange.tls.write(plain, &mut token)?;
        Ok(token)
    }

    fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, Error> {
        self.take(token)?;
        Ok(std::mem::take(&mut self.exchange.tls.plain))
    }

    fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    fn secures_data(&self) -> bool {
        self.data_credential().is_some()
    }

    fn set_data_credential(
        &mut self,
        credential: Option<&Secret>,
        now_s: u64,
    ) -> Result<(), Error> {
        let credential = credential.map(Credential::of_data_channels).transpose()?;
        if let Some(credential) = &credential {
            credential.check(now_s)?;
        }
        self.replaced = credential;
        Ok(())
    }

    fn data_layer(&self, wish: DataWish<'_>) -> Result<Option<Box<dyn DataSecurity>>, Error> {
        let Some(credential) = self.data_credential() else {
            return match wish.who {
                Dcau::None => Ok(None),
                _ => Err(Error::Security(
                    "expected a credential for data connections, found none; delegate one, send DCSC P, or DCAU N".to_owned(),
                )),
            };
        };
        let name = match wish.who {
            Dcau::None => return Ok(None),
            Dcau::User => credential.identity().to_owned(),
            Dcau::Subject(subject) => String::from_utf8_lossy(subject).into_owned(),
        };
        let parts = Parts {
            credential,
            authorities: &self.authorities,
            expected: Expected::Identity(name),
            now_s: wish.now_s,
        };
        DataLayer::new(&parts, wish.end, wish.protection).map(|layer| Some(Box::new(layer) as _))
    }
}
