//! Grid certificates for `gsiftp`: files of the server, read at its start and then periodically.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use venturi_gridftp::gsi::{Credential, GridMap, Gsi, TrustStore, check_mode};
use venturi_gridftp::{Peer, Security};

use crate::error::{CopyError, describe};
use crate::net::grid::{self, now_s};
use crate::{stderr, threads};

/// Login name that selects the user of the grid-mapfile.
const MAPPED: &[u8] = b":globus-mapping:";
/// Default directory of trusted CAs.
const DEFAULT_CA_DIR: &str = "/etc/grid-security/certificates";

/// Command-line options for certificates of gsiftp.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct GsiArguments {
    /// Host certificate for gsiftp with its chain (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["key", "grid_mapfile"])]
    pub(crate) cert: Option<PathBuf>,
    /// Key of --cert (PEM), readable only by its owner
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Directory of trusted CAs for user certificates, with signing policies [default: /etc/grid-security/certificates]
    #[arg(long, value_name = "DIR", requires = "cert")]
    pub(crate) ca_dir: Option<PathBuf>,
    /// File with one line `"/name/of/a/certificate" user` for each gsiftp user
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) grid_mapfile: Option<PathBuf>,
}

/// Interval to read the files again: revocation lists expire, certificates are renewed, and users change.
const AGAIN: Duration = Duration::from_secs(600);

/// GSI credentials that all sessions share.
pub(crate) struct GsiServer {
    files: GsiFiles,
    read: Mutex<Arc<Read>>,
}

/// Paths of the files.
#[derive(Debug, Clone)]
struct GsiFiles {
    cert: PathBuf,
    key: PathBuf,
    map: PathBuf,
    trusted_cas: PathBuf,
}

/// Contents of the files.
struct Read {
    credential: Credential,
    trusted_cas: Arc<TrustStore>,
    map: GridMap,
}

impl std::fmt::Debug for GsiServer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Grid({})", self.read().credential.subject())
    }
}

impl GsiFiles {
    fn named(arguments: &GsiArguments) -> Option<Self> {
        let trusted_cas = arguments.ca_dir.as_deref();
        Some(Self {
            cert: arguments.cert.clone()?,
            key: arguments.key.clone()?,
            map: arguments.grid_mapfile.clone()?,
            trusted_cas: trusted_cas.unwrap_or(Path::new(DEFAULT_CA_DIR)).to_owned(),
        })
    }

    fn read(&self) -> Result<Read, CopyError> {
        let Self {
            cert,
            key,
            map,
            trusted_cas: directory,
        } = self;
        let trusted_cas = grid::load_trust_store(directory, "set the directory with --ca-dir")?;
        let rejected = |path: &Path, found: String| CopyError::Location {
            location: path.to_owned(),
            expected: "a valid file for gsiftp",
            found: found.trim_start_matches("security: ").to_owned(),
            advice: "see `Serve files` in the documentation for the certificate files",
        };
        let facts = std::fs::metadata(key).map_err(|error| rejected(key, describe(&error)))?;
        check_mode(key, facts.mode()).map_err(|error| rejected(key, error.to_string()))?;
        let credential = Credential::from_pem(&read(cert)?, Some(&read(key)?))
            .and_then(|credential| credential.check(now_s()).map(|()| credential))
            .map_err(|error| rejected(cert, error.to_string()))?;
        let text = String::from_utf8_lossy(&read(map)?).into_owned();
        Ok(Read {
            credential,
            trusted_cas: Arc::new(trusted_cas),
            map: GridMap::parse(&text).map_err(|error| rejected(map, error.to_string()))?,
        })
    }
}

