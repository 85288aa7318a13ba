//! Credential of this side: a chain of certificates and the key of the first certificate.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::ring::{default_provider, sign};
use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::{CertifiedKey, SigningKey};

use super::certificate::Certificate;
use super::name::one_line;
use super::proxy::check_delegable;
use crate::{FtpError, Secret, base64};

/// Maximum bytes of a credential file. A VOMS proxy has about ten thousand.
const MAX_FILE_BYTES: usize = 1 << 20;
/// Maximum certificates of a chain; each delegation adds one.
pub(super) const MAX_CHAIN: usize = 20;

/// Certificates and a private key, read from PEM text. `Debug` and errors do not show the key.
#[derive(Clone)]
pub struct Credential {
    pub(super) chain: Vec<Certificate>,
    pub(super) key: Arc<dyn SigningKey>,
    secret: Secret,
    kind: &'static str,
    identity: String,
    limited: bool,
}

impl Credential {
    /// Reads a proxy file (proxy, key and the chain above), or a certificate with its key in
    /// another file.
    ///
    /// # Errors
    /// If the text is not a credential, the key is encrypted or does not match, or the chain is
    /// inconsistent.
    pub fn from_pem(certificates: &[u8], key: Option<&[u8]>) -> Result<Self, FtpError> {
        let key = key.unwrap_or(certificates);
        for text in [certificates, key] {
            if text.len() > MAX_FILE_BYTES {
                return Err(FtpError::Limit {
                    context: "bytes of a credential file",
                    limit: MAX_FILE_BYTES as u64,
                });
            }
        }
        let (kind, der) = private_key(key)?;
        Self::new(sections(certificates, SectionKind::Certificate)?, kind, der)
    }

    /// Creates a credential from parts in DER.
    pub(super) fn new(
        chain: Vec<Vec<u8>>,
        kind: &'static str,
        key: Vec<u8>,
    ) -> Result<Self, FtpError> {
        if chain.is_empty() || chain.len() > MAX_CHAIN {
            return Err(FtpError::Security(format!(
                "expected a credential of 1 to {MAX_CHAIN} certificates, found {}",
                chain.len()
            )));
        }
        let chain = chain
            .into_iter()
            .map(|der| Certificate::parse(&CertificateDer::from(der)))
            .collect::<Result<Vec<_>, _>>()?;
        let signing = signing_key(kind, &key)?;
        if signing.public_key() != Some(chain[0].key()?) {
            return Err(FtpError::Security(format!(
                "certificate of {}: expected its private key, found another key",
                chain[0].title()
            )));
        }
        let (identity, limited) = identity(&chain)?;
        Ok(Self {
            chain,
            key: signing,
            secret: Secret(key),
            kind,
            identity,
            limited,
        })
    }

    /// Returns the name of the first certificate, such as `/O=Grid/CN=Somebody/CN=1234`.
    #[must_use]
    pub fn subject(&self) -> String {
        self.chain[0].title()
    }

    /// Returns the identity that the credential represents, without the parts that proxies add.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Checks that a proxy of this credential can be delegated to a server.
    ///
    /// # Errors
    /// If the credential is a proxy of Globus Toolkit 2, or allows no more proxies below it.
    pub fn check_delegation(&self) -> Result<(), FtpError> {
        check_delegable(self)
    }

    /// Returns `true` for a limited proxy and for proxies below one.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.limited
    }

    /// Returns the earliest end of validity of its certificates, in seconds since 1970.
    #[must_use]
    pub fn not_after_s(&self) -> u64 {
        let ends = self.chain.iter().map(|certificate| certificate.life_s().1);
        ends.min().unwrap_or(0)
    }

    /// Checks that the credential is valid at `now_s` (seconds since 1970).
    ///
    /// # Errors
    /// If a certificate has expired or is not yet valid.
    pub fn check(&self, now_s: u64) -> Result<(), FtpError> {
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now_s));
        self.chain
            .iter()
            .try_for_each(|certificate| certificate.check_life(now))
    }

    /// Returns the argument of DCSC P: this credential, including its key, for data connections of
    /// a server. Send it only on a protected control connection.
    #[must_use]
    pub fn to_dcsc(&self) -> Secret {
        let mut text = pem("CERTIFICATE", &self.chain[0].der);
        text.push_str(&pem(self.kind, &self.secret.0));
        for certificate in &self.chain[1..] {
            text.push_str(&pem("CERTIFICATE", &certificate.der));
        }
        Secret(base64::encode(text.as_bytes()).into_bytes())
    }

    /// Reads the credential from an argument of DCSC P.
    pub(super) fn from_dcsc(argument: &Secret) -> Result<Self, FtpError> {
        let text = base64::decode(argument.0.trim_ascii())
            .map_err(|_| FtpError::Security("DCSC P: expected base 64".to_owned()))?;
        Self::from_pem(&text, None)
    }

    pub(super) fn certified(&self) -> Arc<CertifiedKey> {
        let chain = self.chain.iter().map(|certificate| certificate.der.clone());
        Arc::new(CertifiedKey::new(chain.collect(), Arc::clone(&self.key)))
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Credential")
            .field("subject", &self.subject())
            .field("not_after_s", &self.not_after_s())
            .finish_non_exhaustive()
    }
}

