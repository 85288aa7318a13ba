//! TLS of one connection: bytes in, bytes out, and whom the other side's certificates show.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{IpAddr, Ipv4Addr, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::sign::SingleCertAndKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DEFAULT_VERSIONS, OtherError,
    ProtocolVersion, ServerConfig, ServerConnection,
};

use super::authorities::Authorities;
use super::chain::Verified;
use super::credential::Credential;
use super::hello;
use super::verifier::{Expected, Verifier};
use crate::Error;

/// Most bytes of a record behind its header (RFC 5246 section 6.2.3; RFC 8446 allows less).
const MAX_RECORD_BYTES: usize = 16_384 + 2048;
const RECORD_HEADER_BYTES: usize = 5;

/// One side of a connection.
pub(super) struct Tls {
    connection: Connection,
    verifier: Arc<Verifier>,
    /// What came and is not taken.
    pub plain: Vec<u8>,
}

/// The session's time: the crate has no clock.
#[derive(Debug)]
struct At(UnixTime);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}

/// What a side of a connection is made of.
pub(super) struct Parts<'a> {
    pub credential: &'a Credential,
    pub authorities: &'a Arc<Authorities>,
    pub expected: Expected,
    /// Seconds since 1970.
    pub now_s: u64,
}

impl Parts<'_> {
    fn verifier(&self) -> (Arc<Verifier>, Arc<CryptoProvider>, Arc<At>) {
        let provider = default_provider();
        let verifier = Verifier::new(
            self.authorities,
            self.expected.clone(),
            provider.signature_verification_algorithms,
        );
        let now = UnixTime::since_unix_epoch(Duration::from_secs(self.now_s));
        (Arc::new(verifier), Arc::new(provider), Arc::new(At(now)))
    }
}

impl Tls {
    /// The side that connects.
    pub fn client(parts: &Parts<'_>) -> Result<Self, Error> {
        parts.credential.check(parts.now_s)?;
        let (verifier, provider, now) = parts.verifier();
        let own = SingleCertAndKey::from(parts.credential.certified());
        let mut config = ClientConfig::builder_with_details(provider, now)
            .with_protocol_versions(DEFAULT_VERSIONS)
            .map_err(|error| refusal(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier) as _)
            .with_client_cert_resolver(Arc::new(own));
        config.resumption = Resumption::disabled();
        let nobody = ServerName::IpAddress(IpAddr::V4(Ipv4Addr::from([0; 4])));
        let name = match &parts.expected {
            Expected::Host(host) => ServerName::try_from(host.clone()).unwrap_or(nobody),
            _ => nobody,
        };
        let connection = ClientConnection::new(Arc::new(config), name);
        connection
            .map(|connection| Self::new(connection.into(), verifier))
            .map_err(|error| refusal(&error))
    }

    /// The side that is connected to. It asks for a certificate, and gives no tickets: their records would be taken for
    /// the next token.
    pub fn server(parts: &Parts<'_>) -> Result<Self, Error> {
        parts.credential.check(parts.now_s)?;
        let (verifier, _, now) = parts.verifier();
        let own = SingleCertAndKey::from(parts.credential.certified());
        let mut config = ServerConfig::builder_with_details(Arc::new(hello::provider()), now)
            .with_protocol_versions(DEFAULT_VERSIONS)
            .map_err(|error| refusal(&error))?
            .with_client_cert_verifier(Arc::clone(&verifier) as _)
            .with_cert_resolver(Arc::new(own));
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        ServerConnection::new(Arc::new(config))
            .map(|connection| Self::new(connection.into(), verifier))
            .map_err(|error| refusal(&error))
    }

    fn new(connection: Connection, verifier: Arc<Verifier>) -> Self {
        Self {
            connection,
            verifier,
            plain: Vec::new(),
        }
    }

    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the side that is connected to has nothing to say at the end of a handshake.
    pub fn ends_silently(&self) -> bool {
        self.connection.protocol_version() == Some(ProtocolVersion::TLSv1_3)
    }

    /// The other side, once it has shown itself.
    pub fn verified(&self) -> Result<&Verified, Error> {
        let found = self.verifier.found();
        found.ok_or_else(|| Error::Security("expected a certificate, found none".to_owned()))
    }

    /// Takes one whole record.
    pub fn take_record(&mut self, record: &[u8]) -> Result<(), Error> {
        let mut hidden;
        let mut record = record;
        if self.is_handshaking() && matches!(self.connection, Connection::Server(_)) {
            hidden = record.to_vec();
            hello::hide(&mut hidden);
            record = &hidden;
        }
        while !record.is_empty() {
            let taken = self.connection.read_tls(&mut record);
            if !matches!(taken, Ok(1..)) {
                return Err(Error::Security("TLS takes no more bytes".to_owned()));
            }
            let state = self
                .connection
                .process_new_packets()
                .map_err(|error| refusal(&error))?;
            let begin = self.plain.len();
            self.plain
                .resize(begin + state.plaintext_bytes_to_read(), 0);
            let read = self
                .connection
                .reader()
                .read_exact(&mut self.plain[begin..]);
            read.map_err(|error| Error::Security(error.to_string()))?;
        }
        Ok(())
    }

    /// Encrypts; [`output`](Self::output) has it.
    pub fn write(&mut self, plain: &[u8], into: &mut Vec<u8>) -> Result<(), Error> {
        for piece in plain.chunks(MAX_PLAIN_BYTES) {
            let written = self.connection.writer().write_all(piece);
            written.map_err(|error| Error::Security(error.to_string()))?;
            self.output(into)?;
        }
        Ok(())
    }

    /// Adds what is to be sent.
    pub fn output(&mut self, into: &mut Vec<u8>) -> Result<(), Error> {
        while self.connection.wants_write() {
            self.connection
                .write_tls(into)
                .map_err(|error| Error::Security(error.to_string()))?;
        }
        Ok(())
    }
}

/// Given to TLS at once; it holds no more than four times as much.
const MAX_PLAIN_BYTES: usize = 16_384;

/// Bytes of the record that begins here; nothing if its header is not whole.
pub(super) fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, Error> {
    let Some(header) = bytes.first_chunk::<RECORD_HEADER_BYTES>() else {
        return Ok(None);
    };
    let [kind, version, _, high, low] = *header;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if !(20..=24).contains(&kind) || version != 3 || length > MAX_RECORD_BYTES {
        return Err(Error::malformed("token", "a record of TLS", header));
    }
    Ok(Some(RECORD_HEADER_BYTES + length))
}

/// The sentence of whoever refused: our own where it was ours.
fn refusal(error: &rustls::Error) -> Error {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(own))) => {
            match own.downcast_ref::<Error>() {
                Some(own) => own.clone(),
                None => Error::Security(own.to_string()),
            }
        }
        rustls::Error::AlertReceived(alert) => Error::Security(format!(
            "the other side refuses this side's certificate or TLS (alert {alert:?}); its log says why"
        )),
        other => Error::Security(format!("TLS: {other}")),
    }
}
