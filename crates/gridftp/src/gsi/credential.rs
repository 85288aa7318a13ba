//! A chain of certificates and the key of the first: who this side is.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::ring::{default_provider, sign};
use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::{CertifiedKey, SigningKey};

use super::certificate::Certificate;
use super::name::one_line;
use super::proxy::may_delegate;
use crate::{Error, Secret, base64};

/// Most bytes of a file with a credential; a proxy of VOMS has some ten thousand.
const MAX_FILE_BYTES: usize = 1 << 20;
/// Most certificates of a chain; each delegation adds one.
pub(super) const MAX_CHAIN: usize = 20;

/// Certificates and a private key, read from text in PEM. Neither `Debug` nor an error shows the key.
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
    /// Reads a proxy file (the proxy, its key, the chain above it), or a certificate with its key in another file.
    ///
    /// # Errors
    /// What is no credential; a key that is encrypted, or is another's; a chain that does not hang together.
    pub fn from_pem(certificates: &[u8], key: Option<&[u8]>) -> Result<Self, Error> {
        let key = key.unwrap_or(certificates);
        for text in [certificates, key] {
            if text.len() > MAX_FILE_BYTES {
                return Err(Error::Limit {
                    place: "bytes of a credential file",
                    limit: MAX_FILE_BYTES as u64,
                });
            }
        }
        let (kind, der) = private_key(key)?;
        Self::new(sections(certificates, SectionKind::Certificate)?, kind, der)
    }

    /// Of parts in DER.
    pub(super) fn new(
        chain: Vec<Vec<u8>>,
        kind: &'static str,
        key: Vec<u8>,
    ) -> Result<Self, Error> {
        if chain.is_empty() || chain.len() > MAX_CHAIN {
            return Err(Error::Security(format!(
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
            return Err(Error::Security(format!(
                "expected the key of the certificate of {}, found another one",
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

    /// Name of the first certificate, such as `/O=Grid/CN=Somebody/CN=1234`.
    #[must_use]
    pub fn subject(&self) -> String {
        self.chain[0].title()
    }

    /// Name of whom it stands for: without what proxies add.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Sees whether a proxy of it can be given to a server.
    ///
    /// # Errors
    /// If it is of the form of Globus Toolkit 2, or allows no more proxies below it.
    pub fn check_delegation(&self) -> Result<(), Error> {
        may_delegate(self)
    }

    /// Whether it is a limited proxy, or below one.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.limited
    }

    /// When the first of its certificates ends, in seconds since 1970.
    #[must_use]
    pub fn not_after_s(&self) -> u64 {
        let ends = self.chain.iter().map(|certificate| certificate.life_s().1);
        ends.min().unwrap_or(0)
    }

    /// Whether it can be used at `now_s` (seconds since 1970).
    ///
    /// # Errors
    /// A certificate that has ended, or not begun.
    pub fn check(&self, now_s: u64) -> Result<(), Error> {
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now_s));
        self.chain
            .iter()
            .try_for_each(|certificate| certificate.check_life(now))
    }

    /// The argument of DCSC P: this credential, its key included, for the data connections of a server. To be sent on a
    /// protected control connection only.
    #[must_use]
    pub fn for_data_channels(&self) -> Secret {
        let mut text = pem("CERTIFICATE", &self.chain[0].der);
        text.push_str(&pem(self.kind, &self.secret.0));
        for certificate in &self.chain[1..] {
            text.push_str(&pem("CERTIFICATE", &certificate.der));
        }
        Secret(base64::encode(text.as_bytes()).into_bytes())
    }

    /// The credential in an argument of DCSC P.
    pub(super) fn of_data_channels(argument: &Secret) -> Result<Self, Error> {
        let text = base64::decode(argument.0.trim_ascii())
            .map_err(|_| Error::Security("expected DCSC P and base 64".to_owned()))?;
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

/// Follows proxies up to whom they stand for. That each names the next and was signed by it is checked too: a file put together by
/// hand should not be found out by the server.
fn identity(chain: &[Certificate]) -> Result<(String, bool), Error> {
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
    Err(Error::Security(format!(
        "expected the chain of certificates above the proxy {}, found none; the file is not whole",
        chain[0].title()
    )))
}

fn sections(text: &[u8], wanted: SectionKind) -> Result<Vec<Vec<u8>>, Error> {
    let mut found = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(text) {
        let (kind, der) = section.map_err(|error| {
            let found = pem_reason(&error);
            Error::Security(format!("expected a credential in PEM, found {found}"))
        })?;
        if kind == wanted {
            found.push(der);
        }
    }
    Ok(found)
}

/// What is wrong with a text in PEM. Not a word of the text is in it, for there may be a private key.
#[must_use]
pub fn pem_reason(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section without its `-----END` line".to_owned(),
        pem::Error::IllegalSectionStart { .. } => {
            "a `-----BEGIN` line with more on it, or less".to_owned()
        }
        pem::Error::Base64Decode(_) => "a section that is not in base 64".to_owned(),
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "nothing of it".to_owned(),
        _ => "something else".to_owned(),
    }
}

/// Its name in PEM, and its bytes.
fn private_key(text: &[u8]) -> Result<(&'static str, Vec<u8>), Error> {
    let encrypted = b"ENCRYPTED";
    if text
        .windows(encrypted.len())
        .any(|window| window == encrypted)
    {
        return Err(Error::Security(
            "expected a private key without passphrase, found an encrypted one; make a proxy of it first (grid-proxy-init, voms-proxy-init)".to_owned(),
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
    Err(Error::Security(
        "expected a private key in PEM, found none".to_owned(),
    ))
}

fn signing_key(kind: &str, der: &[u8]) -> Result<Arc<dyn SigningKey>, Error> {
    let key = match kind {
        "RSA PRIVATE KEY" => PrivateKeyDer::Pkcs1(der.into()),
        "EC PRIVATE KEY" => PrivateKeyDer::Sec1(der.into()),
        _ => PrivateKeyDer::Pkcs8(der.into()),
    };
    // What the library says of a key it refuses is not passed on: it may have looked at its bytes.
    sign::any_supported_type(&key).map_err(|_| {
        Error::Security(
            "expected a private key of RSA with 2048 to 8192 bits, of P-256, P-384 or Ed25519, found another".to_owned(),
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
