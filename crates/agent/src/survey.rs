//! What an agent looks up before it says `ready`: places, tools, and how it can start them.

use std::collections::BTreeMap;

use serde::Serialize;
use venturi_plan::{Bytes, Name, Ready, ReleaseMethod, Start};

use crate::barrier::Method;
use crate::program::Environment;
use crate::receiver::Places;
use crate::{dataset, facts, tools};

/// The record `ready`, with what goes beyond the plan's own type of it.
#[derive(Debug, Serialize)]
pub(crate) struct Survey {
    record: &'static str,
    #[serde(flatten)]
    ready: Ready,
    /// Tool → the first line of its `--version`.
    tools: BTreeMap<String, String>,
    /// Place of this host → its facts: `type`, `device`, `options`, `mount`, `free_bytes`, `path`.
    places: BTreeMap<Name, BTreeMap<String, String>>,
}

impl Survey {
    /// Looks the host over; asks every tool for its version, so it takes as long as the slowest of them.
    pub(crate) fn new(start: &Start, environment: &Environment, method: Method) -> Self {
        let places = Places {
            header: &start.header,
            host: &start.host,
            scratch: start.scratch.as_ref(),
        };
        let here = start
            .header
            .places
            .iter()
            .filter(|(_, place)| place.host == start.host);
        let roots: Vec<_> = here
            .filter_map(|(name, _)| Some((name, places.root(name)?)))
            .collect();
        let free_bytes = roots.iter().filter_map(|(name, root)| {
            let there = root.ancestors().find(|ancestor| ancestor.is_dir())?;
            Some((
                (*name).clone(),
                Bytes::new(dataset::free_bytes(there).ok()?),
            ))
        });
        let ready = Ready {
            free_bytes: free_bytes.collect(),
            missing: tools::missing(&start.header, environment),
            release: match method {
                Method::ExecStop => ReleaseMethod::ExecStop,
                Method::Pipe => ReleaseMethod::Pipe,
            },
            memory_bytes: Bytes::new(facts::memory_bytes()),
        };
        let places = roots
            .iter()
            .map(|(name, root)| ((*name).clone(), facts::place(root)))
            .collect();
        Self {
            record: "ready",
            ready,
            tools: tools::versions(&start.header, environment),
            places,
        }
    }
}
