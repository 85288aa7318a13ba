//! Whether a chain of certificates is to be believed: proxies by the rules of RFC 3820 section 4, what is above them by
//! webpki, which refuses proxies.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{
    EndEntityCert, ExpirationPolicy, ExtendedKeyUsageValidator, KeyPurposeIdIter, KeyUsage,
    RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy,
};

use super::authorities::Authorities;
use super::certificate::{Certificate, Proxy};
use super::credential::MAX_CHAIN;
use super::name::{extends, one_line};
use crate::{Error, Peer};

/// What a certificate has to be for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Usage {
    /// A host that serves.
    Host,
    /// Anything: Globus does not look at this of users, nor on data connections, where a user's proxy serves.
    Any,
}

/// A chain that is to be believed.
#[derive(Debug, Clone)]
pub(super) struct Verified {
    pub peer: Peer,
    /// From the first certificate on, as they were sent.
    pub chain: Vec<Certificate>,
    /// Where in it the proxies end.
    pub end_entity: usize,
}

/// Follows a chain from its first certificate to an authority.
pub(super) fn verify(
    authorities: &Authorities,
    chain: &[CertificateDer<'_>],
    usage: Usage,
    now: UnixTime,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<Verified, Error> {
    if chain.is_empty() || chain.len() > MAX_CHAIN {
        return Err(Error::Limit {
            place: "certificates of a chain",
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
            return Err(Error::Security(format!(
                "expected the certificate above the proxy {}, found the end of the chain",
                certificate.title()
            )));
        };
        check_proxy(certificate, &proxy, end_entity as u64, issuer, now)?;
        certificate.check_signature(issuer, algorithms)?;
        limited |= proxy.limited;
        end_entity += 1;
    }
    check_end_entity(authorities, &chain[end_entity..], usage, now, algorithms)?;
    let peer = Peer {
        subject: chain[0].title(),
        identity: chain[end_entity].title(),
        limited,
    };
    Ok(Verified {
        peer,
        chain,
        end_entity,
    })
}

/// RFC 3820 section 4.1.3, and what section 3 says of the certificates.
fn check_proxy(
    certificate: &Certificate,
    proxy: &Proxy,
    below: u64,
    issuer: &Certificate,
    now: UnixTime,
) -> Result<(), Error> {
    let refuse = |found: &str| {
        let title = certificate.title();
        Err(Error::Security(format!(
            "expected a proxy, found {title}, {found}"
        )))
    };
    certificate.check_life(now)?;
    certificate.check_issuer(issuer)?;
    if !extends(certificate.subject(), issuer.subject()) {
        return refuse("whose name is not its issuer's and one common name");
    }
    if certificate.is_authority() || issuer.is_authority() {
        return refuse("which is, or is signed by, a certificate of an authority");
    }
    if !issuer.may_sign() {
        return refuse("whose issuer's key may not sign");
    }
    if !certificate.may_sign() {
        return refuse("whose key may not sign");
    }
    if let Some(oid) = certificate.unfit_extension() {
        return refuse(&format!(
            "with the extension {oid}, which a proxy may not have"
        ));
    }
    if proxy.path_length.is_some_and(|most| below > most) {
        return refuse(&format!(
            "with {below} proxies below it, more than it allows"
        ));
    }
    Ok(())
}

fn check_end_entity(
    authorities: &Authorities,
    chain: &[Certificate],
    usage: Usage,
    now: UnixTime,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), Error> {
    let title = chain[0].title();
    let refuse = |error| refusal(&title, chain, &error);
    let end_entity = EndEntityCert::try_from(&chain[0].der).map_err(refuse)?;
    let above: Vec<CertificateDer<'_>> = chain[1..]
        .iter()
        .map(|certificate| certificate.der.clone())
        .collect();
    let lists = authorities.revoked();
    // Where an authority publishes no list there is nothing to ask; where it does, an old one is not believed.
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
            authorities.anchors(),
            &above,
            now,
            usage,
            revocation,
            None,
        )
        .map_err(refuse)?;
    // An authority below the one that is known is bound by its policy too: it has none of its own here.
    for intermediate in path.intermediate_certificates() {
        let name = Certificate::parse(&intermediate.der())?.title();
        authorities.check_signed(path.anchor(), &name, now)?;
    }
    authorities.check_signed(path.anchor(), &title, now)
}

impl ExtendedKeyUsageValidator for Usage {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        match self {
            Self::Host => KeyUsage::server_auth().validate(purposes),
            Self::Any => Ok(()),
        }
    }
}

fn refusal(title: &str, chain: &[Certificate], error: &webpki::Error) -> Error {
    use webpki::Error as E;
    let why = match error {
        E::UnknownIssuer => {
            let issuer = chain
                .last()
                .map_or_else(String::new, |last| one_line(last.issuer()));
            format!(
                "signed by {issuer}, whom nobody knows here; look into the directory of authorities (X509_CERT_DIR)"
            )
        }
        E::CertExpired { time, not_after } => {
            let ago = time.as_secs().saturating_sub(not_after.as_secs());
            format!("which, or one above it, ended {ago} s ago; a new one is needed")
        }
        E::CertNotValidYet { .. } => {
            "which, or one above it, has not begun; compare the clocks".to_owned()
        }
        E::CertRevoked => "which, or one above it, is revoked".to_owned(),
        E::CrlExpired { .. } => {
            "of whose authority the list of what it revoked is too old; fetch a new one (fetch-crl)"
                .to_owned()
        }
        E::RequiredEkuNotFoundContext(_) => "which is not for a server".to_owned(),
        other => format!("which is refused: {other}"),
    };
    Error::Security(format!(
        "expected a certificate to believe, found that of {title}, {why}"
    ))
}