/// Returns the identity above all proxies, and `true` if a proxy is limited. Also checks that each
/// certificate names and is signed by the next, because an invalid file should fail here and not at
/// the server.
fn identity(chain: &[Certificate]) -> Result<(String, bool), FtpError> {
    let algorithms = default_provider().signature_verification_algorithms;
    let mut limited = false;
    for (index, certificate) in chain.iter().enumerate() {
        let Some(proxy) = certificate.proxy()? else {
            return Ok((one_line(certificate.subject()), limited));
        };
        limited |= proxy.limited;
        if let Some(issuer) = chain.get(index + 1) {
            certificate.check_issuer(issuer)?;
            certificate.check_signature(issuer, &algorithms)?;
        }
    }
    Err(FtpError::Security(format!(
        "proxy {}: expected the certificates of its issuers, found none. Replace the incomplete file.",
        chain[0].title()
    )))
}

fn sections(text: &[u8], requested: SectionKind) -> Result<Vec<Vec<u8>>, FtpError> {
    let mut found = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(text) {
        let (kind, der) = section.map_err(|error| {
            let found = pem_reason(&error);
            FtpError::Security(format!("expected a credential in PEM, found {found}"))
        })?;
        if kind == requested {
            found.push(der);
        }
    }
    Ok(found)
}

/// Returns the error in a PEM text. The result omits the text, which can contain a private key.
#[must_use]
pub fn pem_reason(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section without its `-----END` line".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a malformed `-----BEGIN` line".to_owned(),
        pem::Error::Base64Decode(_) => "a section that is not in base 64".to_owned(),
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "no section".to_owned(),
        _ => "an unknown error".to_owned(),
    }
}

/// Returns the PEM label and the bytes of the private key.
fn private_key(text: &[u8]) -> Result<(&'static str, Vec<u8>), FtpError> {
    let encrypted = b"ENCRYPTED";
    if text
        .windows(encrypted.len())
        .any(|window| window == encrypted)
    {
        return Err(FtpError::Security(
            "expected a private key without passphrase, found an encrypted key. Create a proxy from it (grid-proxy-init, voms-proxy-init).".to_owned(),
        ));
    }
    for (kind, label) in [
        (SectionKind::PrivateKey, "PRIVATE KEY"),
        (SectionKind::RsaPrivateKey, "RSA PRIVATE KEY"),
        (SectionKind::EcPrivateKey, "EC PRIVATE KEY"),
    ] {
        if let Some(der) = sections(text, kind)?.into_iter().next() {
            return Ok((label, der));
        }
    }
    Err(FtpError::Security(
        "expected a private key in PEM, found none".to_owned(),
    ))
}

fn signing_key(kind: &str, der: &[u8]) -> Result<Arc<dyn SigningKey>, FtpError> {
    let key = match kind {
        "RSA PRIVATE KEY" => PrivateKeyDer::Pkcs1(der.into()),
        "EC PRIVATE KEY" => PrivateKeyDer::Sec1(der.into()),
        _ => PrivateKeyDer::Pkcs8(der.into()),
    };
    // Omit the library's reason, because it can depend on the bytes of the key.
    sign::any_supported_type(&key).map_err(|_| {
        FtpError::Security(
            "expected a private key of RSA (2048 to 8192 bits), P-256, P-384 or Ed25519, found another kind".to_owned(),
        )
    })
}

fn pem(label: &str, der: &[u8]) -> String {
    let body = base64::encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in body.as_bytes().chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}