impl GsiServer {
    /// Read the files of the command line; none without `--cert`. A thread reads them again periodically.
    ///
    /// # Errors
    /// Unreadable or invalid files; a key that other users can read.
    pub(crate) fn new(arguments: &GsiArguments) -> Result<Option<Arc<Self>>, CopyError> {
        let Some(files) = GsiFiles::named(arguments) else {
            return Ok(None);
        };
        let read = files.read()?;
        if read.map.is_empty() {
            return Err(CopyError::Location {
                location: files.map,
                expected: "a line `\"/name/of/a/certificate\" user` for each user",
                found: "no user, so every login would fail".into(),
                advice: "add a user; `openssl x509 -noout -subject -in usercert.pem` prints the name of a certificate",
            });
        }
        for reason in read.trusted_cas.rejected() {
            stderr::print(
                "serve",
                format_args!("{}: {reason}", files.trusted_cas.display()),
            );
        }
        let read = Mutex::new(Arc::new(read));
        let grid = Arc::new(Self { files, read });
        let known = Arc::downgrade(&grid);
        let again = move || {
            loop {
                std::thread::sleep(AGAIN);
                let Some(grid) = known.upgrade() else { return };
                grid.read_again();
            }
        };
        std::thread::Builder::new()
            .name("certificates".into())
            .spawn(again)
            .map_err(|error| threads::start_error(&error, threads::SERVE_OPTION))?;
        Ok(Some(grid))
    }

    /// Read the files again for new sessions. After an error the previous contents stay in use.
    fn read_again(&self) {
        match self.files.read() {
            Ok(read) => *self.lock() = Arc::new(read),
            Err(error) => stderr::print(
                "serve",
                format_args!("{error}; the server keeps the previous files"),
            ),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Read>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> Arc<Read> {
        Arc::clone(&self.lock())
    }

    /// Return the server side of the security of a session.
    pub(crate) fn security(&self) -> Option<Box<dyn Security>> {
        let read = self.read();
        // Only the certificate can have expired; the periodic read reports it.
        let side = Gsi::server(&read.credential, &read.trusted_cas, now_s()).ok()?;
        Some(Box::new(side))
    }

    /// Return the user of a certificate that logs in as `user`; none if not permitted.
    pub(crate) fn user(&self, peer: &Peer, user: &[u8]) -> Option<String> {
        if user == MAPPED {
            return self.read().map.user(&peer.identity).map(str::to_owned);
        }
        let user = std::str::from_utf8(user).ok()?;
        self.read()
            .map
            .allows(&peer.identity, user)
            .then(|| user.to_owned())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CopyError> {
    std::fs::read(path).map_err(|error| CopyError::Location {
        location: path.to_owned(),
        expected: "a readable file for gsiftp",
        found: describe(&error),
        advice: "choose another file, or grant read permission",
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    fn peer(identity: &str) -> Peer {
        Peer {
            subject: identity.to_owned(),
            identity: identity.to_owned(),
            limited: false,
        }
    }

    #[test]
    fn files_are_reloaded_and_invalid_files_change_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let made = Command::new("openssl")
            .args("req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=host".split(' '))
            .arg("-keyout")
            .arg(at("key"))
            .arg("-out")
            .arg(at("12345678.0"))
            .output()
            .expect("openssl");
        assert!(made.status.success(), "{made:?}");
        fs::set_permissions(at("key"), fs::Permissions::from_mode(0o600)).expect("a mode");
        fs::write(at("map"), "\"/CN=Ann\" ann\n").expect("a file");
        let grid = GsiServer::new(&GsiArguments {
            cert: Some(at("12345678.0")),
            key: Some(at("key")),
            ca_dir: Some(directory.path().to_owned()),
            grid_mapfile: Some(at("map")),
        });
        let grid = grid.expect("good files").expect("all are named");
        assert_eq!(grid.user(&peer("/CN=Ann"), MAPPED).as_deref(), Some("ann"));
        fs::write(at("map"), "\"/CN=Bob\" bob\n").expect("a file");
        grid.read_again();
        assert_eq!(grid.user(&peer("/CN=Ann"), MAPPED), None);
        for wrong in ["map", "key", "12345678.0"] {
            let good = fs::read(at(wrong)).expect("a file");
            fs::write(at(wrong), "wrong").expect("a file");
            grid.read_again();
            assert_eq!(grid.user(&peer("/CN=Bob"), MAPPED).as_deref(), Some("bob"));
            fs::write(at(wrong), good).expect("a file");
        }
    }
}
