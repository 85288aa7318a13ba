//! Survey of the host before `ready`: storages, tools, and the method to start them.

use venturi_plan::{Bytes, Ready, ReleaseMethod, Start};

use crate::barrier::BarrierMethod;
use crate::program::Environment;
use crate::storages::Storages;
use crate::{dataset, properties, tools};

/// Survey the host; takes at most [`tools::TIMEOUT`] plus the response time of file systems.
pub(crate) fn survey(start: &Start, environment: &Environment, method: BarrierMethod) -> Ready {
    let storages = Storages::new(start);
    let roots: Vec<_> = start
        .header
        .storages
        .keys()
        .filter_map(|name| Some((name, storages.root(name)?)))
        .filter(|(_, root)| root.host.is_none())
        .map(|(name, root)| (name, root.path))
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
            BarrierMethod::ExecStop => ReleaseMethod::ExecStop,
            BarrierMethod::Pipe => ReleaseMethod::Pipe,
        },
        memory_bytes: properties::memory_bytes().map(Bytes::new),
        tools: tools::versions(&start.header, environment),
        storages: roots
            .iter()
            .map(|(name, root)| ((*name).clone(), properties::storage(root)))
            .collect(),
    }
}
