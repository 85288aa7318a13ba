//! Where the places of a plan are, seen from one agent.

use std::path::{Path, PathBuf};

use venturi_plan::{Endpoint, Header, NULL, Start, ZERO};

/// The places of a plan and the hosts whose files this agent sees: its own, and others on the same machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places<'a> {
    start: &'a Start,
}

/// A file or directory that this agent sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) path: PathBuf,
    /// Below a scratch directory, where everything is ours.
    pub(crate) in_scratch: bool,
}

/// Where an endpoint is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Spot<'a> {
    /// `/dev/null` or `/dev/zero` of whichever host.
    Device(&'static Path),
    /// Among the files that this agent sees.
    Seen(Location),
    /// On another host; the path is known if it does not depend on a scratch directory there.
    Elsewhere {
        host: &'a str,
        path: Option<PathBuf>,
    },
}

impl<'a> Places<'a> {
    /// The places of the plan that an agent was started with.
    pub(crate) fn new(start: &'a Start) -> Self {
        Self { start }
    }

    /// The header that names them.
    pub(crate) fn header(&self) -> &'a Header {
        &self.start.header
    }

    /// The host that the agent is.
    pub(crate) fn host(&self) -> &'a str {
        &self.start.host
    }

    /// Whether this agent sees the files of a host.
    pub(crate) fn sees(&self, host: &str) -> bool {
        host == self.host() || self.start.sees.contains_key(host)
    }

    /// The agent's own scratch directory.
    pub(crate) fn scratch(&self) -> &'a Path {
        Path::new(&self.start.scratch)
    }

    /// Where an endpoint is; none when the plan has no such place.
    pub(crate) fn locate(&self, endpoint: &Endpoint) -> Option<Spot<'a>> {
        match endpoint.place() {
            NULL => return Some(Spot::Device(Path::new("/dev/null"))),
            ZERO => return Some(Spot::Device(Path::new("/dev/zero"))),
            _ => {}
        }
        let place = self.header().places.get(endpoint.place())?;
        let in_scratch = Path::new(&place.path).is_relative();
        if let Some(root) = self.root(endpoint.place()) {
            return Some(Spot::Seen(Location {
                path: root.join(endpoint.path()),
                in_scratch,
            }));
        }
        let path = (!in_scratch).then(|| Path::new(&place.path).join(endpoint.path()));
        Some(Spot::Elsewhere {
            host: &place.host,
            path,
        })
    }

    /// The directory of a place; none when the plan has no such place, or this agent does not see it.
    pub(crate) fn root(&self, place: &str) -> Option<PathBuf> {
        let place = self.header().places.get(place)?;
        let scratch = if *place.host == *self.host() {
            &self.start.scratch
        } else {
            self.start.sees.get(&place.host)?
        };
        Some(Path::new(scratch).join(&place.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_lies_below_its_place_in_the_scratch_directory_of_its_host() {
        let mut start = crate::testing::start(
            r#"{"disk": {"host": "me", "path": "data"}, "near": {"host": "twin", "path": "data"},
                "shared": {"host": "twin", "path": "/gpfs"},
                "far": {"host": "you", "path": "/mnt"}, "away": {"host": "you", "path": "data"}}"#,
        );
        start.sees.insert("twin".into(), "/twins/scratch".into());
        let places = Places::new(&start);
        let check = |endpoint: &str, expected: Option<Spot<'_>>| {
            let found = places.locate(&endpoint.parse().expect("an endpoint"));
            assert_eq!(found, expected, "{endpoint}");
        };
        let seen = |path: &str, in_scratch| {
            Some(Spot::Seen(Location {
                path: path.into(),
                in_scratch,
            }))
        };
        let elsewhere = |path: Option<&str>| {
            Some(Spot::Elsewhere {
                host: "you",
                path: path.map(PathBuf::from),
            })
        };
        check("disk:a/b", seen("/scratch/data/a/b", true));
        check("near:a/b", seen("/twins/scratch/data/a/b", true));
        check("shared:x", seen("/gpfs/x", false));
        check("far:x", elsewhere(Some("/mnt/x")));
        check("away:x", elsewhere(None));
        check("null:", Some(Spot::Device(Path::new("/dev/null"))));
        check("zero:", Some(Spot::Device(Path::new("/dev/zero"))));
        check("nowhere:x", None);
    }
}
