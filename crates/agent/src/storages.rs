//! Locations of the storages of a plan for one agent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use venturi_plan::{
    Call, Endpoint, Error, Header, NULL, Name, OtherHost, ServicePort, Start, Via, ZERO,
};

use crate::properties;

/// Storages of a plan, and the hosts whose files this agent sees: its own host, and others on the
/// same machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Storages<'a> {
    start: &'a Start,
}

/// A file or directory that supports operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    /// The host whose shell runs the operations; none: this agent sees the files.
    pub(crate) host: Option<Name>,
    pub(crate) path: PathBuf,
    /// Whether it is below a scratch directory, or the directory of the run on a server, where all
    /// files belong to the run.
    pub(crate) in_scratch: bool,
}

impl Location {
    /// Returns whether `path` is a URL of an existing server.
    pub(crate) fn is_url(&self) -> bool {
        self.path.to_str().is_some_and(|path| path.contains("://"))
    }
}

/// Location of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EndpointPath<'a> {
    /// `/dev/null` or `/dev/zero` of any host.
    Device(&'static Path),
    /// A file that this agent sees.
    Seen(Location),
    /// A file on another host whose shell executes operations.
    Requested(Location),
    /// A file on another host without a shell. The path is known if it does not depend on a scratch
    /// directory there. The host is none if only services reach the storage.
    Elsewhere {
        host: Option<&'a str>,
        path: Option<PathBuf>,
    },
}

impl<'a> Storages<'a> {
    /// Creates the storages of the plan that an agent was started with.
    pub(crate) fn new(start: &'a Start) -> Self {
        Self { start }
    }

    /// Returns the header.
    pub(crate) fn header(&self) -> &'a Header {
        &self.start.header
    }

    /// Returns the host of the agent.
    pub(crate) fn host(&self) -> &'a str {
        &self.start.host
    }

    /// Return whether this agent sees the files of a host.
    pub(crate) fn sees(&self, host: &str) -> bool {
        host == self.host() || self.other_host(host).is_some_and(|other| other.seen)
    }

    fn other_host(&self, host: &str) -> Option<&'a OtherHost> {
        self.start.hosts.get(host)
    }

    /// Return the values of a call's `urls` in this session.
    ///
    /// # Errors
    /// If the plan has no such service or service port.
    pub(crate) fn call_urls(&self, call: &Call) -> Result<BTreeMap<Name, String>, Error> {
        let started = |service: &str| self.start.services.get(service);
        self.header().call_urls(call, started)
    }

    /// Return a service port, as a transfer of this slot uses it in this session.
    ///
    /// # Errors
    /// If the plan has no such service or service port.
    pub(crate) fn service_port(&self, via: &Via, slot: u32) -> Result<ServicePort, Error> {
        let started = self.start.services.get(via.service());
        self.header().service_port(via, slot, started)
    }

    /// Returns the scratch directory of the agent.
    pub(crate) fn scratch(&self) -> &'a Path {
        Path::new(&self.start.scratch)
    }

    /// Return the location of an endpoint; none if the plan has no such storage.
    pub(crate) fn locate(&self, endpoint: &Endpoint) -> Option<EndpointPath<'a>> {
        match endpoint.storage() {
            NULL => return Some(EndpointPath::Device(Path::new("/dev/null"))),
            ZERO => return Some(EndpointPath::Device(Path::new("/dev/zero"))),
            _ => {}
        }
        let storage = self.header().storages.get(endpoint.storage())?;
        if storage.url.is_some() {
            let mut root = self.root(endpoint.storage())?;
            root.path.push(endpoint.path());
            return Some(EndpointPath::Requested(root));
        }
        let in_scratch = Path::new(&storage.path).is_relative();
        if let Some(mut root) = self.root(endpoint.storage()) {
            root.path.push(endpoint.path());
            return Some(match root.host {
                None => EndpointPath::Seen(root),
                Some(_) => EndpointPath::Requested(root),
            });
        }
        let host = storage.host.as_deref();
        let path = (!in_scratch).then(|| Path::new(&storage.path).join(endpoint.path()));
        Some(EndpointPath::Elsewhere { host, path })
    }

    /// Return the path of an endpoint below its storage; none for a device.
    pub(crate) fn relative(&self, endpoint: &Endpoint) -> Option<String> {
        if endpoint.is_built_in() {
            return None;
        }
        let storage = self.header().storages.get(endpoint.storage());
        let directory = storage
            .filter(|storage| storage.url.is_some() && !storage.existing)
            .and(self.start.run_directory.as_ref());
        Some(match directory {
            Some(directory) => format!("{directory}/{}", endpoint.path()),
            None => endpoint.path().to_owned(),
        })
    }

    /// Return the NFS mounts with storages of this host: mount point, in the form of `/proc`, and
    /// names. It does not access file systems, so it omits storages behind symbolic links.
    pub(crate) fn network_mounts(&self) -> BTreeMap<String, Vec<String>> {
        let mounts = properties::Mounts::read();
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in self.header().storages.keys() {
            let root = self.root(name).filter(|root| root.host.is_none());
            let mount = root.as_ref().and_then(|root| mounts.of(&root.path));
            if let Some(mount) = mount.filter(|mount| mount.kind.starts_with("nfs")) {
                let names = found.entry(mount.point.to_owned()).or_default();
                names.push((**name).to_owned());
            }
        }
        found
    }

    /// Return the directory of a storage; none if the plan has no such storage, or operations on it are impossible.
    pub(crate) fn root(&self, storage: &str) -> Option<Location> {
        let (name, storage) = self.header().storages.get_key_value(storage)?;
        let host = storage.host.as_ref()?;
        if let Some(url) = &storage.url {
            // Request it even on this host, because the controller records each file before the
            // shell creates it.
            let root = Path::new(url);
            return Some(Location {
                host: Some(host.clone()),
                path: match &self.start.run_directory {
                    _ if storage.existing => root.to_owned(),
                    Some(directory) => root.join(directory),
                    None => return None,
                },
                in_scratch: true,
            });
        }
        let (scratch, host) = if **host == *self.host() {
            (&self.start.scratch, None)
        } else {
            let other = self.other_host(host)?;
            let seen = other.seen || other.storages.contains(name);
            (&other.scratch, (!seen).then(|| host.clone()))
        };
        Some(Location {
            host,
            path: Path::new(scratch).join(&storage.path),
            in_scratch: Path::new(&storage.path).is_relative(),
        })
    }
}

