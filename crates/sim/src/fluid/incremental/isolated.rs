//! Shared resource whose classes share no other: one level, found without a scan of the classes
//! unless one of them reaches its cap.
//!
//! The level is (capacity − rates of capped classes) / (weight of the others). This holds while no
//! cap is between the old level and the new one. Two bounds detect this: the lowest cap of the
//! classes below their caps, and the highest cap of the others. If a bound is crossed, all classes
//! are scanned.

use super::super::flows::Flows;
use super::super::network::SolverNetwork;
use super::IncrementalSolver;
use super::lane::OWN;

/// State of a class while its resource is filled.
#[derive(Debug, Clone, Copy)]
pub(super) struct IsolatedEntry {
    class: u32,
    /// Weight of all its flows.
    total: f64,
    /// Rate of all its flows at its cap, rate of one flow, both in bytes/s, and the limit that
    /// applies.
    flow: f64,
    cap: f64,
    bottleneck: u32,
    /// Level of the cap.
    level: f64,
    capped: bool,
}

impl IncrementalSolver {
    /// Solve a resource after the change of `class`, which was withdrawn and gets at most the given
    /// cap.
    pub(super) fn resolve_isolated(
        &mut self,
        network: &SolverNetwork,
        flows: &Flows,
        resource: u32,
        class: Option<(u32, f64, u32)>,
    ) {
        self.links[resource as usize].pressed = false;
        if !self.shift(flows, resource, class) {
            self.refill(network, flows, resource, class.map(|(class, ..)| class));
        }
    }

    /// Shift the level, if no class reaches or leaves its cap by the shift. Return whether this is
    /// possible.
    fn shift(&mut self, flows: &Flows, resource: u32, class: Option<(u32, f64, u32)>) -> bool {
        let link = &mut self.links[resource as usize];
        link.shifts += 1;
        if link.is_worn_by_shifts() || link.varies {
            return false;
        }
        let (mut allocated, mut weight, mut bottleneck) =
            (link.allocated, link.weight, link.bottleneck);
        let (mut min_cap, mut max_capped) = (link.min_cap, link.max_capped);
        let mut clock = resource;
        if let Some((class, cap, _)) = class {
            let lane = &self.lanes[class as usize];
            let (total, level) = (lane.total(), cap / lane.weight);
            if (link.capacity - allocated) / (weight + total) <= level {
                weight += total;
                bottleneck += 1;
                min_cap = min_cap.min(level);
            } else {
                allocated += cap * f64::from(lane.solved);
                max_capped = max_capped.max(level);
                clock = OWN;
            }
        }
        if bottleneck == 0 {
            return false;
        }
        let level = ((link.capacity - allocated) / weight).max(0.0);
        if level > min_cap || level < max_capped {
            return false;
        }
        link.catch_up(self.now);
        (link.allocated, link.weight, link.bottleneck) = (allocated, weight, bottleneck);
        (link.min_cap, link.max_capped) = (min_cap, max_capped);
        link.level = level;
        self.spoil(resource);
        if let Some((class, cap, bottleneck)) = class {
            let limit = if clock == OWN { bottleneck } else { resource };
            self.position(flows, class, clock, limit, cap);
        }
        true
    }

    /// Compute the level from all classes; `changed` was withdrawn before.
    pub(super) fn refill(
        &mut self,
        network: &SolverNetwork,
        flows: &Flows,
        resource: u32,
        changed: Option<u32>,
    ) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        let on = self.links[resource as usize].on.iter();
        entries.extend(on.map(|&(class, _)| self.entry_of(network, class)));
        self.work.classes += entries.len() as u64;
        let link = &mut self.links[resource as usize];
        link.catch_up(self.now);
        (
            link.level,
            link.allocated,
            link.weight,
            link.bottleneck,
            link.shifts,
        ) = level_of(&mut entries, link.capacity);
        link.heaviest = 0.0;
        (link.min_cap, link.max_capped) = (f64::INFINITY, f64::NEG_INFINITY);
        for entry in &entries {
            if entry.capped {
                link.max_capped = link.max_capped.max(entry.level);
            } else {
                link.min_cap = link.min_cap.min(entry.level);
            }
        }
        for entry in &entries {
            self.follow(flows, resource, entry, changed == Some(entry.class));
        }
        self.entries = entries;
        self.spoil(resource);
    }

    fn entry_of(&self, network: &SolverNetwork, class: u32) -> IsolatedEntry {
        let (cap, bottleneck) = self.cap_of(network, class);
        let lane = &self.lanes[class as usize];
        IsolatedEntry {
            class,
            total: lane.total(),
            flow: cap * f64::from(lane.solved),
            cap,
            bottleneck,
            level: cap / lane.weight,
            capped: false,
        }
    }

    /// Attach a class to the clock of the resource, or to its own clock if it is capped.
    fn follow(&mut self, flows: &Flows, resource: u32, entry: &IsolatedEntry, changed: bool) {
        let (clock, limit, rate) = if entry.capped {
            (OWN, entry.bottleneck, entry.cap)
        } else {
            (resource, resource, 0.0)
        };
        let lane = &mut self.lanes[entry.class as usize];
        if lane.clock != clock || changed || (entry.capped && lane.rate != rate) {
            self.position(flows, entry.class, clock, limit, rate);
        } else {
            lane.bottleneck = limit;
        }
    }
}

/// Return the level, the rate of capped classes in bytes/s, weight and number of the others, and 0
/// shifts.
fn level_of(entries: &mut [IsolatedEntry], capacity: f64) -> (f64, f64, f64, u32, u32) {
    // The level rises from one round to the next, and every round but the last caps a class.
    loop {
        let (mut allocated, mut weight, mut bottleneck) = (0.0, 0.0, 0);
        for entry in entries.iter() {
            if entry.capped {
                allocated += entry.flow;
            } else {
                weight += entry.total;
                bottleneck += 1;
            }
        }
        if bottleneck == 0 {
            // Every class was capped below a level that all could have.
            return (f64::INFINITY, allocated, 0.0, 0, 0);
        }
        let level = ((capacity - allocated) / weight).max(0.0);
        let mut stopped = false;
        for entry in entries.iter_mut().filter(|entry| !entry.capped) {
            entry.capped = entry.level < level;
            stopped |= entry.capped;
        }
        if !stopped {
            return (level, allocated, weight, bottleneck, 0);
        }
    }
}
