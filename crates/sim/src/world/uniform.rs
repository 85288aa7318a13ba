//! Interchangeable transfers: only their number matters.

use venturi_plan::{Cache, Name, OrDraw, Step, TransferStep, Via};

use super::World;

/// Mover that simulates many clients.
pub(crate) const LOAD: &str = "http-load";

impl World {
    /// Return whether all transfers of this step are interchangeable.
    pub(crate) fn is_uniform(&self, step: &TransferStep) -> bool {
        let OrDraw::Fixed(source) = &step.source else {
            return false;
        };
        self.are_equivalent(&step.call, [&step.source_via, &step.destination_via])
            && !self.memories.learns_of(source.storage())
    }

    /// Return whether transfers are independent of earlier ones and of their own numbers, and never
    /// fail, provided that no two move the same file.
    ///
    /// Extend this function for every new property of the world that makes transfers differ.
    pub(crate) fn are_equivalent(&self, call: &Name, vias: [&Option<Via>; 2]) -> bool {
        let Some(known) = self.header.calls.get(call) else {
            return false;
        };
        let exists = known
            .requires
            .iter()
            .all(|tool| !self.assumptions.missing_tools.contains(tool));
        let mut services = vias.into_iter().flatten().map(Via::service);
        let is_open = services.all(|name| {
            self.slots_of(name).is_none()
                && !self.servers.are_distinguished(name)
                && self.service_ports.turn(name, 0).is_none()
        });
        exists
            && is_open
            && self.is_reliable()
            && known.mover != LOAD
            && !known.options.contains_key("time_s")
            && self.proxies.of(call).is_none()
    }

    /// Return whether all links are up all the time.
    fn is_reliable(&self) -> bool {
        let changes = self.header.network.iter().flat_map(|it| &it.changes);
        self.links.iter().all(super::LinkInfo::is_up)
            && changes
                .into_iter()
                .all(|change| change.set.up != Some(false))
    }
}

/// Return whether these steps change the contents of memory during the run.
pub(crate) fn changes_caches(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::Prepare(prepare) => prepare.cache == Cache::Warm,
        Step::DropCaches(_) => true,
        Step::Trial(trial) => changes_caches(&trial.steps),
        Step::Repeat(repeat) => changes_caches(&repeat.steps),
        Step::Arrivals(arrivals) => changes_caches(&arrivals.steps),
        Step::Parallel(parallel) => parallel.children.iter().any(|it| changes_caches(it)),
        _ => false,
    })
}
