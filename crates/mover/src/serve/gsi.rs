//! Certificates of grids for `gsiftp`: the files that a server has, read at its start and from time to time.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use venturi_gridftp::gsi::{Authorities, Credential, GridMap, Gsi, check_mode};
use venturi_gridftp::{Peer, Security};

use crate::error::{Error, said};
use crate::net::grid::{self, now_s};
use crate::{talk, threads};

/// Who maps to whichever user a grid-mapfile has for him.
const MAPPED: &[u8] = b":globus-mapping:";
/// Where authorities are that this host trusts, unless another place is named.
const AUTHORITIES: &str = "/etc/grid-security/certificates";

/// What can be said of certificates on the command line.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct GsiArguments {
    /// Certificate of this host for gsiftp (PEM), with those that lead to its authority
    #[arg(long, value_name = "FILE", requires_all = ["key", "grid_mapfile"])]
    pub(crate) cert: Option<PathBuf>,
    /// Its key (PEM), which nobody but its owner may read
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Directory of the authorities that sign users' certificates, with signing policies [default: /etc/grid-security/certificates]
    #[arg(long, value_name = "DIR", requires = "cert")]
    pub(crate) ca_dir: Option<PathBuf>,
    /// A file with a line `"/name/of/a/certificate" user` for each user of gsiftp
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) grid_mapfile: Option<PathBuf>,
}

/// How often the files are read again: lists of what was revoked end, certificates are renewed, users come and go.
const AGAIN: Duration = Duration::from_secs(600);

/// What all sessions share of it.
pub(crate) struct Grid {
    files: Files,
    read: Mutex<Arc<Read>>,
}

/// Where it stands.
#[derive(Debug, Clone)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
    map: PathBuf,
    authorities: PathBuf,
}

/// What stood there.
struct Read {
    credential: Credential,
    authorities: Arc<Authorities>,
    map: GridMap,
}

impl std::fmt::Debug for Grid {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Grid({})", self.read().credential.subject())
    }
}

impl Files {
    fn named(arguments: &GsiArguments) -> Option<Self> {
        let authorities = arguments.ca_dir.as_deref();
        Some(Self {
            cert: arguments.cert.clone()?,
            key: arguments.key.clone()?,
            map: arguments.grid_mapfile.clone()?,
            authorities: authorities.unwrap_or(Path::new(AUTHORITIES)).to_owned(),
        })
    }

    fn read(&self) -> Result<Read, Error> {
        let Self {
            cert,
            key,
            map,
            authorities: directory,
        } = self;
        let authorities = grid::authorities(directory, "name one with --ca-dir")?;
        let refused = |path: &Path, found: String| Error::Place {
            place: path.to_owned(),
            expected: "a file for gsiftp that can be used",
            found: found.trim_start_matches("security: ").to_owned(),
            advice: "see the page `Serve files` on certificates",
        };
        let facts = std::fs::metadata(key).map_err(|error| refused(key, said(&error)))?;
        check_mode(key, facts.mode()).map_err(|error| refused(key, error.to_string()))?;
        let credential = Credential::from_pem(&read(cert)?, Some(&read(key)?))
            .and_then(|credential| credential.check(now_s()).map(|()| credential))
            .map_err(|error| refused(cert, error.to_string()))?;
        let text = String::from_utf8_lossy(&read(map)?).into_owned();
        Ok(Read {
            credential,
            authorities: Arc::new(authorities),
            map: GridMap::parse(&text).map_err(|error| refused(map, error.to_string()))?,
        })
    }
}

impl Grid {
    /// Reads what the command line names; nothing where it names nothing. What is there is read again from time to time.
    ///
    /// # Errors
    /// Files that cannot be read, or are not what they should be; a key that others may read.
    pub(crate) fn new(arguments: &GsiArguments) -> Result<Option<Arc<Self>>, Error> {
        let Some(files) = Files::named(arguments) else {
            return Ok(None);
        };
        let read = files.read()?;
        if read.map.is_empty() {
            return Err(Error::Place {
                place: files.map,
                expected: "a line `\"/name/of/a/certificate\" user` for each user",
                found: "no user, so that nobody could come in".into(),
                advice: "add one; `openssl x509 -noout -subject -in usercert.pem` tells a certificate's name",
            });
        }
        for reason in read.authorities.left_out() {
            talk::say(
                "serve",
                format_args!("{}: {reason}", files.authorities.display()),
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
            .map_err(|error| threads::refusal(&error, threads::OF_SERVE))?;
        Ok(Some(grid))
    }

    /// Takes what is there now, for sessions from now on. Where something is wrong with it, what was there before counts.
    fn read_again(&self) {
        match self.files.read() {
            Ok(read) => *self.lock() = Arc::new(read),
            Err(error) => talk::say(
                "serve",
                format_args!("{error}; what was there before counts"),
            ),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Read>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> Arc<Read> {
        Arc::clone(&self.lock())
    }

    /// A server's side of a session.
    pub(crate) fn security(&self) -> Option<Box<dyn Security>> {
        let read = self.read();
        // Of what a server has, only its certificate can have ended; that is told when the files are read again.
        let side = Gsi::server(&read.credential, &read.authorities, now_s()).ok()?;
        Some(Box::new(side))
    }

    /// Which user somebody is who asks to be `user`; nothing if he may not be that one.
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

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| Error::Place {
        place: path.to_owned(),
        expected: "a file for gsiftp that can be read",
        found: said(&error),
        advice: "name another, or get the right to it",
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
    fn files_are_read_again_and_what_is_wrong_with_them_changes_nothing() {
        let folder = tempfile::tempdir().expect("a directory");
        let at = |name: &str| folder.path().join(name);
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
        let grid = Grid::new(&GsiArguments {
            cert: Some(at("12345678.0")),
            key: Some(at("key")),
            ca_dir: Some(folder.path().to_owned()),
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
