//! TLS as a client: whom we trust, and who we are.
//!
//! Trusted is what grid software trusts: the certificates in `X509_CERT_DIR`; where that is not set, those in `SSL_CERT_FILE`; else those
//! of the system and those in `/etc/grid-security/certificates`. We are what `X509_USER_PROXY`, or `X509_USER_CERT` and `X509_USER_KEY`, or
//! `/tmp/x509up_u<uid>` say; a server asks for it, or does not.
//!
//! Left out: revocation lists and signing policies are not read.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, InconsistentKeys, RootCertStore};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use venturi_gridftp::gsi::pem_reason;

use crate::error::{Error, said};

/// Where systems have the certificates that they trust: Debian, Red Hat, SUSE, Alpine.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
const GRID: &str = "/etc/grid-security/certificates";
/// Certificates of one directory; grids have about a hundred.
const MOST_FILES: usize = 10_000;

/// How connections are secured, from the environment of this process.
///
/// # Errors
/// If something is named there that cannot be used, or there is nothing to trust.
pub(crate) fn client() -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has suites for both versions")
        .with_root_certificates(trusted()?);
    let config = match credential()? {
        None => builder.with_no_client_auth(),
        Some((path, chain, key)) => {
            let own = certified(chain, key).map_err(|error| Error::Place {
                place: path,
                expected: "a certificate and its key",
                found: error.to_string(),
                advice: "make a proxy anew (`voms-proxy-init`, `grid-proxy-init`), or unset what names it",
            })?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
        }
    };
    Ok(Arc::new(config))
}

/// A certificate with its key, which is compared with it where the library can: it does not know the extension that makes a proxy (RFC 3820).
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

fn trusted() -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    if let Some(folder) = variable("X509_CERT_DIR") {
        let folder = PathBuf::from(folder);
        add_folder(&mut store, &folder).map_err(|error| refused(&folder, said(&error)))?;
        return filled(store, &folder);
    }
    if let Some(file) = variable("SSL_CERT_FILE") {
        let file = PathBuf::from(file);
        add_file(&mut store, &file).map_err(|error| refused(&file, error))?;
        return filled(store, &file);
    }
    for bundle in BUNDLES.map(Path::new) {
        if bundle.exists() {
            add_file(&mut store, bundle).map_err(|error| refused(bundle, error))?;
            break;
        }
    }
    // Where there is none, the system's have to do.
    let _ = add_folder(&mut store, Path::new(GRID));
    filled(store, Path::new(BUNDLES[0]))
}

fn filled(store: RootCertStore, from: &Path) -> Result<RootCertStore, Error> {
    if store.is_empty() {
        return Err(refused(from, "none".into()));
    }
    Ok(store)
}

fn refused(place: &Path, found: String) -> Error {
    Error::Place {
        place: place.to_owned(),
        expected: "certificates (PEM) of those who are trusted",
        found,
        advice: "name a directory of them in X509_CERT_DIR, or a file in SSL_CERT_FILE",
    }
}

/// Adds what OpenSSL finds in such a directory: `<8 hexadecimal digits>.<digit>`.
fn add_folder(store: &mut RootCertStore, folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)?.take(MOST_FILES) {
        let path = entry?.path();
        let hashed = path.file_stem().is_some_and(|stem| {
            stem.len() == 8 && stem.as_encoded_bytes().iter().all(u8::is_ascii_hexdigit)
        });
        let numbered = path
            .extension()
            .is_some_and(|end| end.as_encoded_bytes().iter().all(u8::is_ascii_digit));
        if hashed && numbered {
            // One that cannot be read trusts nobody.
            let _ = add_file(store, &path);
        }
    }
    Ok(())
}

/// Why a file of PEM could not be read.
fn unread(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => said(error),
        _ => pem_reason(error),
    }
}

/// Adds what a file has; old certificates that are not understood are passed over, as OpenSSL's bundles have some.
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

const MAKE_ONE: &str = "name others, or make a proxy (`voms-proxy-init`, `grid-proxy-init`)";

fn credential() -> Result<Option<Credential>, Error> {
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
    let ours = std::fs::symlink_metadata(&usual).is_ok_and(|facts| {
        use std::os::unix::fs::MetadataExt;
        facts.is_file() && facts.uid() == rustix::process::geteuid().as_raw()
    });
    if ours {
        read(&usual, &usual, MAKE_ONE).map(Some)
    } else {
        Ok(None)
    }
}

/// A chain of certificates and a key, each from its file: a proxy has both in one.
pub(crate) fn read(
    certificates: &Path,
    key: &Path,
    advice: &'static str,
) -> Result<Credential, Error> {
    let refused = |place: &Path, found: String| Error::Place {
        place: place.to_owned(),
        expected: "a certificate and its key in PEM, without a password",
        found,
        advice,
    };
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(certificates).and_then(Iterator::collect);
    let chain = chain.map_err(|error| refused(certificates, unread(&error)))?;
    if chain.is_empty() {
        return Err(refused(certificates, "no certificate".into()));
    }
    let key_found = PrivateKeyDer::from_pem_file(key).map_err(|error| match error {
        pem::Error::NoItemsFound => refused(key, "no private key".into()),
        error => refused(key, unread(&error)),
    })?;
    Ok((certificates.to_owned(), chain, key_found))
}
