//! Verifies the certificates of a peer instead of rustls, which does not support proxies.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, SignatureScheme,
};

use super::certificate::Certificate;
use super::chain::{CertificateUsage, VerifiedChain, verify};
use super::hello;
use super::host::check_host;
use super::name::is_same;
use super::trust_store::TrustStore;
use crate::FtpError;

/// Required identity of the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExpectedPeer {
    /// This host, by name or address.
    Host(String),
    /// This identity, or a proxy of it.
    Identity(String),
    /// Any authenticated peer.
    Any,
}

/// Verifies the peer's certificates and stores the result.
#[derive(Debug)]
pub(super) struct Verifier {
    trust_store: Arc<TrustStore>,
    expected: ExpectedPeer,
    algorithms: WebPkiSupportedAlgorithms,
    found: OnceLock<VerifiedChain>,
}

impl Verifier {
    pub fn new(
        trust_store: &Arc<TrustStore>,
        expected: ExpectedPeer,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Self {
        Self {
            trust_store: Arc::clone(trust_store),
            expected,
            algorithms,
            found: OnceLock::new(),
        }
    }

    /// Returns the verified peer, once its certificate arrived.
    pub fn found(&self) -> Option<&VerifiedChain> {
        self.found.get()
    }

    fn look(
        &self,
        first: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), FtpError> {
        let usage = match self.expected {
            ExpectedPeer::Host(_) => CertificateUsage::Host,
            _ => CertificateUsage::Any,
        };
        let chain: Vec<_> = std::iter::once(first).chain(rest).cloned().collect();
        let found = verify(&self.trust_store, &chain, usage, now, &self.algorithms)?;
        match &self.expected {
            ExpectedPeer::Any => {}
            ExpectedPeer::Host(host) => check_host(&found.chain[found.end_entity], host)?,
            ExpectedPeer::Identity(name) if is_same(name, &found.peer.identity) => {}
            ExpectedPeer::Identity(name) => {
                return Err(FtpError::Security(format!(
                    "data connection: expected the peer {name}, found {}",
                    found.peer.identity
                )));
            }
        }
        let _ = self.found.set(found);
        Ok(())
    }

    fn check(
        &self,
        first: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        self.look(first, rest, now).map_err(|error| {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
        })
    }

    /// Verifies a signature by the key alone, because webpki rejects proxy certificates.
    fn signed(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
        first_only: bool,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let wrong = || rustls::Error::InvalidCertificate(CertificateError::BadSignature);
        let certificate = Certificate::parse(certificate);
        let key = certificate.and_then(|certificate| certificate.key());
        let key = key.map_err(|_| wrong())?;
        let entity = webpki::RawPublicKeyEntity::try_from(&key).map_err(|_| wrong())?;
        let offered = self.algorithms.mapping.iter();
        let known = offered
            .filter(|(scheme, _)| *scheme == signed.scheme)
            .flat_map(|(_, known)| known.iter().take(if first_only { 1 } else { known.len() }));
        for algorithm in known {
            let fits = entity.verify_signature(*algorithm, message, signed.signature());
            if fits.is_ok() {
                return Ok(HandshakeSignatureValid::assertion());
            }
        }
        Err(wrong())
    }

    fn signed_13(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        use SignatureScheme as S;
        // RFC 8446 section 4.2.3: these are for certificates only.
        if matches!(
            signed.scheme,
            S::RSA_PKCS1_SHA1 | S::RSA_PKCS1_SHA256 | S::RSA_PKCS1_SHA384 | S::RSA_PKCS1_SHA512
        ) {
            return Err(rustls::Error::InvalidCertificate(
                CertificateError::BadSignature,
            ));
        }
        self.signed(message, certificate, signed, true)
    }
}

/// Signature checks of both sides; `$sent` maps the handshake messages to their original bytes.
macro_rules! signatures {
    ($sent:expr) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.signed(&$sent(message), certificate, signed, false)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.signed_13(message, certificate, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }
    };
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity, intermediates, now)
            .map(|()| ServerCertVerified::assertion())
    }

    signatures!(<[u8]>::to_vec);
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // A client has one credential, so a list of hundreds of CAs would only lengthen the token.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity, intermediates, now)
            .map(|()| ClientCertVerified::assertion())
    }

    // The hash of the server covers the original ClientHello, before its name was hidden.
    signatures!(hello::shown);
}