/// Return the text of a path for commands and URLs.
///
/// # Errors
/// A message if the path is not UTF-8.
pub(crate) fn utf8(path: &Path) -> Result<&str, String> {
    path.to_str()
        .ok_or_else(|| format!("expected UTF-8, found `{}`", path.display()))
}

/// Return the name of a host for messages.
pub(crate) fn shown_host(host: Option<&str>) -> String {
    host.map_or("no host of the plan".into(), |host| {
        format!("host `{host}`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_lies_below_its_storage_in_the_scratch_directory_of_its_host() {
        let mut start = crate::testing::start(
            r#"{"disk": {"host": "me", "path": "data"}, "near": {"host": "twin", "path": "data"},
                "shared": {"host": "twin", "path": "/gpfs"},
                "far": {"host": "you", "path": "/mnt"}, "gpfs": {"host": "you", "path": "/gpfs"},
                "away": {"host": "you", "path": "data"},
                "lost": {"host": "someone", "path": "data"}, "known": {"host": "someone", "path": "/mnt"},
                "eos": {"host": null, "path": "/eos"},
                "dav": {"host": "me", "path": "", "url": "davs://se/dir"}}"#,
        );
        start.run_directory = Some("venturi-1".into());
        let other = |scratch: &str, seen| OtherHost {
            scratch: scratch.into(),
            seen,
            storages: vec!["gpfs".into()],
        };
        start.hosts = [
            ("twin".into(), other("/twins/scratch", true)),
            ("you".into(), other("/yours", false)),
        ]
        .into();
        let storages = Storages::new(&start);
        let check = |endpoint: &str, expected: Option<EndpointPath<'_>>| {
            let found = storages.locate(&endpoint.parse().expect("an endpoint"));
            assert_eq!(found, expected, "{endpoint}");
        };
        let seen = |path: &str, in_scratch| {
            Some(EndpointPath::Seen(Location {
                host: None,
                path: path.into(),
                in_scratch,
            }))
        };
        let requested = |path: &str, in_scratch| {
            Some(EndpointPath::Requested(Location {
                host: Some("you".into()),
                path: path.into(),
                in_scratch,
            }))
        };
        let elsewhere = |host, path: Option<&str>| {
            Some(EndpointPath::Elsewhere {
                host,
                path: path.map(PathBuf::from),
            })
        };
        check("disk:a/b", seen("/scratch/data/a/b", true));
        check("near:a/b", seen("/twins/scratch/data/a/b", true));
        check("shared:x", seen("/gpfs/x", false));
        check("far:x", requested("/mnt/x", false));
        check("gpfs:x", seen("/gpfs/x", false));
        check("away:x", requested("/yours/data/x", true));
        check("lost:x", elsewhere(Some("someone"), None));
        check("known:x", elsewhere(Some("someone"), Some("/mnt/x")));
        check("eos:x", elsewhere(None, Some("/eos/x")));
        let url = Some(EndpointPath::Requested(Location {
            host: Some("me".into()),
            path: "davs://se/dir/venturi-1/x".into(),
            in_scratch: true,
        }));
        check("dav:x", url);
        check("null:", Some(EndpointPath::Device(Path::new("/dev/null"))));
        check("zero:", Some(EndpointPath::Device(Path::new("/dev/zero"))));
        check("nowhere:x", None);
    }
}
