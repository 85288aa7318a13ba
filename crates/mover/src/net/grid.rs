//! The credential of whoever runs this, and the authorities to believe, read from the files that Globus programs read
//! (`docs/howto/credentials.md`). What they mean, and how they are used: `venturi_gridftp::gsi`.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use venturi_gridftp::gsi::{
    Authorities, Credential, Gsi, Place, Target, authority_places, check_mode, user_places,
};
use venturi_gridftp::{Error as Refusal, Security};

use crate::error::{Error, said};

/// Largest file with a credential, or of an authority: lists of what large ones revoked have some MB.
const MAX_FILE_BYTES: u64 = 64 << 20;
const MAKE_ONE: &str =
    "make a proxy (grid-proxy-init, voms-proxy-init), or say where it is by X509_USER_PROXY";

/// Who this side is, and whom it believes. Sessions share it.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    credential: Credential,
    authorities: Arc<Authorities>,
}

impl Grid {
    /// Of the user who runs this.
    ///
    /// # Errors
    /// No credential, one that cannot be used now, or nobody to believe.
    pub(crate) fn of_user() -> Result<Self, Error> {
        let variable = |name: &str| std::env::var(name).ok();
        let uid = rustix::process::getuid().as_raw();
        let credential = first_credential(&user_places(variable, uid))?;
        let authorities = Arc::new(first_authorities(&authority_places(variable))?);
        Ok(Self {
            credential,
            authorities,
        })
    }

    /// Whether servers can be given a proxy.
    pub(crate) fn delegates(&self) -> bool {
        self.credential.check_delegation().is_ok()
    }

    /// The security of a session with this host. With `delegates` the server gets a proxy, without which its data connections can
    /// only be open.
    ///
    /// # Errors
    /// A credential that has ended meanwhile.
    pub(crate) fn client(&self, host: &str, delegates: bool) -> Result<Box<dyn Security>, Refusal> {
        let target = Target {
            host: host.to_owned(),
            subject: None,
            delegates,
        };
        let gsi = Gsi::client(&self.credential, &self.authorities, &target, now_s())?;
        Ok(Box::new(gsi))
    }
}

/// Seconds since 1970.
pub(crate) fn now_s() -> u64 {
    UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}

fn first_credential(places: &[Place]) -> Result<Credential, Error> {
    let there = |place: &&Place| place.named || place.certificates.exists();
    let Some(place) = places.iter().find(there) else {
        let first = places.first().map(|place| place.certificates.clone());
        return Err(refused(
            &first.unwrap_or_default(),
            "none, nor at other places",
            MAKE_ONE,
        ));
    };
    let (certificates, mode) = read(&place.certificates, MAKE_ONE)?;
    let (key, mode) = match &place.key {
        Some(key) => read(key, MAKE_ONE).map(|(key, mode)| (Some(key), mode))?,
        None => (None, mode),
    };
    check_mode(place.secret(), mode)
        .and_then(|()| Credential::from_pem(&certificates, key.as_deref()))
        .and_then(|credential| credential.check(now_s()).map(|()| credential))
        .map_err(|error| refused(&place.certificates, &error.to_string(), MAKE_ONE))
}

fn first_authorities(places: &[PathBuf]) -> Result<Authorities, Error> {
    let advice = "say where they are by X509_CERT_DIR, or install those of your grid (ca-policy-egi-core, igtf-policy-bundle)";
    let found = places.iter().find(|path| path.is_dir()).or(places.first());
    found.map_or_else(
        || Ok(Authorities::default()),
        |directory| authorities(directory, advice),
    )
}

/// All authorities of a directory. Those of which a file is wrong are not among them, and it says so.
///
/// # Errors
/// A directory that cannot be read, or has none.
pub(crate) fn authorities(directory: &Path, advice: &'static str) -> Result<Authorities, Error> {
    let unread = |found: String| Error::Place {
        place: directory.to_owned(),
        expected: "a directory with certificates of authorities (HASH.0) and their signing policies",
        found,
        advice,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|error| unread(said(&error)))? {
        let entry = entry.map_err(|error| unread(said(&error)))?;
        // Behind a link, too: they are how hashes are made.
        if let (Ok(name), true) = (entry.file_name().into_string(), entry.path().is_file()) {
            files.push((name, read(&entry.path(), advice)?.0));
        }
    }
    let files = files
        .iter()
        .map(|(name, content)| (&name[..], &content[..]));
    let authorities = Authorities::from_files(files).map_err(|error| unread(error.to_string()))?;
    if authorities.is_empty() {
        let reason = authorities.left_out().first().cloned();
        return Err(unread(reason.unwrap_or_else(|| "none".into())));
    }
    Ok(authorities)
}

/// The content of a file, and its mode.
fn read(path: &Path, advice: &'static str) -> Result<(Vec<u8>, u32), Error> {
    let unread = |error: std::io::Error| refused(path, &said(&error), advice);
    let file = File::open(path).map_err(unread)?;
    let mode = file.metadata().map_err(unread)?.mode();
    let mut content = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut content)
        .map_err(unread)?;
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(refused(path, "more than 64 MiB", advice));
    }
    Ok((content, mode))
}

fn refused(path: &Path, found: &str, advice: &'static str) -> Error {
    Error::Place {
        place: path.to_owned(),
        expected: "a credential for gsiftp",
        found: found.to_owned(),
        advice,
    }
}
