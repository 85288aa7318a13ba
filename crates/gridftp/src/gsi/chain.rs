//! Verification of certificate chains: proxies by the rules of RFC 3820 section 4, certificates
//! above them by webpki, which rejects proxies.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{
    EndEntityCert, ExpirationPolicy, ExtendedKeyUsageValidator, KeyPurposeIdIter, KeyUsage,
    RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy,
};

use super::certificate::{Certificate, ProxyInfo};
use super::credential::MAX_CHAIN;
use super::name::{extends, one_line};
use super::trust_store::TrustStore;
use crate::{FtpError, Peer};

/// Required usage of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CertificateUsage {
    /// A host that acts as a server.
    Host,
    /// Any usage. Globus does not check the usage of user certificates, nor on data connections,
    /// where a user's proxy acts as server.
    Any,
}

/// A verified chain.
#[derive(Debug, Clone)]
pub(super) struct VerifiedChain {
    pub peer: Peer,
    /// The chain in the order sent.
    pub chain: Vec<Certificate>,
    /// Index of the end entity, which follows the proxies.
    pub end_entity: usize,
}

/// Verifies a chain from its first certificate to a trusted CA.
pub(super) fn verify(
    trust_store: &TrustStore,
    chain: &[CertificateDer<'_>],
    usage: CertificateUsage,
    now: UnixTime,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<VerifiedChain, FtpError> {
    if chain.is_empty() || chain.len() > MAX_CHAIN {
        return Err(FtpError::Limit {
            context: "certificates of a chain",
            limit: MAX_CHAIN as u64,
        });
    }
    let chain = chain
        .iter()
        .map(Certificate::parse)
        .collect::<Result<Vec<_>, _>>()?;
    let mut limited = false;
    let mut end_entity = 0;
    while let Some(proxy) = chain[end_entity].proxy()? {
        let certificate = &chain[end_entity];
        let Some(issuer) = chain.get(end_entity + 1) else {
            return Err(FtpError::Security(format!(
                "proxy {}: expected the certificate of its issuer, found the end of the chain",
                certificate.title()
            )));
        };
        check_proxy(certificate, &proxy, end_entity as u64, issuer, now)?;
        certificate.check_signature(issuer, algorithms)?;
        limited |= proxy.limited;
        end_entity += 1;
    }
    check_end_entity(trust_store, &chain[end_entity..], usage, now, algorithms)?;
    let peer = Peer {
        subject: chain[0].title(),
        identity: chain[end_entity].title(),
        limited,
    };
    Ok(VerifiedChain {
        peer,
        chain,
        end_entity,
    })
}

/// Checks a proxy by RFC 3820 section 4.1.3 and the certificate rules of section 3.
fn check_proxy(
    certificate: &Certificate,
    proxy: &ProxyInfo,
    below: u64,
    issuer: &Certificate,
    now: UnixTime,
) -> Result<(), FtpError> {
    let reject = |found: &str| {
        let title = certificate.title();
        Err(FtpError::Security(format!(
            "certificate of {title}: not a valid proxy: {found}"
        )))
    };
    certificate.check_life(now)?;
    certificate.check_issuer(issuer)?;
    if !extends(certificate.subject(), issuer.subject()) {
        return reject("its name is not its issuer's name plus one common name");
    }
    if certificate.is_authority() || issuer.is_authority() {
        return reject("it is a CA certificate, or a CA signed it");
    }
    if !issuer.may_sign() {
        return reject("the key usage of its issuer does not allow signatures");
    }
    if !certificate.may_sign() {
        return reject("its key usage does not allow signatures");
    }
    if let Some(oid) = certificate.unfit_extension() {
        return reject(&format!(
            "it has the extension {oid}, which proxies must not have"
        ));
    }
    if proxy.path_length.is_some_and(|max| below > max) {
        return reject(&format!(
            "it has {below} proxies below it, more than it allows"
        ));
    }
    Ok(())
}

fn check_end_entity(
    trust_store: &TrustStore,
    chain: &[Certificate],
    usage: CertificateUsage,
    now: UnixTime,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), FtpError> {
    let title = chain[0].title();
    let reject = |error| to_error(&title, chain, &error);
    let end_entity = EndEntityCert::try_from(&chain[0].der).map_err(reject)?;
    let above: Vec<CertificateDer<'_>> = chain[1..]
        .iter()
        .map(|certificate| certificate.der.clone())
        .collect();
    let lists = trust_store.revoked();
    // A CA without a revocation list is accepted; an expired list is rejected.
    let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
        options
            .with_depth(RevocationCheckDepth::Chain)
            .with_status_policy(UnknownStatusPolicy::Allow)
            .with_expiration_policy(ExpirationPolicy::Enforce)
            .build()
    });
    let path = end_entity
        .verify_for_usage(
            algorithms.all,
            trust_store.anchors(),
            &above,
            now,
            usage,
            revocation,
            None,
        )
        .map_err(reject)?;
    // The signing policy of the trusted CA also binds CAs below it, which have no policy here.
    for intermediate in path.intermediate_certificates() {
        let name = Certificate::parse(&intermediate.der())?.title();
        trust_store.check_signed(path.anchor(), &name, now)?;
    }
    trust_store.check_signed(path.anchor(), &title, now)
}

impl ExtendedKeyUsageValidator for CertificateUsage {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        match self {
            Self::Host => KeyUsage::server_auth().validate(purposes),
            Self::Any => Ok(()),
        }
    }
}

fn to_error(title: &str, chain: &[Certificate], error: &webpki::Error) -> FtpError {
    use webpki::Error as E;
    let reason = match error {
        E::UnknownIssuer => {
            let issuer = chain
                .last()
                .map_or_else(String::new, |last| one_line(last.issuer()));
            format!(
                "its issuer {issuer} is not a trusted CA. Add the CA to the directory of trusted CAs (X509_CERT_DIR)."
            )
        }
        E::CertExpired { time, not_after } => {
            let ago = time.as_secs().saturating_sub(not_after.as_secs());
            format!("it or a certificate above it expired {ago} s ago. Get a new certificate.")
        }
        E::CertNotValidYet { .. } => {
            "it or a certificate above it is not valid yet. Compare the clocks of both hosts."
                .to_owned()
        }
        E::CertRevoked => "it or a certificate above it is revoked".to_owned(),
        E::CrlExpired { .. } => {
            "the revocation list of its CA is too old. Fetch a new list (fetch-crl).".to_owned()
        }
        E::RequiredEkuNotFoundContext(_) => {
            "its extended key usage does not allow a server".to_owned()
        }
        other => format!("{other}"),
    };
    FtpError::Security(format!("certificate of {title}: not trusted: {reason}"))
}
