//! Transfers that are all alike, so that it is enough to know how many there are.

use venturi_plan::{Cache, Name, OrDraw, Step, TransferStep, Via};

use super::World;

/// The mover that stands for many clients.
pub(crate) const LOAD: &str = "http-load";

impl World {
    /// Whether one transfer of this step is as good as any other.
    pub(crate) fn is_uniform(&self, step: &TransferStep) -> bool {
        let OrDraw::Fixed(source) = &step.source else {
            return false;
        };
        self.go_alike(&step.call, [&step.source_via, &step.destination_via])
            && !self.memories.learns_of(source.place())
    }

    /// Whether what a transfer does depends on none before it and on no number of its own, and nothing breaks it, as long as no two move the
    /// same file.
    ///
    /// Whatever is added to the world that makes one transfer unlike the next has to say so here.
    pub(crate) fn go_alike(&self, call: &Name, vias: [&Option<Via>; 2]) -> bool {
        let Some(known) = self.header.calls.get(call) else {
            return false;
        };
        let is_there = known
            .requires
            .iter()
            .all(|tool| !self.assumptions.missing_tools.contains(tool));
        let mut services = vias.into_iter().flatten().map(Via::service);
        let is_open = services.all(|name| {
            self.slots_of(name).is_none()
                && !self.servers.are_told_apart(name)
                && self.doors.turn(name, 0).is_none()
        });
        is_there
            && is_open
            && self.never_breaks()
            && known.mover != LOAD
            && !known.options.contains_key("time_s")
            && self.proxies.of(call).is_none()
    }

    /// Whether all links are up all the time.
    fn never_breaks(&self) -> bool {
        let changes = self.header.network.iter().flat_map(|it| &it.changes);
        self.links.iter().all(super::LinkInfo::is_up)
            && changes
                .into_iter()
                .all(|change| change.set.up != Some(false))
    }
}

/// Whether these steps say what is to lie in memory, and what is not: then it changes on the way.
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
