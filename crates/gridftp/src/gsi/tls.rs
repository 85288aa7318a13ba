//! TLS of one connection: bytes in, bytes out, and the verified peer.

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

use super::chain::VerifiedChain;
use super::credential::Credential;
use super::hello;
use super::trust_store::TrustStore;
use super::verifier::{ExpectedPeer, Verifier};
use crate::FtpError;

/// Maximum bytes of a record after its header (RFC 5246 section 6.2.3; RFC 8446 allows fewer).
const MAX_RECORD_BYTES: usize = 16_384 + 2048;
const RECORD_HEADER_BYTES: usize = 5;

/// One side of a connection.
pub(super) struct Tls {
    connection: Connection,
    verifier: Arc<Verifier>,
    /// Decrypted bytes that are not consumed yet.
    pub plain: Vec<u8>,
}

/// Time of the session, because the crate has no clock.
#[derive(Debug)]
struct HandshakeTime(UnixTime);

impl TimeProvider for HandshakeTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}

/// Parameters of one side of a connection.
pub(super) struct TlsSetup<'a> {
    pub credential: &'a Credential,
    pub trust_store: &'a Arc<TrustStore>,
    pub expected: ExpectedPeer,
    /// Seconds since 1970.
    pub now_s: u64,
}

impl TlsSetup<'_> {
    fn verifier(&self) -> (Arc<Verifier>, Arc<CryptoProvider>, Arc<HandshakeTime>) {
        let provider = default_provider();
        let verifier = Verifier::new(
            self.trust_store,
            self.expected.clone(),
            provider.signature_verification_algorithms,
        );
        let now = UnixTime::since_unix_epoch(Duration::from_secs(self.now_s));
        (
            Arc::new(verifier),
            Arc::new(provider),
            Arc::new(HandshakeTime(now)),
        )
    }
}

impl Tls {
    /// Creates the connecting side.
    pub fn client(parts: &TlsSetup<'_>) -> Result<Self, FtpError> {
        parts.credential.check(parts.now_s)?;
        let (verifier, provider, now) = parts.verifier();
        let credential_key = SingleCertAndKey::from(parts.credential.certified());
        let mut config = ClientConfig::builder_with_details(provider, now)
            .with_protocol_versions(DEFAULT_VERSIONS)
            .map_err(|error| to_error(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier) as _)
            .with_client_cert_resolver(Arc::new(credential_key));
        config.resumption = Resumption::disabled();
        let no_name = ServerName::IpAddress(IpAddr::V4(Ipv4Addr::from([0; 4])));
        let name = match &parts.expected {
            ExpectedPeer::Host(host) => ServerName::try_from(host.clone()).unwrap_or(no_name),
            _ => no_name,
        };
        let connection = ClientConnection::new(Arc::new(config), name);
        connection
            .map(|connection| Self::new(connection.into(), verifier))
            .map_err(|error| to_error(&error))
    }

    /// Creates the accepting side. It requests a certificate and sends no session tickets, because
    /// the peer would read their records as the next token.
    pub fn server(parts: &TlsSetup<'_>) -> Result<Self, FtpError> {
        parts.credential.check(parts.now_s)?;
        let (verifier, _, now) = parts.verifier();
        let credential_key = SingleCertAndKey::from(parts.credential.certified());
        let mut config = ServerConfig::builder_with_details(Arc::new(hello::provider()), now)
            .with_protocol_versions(DEFAULT_VERSIONS)
            .map_err(|error| to_error(&error))?
            .with_client_cert_verifier(Arc::clone(&verifier) as _)
            .with_cert_resolver(Arc::new(credential_key));
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        ServerConnection::new(Arc::new(config))
            .map(|connection| Self::new(connection.into(), verifier))
            .map_err(|error| to_error(&error))
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

    /// Returns `true` for TLS 1.3, where the handshake ends with a message of the client.
    pub fn server_speaks_last(&self) -> bool {
        self.connection.protocol_version() == Some(ProtocolVersion::TLSv1_3)
    }

    /// Returns the verified peer; an error before its certificate arrived.
    pub fn verified(&self) -> Result<&VerifiedChain, FtpError> {
        let found = self.verifier.found();
        found.ok_or_else(|| {
            FtpError::Security("expected a certificate of the peer, found none".to_owned())
        })
    }

    /// Handles one complete record.
    pub fn take_record(&mut self, record: &[u8]) -> Result<(), FtpError> {
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
                return Err(FtpError::Security("TLS accepts no more bytes".to_owned()));
            }
            let state = self
                .connection
                .process_new_packets()
                .map_err(|error| to_error(&error))?;
            let start = self.plain.len();
            self.plain
                .resize(start + state.plaintext_bytes_to_read(), 0);
            let read = self
                .connection
                .reader()
                .read_exact(&mut self.plain[start..]);
            read.map_err(|error| FtpError::Security(error.to_string()))?;
        }
        Ok(())
    }

    /// Encrypts `plain` and appends the records to `into`.
    pub fn write(&mut self, plain: &[u8], into: &mut Vec<u8>) -> Result<(), FtpError> {
        for chunk in plain.chunks(MAX_PLAIN_BYTES) {
            let written = self.connection.writer().write_all(chunk);
            written.map_err(|error| FtpError::Security(error.to_string()))?;
            self.output(into)?;
        }
        Ok(())
    }

    /// Appends pending bytes to `into`.
    pub fn output(&mut self, into: &mut Vec<u8>) -> Result<(), FtpError> {
        while self.connection.wants_write() {
            self.connection
                .write_tls(into)
                .map_err(|error| FtpError::Security(error.to_string()))?;
        }
        Ok(())
    }
}

/// Maximum plain bytes per write; rustls buffers at most four times as many.
const MAX_PLAIN_BYTES: usize = 16_384;

/// Returns the size of the record that starts here, with its header; `None` if the header is
/// incomplete.
pub(super) fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, FtpError> {
    let Some(header) = bytes.first_chunk::<RECORD_HEADER_BYTES>() else {
        return Ok(None);
    };
    let [kind, version, _, high, low] = *header;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if !(20..=24).contains(&kind) || version != 3 || length > MAX_RECORD_BYTES {
        return Err(FtpError::malformed("token", "a record of TLS", header));
    }
    Ok(Some(RECORD_HEADER_BYTES + length))
}

/// Converts an error of rustls. Returns our own error if it was the cause.
fn to_error(error: &rustls::Error) -> FtpError {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(credential_key))) => {
            match credential_key.downcast_ref::<FtpError>() {
                Some(credential_key) => credential_key.clone(),
                None => FtpError::Security(credential_key.to_string()),
            }
        }
        rustls::Error::AlertReceived(alert) => FtpError::Security(format!(
            "the peer rejected the certificate or the TLS connection (alert {alert:?}). Read the log of the peer."
        )),
        other => FtpError::Security(format!("TLS: {other}")),
    }
}
