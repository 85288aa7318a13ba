//! Client and server side of a control connection: `AUTH GSSAPI`.

use std::sync::Arc;

use super::credential::Credential;
use super::data::DataLayer;
use super::exchange::{Exchange, GsiRole};
use super::tls::{Tls, TlsSetup, record_bytes};
use super::trust_store::TrustStore;
use super::verifier::ExpectedPeer;
use crate::{DataSecurity, DataSecurityRequest, Dcau, FtpError, Handshake, Peer, Secret, Security};

/// Name of the mechanism in AUTH.
const MECHANISM: &str = "GSSAPI";

/// Expected peer and delegation of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GsiPeer {
    /// Host that the user named. The certificate must belong to this host.
    pub host: String,
    /// Required subject of the certificate, if it does not contain the host name.
    pub subject: Option<String>,
    /// `true` if the server receives a proxy. It needs one to secure data connections (DCAU A) and
    /// for third-party copies.
    pub delegates: bool,
}

/// The GSI of one control connection.
pub struct Gsi {
    exchange: Exchange,
    trust_store: Arc<TrustStore>,
    /// Credential for data connections: the client's own, or the one delegated to a server.
    data: Option<Credential>,
    /// Replacement of `data` (DCSC).
    replaced: Option<Credential>,
    peer: Option<Peer>,
    now_s: u64,
}

impl Gsi {
    /// Creates the side of a client at `now_s` (seconds since 1970).
    ///
    /// # Errors
    /// If the credential has expired or is unusable.
    pub fn client(
        credential: &Credential,
        trust_store: &Arc<TrustStore>,
        target: &GsiPeer,
        now_s: u64,
    ) -> Result<Self, FtpError> {
        let expected = match &target.subject {
            Some(subject) => ExpectedPeer::Identity(subject.clone()),
            None => ExpectedPeer::Host(target.host.clone()),
        };
        let parts = TlsSetup {
            credential,
            trust_store,
            expected,
            now_s,
        };
        let delegates = target.delegates.then(|| credential.clone());
        let exchange = Exchange::new(Tls::client(&parts)?, GsiRole::Initiator { delegates });
        let data = Some(credential.clone());
        Ok(Self::new(exchange, trust_store, data, now_s))
    }

    /// Creates the side of a server with the host's credential at `now_s` (seconds since 1970).
    ///
    /// # Errors
    /// If the credential has expired or is unusable.
    pub fn server(
        credential: &Credential,
        trust_store: &Arc<TrustStore>,
        now_s: u64,
    ) -> Result<Self, FtpError> {
        let parts = TlsSetup {
            credential,
            trust_store,
            expected: ExpectedPeer::Any,
            now_s,
        };
        let exchange = Exchange::new(Tls::server(&parts)?, GsiRole::Acceptor { accepts: true });
        Ok(Self::new(exchange, trust_store, None, now_s))
    }

    fn new(
        exchange: Exchange,
        trust_store: &Arc<TrustStore>,
        data: Option<Credential>,
        now_s: u64,
    ) -> Self {
        Self {
            exchange,
            trust_store: Arc::clone(trust_store),
            data,
            replaced: None,
            peer: None,
            now_s,
        }
    }

    fn data_credential(&self) -> Option<&Credential> {
        self.replaced.as_ref().or(self.data.as_ref())
    }

    fn take(&mut self, token: &[u8]) -> Result<(), FtpError> {
        let mut rest = token;
        while !rest.is_empty() {
            let (record, behind) = record_bytes(rest)?
                .and_then(|bytes| rest.split_at_checked(bytes))
                .ok_or_else(|| FtpError::malformed("token", "complete TLS records", rest))?;
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

    fn step(&mut self, token: Option<&[u8]>) -> Result<Handshake, FtpError> {
        self.take(token.unwrap_or_default())?;
        let was_done = self.exchange.is_done();
        if was_done {
            // After the end, discard the zero byte that some Java servers send late.
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
        // A waiting peer gets a token, even an empty one. After the last token nothing is due.
        let token = (!out.is_empty() || !done).then_some(out);
        Ok(Handshake { token, done })
    }

    fn wrap(&mut self, plain: &[u8]) -> Result<Vec<u8>, FtpError> {
        let mut token = Vec::with_capacity(plain.len() + 64);
        self.exchange.tls.write(plain, &mut token)?;
        Ok(token)
    }

    fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, FtpError> {
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
    ) -> Result<(), FtpError> {
        let credential = credential.map(Credential::from_dcsc).transpose()?;
        if let Some(credential) = &credential {
            credential.check(now_s)?;
        }
        self.replaced = credential;
        Ok(())
    }

    fn data_layer(
        &self,
        request: DataSecurityRequest<'_>,
    ) -> Result<Option<Box<dyn DataSecurity>>, FtpError> {
        let Some(credential) = self.data_credential() else {
            return match request.dcau {
                Dcau::None => Ok(None),
                _ => Err(FtpError::Security(
                    "expected a credential for data connections, found none. Delegate a credential, send DCSC P, or send DCAU N.".to_owned(),
                )),
            };
        };
        let name = match request.dcau {
            Dcau::None => return Ok(None),
            Dcau::User => credential.identity().to_owned(),
            Dcau::Subject(subject) => String::from_utf8_lossy(subject).into_owned(),
        };
        let parts = TlsSetup {
            credential,
            trust_store: &self.trust_store,
            expected: ExpectedPeer::Identity(name),
            now_s: request.now_s,
        };
        DataLayer::new(&parts, request.role, request.protection)
            .map(|layer| Some(Box::new(layer) as _))
    }
}
