//! Filling again what a change can reach, and only from where on it can.
//!
//! Below some level θ the old and the new filling are the same: classes at lower levels keep their rates. For a class that leaves, θ is its
//! old level (a resource that was full before that cannot have been on its way). For one that comes, it is the level at which the first resource
//! of its way would be full if all others kept min(old level, θ). From the resources of the changed classes, the region grows over classes at θ
//! or above to the other resources that limit somebody; those that are not full are watched, and join only when the new rates fill them.
//!
//! Equal capacities make equal levels, and a θ too high by a unit in the last place would keep a class at its rate that has to be faster: the
//! comparison leaves [`BELOW`] of room.

mod fill;

use super::super::flows::Flows;
use super::super::network::Network;
use super::heap::OUTSIDE;
use super::lane::{CAP, IDLE, OWN};
use super::link::Link;
use super::{FULL, Partial};
use fill::{Fill, Filling};

/// A class at θ times this is filled again.
const BELOW: f64 = 1.0 - 1e-9;

/// Rounds in which the level of a new class is approached from below; any of them is safe.
const ROUNDS: usize = 8;

/// What is filled again; scratch.
#[derive(Debug, Default)]
pub(super) struct Region {
    mark: u64,
    links: Vec<u32>,
    lanes: Vec<u32>,
    watched: Vec<u32>,
    fill: Fill,
}

impl Partial {
    /// Solve all `changes` and `pressed` resources together.
    pub(super) fn fill_region(&mut self, network: &Network, flows: &Flows) {
        self.work.regions += 1;
        let mut region = std::mem::take(&mut self.region);
        region.begin(self.links.len());
        let mut theta = self.first_difference(network, &mut region);
        if std::mem::take(&mut self.whole) {
            theta = 0.0;
        }
        for at in 0..self.changes.len() {
            let class = self.changes[at].class;
            if self.lanes[class as usize].solved > 0 {
                self.include(network, &mut region, class);
            }
        }
        let mut grown = 0;
        // Every round takes at least one resource in, or goes down to the level of one more that is in.
        loop {
            grown = self.grow_region(network, &mut region, theta * BELOW, grown);
            // Whom a resource limits is filled again with it, or the resource would forget them. By max-min fairness none of the region is below
            // the classes that led to it, but sums are rounded.
            let lowest = region.lowest_level(&self.links);
            if lowest < theta * BELOW {
                (theta, grown) = (lowest, 0);
                region.fill.begin();
                continue;
            }
            self.fill(network, &region.lanes, &mut region.fill);
            if !self.overflows(network, &mut region) {
                break;
            }
        }
        self.apply(flows, &mut region);
        region.end();
        self.region = region;
    }

    /// The lowest level at which old and new filling differ; the resources where they begin to are the first of the region.
    fn first_difference(&mut self, network: &Network, region: &mut Region) -> f64 {
        let mut theta = f64::INFINITY;
        for at in 0..self.pressed.len() {
            let resource = self.pressed[at];
            let link = &mut self.links[resource as usize];
            link.pressed = true;
            if link.is_shared() {
                region.enclose(resource);
            }
        }
        for at in 0..self.changes.len() {
            let change = self.changes[at];
            theta = theta.min(change.level);
            if change.level < f64::INFINITY && self.lanes[change.class as usize].solved > 0 {
                let (cap, _) = self.cap_of(network, change.class);
                theta = theta.min(cap / self.lanes[change.class as usize].weight);
            }
            for &resource in self.way(network, change.class) {
                let link = &mut self.links[resource as usize];
                link.pressed |= link.varies;
                if link.is_shared() {
                    region.enclose(resource);
                }
            }
        }
        for at in 0..region.links.len() {
            let resource = region.links[at];
            // Above its level by rounding at most: whom a resource limits is filled again with it.
            theta = theta.min(self.links[resource as usize].level);
            if std::mem::take(&mut self.links[resource as usize].pressed) {
                theta = theta.min(self.level_if_kept(network, resource));
            }
        }
        theta
    }

    /// A level that `resource` does not fill up below, if classes keep min(old level, level) and changed ones rise to their caps.
    fn level_if_kept(&mut self, network: &Network, resource: u32) -> f64 {
        let link = &self.links[resource as usize];
        self.work.classes += link.on.len() as u64;
        let mut least = 0.0;
        for _ in 0..ROUNDS {
            let (mut given, mut weight) = (0.0, 0.0);
            for &(class, _) in &link.on {
                let lane = &self.lanes[class as usize];
                let rate = if lane.clock == IDLE {
                    self.cap_of(network, class).0
                } else {
                    self.rate_of(class)
                };
                if rate < lane.weight * least {
                    given += rate * f64::from(lane.solved);
                } else {
                    weight += lane.total();
                }
            }
            if weight == 0.0 {
                // All keep what they have; if that is all there is, rounding has stopped the last of them.
                return if given < link.capacity * BELOW {
                    f64::INFINITY
                } else {
                    least
                };
            }
            let level = ((link.capacity - given) / weight).max(0.0);
            if level <= least {
                break;
            }
            least = level;
        }
        least
    }

