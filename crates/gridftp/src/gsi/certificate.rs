//! One certificate: what of it the rules for proxies ask for, and whether a key signed it.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use x509_cert::der::asn1::{ObjectIdentifier, OctetStringRef};
use x509_cert::der::{Decode, Encode, Header, Reader, SliceReader};
use x509_cert::ext::pkix::{BasicConstraints, KeyUsage, SubjectAltName};
use x509_cert::name::Name;
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_cert::time::Validity;

use super::name::{extends, last_common_name, one_line};
use crate::Error;

/// proxyCertInfo of RFC 3820.
pub(super) const PROXY_INFO: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.1.14");
/// The same of its drafts, as Globus Toolkit 3 wrote it.
const DRAFT_PROXY_INFO: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.3536.1.222");
/// All that the issuer may.
pub(super) const INHERIT_ALL: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.21.1");
/// All but starting jobs.
pub(super) const LIMITED: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("1.3.6.1.4.1.3536.1.1.1.9");
pub(super) const KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.15");
pub(super) const EXTENDED_KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37");
const BASIC_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.19");
const SUBJECT_NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
const ISSUER_NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.18");

/// A certificate, and the bytes that were signed.
#[derive(Debug, Clone)]
pub(super) struct Certificate {
    pub der: CertificateDer<'static>,
    pub parsed: x509_cert::Certificate,
    signed: Vec<u8>,
}

/// What a proxy says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proxy {
    /// Most proxies that may be below it.
    pub path_length: Option<u64>,
    pub limited: bool,
    /// Of Globus Toolkit 2: told by its name alone.
    pub legacy: bool,
}

