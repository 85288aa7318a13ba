//! TLS client: trusted CAs and client certificate.
//!
//! The client trusts the certificates in `X509_CERT_DIR`, otherwise in `SSL_CERT_FILE`, otherwise
//! those of the system and `/etc/grid-security/certificates`. Its own certificate is
//! `X509_USER_PROXY`, or `X509_USER_CERT` and `X509_USER_KEY`, or `/tmp/x509up_u<uid>`, if the
//! server requests one.
//!
//! Not supported: revocation lists and signing policies.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, InconsistentKeys, RootCertStore};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use venturi_gridftp::gsi::pem_reason;

use crate::error::{CopyError, describe};

/// Files with the trusted certificates of systems: Debian, Red Hat, SUSE, Alpine.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
const GRID: &str = "/etc/grid-security/certificates";
/// Maximum number of certificates in a directory; grids have about a hundred.
const MAX_FILES: usize = 10_000;

/// Return the TLS configuration of the environment.
///
/// # Errors
/// An unusable file, or no trusted certificate.
pub(crate) fn client() -> Result<Arc<ClientConfig>, CopyError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has suites for both versions")
        .with_root_certificates(trusted()?);
    let config = match credential()? {
        None => builder.with_no_client_auth(),
        Some((path, chain, key)) => {
            let own = certified(chain, key).map_err(|error| CopyError::Location {
                location: path,
                expected: "a certificate and its key",
                found: error.to_string(),
                advice: "renew the proxy certificate (`voms-proxy-init`, `grid-proxy-init`), or unset its variable",
            })?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
        }
    };
    Ok(Arc::new(config))
}

/// Return a certificate with its key. They are compared if the library can: it does not know the
/// extension of proxy certificates (RFC 3820).
fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, rustls::Error> {
    let own = CertifiedKey::new(chain, rustls::crypto::ring::sign::any_supported_type(&key)?);
    match own.keys_match() {
        Err(error @ rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(error),
        _ => Ok(own),
    }
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn trusted() -> Result<RootCertStore, CopyError> {
    let mut store = RootCertStore::empty();
    if let Some(directory) = variable("X509_CERT_DIR") {
        let directory = PathBuf::from(directory);
        add_directory(&mut store, &directory)
            .map_err(|error| rejected(&directory, describe(&error)))?;
        return filled(store, &directory);
    }
    if let Some(file) = variable("SSL_CERT_FILE") {
        let file = PathBuf::from(file);
        add_file(&mut store, &file).map_err(|error| rejected(&file, error))?;
        return filled(store, &file);
    }
    for bundle in BUNDLES.map(Path::new) {
        if bundle.exists() {
            add_file(&mut store, bundle).map_err(|error| rejected(bundle, error))?;
            break;
        }
    }
    // Without it, use the certificates of the system.
    let _ = add_directory(&mut store, Path::new(GRID));
    filled(store, Path::new(BUNDLES[0]))
}

fn filled(store: RootCertStore, from: &Path) -> Result<RootCertStore, CopyError> {
    if store.is_empty() {
        return Err(rejected(from, "none".into()));
    }
    Ok(store)
}

fn rejected(path: &Path, found: String) -> CopyError {
    CopyError::Location {
        location: path.to_owned(),
        expected: "certificates of trusted CAs (PEM)",
        found,
        advice: "set X509_CERT_DIR to a directory of certificates, or SSL_CERT_FILE to a file",
    }
}

/// Add the certificates that OpenSSL finds in a directory: `<8 hexadecimal digits>.<digit>`.
fn add_directory(store: &mut RootCertStore, directory: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)?.take(MAX_FILES) {
        let path = entry?.path();
        let hashed = path.file_stem().is_some_and(|stem| {
            stem.len() == 8 && stem.as_encoded_bytes().iter().all(u8::is_ascii_hexdigit)
        });
        let numbered = path
            .extension()
            .is_some_and(|end| end.as_encoded_bytes().iter().all(u8::is_ascii_digit));
        if hashed && numbered {
            // An unreadable certificate is not trusted.
            let _ = add_file(store, &path);
        }
    }
    Ok(())
}

/// Return the reason why a PEM file could not be read.
fn unread(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => describe(error),
        _ => pem_reason(error),
    }
}

/// Add the certificates of a file. Old ones that cannot be parsed, as in OpenSSL bundles, are
/// skipped.
fn add_file(store: &mut RootCertStore, file: &Path) -> Result<(), String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    store.add_parsable_certificates(found.map_err(|error| unread(&error))?);
    Ok(())
}

type Credential = (
    PathBuf,
    Vec<CertificateDer<'static>>,
    PrivateKeyDer<'static>,
);

const MAKE_ONE: &str =
    "choose other files, or create a proxy certificate (`voms-proxy-init`, `grid-proxy-init`)";

fn credential() -> Result<Option<Credential>, CopyError> {
    if let Some(proxy) = variable("X509_USER_PROXY") {
        return read(&PathBuf::from(&proxy), &PathBuf::from(proxy), MAKE_ONE).map(Some);
    }
    if let (Some(cert), Some(key)) = (variable("X509_USER_CERT"), variable("X509_USER_KEY")) {
        return read(&PathBuf::from(cert), &PathBuf::from(key), MAKE_ONE).map(Some);
    }
    let usual = PathBuf::from(format!(
        "/tmp/x509up_u{}",
        rustix::process::geteuid().as_raw()
    ));
    let ours = std::fs::symlink_metadata(&usual).is_ok_and(|metadata| {
        use std::os::unix::fs::MetadataExt;
        metadata.is_file() && metadata.uid() == rustix::process::geteuid().as_raw()
    });
    if ours {
        read(&usual, &usual, MAKE_ONE).map(Some)
    } else {
        Ok(None)
    }
}

/// Read a chain of certificates and a key, each from its file; a proxy has both in one file.
pub(crate) fn read(
    certificates: &Path,
    key: &Path,
    advice: &'static str,
) -> Result<Credential, CopyError> {
    let rejected = |path: &Path, found: String| CopyError::Location {
        location: path.to_owned(),
        expected: "a certificate and its key in PEM, without a password",
        found,
        advice,
    };
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(certificates).and_then(Iterator::collect);
    let chain = chain.map_err(|error| rejected(certificates, unread(&error)))?;
    if chain.is_empty() {
        return Err(rejected(certificates, "no certificate".into()));
    }
    let key_found = PrivateKeyDer::from_pem_file(key).map_err(|error| match error {
        pem::Error::NoItemsFound => rejected(key, "no private key".into()),
        error => rejected(key, unread(&error)),
    })?;
    Ok((certificates.to_owned(), chain, key_found))
}
