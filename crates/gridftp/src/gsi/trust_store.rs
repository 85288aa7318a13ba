//! Trust store: files of a directory of trusted CAs.

use std::collections::BTreeMap;

use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{CertRevocationList, OwnedCertRevocationList};

use super::certificate::Certificate;
use super::credential::pem_reason;
use super::policy::SigningPolicy;
use crate::FtpError;

/// Maximum files of a directory. The IGTF distribution has about 1000.
const MAX_FILES: usize = 20_000;

/// Trusted CAs of a directory such as `/etc/grid-security/certificates`.
///
/// `<hash>.N` is a certificate, `<hash>.rN` its revocation list, and `<hash>.signing_policy` its
/// signing policy. The hash is not computed; it only groups the files.
#[derive(Debug, Default)]
pub struct TrustStore {
    known: Vec<TrustedCa>,
    anchors: Vec<TrustAnchor<'static>>,
    revoked: Vec<CertRevocationList<'static>>,
    rejected: Vec<String>,
}

#[derive(Debug)]
struct TrustedCa {
    certificate: Certificate,
    policies: Vec<SigningPolicy>,
}

impl TrustedCa {
    fn check_signed(&self, subject: &str, now: UnixTime) -> Result<(), FtpError> {
        self.certificate.check_life(now)?;
        let name = self.certificate.title();
        // Without a policy all subjects are allowed, as in the Globus library.
        let policies = &self.policies;
        if policies.is_empty() || policies.iter().any(|policy| policy.allows(&name, subject)) {
            return Ok(());
        }
        Err(FtpError::Security(format!(
            "certificate of {subject}: the signing policy of {name} does not allow this subject"
        )))
    }
}

/// Files with the same hash.
#[derive(Debug, Default)]
struct Files<'a> {
    certificates: Vec<(&'a str, &'a [u8])>,
    revocations: Vec<(&'a str, &'a [u8])>,
    policy: Option<(&'a str, &'a [u8])>,
}

impl TrustStore {
    /// Reads files, given by name and content, and ignores files with other names. A CA with an
    /// unreadable file is not trusted; [`rejected`](Self::rejected) returns the reasons.
    ///
    /// # Errors
    /// If there are too many files.
    pub fn from_files<'a>(
        files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Self, FtpError> {
        let mut by_hash: BTreeMap<&str, Files<'a>> = BTreeMap::new();
        for (index, (name, content)) in files.into_iter().enumerate() {
            if index == MAX_FILES {
                return Err(FtpError::Limit {
                    context: "files of a CA directory",
                    limit: MAX_FILES as u64,
                });
            }
            let Some((hash, rest)) = name.split_once('.') else {
                continue;
            };
            let is_number =
                |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let files = by_hash.entry(hash).or_default();
            match rest.strip_prefix('r').filter(|rest| is_number(rest)) {
                Some(_) => files.revocations.push((name, content)),
                None if is_number(rest) => files.certificates.push((name, content)),
                None if rest == "signing_policy" => files.policy = Some((name, content)),
                None => {}
            }
        }
        let mut trust_store = Self::default();
        for files in by_hash
            .values()
            .filter(|files| !files.certificates.is_empty())
        {
            if let Err(reason) = trust_store.add(files) {
                trust_store.rejected.push(reason);
            }
        }
        Ok(trust_store)
    }

    /// Returns the CAs with invalid files, each with the reason.
    #[must_use]
    pub fn rejected(&self) -> &[String] {
        &self.rejected
    }

    /// Returns the number of trusted CAs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns `true` if there is no trusted CA.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(super) fn anchors(&self) -> &[TrustAnchor<'static>] {
        &self.anchors
    }

    pub(super) fn revoked(&self) -> Vec<&CertRevocationList<'static>> {
        self.revoked.iter().collect()
    }

    /// Checks that the CA with this key is valid and permitted to sign `subject`. A CA can have
    /// several certificates if it renewed one for the same key.
    pub(super) fn check_signed(
        &self,
        anchor: &TrustAnchor<'_>,
        subject: &str,
        now: UnixTime,
    ) -> Result<(), FtpError> {
        let known = self.anchors.iter().zip(&self.known);
        let mut result = Err(FtpError::Security(
            "the CA is not in the trust store".to_owned(),
        ));
        for (_, ca) in known.filter(|(known, _)| *known == anchor) {
            result = ca.check_signed(subject, now);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn add(&mut self, files: &Files<'_>) -> Result<(), String> {
        let policy = match files.policy {
            Some((name, text)) => {
                Some(SigningPolicy::parse(text).map_err(|error| format!("{name}: {error}"))?)
            }
            None => None,
        };
        let mut lists = Vec::new();
        for (name, content) in &files.revocations {
            let list =
                one(content, SectionKind::Crl).map_err(|error| format!("{name}: {error}"))?;
            let list = OwnedCertRevocationList::from_der(&list).map_err(|error| {
                format!("{name}: expected a certificate revocation list, found {error}")
            })?;
            lists.push(CertRevocationList::Owned(list));
        }
        for (name, content) in &files.certificates {
            if let Err(reason) = self.add_certificate(content, policy.as_ref()) {
                self.rejected.push(format!("{name}: {reason}"));
            }
        }
        self.revoked.append(&mut lists);
        Ok(())
    }

    fn add_certificate(
        &mut self,
        content: &[u8],
        policy: Option<&SigningPolicy>,
    ) -> Result<(), String> {
        let der = CertificateDer::from(one(content, SectionKind::Certificate)?);
        let certificate = Certificate::parse(&der).map_err(|error| error.to_string())?;
        // The same CA can occur twice, under the hashes of newer and older OpenSSL.
        let twin = self
            .known
            .iter_mut()
            .find(|known| known.certificate.der == der);
        if let Some(twin) = twin {
            twin.policies.extend(policy.cloned());
            return Ok(());
        }
        let anchor = webpki::anchor_from_trusted_cert(&der)
            .map_err(|error| format!("expected a CA certificate, found {error}"))?
            .to_owned();
        self.anchors.push(anchor);
        self.known.push(TrustedCa {
            certificate,
            policies: policy.cloned().into_iter().collect(),
        });
        Ok(())
    }
}

/// Returns the first section of this kind, or the whole content if it is in DER.
fn one(content: &[u8], requested: SectionKind) -> Result<Vec<u8>, String> {
    if content.first() == Some(&0x30) {
        return Ok(content.to_vec());
    }
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(content) {
        let (kind, der) =
            section.map_err(|error| format!("expected PEM, found {}", pem_reason(&error)))?;
        if kind == requested {
            return Ok(der);
        }
    }
    Err("expected PEM, found none".to_owned())
}