impl Certificate {
    pub fn parse(der: &CertificateDer<'_>) -> Result<Self, Error> {
        let wrong = |error: x509_cert::der::Error| {
            Error::Security(format!("expected a certificate, found {error}"))
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

    pub fn key(&self) -> Result<SubjectPublicKeyInfoDer<'static>, Error> {
        public_key(&self.parsed.tbs_certificate.subject_public_key_info)
    }

    /// First and last second of its life, counted from 1970.
    pub fn life_s(&self) -> (u64, u64) {
        let Validity {
            not_before,
            not_after,
        } = &self.parsed.tbs_certificate.validity;
        let seconds = |time: &x509_cert::time::Time| time.to_unix_duration().as_secs();
        (seconds(not_before), seconds(not_after))
    }

    pub fn check_life(&self, now: UnixTime) -> Result<(), Error> {
        let (begin, end) = self.life_s();
        let title = self.title();
        let now = now.as_secs();
        if now < begin {
            let ahead = begin - now;
            return Err(Error::Security(format!(
                "expected a certificate that is valid now, found that of {title}, which begins in {ahead} s; compare the clocks"
            )));
        }
        if now > end {
            return Err(Error::Security(format!(
                "expected a certificate that is valid now, found that of {title}, which ended {} s ago; a new one is needed",
                now - end
            )));
        }
        Ok(())
    }

    /// Whether `issuer` is whom a proxy names as its issuer: another may have the same key.
    pub fn check_issuer(&self, issuer: &Self) -> Result<(), Error> {
        if self.issuer() == issuer.subject() {
            return Ok(());
        }
        let (title, next) = (self.title(), issuer.title());
        Err(Error::Security(format!(
            "expected a proxy, found {title}, whose issuer is not the next of the chain, {next}"
        )))
    }

    /// Whether `issuer`'s key signed it.
    pub fn check_signature(
        &self,
        issuer: &Self,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<(), Error> {
        let signature = self.parsed.signature.raw_bytes();
        let algorithm = &self.parsed.signature_algorithm;
        if *algorithm != self.parsed.tbs_certificate.signature {
            let title = self.title();
            return Err(Error::Security(format!(
                "the certificate of {title} names two algorithms for one signature"
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
            Error::Security(format!(
                "expected that {by} signed the certificate of {title}, found: {reason}"
            ))
        })
    }

    /// What kind of proxy it is; nothing: it is none.
    pub fn proxy(&self) -> Result<Option<Proxy>, Error> {
        if self.extension(DRAFT_PROXY_INFO).is_some() {
            return Err(Error::Security(format!(
                "the proxy {} is of the form of Globus Toolkit 3, which is not known here; make one of RFC 3820 (grid-proxy-init -rfc)",
                self.title()
            )));
        }
        match self.extension(PROXY_INFO) {
            Some((true, value)) => self.info(value).map(Some),
            Some((false, _)) => Err(Error::Security(format!(
                "the proxy extension of {} is not critical, as RFC 3820 wants it",
                self.title()
            ))),
            None => Ok(self.legacy()),
        }
    }

    fn legacy(&self) -> Option<Proxy> {
        let limited = match last_common_name(self.subject()) {
            Some(b"proxy") => false,
            Some(b"limited proxy") => true,
            _ => return None,
        };
        extends(self.subject(), self.issuer()).then_some(Proxy {
            path_length: None,
            limited,
            legacy: true,
        })
    }

    fn info(&self, value: &[u8]) -> Result<Proxy, Error> {
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
        let (path_length, language) = read(value)
            .map_err(|error| Error::Security(format!("the proxy extension of {title}: {error}")))?;
        let limited = language == LIMITED;
        if !limited && language != INHERIT_ALL {
            return Err(Error::Security(format!(
                "expected a full or limited proxy, found {title} with the policy {language}, which is not known here"
            )));
        }
        Ok(Proxy {
            path_length,
            limited,
            legacy: false,
        })
    }

    /// Whether it is critical, and its value.
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

    /// Whether its key may sign messages, proxies among them (RFC 3820 section 3.1).
    pub fn may_sign(&self) -> bool {
        self.extension(KEY_USAGE).is_none_or(|(_, value)| {
            KeyUsage::from_der(value).is_ok_and(|usage| usage.digital_signature())
        })
    }

    /// An extension that a proxy may not have: other names (RFC 3820 sections 3.4, 3.5), and critical ones that are not known.
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

    /// Other names of the subject; those that cannot be read are not none.
    pub fn subject_names(&self) -> Result<Option<SubjectAltName>, Error> {
        let Some((_, value)) = self.extension(SUBJECT_NAMES) else {
            return Ok(None);
        };
        SubjectAltName::from_der(value).map(Some).map_err(|error| {
            Error::Security(format!(
                "the other names of {}: expected names, found {error}",
                self.title()
            ))
        })
    }
}

pub(super) fn public_key(
    key: &x509_cert::spki::SubjectPublicKeyInfoOwned,
) -> Result<SubjectPublicKeyInfoDer<'static>, Error> {
    let der = key.to_der();
    der.map(SubjectPublicKeyInfoDer::from)
        .map_err(|error| Error::Security(format!("expected a public key, found {error}")))
}

/// Whether the holder of `key` signed `message`; the reason, if not.
pub(super) fn check_signature(
    key: &SubjectPublicKeyInfoDer<'_>,
    algorithm: &AlgorithmIdentifierOwned,
    message: &[u8],
    signature: &[u8],
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), String> {
    let entity =
        webpki::RawPublicKeyEntity::try_from(key).map_err(|error| format!("a key: {error}"))?;
    let wanted = algorithm.to_der().map_err(|error| error.to_string())?;
    let mut reason = format!("the algorithm {} is not known here", algorithm.oid);
    // One identifier stands for several curves; the key says which.
    for known in algorithms.all {
        if !wanted.ends_with(known.signature_alg_id().as_ref())
            || wanted.len() != known.signature_alg_id().as_ref().len() + 2
        {
            continue;
        }
        match entity.verify_signature(*known, message, signature) {
            Ok(()) => return Ok(()),
            Err(error) => reason = format!("the signature does not fit ({error})"),
        }
    }
    Err(reason)
}
