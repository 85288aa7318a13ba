//! Whom to believe: the files of a directory of certificate authorities.

use std::collections::BTreeMap;

use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{CertRevocationList, OwnedCertRevocationList};

use super::certificate::Certificate;
use super::credential::pem_reason;
use super::policy::Policy;
use crate::Error;

/// Most files of a directory that are looked at. IGTF's has about 1000.
const MAX_FILES: usize = 20_000;

/// The authorities of a directory such as `/etc/grid-security/certificates`: `<hash>.N` a certificate, `<hash>.rN` what
/// it revoked, `<hash>.signing_policy` what it may sign. The hash is not computed: files belong together by it.
#[derive(Debug, Default)]
pub struct Authorities {
    known: Vec<Authority>,
    anchors: Vec<TrustAnchor<'static>>,
    revoked: Vec<CertRevocationList<'static>>,
    left_out: Vec<String>,
}

#[derive(Debug)]
struct Authority {
    certificate: Certificate,
    policies: Vec<Policy>,
}

impl Authority {
    fn check_signed(&self, subject: &str, now: UnixTime) -> Result<(), Error> {
        self.certificate.check_life(now)?;
        let name = self.certificate.title();
        // A missing policy forbids nothing: the Globus library does not look then either.
        let policies = &self.policies;
        if policies.is_empty() || policies.iter().any(|policy| policy.allows(&name, subject)) {
            return Ok(());
        }
        Err(Error::Security(format!(
            "expected a subject that the signing policy of {name} allows, found {subject}"
        )))
    }
}

/// The files of one hash.
#[derive(Debug, Default)]
struct Files<'a> {
    certificates: Vec<(&'a str, &'a [u8])>,
    revocations: Vec<(&'a str, &'a [u8])>,
    policy: Option<(&'a str, &'a [u8])>,
}

impl Authorities {
    /// Reads files, given by name and content; others than those above are passed over. An authority with a file that
    /// cannot be read is not believed, and [`left_out`](Self::left_out) says why.
    ///
    /// # Errors
    /// More files than anybody has.
    pub fn from_files<'a>(
        files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Self, Error> {
        let mut by_hash: BTreeMap<&str, Files<'a>> = BTreeMap::new();
        for (index, (name, content)) in files.into_iter().enumerate() {
            if index == MAX_FILES {
                return Err(Error::Limit {
                    place: "files of a directory of authorities",
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
        let mut authorities = Self::default();
        for files in by_hash
            .values()
            .filter(|files| !files.certificates.is_empty())
        {
            if let Err(reason) = authorities.add(files) {
                authorities.left_out.push(reason);
            }
        }
        Ok(authorities)
    }

    /// Authorities that are not believed because of their files, each with the reason.
    #[must_use]
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Number of authorities that are believed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether nobody is believed.
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

    /// Whether the authority of this key is valid, and may have signed for `subject`. It may be there with several
    /// certificates, when it has got a new one for the same key.
    pub(super) fn check_signed(
        &self,
        anchor: &TrustAnchor<'_>,
        subject: &str,
        now: UnixTime,
    ) -> Result<(), Error> {
        let known = self.anchors.iter().zip(&self.known);
        let mut result = Err(Error::Security("an authority that is not known".to_owned()));
        for (_, authority) in known.filter(|(known, _)| *known == anchor) {
            result = authority.check_signed(subject, now);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn add(&mut self, files: &Files<'_>) -> Result<(), String> {
        let policy = match files.policy {
            Some((name, text)) => {
                Some(Policy::parse(text).map_err(|error| format!("{name}: {error}"))?)
            }
            None => None,
        };
        let mut lists = Vec::new();
        for (name, content) in &files.revocations {
            let list =
                one(content, SectionKind::Crl).map_err(|error| format!("{name}: {error}"))?;
            let list = OwnedCertRevocationList::from_der(&list).map_err(|error| {
                format!("{name}: expected a list of what was revoked, found {error}")
            })?;
            lists.push(CertRevocationList::Owned(list));
        }
        for (name, content) in &files.certificates {
            if let Err(reason) = self.add_certificate(content, policy.as_ref()) {
                self.left_out.push(format!("{name}: {reason}"));
            }
        }
        self.revoked.append(&mut lists);
        Ok(())
    }

    fn add_certificate(&mut self, content: &[u8], policy: Option<&Policy>) -> Result<(), String> {
        let der = CertificateDer::from(one(content, SectionKind::Certificate)?);
        let certificate = Certificate::parse(&der).map_err(|error| error.to_string())?;
        // Under the hash of newer and that of older OpenSSL the same authority is there twice.
        let twin = self
            .known
            .iter_mut()
            .find(|known| known.certificate.der == der);
        if let Some(twin) = twin {
            twin.policies.extend(policy.cloned());
            return Ok(());
        }
        let anchor = webpki::anchor_from_trusted_cert(&der)
            .map_err(|error| format!("expected an authority, found {error}"))?
            .to_owned();
        self.anchors.push(anchor);
        self.known.push(Authority {
            certificate,
            policies: policy.cloned().into_iter().collect(),
        });
        Ok(())
    }
}

/// The first section of that kind, or the whole where it is no text.
fn one(content: &[u8], wanted: SectionKind) -> Result<Vec<u8>, String> {
    if content.first() == Some(&0x30) {
        return Ok(content.to_vec());
    }
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(content) {
        let (kind, der) =
            section.map_err(|error| format!("expected PEM, found {}", pem_reason(&error)))?;
        if kind == wanted {
            return Ok(der);
        }
    }
    Err("expected PEM, found nothing of it".to_owned())
}
