//! Certificates of grids for `gsiftp`: the files that a server has, read once at its start.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use venturi_gridftp::gsi::{Authorities, Credential, GridMap, Gsi, check_mode};
use venturi_gridftp::{Peer, Security};

use crate::error::{Error, said};
use crate::net::grid::{self, now_s};

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

/// What all sessions share of it.
pub(crate) struct Grid {
    credential: Credential,
    authorities: Arc<Authorities>,
    map: GridMap,
}

impl std::fmt::Debug for Grid {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Grid({})", self.credential.subject())
    }
}

impl Grid {
    /// Reads what the command line names; nothing where it names nothing.
    ///
    /// # Errors
    /// Files that cannot be read, or are not what they should be; a key that others may read.
    pub(crate) fn new(arguments: &GsiArguments) -> Result<Option<Self>, Error> {
        let (Some(cert), Some(key), Some(map)) =
            (&arguments.cert, &arguments.key, &arguments.grid_mapfile)
        else {
            return Ok(None);
        };
        let directory = arguments.ca_dir.as_deref();
        let directory = directory.unwrap_or(Path::new(AUTHORITIES));
        let authorities = grid::authorities(directory, "name one with --ca-dir")?;
        for reason in authorities.left_out() {
            eprintln!("venturi serve: {}: {reason}", directory.display());
        }
        let refused = |path: &Path, found: String| Error::Place {
            place: path.to_owned(),
            expected: "a file for gsiftp that can be used",
            found,
            advice: "see the page `Serve files` on certificates",
        };
        let facts = std::fs::metadata(key).map_err(|error| refused(key, said(&error)))?;
        check_mode(key, facts.mode()).map_err(|error| refused(key, error.to_string()))?;
        let credential = Credential::from_pem(&read(cert)?, Some(&read(key)?))
            .and_then(|credential| credential.check(now_s()).map(|()| credential))
            .map_err(|error| refused(cert, error.to_string()))?;
        let text = String::from_utf8_lossy(&read(map)?).into_owned();
        Ok(Some(Self {
            credential,
            authorities: Arc::new(authorities),
            map: GridMap::parse(&text).map_err(|error| refused(map, error.to_string()))?,
        }))
    }

    /// A server's side of a session.
    pub(crate) fn security(&self) -> Option<Box<dyn Security>> {
        let side = Gsi::server(&self.credential, &self.authorities, now_s()).ok()?;
        Some(Box::new(side))
    }

    /// Which user somebody is who asks to be `user`; nothing if he may not be that one.
    pub(crate) fn user(&self, peer: &Peer, user: &[u8]) -> Option<String> {
        if user == MAPPED {
            return self.map.user(&peer.identity).map(str::to_owned);
        }
        let user = std::str::from_utf8(user).ok()?;
        self.map
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
