//! A shared resource whose classes share no other: one level, found without looking at the classes unless one of them meets its cap.
//!
//! The level is (C − what capped classes get) / (weight of the others). It holds while no cap lies between the old level and the new one, which
//! two bounds tell: the least cap of classes that have none yet, and the largest of those that have. When a bound is passed, all are looked at.

use super::super::flows::Flows;
use super::super::network::Network;
use super::Partial;
use super::lane::OWN;

/// A class while its resource is filled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    class: u32,
    /// Weight of all its flows.
    total: f64,
    /// Bytes/s of all its flows at its cap, of one, and what says so.
    flow: f64,
    cap: f64,
    bound: u32,
    /// Level of the cap.
    level: f64,
    capped: bool,
}

impl Partial {
    /// Solve a resource after the change of `class`, which has been taken out and is at most to get the given cap.
    pub(super) fn settle_isolated(
        &mut self,
        network: &Network,
        flows: &Flows,
        resource: u32,
        class: Option<(u32, f64, u32)>,
    ) {
        self.links[resource as usize].pressed = false;
        if !self.shift(flows, resource, class) {
            self.refill(network, flows, resource, class.map(|(class, ..)| class));
        }
    }

    /// Move the level, if no class meets its cap or leaves it by that.
    fn shift(&mut self, flows: &Flows, resource: u32, class: Option<(u32, f64, u32)>) -> bool {
        let link = &mut self.links[resource as usize];
        link.shifts += 1;
        if link.is_worn_by_shifts() || link.varies {
            return false;
        }
        let (mut given, mut weight, mut bound) = (link.given, link.weight, link.bound);
        let (mut least_cap, mut most_capped) = (link.least_cap, link.most_capped);
        let mut clock = resource;
        if let Some((class, cap, _)) = class {
            let lane = &self.lanes[class as usize];
            let (total, level) = (lane.total(), cap / lane.weight);
            if (link.capacity - given) / (weight + total) <= level {
                weight += total;
                bound += 1;
                least_cap = least_cap.min(level);
            } else {
                given += cap * f64::from(lane.solved);
                most_capped = most_capped.max(level);
                clock = OWN;
            }
        }
        if bound == 0 {
            return false;
        }
        let level = ((link.capacity - given) / weight).max(0.0);
        if level > least_cap || level < most_capped {
            return false;
        }
        link.catch_up(self.now);
        (link.given, link.weight, link.bound) = (given, weight, bound);
        (link.least_cap, link.most_capped) = (least_cap, most_capped);
        link.level = level;
        self.spoil(resource);
        if let Some((class, cap, bound)) = class {
            let limit = if clock == OWN { bound } else { resource };
            self.place(flows, class, clock, limit, cap);
        }
        true
    }

    /// Find the level with all classes looked at; `changed` has been taken out before.
    pub(super) fn refill(
        &mut self,
        network: &Network,
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
        (link.level, link.given, link.weight, link.bound, link.shifts) =
            level_of(&mut entries, link.capacity);
        link.heaviest = 0.0;
        (link.least_cap, link.most_capped) = (f64::INFINITY, f64::NEG_INFINITY);
        for entry in &entries {
            if entry.capped {
                link.most_capped = link.most_capped.max(entry.level);
            } else {
                link.least_cap = link.least_cap.min(entry.level);
            }
        }
        for entry in &entries {
            self.follow(flows, resource, entry, changed == Some(entry.class));
        }
        self.entries = entries;
        self.spoil(resource);
    }

    fn entry_of(&self, network: &Network, class: u32) -> Entry {
        let (cap, bound) = self.cap_of(network, class);
        let lane = &self.lanes[class as usize];
        Entry {
            class,
            total: lane.total(),
            flow: cap * f64::from(lane.solved),
            cap,
            bound,
            level: cap / lane.weight,
            capped: false,
        }
    }

    /// Let a class follow the resource, or its own clock at its cap.
    fn follow(&mut self, flows: &Flows, resource: u32, entry: &Entry, changed: bool) {
        let (clock, limit, rate) = if entry.capped {
            (OWN, entry.bound, entry.cap)
        } else {
            (resource, resource, 0.0)
        };
        let lane = &mut self.lanes[entry.class as usize];
        if lane.clock != clock || changed || (entry.capped && lane.rate != rate) {
            self.place(flows, entry.class, clock, limit, rate);
        } else {
            lane.bound = limit;
        }
    }
}

/// Level, bytes/s at caps, weight and number of the others, and no shifts since.
fn level_of(entries: &mut [Entry], capacity: f64) -> (f64, f64, f64, u32, u32) {
    // The level rises from one round to the next, and every round but the last caps a class.
    loop {
        let (mut given, mut weight, mut bound) = (0.0, 0.0, 0);
        for entry in entries.iter() {
            if entry.capped {
                given += entry.flow;
            } else {
                weight += entry.total;
                bound += 1;
            }
        }
        if bound == 0 {
            // Each was capped below a level at which all had fitted.
            return (f64::INFINITY, given, 0.0, 0, 0);
        }
        let level = ((capacity - given) / weight).max(0.0);
        let mut stopped = false;
        for entry in entries.iter_mut().filter(|entry| !entry.capped) {
            entry.capped = entry.level < level;
            stopped |= entry.capped;
        }
        if !stopped {
            return (level, given, weight, bound, 0);
        }
    }
}
