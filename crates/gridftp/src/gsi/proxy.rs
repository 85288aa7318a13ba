//! Delegation: one side creates a key and a request for a proxy, the other creates the proxy (RFC
//! 3820). The format follows Globus (`gsi/proxy/proxy_core` of the Grid Community Toolkit).

use std::time::Duration;

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::SignatureScheme;
use rustls::crypto::ring::{default_provider, sign};
use rustls::pki_types::{AlgorithmIdentifier, PrivateKeyDer, alg_id};
use rustls::sign::SigningKey;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::certificate::{TbsCertificate, Version};
use x509_cert::der::asn1::{
    Any, BitString, GeneralizedTime, OctetString, PrintableStringRef, SetOfVec, UtcTime,
};
use x509_cert::der::{Decode, Encode, Tag};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{KeyUsage, KeyUsages};
use x509_cert::name::RelativeDistinguishedName;
use x509_cert::request::{CertReq, CertReqInfo};
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use x509_cert::time::{Time, Validity};

use super::certificate::{
    Certificate, EXTENDED_KEY_USAGE, KEY_USAGE, LIMITED, PROXY_INFO, check_signature, public_key,
};
use super::credential::{Credential, MAX_CHAIN};
use super::name::COMMON_NAME;
use crate::FtpError;

/// Maximum lifetime of a delegated proxy: the default of Globus.
const LIFE_S: u64 = 12 * 3600;
/// Maximum clock difference of two hosts: the default of Globus.
const SKEW_S: u64 = 300;

/// Signature algorithms, the most widely supported first.
const SCHEMES: [(SignatureScheme, AlgorithmIdentifier); 4] = [
    (SignatureScheme::RSA_PKCS1_SHA256, alg_id::RSA_PKCS1_SHA256),
    (SignatureScheme::ECDSA_NISTP256_SHA256, alg_id::ECDSA_SHA256),
    (SignatureScheme::ECDSA_NISTP384_SHA384, alg_id::ECDSA_SHA384),
    (SignatureScheme::ED25519, alg_id::ED25519),
];

/// A key and the request for its certificate.
pub(super) struct ProxyRequest {
    key: Vec<u8>,
    /// Certificate request, in DER.
    pub request: Vec<u8>,
}

/// Creates a P-256 key and a certificate request for it. This takes microseconds; an RSA key would
/// take tenths of a second.
pub(super) fn request(of: &Certificate) -> Result<ProxyRequest, FtpError> {
    let failed = |_| FtpError::Security("cannot generate a key".to_owned());
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random);
    let key = pair.map_err(failed)?.as_ref().to_vec();
    let signing = sign::any_ecdsa_type(&PrivateKeyDer::Pkcs8(key.as_slice().into()))
        .map_err(|error| FtpError::Security(error.to_string()))?;
    let public = signing
        .public_key()
        .ok_or_else(|| FtpError::Security("the key has no public part".to_owned()))?;
    let info = CertReqInfo {
        version: x509_cert::request::Version::V1,
        // The signer replaces the subject.
        subject: of.subject().clone(),
        public_key: SubjectPublicKeyInfoOwned::from_der(&public).map_err(unfit)?,
        attributes: SetOfVec::new(),
    };
    let (algorithm, signature) = signature(&*signing, &info.to_der().map_err(unfit)?)?;
    let request = CertReq {
        info,
        algorithm,
        signature,
    };
    Ok(ProxyRequest {
        key,
        request: request.to_der().map_err(unfit)?,
    })
}

impl ProxyRequest {
    /// Returns the credential of the received proxy, with the chain of its signer.
    pub fn accept(self, proxy: &[u8], issuers: &[Certificate]) -> Result<Credential, FtpError> {
        let chain = std::iter::once(proxy.to_vec())
            .chain(issuers.iter().map(|issuer| issuer.der.to_vec()))
            .collect();
        let credential = Credential::new(chain, "PRIVATE KEY", self.key)?;
        if credential.chain[0].proxy()?.is_none() {
            return Err(FtpError::Security(format!(
                "expected a delegated proxy, found the certificate of {}",
                credential.subject()
            )));
        }
        Ok(credential)
    }
}

/// Creates a proxy for the key of a request, valid at `now_s` (seconds since 1970), in DER.
pub(super) fn delegate(by: &Credential, request: &[u8], now_s: u64) -> Result<Vec<u8>, FtpError> {
    let request = CertReq::from_der(request).map_err(|error| {
        FtpError::Security(format!(
            "expected the server's request for a proxy, found {error}"
        ))
    })?;
    check_signature(
        &public_key(&request.info.public_key)?,
        &request.algorithm,
        &request.info.to_der().map_err(unfit)?,
        request.signature.raw_bytes(),
        &default_provider().signature_verification_algorithms,
    )
    .map_err(|reason| FtpError::Security(format!("the server's request for a proxy: {reason}")))?;
    check_delegable(by)?;
    let certificate = proxy_for(by, request.info.public_key, now_s)?;
    let (algorithm, signature) = signature(&*by.key, &certificate.to_der().map_err(unfit)?)?;
    let signed = x509_cert::Certificate {
        signature_algorithm: algorithm,
        tbs_certificate: certificate,
        signature,
    };
    signed.to_der().map_err(unfit)
}

