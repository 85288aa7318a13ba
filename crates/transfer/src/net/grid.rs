//! Credential of the user and trusted CAs, from the files that Globus programs read
//! (`docs/howto/credentials.md`). `venturi_gridftp::gsi` interprets them.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use venturi_gridftp::gsi::{
    Credential, CredentialFiles, Gsi, GsiPeer, TrustStore, ca_directories, check_mode,
    user_credential_files,
};
use venturi_gridftp::{FtpError as Rejection, Security};

use crate::error::{CopyError, describe};

/// Maximum size of a credential or CA file: revocation lists of large CAs have some MB.
const MAX_FILE_BYTES: u64 = 64 << 20;
const CREATE_PROXY: &str =
    "create a proxy (grid-proxy-init, voms-proxy-init), or set X509_USER_PROXY to its path";

/// Credential and trusted CAs, shared by all sessions.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    credential: Credential,
    load_trust_store: Arc<TrustStore>,
}

impl Grid {
    /// Loads the credential of the user and the trusted CAs.
    ///
    /// # Errors
    /// A missing or unusable credential, or no trusted CA.
    pub(crate) fn load() -> Result<Self, CopyError> {
        let variable = |name: &str| std::env::var(name).ok();
        let uid = rustix::process::getuid().as_raw();
        let credential = load_first_credential(&user_credential_files(variable, uid))?;
        let load_trust_store = Arc::new(load_first_trust_store(&ca_directories(variable))?);
        Ok(Self {
            credential,
            load_trust_store,
        })
    }

    /// Returns the end of the credential, in seconds since 1970.
    pub(crate) fn not_after_s(&self) -> u64 {
        self.credential.not_after_s()
    }

    /// True if servers can receive a proxy.
    pub(crate) fn delegates(&self) -> bool {
        self.credential.check_delegation().is_ok()
    }

    /// Returns the security of a session with this host. With `delegates`, the server receives a proxy; without it, data connections are
    /// not authenticated.
    ///
    /// # Errors
    /// A credential that has expired.
    pub(crate) fn client(
        &self,
        host: &str,
        delegates: bool,
    ) -> Result<Box<dyn Security>, Rejection> {
        let target = GsiPeer {
            host: host.to_owned(),
            subject: None,
            delegates,
        };
        let gsi = Gsi::client(&self.credential, &self.load_trust_store, &target, now_s())?;
        Ok(Box::new(gsi))
    }
}

/// Seconds since 1970.
pub(crate) fn now_s() -> u64 {
    UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}

/// Returns the end of the certificate of the user, in seconds since 1970; none without a certificate.
///
/// # Errors
/// An unusable certificate.
pub(crate) fn certificate_end_s() -> Result<Option<u64>, CopyError> {
    let variable = |name: &str| std::env::var(name).ok();
    let uid = rustix::process::getuid().as_raw();
    let found = first_credential_files(&user_credential_files(variable, uid));
    let credential = found.map(|files| read_credential(&files)).transpose()?;
    Ok(credential.map(|credential| credential.not_after_s()))
}

fn first_credential_files(locations: &[CredentialFiles]) -> Option<CredentialFiles> {
    let exists = |files: &&CredentialFiles| files.named || files.certificates.exists();
    locations.iter().find(exists).cloned()
}

fn load_first_credential(locations: &[CredentialFiles]) -> Result<Credential, CopyError> {
    let Some(files) = first_credential_files(locations) else {
        let first = locations.first().map(|files| files.certificates.clone());
        return Err(unreadable(
            &first.unwrap_or_default(),
            "none, also not at the other default paths",
            CREATE_PROXY,
        ));
    };
    let credential = read_credential(&files)?;
    let checked = credential.check(now_s());
    checked.map_err(|error| unreadable(&files.certificates, &error.to_string(), CREATE_PROXY))?;
    Ok(credential)
}

fn read_credential(files: &CredentialFiles) -> Result<Credential, CopyError> {
    let (certificates, mode) = read(&files.certificates, CREATE_PROXY)?;
    let (key, mode) = match &files.key {
        Some(key) => read(key, CREATE_PROXY).map(|(key, mode)| (Some(key), mode))?,
        None => (None, mode),
    };
    check_mode(files.secret(), mode)
        .and_then(|()| Credential::from_pem(&certificates, key.as_deref()))
        .map_err(|error| unreadable(&files.certificates, &error.to_string(), CREATE_PROXY))
}

fn load_first_trust_store(locations: &[PathBuf]) -> Result<TrustStore, CopyError> {
    let advice = "set X509_CERT_DIR to their directory, or install the CAs of your grid (ca-policy-egi-core, igtf-policy-bundle)";
    let found = locations
        .iter()
        .find(|path| path.is_dir())
        .or(locations.first());
    found.map_or_else(
        || Ok(TrustStore::default()),
        |directory| load_trust_store(directory, advice),
    )
}

/// Loads all CAs of a directory. CAs with invalid files are skipped with a message.
///
/// # Errors
/// A directory that cannot be read, or has no CA.
pub(crate) fn load_trust_store(
    directory: &Path,
    advice: &'static str,
) -> Result<TrustStore, CopyError> {
    let unread = |found: String| CopyError::Location {
        location: directory.to_owned(),
        expected: "a directory with CA certificates (HASH.0) and their signing policies",
        found,
        advice,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|error| unread(describe(&error)))? {
        let entry = entry.map_err(|error| unread(describe(&error)))?;
        // Includes symbolic links, because hash names are links.
        if let (Ok(name), true) = (entry.file_name().into_string(), entry.path().is_file()) {
            files.push((name, read(&entry.path(), advice)?.0));
        }
    }
    let files = files
        .iter()
        .map(|(name, content)| (&name[..], &content[..]));
    let load_trust_store =
        TrustStore::from_files(files).map_err(|error| unread(error.to_string()))?;
    if load_trust_store.is_empty() {
        let reason = load_trust_store.rejected().first().cloned();
        return Err(unread(reason.unwrap_or_else(|| "none".into())));
    }
    Ok(load_trust_store)
}

/// Returns the content and the mode of a file.
fn read(path: &Path, advice: &'static str) -> Result<(Vec<u8>, u32), CopyError> {
    let unread = |error: std::io::Error| unreadable(path, &describe(&error), advice);
    let file = File::open(path).map_err(unread)?;
    let mode = file.metadata().map_err(unread)?.mode();
    let mut content = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut content)
        .map_err(unread)?;
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(unreadable(path, "more than 64 MiB", advice));
    }
    Ok((content, mode))
}

fn unreadable(path: &Path, found: &str, advice: &'static str) -> CopyError {
    CopyError::Location {
        location: path.to_owned(),
        expected: "a credential for gsiftp",
        found: found.to_owned(),
        advice,
    }
}