    /// A class belongs to the region, and with it the resources of its way that limit somebody.
    fn include(&mut self, network: &Network, region: &mut Region, class: u32) {
        let lane = &mut self.lanes[class as usize];
        if lane.mark == region.mark {
            return;
        }
        lane.mark = region.mark;
        lane.place = region.lanes.len() as u32;
        region.lanes.push(class);
        for &resource in network.stretch(lane.begin, lane.end) {
            let link = &mut self.links[resource as usize];
            if !link.is_shared() || region.encloses(resource) {
                continue;
            }
            if link.bound > 0 {
                region.enclose(resource);
            } else if link.mark != region.mark {
                link.mark = region.mark;
                region.watched.push(resource);
            }
        }
    }

    /// Take in the classes at `least` or above on the resources from the `begin`th on, and what follows from that.
    fn grow_region(
        &mut self,
        network: &Network,
        region: &mut Region,
        least: f64,
        begin: usize,
    ) -> usize {
        let mut next = begin;
        while let Some(&resource) = region.links.get(next) {
            next += 1;
            let on = std::mem::take(&mut self.links[resource as usize].on);
            self.work.classes += on.len() as u64;
            let begin = region.fill.classes.len() as u32;
            let (mut given, mut weight) = (0.0, 0.0);
            for &(class, _) in &on {
                // A class at `least` or above that crosses a resource is taken in when the first of its resources is looked at.
                let level = self.level_of(class);
                if level >= least {
                    self.include(network, region, class);
                    region.fill.classes.push(class);
                    weight += self.lanes[class as usize].total();
                } else {
                    given += self.flow_of(class);
                }
            }
            let link = &mut self.links[resource as usize];
            link.on = on;
            let end = region.fill.classes.len() as u32;
            region.fill.empty.push(Filling {
                resource,
                capacity: link.capacity,
                given,
                weight,
                summed: weight,
                rising: end - begin,
                bound: 0,
                level: f64::INFINITY,
                begin,
                end,
            });
        }
        next
    }

    /// Whether the new rates fill a resource that was only watched: it belongs to the region then.
    fn overflows(&mut self, network: &Network, region: &mut Region) -> bool {
        if region.watched.is_empty() {
            return false;
        }
        for &resource in &region.watched {
            self.links[resource as usize].change = 0.0;
        }
        for (&class, &(rate, _)) in region.lanes.iter().zip(&region.fill.found) {
            let lane = &self.lanes[class as usize];
            let more = rate * f64::from(lane.solved) - self.flow_of(class);
            for &resource in network.stretch(lane.begin, lane.end) {
                self.links[resource as usize].change += more;
            }
        }
        let before = region.links.len();
        let mut watched = std::mem::take(&mut region.watched);
        watched.retain(|&resource| {
            let link = &self.links[resource as usize];
            let fits = link.given + link.change <= link.capacity * FULL;
            if !fits {
                region.enclose(resource);
            }
            fits
        });
        region.watched = watched;
        region.links.len() > before
    }

    fn apply(&mut self, flows: &Flows, region: &mut Region) {
        for &resource in &region.watched {
            let link = &mut self.links[resource as usize];
            link.given += link.change;
            link.most_capped = f64::INFINITY;
        }
        for filling in &region.fill.now {
            let link = &mut self.links[filling.resource as usize];
            if link.level != filling.level {
                link.catch_up(self.now);
                link.level = filling.level;
                self.spoil(filling.resource);
            }
        }
        for (&class, &(rate, bound)) in region.lanes.iter().zip(&region.fill.found) {
            let shared = bound != CAP && self.links[bound as usize].is_shared();
            let lane = &self.lanes[class as usize];
            if shared {
                if lane.clock != bound {
                    self.place(flows, class, bound, bound, 0.0);
                }
                self.lanes[class as usize].bound = bound;
            } else if lane.clock != OWN || lane.rate != rate {
                self.place(flows, class, OWN, bound, rate);
            } else {
                self.lanes[class as usize].bound = bound;
            }
        }
        for filling in &region.fill.now {
            let link = &mut self.links[filling.resource as usize];
            (link.given, link.weight, link.bound) = (filling.given, filling.weight, filling.bound);
            // What was summed is what its rounding is of, until it is summed anew.
            link.heaviest = filling.summed;
            (link.least_cap, link.most_capped) = (f64::NEG_INFINITY, f64::INFINITY);
            if link.bound == 0 {
                (link.weight, link.heaviest, link.clock, link.joins) = (0.0, 0.0, 0.0, 0);
            }
        }
    }
}

impl Region {
    fn begin(&mut self, resources: usize) {
        self.mark += 1;
        self.links.clear();
        self.lanes.clear();
        self.watched.clear();
        self.fill.begin();
        self.fill.places.resize(resources, OUTSIDE);
    }

    /// Of the resources that limit somebody.
    fn lowest_level(&self, links: &[Link]) -> f64 {
        let levels = self.links.iter().map(|&at| links[at as usize].level);
        levels.fold(f64::INFINITY, f64::min)
    }

    fn encloses(&self, resource: u32) -> bool {
        self.fill.places[resource as usize] != OUTSIDE
    }

    /// A resource belongs to the region.
    fn enclose(&mut self, resource: u32) {
        if !self.encloses(resource) {
            self.fill.places[resource as usize] = self.links.len() as u32;
            self.links.push(resource);
        }
    }

    fn end(&mut self) {
        for &resource in &self.links {
            self.fill.places[resource as usize] = OUTSIDE;
        }
    }
}