/// Checks that the credential can be delegated.
pub(super) fn check_delegable(by: &Credential) -> Result<(), FtpError> {
    for (below, certificate) in (0..).zip(&by.chain) {
        let Some(proxy) = certificate.proxy()? else {
            break;
        };
        let exhausted = proxy.path_length.is_some_and(|max| below >= max);
        if proxy.legacy || exhausted {
            let problem = if exhausted {
                "allows no more proxies below it"
            } else {
                "has the format of Globus Toolkit 2"
            };
            return Err(FtpError::Security(format!(
                "proxy {}: cannot delegate: it {problem}. Create another proxy, or do not delegate.",
                certificate.title()
            )));
        }
    }
    if by.chain.len() == MAX_CHAIN {
        return Err(FtpError::Limit {
            context: "certificates of a chain",
            limit: MAX_CHAIN as u64,
        });
    }
    Ok(())
}

fn proxy_for(
    by: &Credential,
    key: SubjectPublicKeyInfoOwned,
    now_s: u64,
) -> Result<TbsCertificate, FtpError> {
    let issuer = &by.chain[0];
    let algorithm = scheme(&*by.key)?.1;
    let mut subject = issuer.subject().clone();
    subject.0.push(common_name(&number(&key)?)?);
    let not_before_s = now_s.saturating_sub(SKEW_S).max(issuer.life_s().0);
    Ok(TbsCertificate {
        version: Version::V3,
        serial_number: issuer.parsed.tbs_certificate.serial_number.clone(),
        signature: algorithm,
        issuer: issuer.subject().clone(),
        validity: Validity {
            not_before: time(not_before_s)?,
            not_after: time((now_s + LIFE_S).min(by.not_after_s()))?,
        },
        subject,
        subject_public_key_info: key,
        issuer_unique_id: None,
        subject_unique_id: None,
        extensions: Some(extensions(issuer)?),
    })
}

/// Returns the name of the proxy, as Globus chooses it: 31 bits of a hash of the key.
fn number(key: &SubjectPublicKeyInfoOwned) -> Result<String, FtpError> {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &key.to_der().map_err(unfit)?);
    let first = hash
        .as_ref()
        .first_chunk()
        .map_or(0, |first| u32::from_be_bytes(*first));
    Ok((first & 0x7fff_ffff).to_string())
}

fn common_name(text: &str) -> Result<RelativeDistinguishedName, FtpError> {
    let value = PrintableStringRef::new(text).map_err(unfit)?;
    let attribute = AttributeTypeAndValue {
        oid: COMMON_NAME,
        value: Any::encode_from(&value).map_err(unfit)?,
    };
    let set = SetOfVec::try_from(vec![attribute]).map_err(unfit)?;
    Ok(RelativeDistinguishedName(set))
}

fn time(seconds: u64) -> Result<Time, FtpError> {
    let since = Duration::from_secs(seconds);
    // UTCTime has two digits for the year (RFC 5280 section 4.1.2.5).
    UtcTime::from_unix_duration(since)
        .map(Time::UtcTime)
        .or_else(|_| GeneralizedTime::from_unix_duration(since).map(Time::GeneralTime))
        .map_err(unfit)
}

/// Returns the extensions of a limited proxy, which can move files but not start jobs. Globus
/// programs do the same.
fn extensions(issuer: &Certificate) -> Result<Vec<Extension>, FtpError> {
    let policy = sequence(LIMITED.to_der().map_err(unfit)?)?;
    let mut extensions = vec![extension(PROXY_INFO, true, sequence(policy)?)?];
    if let Some((_, value)) = issuer.extension(KEY_USAGE) {
        let usage = KeyUsage::from_der(value).map_err(unfit)?.0;
        let usage = usage - (KeyUsages::NonRepudiation | KeyUsages::KeyCertSign);
        let value = KeyUsage(usage).to_der().map_err(unfit)?;
        extensions.push(extension(KEY_USAGE, true, value)?);
    }
    if let Some((critical, value)) = issuer.extension(EXTENDED_KEY_USAGE) {
        extensions.push(extension(EXTENDED_KEY_USAGE, critical, value.to_vec())?);
    }
    Ok(extensions)
}

fn extension(
    extn_id: x509_cert::der::asn1::ObjectIdentifier,
    critical: bool,
    value: Vec<u8>,
) -> Result<Extension, FtpError> {
    Ok(Extension {
        extn_id,
        critical,
        extn_value: OctetString::new(value).map_err(unfit)?,
    })
}

fn sequence(content: Vec<u8>) -> Result<Vec<u8>, FtpError> {
    let whole = Any::new(Tag::Sequence, content).and_then(|whole| whole.to_der());
    whole.map_err(unfit)
}

/// Returns the signature scheme for certificates that a key supports.
fn scheme(
    key: &dyn SigningKey,
) -> Result<(Box<dyn rustls::sign::Signer>, AlgorithmIdentifierOwned), FtpError> {
    let (signer, content) = SCHEMES
        .iter()
        .find_map(|(scheme, content)| Some((key.choose_scheme(&[*scheme])?, content)))
        .ok_or_else(|| FtpError::Security("the key cannot sign certificates".to_owned()))?;
    let algorithm = AlgorithmIdentifierOwned::from_der(&sequence(content.as_ref().to_vec())?);
    Ok((signer, algorithm.map_err(unfit)?))
}

fn signature(
    key: &dyn SigningKey,
    message: &[u8],
) -> Result<(AlgorithmIdentifierOwned, BitString), FtpError> {
    let (signer, algorithm) = scheme(key)?;
    let signature = signer
        .sign(message)
        .map_err(|error| FtpError::Security(format!("cannot sign a certificate: {error}")))?;
    let signature = BitString::from_bytes(&signature).map_err(unfit)?;
    Ok((algorithm, signature))
}

fn unfit(error: x509_cert::der::Error) -> FtpError {
    FtpError::Security(format!("cannot write a certificate: {error}"))
}
