//! A certificate: the fields that the proxy rules need, and signature checks.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use x509_cert::der::asn1::{ObjectIdentifier, OctetStringRef};
use x509_cert::der::{Decode, Encode, Header, Reader, SliceReader};
use x509_cert::ext::pkix::{BasicConstraints, KeyUsage, SubjectAltName};
use x509_cert::name::Name;
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_cert::time::Validity;

use super::name::{extends, last_common_name, one_line};
use crate::FtpError;

/// proxyCertInfo of RFC 3820.
pub(super) const PROXY_INFO: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.1.14");
/// proxyCertInfo of the drafts, as Globus Toolkit 3 wrote it.
const DRAFT_PROXY_INFO: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.3536.1.222");
/// Policy of a proxy with all rights of its issuer.
pub(super) const INHERIT_ALL: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.21.1");
/// Policy of a proxy with all rights except starting jobs.
pub(super) const LIMITED: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("1.3.6.1.4.1.3536.1.1.1.9");
pub(super) const KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.15");
pub(super) const EXTENDED_KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37");
const BASIC_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.19");
const SUBJECT_NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
const ISSUER_NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.18");

/// A certificate and its signed bytes.
#[derive(Debug, Clone)]
pub(super) struct Certificate {
    pub der: CertificateDer<'static>,
    pub parsed: x509_cert::Certificate,
    signed: Vec<u8>,
}

/// Proxy properties of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProxyInfo {
    /// Maximum number of proxies below this one.
    pub path_length: Option<u64>,
    pub limited: bool,
    /// Proxy of Globus Toolkit 2, identified by its name alone.
    pub legacy: bool,
}

impl Certificate {
    pub fn parse(der: &CertificateDer<'_>) -> Result<Self, FtpError> {
        let wrong = |error: x509_cert::der::Error| {
            FtpError::Security(format!("expected a certificate, found {error}"))
        };
        let parsed = x509_cert::Certificate::from_der(der).map_err(wrong)?;
        let mut reader = SliceReader::new(der).map_err(wrong)?;
        Header::decode(&mut reader).map_err(wrong)?;
        let signed = reader.tlv_bytes().map_err(wrong)?.to_vec();
        Ok(Self {
            der: der.clone().into_owned(),
            parsed,
            signed,
        })
    }

    pub fn subject(&self) -> &Name {
        &self.parsed.tbs_certificate.subject
    }

    pub fn issuer(&self) -> &Name {
        &self.parsed.tbs_certificate.issuer
    }

    pub fn title(&self) -> String {
        one_line(self.subject())
    }

