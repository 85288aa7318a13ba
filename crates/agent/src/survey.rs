//! What an agent looks up before it says `ready`: places, tools, and how it can start them.

use venturi_plan::{Bytes, Ready, ReleaseMethod, Start};

use crate::barrier::Method;
use crate::places::Places;
use crate::program::Environment;
use crate::{dataset, facts, tools};

/// Looks the host over; takes no longer than [`tools::PATIENCE`] beside what file systems take to answer.
pub(crate) fn survey(start: &Start, environment: &Environment, method: Method) -> Ready {
    let places = Places::new(start);
    let roots: Vec<_> = start
        .header
        .places
        .keys()
        .filter_map(|name| Some((name, places.root(name)?)))
        .collect();
    let free_bytes = roots.iter().filter_map(|(name, root)| {
        let there = root.ancestors().find(|ancestor| ancestor.is_dir())?;
        Some((
            (*name).clone(),
            Bytes::new(dataset::free_bytes(there).ok()?),
        ))
    });
    Ready {
        free_bytes: free_bytes.collect(),
        missing: tools::missing(&start.header, environment),
        release: match method {
            Method::ExecStop => ReleaseMethod::ExecStop,
            Method::Pipe => ReleaseMethod::Pipe,
        },
        memory_bytes: facts::memory_bytes().map(Bytes::new),
        tools: tools::versions(&start.header, environment),
        places: roots
            .iter()
            .map(|(name, root)| ((*name).clone(), facts::place(root)))
            .collect(),
    }
}