    pub fn key(&self) -> Result<SubjectPublicKeyInfoDer<'static>, FtpError> {
        public_key(&self.parsed.tbs_certificate.subject_public_key_info)
    }

    /// Returns the first and last second of validity, in seconds since 1970.
    pub fn life_s(&self) -> (u64, u64) {
        let Validity {
            not_before,
            not_after,
        } = &self.parsed.tbs_certificate.validity;
        let seconds = |time: &x509_cert::time::Time| time.to_unix_duration().as_secs();
        (seconds(not_before), seconds(not_after))
    }

    pub fn check_life(&self, now: UnixTime) -> Result<(), FtpError> {
        let (start, end) = self.life_s();
        let title = self.title();
        let now = now.as_secs();
        if now < start {
            let ahead = start - now;
            return Err(FtpError::Security(format!(
                "certificate of {title}: expected a valid certificate, found one that becomes valid in {ahead} s. Compare the clocks of both hosts."
            )));
        }
        if now > end {
            return Err(FtpError::Security(format!(
                "certificate of {title}: expected a valid certificate, found one that expired {} s ago. Get a new certificate or proxy.",
                now - end
            )));
        }
        Ok(())
    }

    /// Checks that `issuer` has the issuer name of this proxy. Another certificate can have the
    /// same key.
    pub fn check_issuer(&self, issuer: &Self) -> Result<(), FtpError> {
        if self.issuer() == issuer.subject() {
            return Ok(());
        }
        let (title, next) = (self.title(), issuer.title());
        Err(FtpError::Security(format!(
            "proxy {title}: expected {next}, the next certificate of the chain, as issuer; found another issuer"
        )))
    }

    /// Checks that the key of `issuer` signed this certificate.
    pub fn check_signature(
        &self,
        issuer: &Self,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<(), FtpError> {
        let signature = self.parsed.signature.raw_bytes();
        let algorithm = &self.parsed.signature_algorithm;
        if *algorithm != self.parsed.tbs_certificate.signature {
            let title = self.title();
            return Err(FtpError::Security(format!(
                "certificate of {title}: expected one signature algorithm, found two"
            )));
        }
        check_signature(
            &issuer.key()?,
            algorithm,
            &self.signed,
            signature,
            algorithms,
        )
        .map_err(|reason| {
            let (title, by) = (self.title(), issuer.title());
            FtpError::Security(format!(
                "certificate of {title}: expected a signature by {by}: {reason}"
            ))
        })
    }

    /// Returns the proxy properties; `None` if the certificate is not a proxy.
    pub fn proxy(&self) -> Result<Option<ProxyInfo>, FtpError> {
        if self.extension(DRAFT_PROXY_INFO).is_some() {
            return Err(FtpError::Security(format!(
                "proxy {}: the format of Globus Toolkit 3 is not supported. Create an RFC 3820 proxy: grid-proxy-init -rfc.",
                self.title()
            )));
        }
        match self.extension(PROXY_INFO) {
            Some((true, value)) => self.info(value).map(Some),
            Some((false, _)) => Err(FtpError::Security(format!(
                "proxy {}: expected a critical proxy extension (RFC 3820), found a non-critical one",
                self.title()
            ))),
            None => Ok(self.legacy()),
        }
    }

    fn legacy(&self) -> Option<ProxyInfo> {
        let limited = match last_common_name(self.subject()) {
            Some(b"proxy") => false,
            Some(b"limited proxy") => true,
            _ => return None,
        };
        extends(self.subject(), self.issuer()).then_some(ProxyInfo {
            path_length: None,
            limited,
            legacy: true,
        })
    }

    fn info(&self, value: &[u8]) -> Result<ProxyInfo, FtpError> {
        let read = |value| -> x509_cert::der::Result<_> {
            let mut reader = SliceReader::new(value)?;
            let info = reader.sequence(|info| {
                let path_length = Option::<u64>::decode(info)?;
                let language = info.sequence(|policy| {
                    let language = ObjectIdentifier::decode(policy)?;
                    Option::<OctetStringRef<'_>>::decode(policy)?;
                    Ok(language)
                })?;
                Ok((path_length, language))
            })?;
            reader.finish(info)
        };
        let title = self.title();
        let (path_length, language) = read(value).map_err(|error| {
            FtpError::Security(format!(
                "proxy {title}: cannot read the proxy extension: {error}"
            ))
        })?;
        let limited = language == LIMITED;
        if !limited && language != INHERIT_ALL {
            return Err(FtpError::Security(format!(
                "proxy {title}: expected a full or limited proxy, found the unknown policy {language}"
            )));
        }
        Ok(ProxyInfo {
            path_length,
            limited,
            legacy: false,
        })
    }

    /// Returns the criticality and the value of an extension.
    pub fn extension(&self, oid: ObjectIdentifier) -> Option<(bool, &[u8])> {
        let all = self.parsed.tbs_certificate.extensions.as_deref();
        let found = all?.iter().find(|extension| extension.extn_id == oid)?;
        Some((found.critical, found.extn_value.as_bytes()))
    }

    pub fn is_authority(&self) -> bool {
        let constraints = self.extension(BASIC_CONSTRAINTS);
        constraints.is_some_and(|(_, value)| {
            BasicConstraints::from_der(value).is_ok_and(|constraints| constraints.ca)
        })
    }

    /// Returns `true` if the key is allowed to sign messages, including proxies (RFC 3820 section
    /// 3.1).
    pub fn may_sign(&self) -> bool {
        self.extension(KEY_USAGE).is_none_or(|(_, value)| {
            KeyUsage::from_der(value).is_ok_and(|usage| usage.digital_signature())
        })
    }

    /// Returns an extension that a proxy must not have: alternative names (RFC 3820 sections 3.4,
    /// 3.5) or an unknown critical extension.
    pub fn unfit_extension(&self) -> Option<ObjectIdentifier> {
        let known = [PROXY_INFO, KEY_USAGE, EXTENDED_KEY_USAGE, BASIC_CONSTRAINTS];
        let all = self.parsed.tbs_certificate.extensions.as_deref();
        all?.iter()
            .find(|extension| {
                [SUBJECT_NAMES, ISSUER_NAMES].contains(&extension.extn_id)
                    || (extension.critical && !known.contains(&extension.extn_id))
            })
            .map(|extension| extension.extn_id)
    }

    /// Returns the alternative names of the subject. Unreadable names are an error.
    pub fn subject_names(&self) -> Result<Option<SubjectAltName>, FtpError> {
        let Some((_, value)) = self.extension(SUBJECT_NAMES) else {
            return Ok(None);
        };
        SubjectAltName::from_der(value).map(Some).map_err(|error| {
            FtpError::Security(format!(
                "certificate of {}: cannot read the subject alternative names: {error}",
                self.title()
            ))
        })
    }
}

pub(super) fn public_key(
    key: &x509_cert::spki::SubjectPublicKeyInfoOwned,
) -> Result<SubjectPublicKeyInfoDer<'static>, FtpError> {
    let der = key.to_der();
    der.map(SubjectPublicKeyInfoDer::from)
        .map_err(|error| FtpError::Security(format!("expected a public key, found {error}")))
}

/// Checks that the holder of `key` signed `message`. Returns the reason if not.
pub(super) fn check_signature(
    key: &SubjectPublicKeyInfoDer<'_>,
    algorithm: &AlgorithmIdentifierOwned,
    message: &[u8],
    signature: &[u8],
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), String> {
    let entity =
        webpki::RawPublicKeyEntity::try_from(key).map_err(|error| format!("a key: {error}"))?;
    let requested = algorithm.to_der().map_err(|error| error.to_string())?;
    let mut reason = format!("unknown signature algorithm {}", algorithm.oid);
    // One identifier denotes several curves; the key selects the curve.
    for known in algorithms.all {
        if !requested.ends_with(known.signature_alg_id().as_ref())
            || requested.len() != known.signature_alg_id().as_ref().len() + 2
        {
            continue;
        }
        match entity.verify_signature(*known, message, signature) {
            Ok(()) => return Ok(()),
            Err(error) => reason = format!("the signature is wrong ({error})"),
        }
    }
    Err(reason)
}
