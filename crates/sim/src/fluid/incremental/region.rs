//! Fills again the part of the network that a change can reach, from the lowest affected level.
//!
//! Below some level θ, the old and the new filling are the same: classes at lower levels keep their
//! rates. For a class that leaves, θ is its old level, because no resource on its route was full
//! before that level. For a class that arrives, θ is the level at which the first resource on its
//! route would be full if all others kept min(old level, θ). The region starts at the resources of
//! the changed classes. It grows over classes at θ or above to the other resources that limit a
//! class. Resources that are not full are watched, and join only if the new rates fill them.
//!
//! Equal capacities have equal levels. If θ were too high by a unit in the last place, a class that
//! must become faster would keep its rate. The comparison therefore has the margin [`BELOW`].

mod fill;

use super::super::flows::Flows;
use super::super::network::SolverNetwork;
use super::heap::OUTSIDE;
use super::lane::{CAP, IDLE, OWN};
use super::link::SolverLink;
use super::{FULL, IncrementalSolver};
use fill::{Fill, Filling};

/// Classes at θ times this factor or above are filled again.
const BELOW: f64 = 1.0 - 1e-9;

/// Maximum number of rounds that approach the level of a new class from below; the result of each
/// round is safe.
const ROUNDS: usize = 8;

/// Scratch space: the classes and resources that are filled again.
#[derive(Debug, Default)]
pub(super) struct Region {
    mark: u64,
    links: Vec<u32>,
    lanes: Vec<u32>,
    watched: Vec<u32>,
    fill: Fill,
}

impl IncrementalSolver {
    /// Solve all `changes` and `pressed` resources together.
    pub(super) fn fill_region(&mut self, network: &SolverNetwork, flows: &Flows) {
        self.work.regions += 1;
        let mut region = std::mem::take(&mut self.region);
        region.start(self.links.len());
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
        // Every round adds at least one resource, or lowers θ to the level of one more enclosed
        // resource.
        loop {
            grown = self.grow_region(network, &mut region, theta * BELOW, grown);
            // A resource is filled with all classes that it limits; otherwise it would lose them.
            // By max-min fairness, no resource of the region is below the classes that led to it,
            // except for rounding.
            let lowest = region.lowest_level(&self.links);
            if lowest < theta * BELOW {
                (theta, grown) = (lowest, 0);
                region.fill.start();
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

    /// Return the lowest level that differs between old and new filling, and enclose the resources
    /// with the first difference.
    fn first_difference(&mut self, network: &SolverNetwork, region: &mut Region) -> f64 {
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
            for &resource in self.route(network, change.class) {
                let link = &mut self.links[resource as usize];
                link.pressed |= link.varies;
                if link.is_shared() {
                    region.enclose(resource);
                }
            }
        }
        for at in 0..region.links.len() {
            let resource = region.links[at];
            // θ exceeds this level by rounding at most: a resource is filled with all classes that
            // it limits.
            theta = theta.min(self.links[resource as usize].level);
            if std::mem::take(&mut self.links[resource as usize].pressed) {
                theta = theta.min(self.level_if_unchanged(network, resource));
            }
        }
        theta
    }

    /// Return a level below which `resource` is not full, if classes keep min(old level, level) and
    /// changed classes rise to their caps.
    fn level_if_unchanged(&mut self, network: &SolverNetwork, resource: u32) -> f64 {
        let link = &self.links[resource as usize];
        self.work.classes += link.on.len() as u64;
        let mut lowest = 0.0;
        for _ in 0..ROUNDS {
            let (mut allocated, mut weight) = (0.0, 0.0);
            for &(class, _) in &link.on {
                let lane = &self.lanes[class as usize];
                let rate = if lane.clock == IDLE {
                    self.cap_of(network, class).0
                } else {
                    self.rate_of(class)
                };
                if rate < lane.weight * lowest {
                    allocated += rate * f64::from(lane.solved);
                } else {
                    weight += lane.total();
                }
            }
            if weight == 0.0 {
                // All classes keep their rates. If these use the capacity, rounding has stopped the
                // last class.
                return if allocated < link.capacity * BELOW {
                    f64::INFINITY
                } else {
                    lowest
                };
            }
            let level = ((link.capacity - allocated) / weight).max(0.0);
            if level <= lowest {
                break;
            }
            lowest = level;
        }
        lowest
    }

    /// Add a class to the region, with the resources on its route that limit a class.
    fn include(&mut self, network: &SolverNetwork, region: &mut Region, class: u32) {
        let lane = &mut self.lanes[class as usize];
        if lane.mark == region.mark {
            return;
        }
        lane.mark = region.mark;
        lane.position = region.lanes.len() as u32;
        region.lanes.push(class);
        for &resource in network.route_slice(lane.start, lane.end) {
            let link = &mut self.links[resource as usize];
            if !link.is_shared() || region.encloses(resource) {
                continue;
            }
            if link.bottleneck > 0 {
                region.enclose(resource);
            } else if link.mark != region.mark {
                link.mark = region.mark;
                region.watched.push(resource);
            }
        }
    }

    /// Add the classes at `lowest` or above on the resources from index `start`, and the resources
    /// that they lead to. Return the number of resources processed so far.
    fn grow_region(
        &mut self,
        network: &SolverNetwork,
        region: &mut Region,
        lowest: f64,
        start: usize,
    ) -> usize {
        let mut next = start;
        while let Some(&resource) = region.links.get(next) {
            next += 1;
            let on = std::mem::take(&mut self.links[resource as usize].on);
            self.work.classes += on.len() as u64;
            let start = region.fill.classes.len() as u32;
            let (mut allocated, mut weight) = (0.0, 0.0);
            for &(class, _) in &on {
                // A class at `lowest` or above is added with the first of its resources.
                let level = self.level_of(class);
                if level >= lowest {
                    self.include(network, region, class);
                    region.fill.classes.push(class);
                    weight += self.lanes[class as usize].total();
                } else {
                    allocated += self.flow_of(class);
                }
            }
            let link = &mut self.links[resource as usize];
            link.on = on;
            let end = region.fill.classes.len() as u32;
            region.fill.empty.push(Filling {
                resource,
                capacity: link.capacity,
                allocated,
                weight,
                summed: weight,
                rising: end - start,
                bottleneck: 0,
                level: f64::INFINITY,
                start,
                end,
            });
        }
        next
    }

    /// Enclose the watched resources that the new rates fill. Return whether there are any.
    fn overflows(&mut self, network: &SolverNetwork, region: &mut Region) -> bool {
        if region.watched.is_empty() {
            return false;
        }
        for &resource in &region.watched {
            self.links[resource as usize].change = 0.0;
        }
        for (&class, &(rate, _)) in region.lanes.iter().zip(&region.fill.found) {
            let lane = &self.lanes[class as usize];
            let more = rate * f64::from(lane.solved) - self.flow_of(class);
            for &resource in network.route_slice(lane.start, lane.end) {
                self.links[resource as usize].change += more;
            }
        }
        let before = region.links.len();
        let mut watched = std::mem::take(&mut region.watched);
        watched.retain(|&resource| {
            let link = &self.links[resource as usize];
            let fits = link.allocated + link.change <= link.capacity * FULL;
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
            link.allocated += link.change;
            link.max_capped = f64::INFINITY;
        }
        for filling in &region.fill.now {
            let link = &mut self.links[filling.resource as usize];
            if link.level != filling.level {
                link.catch_up(self.now);
                link.level = filling.level;
                self.spoil(filling.resource);
            }
        }
        for (&class, &(rate, bottleneck)) in region.lanes.iter().zip(&region.fill.found) {
            let shared = bottleneck != CAP && self.links[bottleneck as usize].is_shared();
            let lane = &self.lanes[class as usize];
            if shared {
                if lane.clock != bottleneck {
                    self.position(flows, class, bottleneck, bottleneck, 0.0);
                }
                self.lanes[class as usize].bottleneck = bottleneck;
            } else if lane.clock != OWN || lane.rate != rate {
                self.position(flows, class, OWN, bottleneck, rate);
            } else {
                self.lanes[class as usize].bottleneck = bottleneck;
            }
        }
        for filling in &region.fill.now {
            let link = &mut self.links[filling.resource as usize];
            (link.allocated, link.weight, link.bottleneck) =
                (filling.allocated, filling.weight, filling.bottleneck);
            // Until the next sum, the rounding error is relative to the value that was summed.
            link.heaviest = filling.summed;
            (link.min_cap, link.max_capped) = (f64::NEG_INFINITY, f64::INFINITY);
            if link.bottleneck == 0 {
                (link.weight, link.heaviest, link.clock, link.joins) = (0.0, 0.0, 0.0, 0);
            }
        }
    }
}

impl Region {
    fn start(&mut self, resources: usize) {
        self.mark += 1;
        self.links.clear();
        self.lanes.clear();
        self.watched.clear();
        self.fill.start();
        self.fill.positions.resize(resources, OUTSIDE);
    }

    /// Return the lowest level of the enclosed resources that limit a class.
    fn lowest_level(&self, links: &[SolverLink]) -> f64 {
        let levels = self.links.iter().map(|&at| links[at as usize].level);
        levels.fold(f64::INFINITY, f64::min)
    }

    fn encloses(&self, resource: u32) -> bool {
        self.fill.positions[resource as usize] != OUTSIDE
    }

    /// Add a resource to the region.
    fn enclose(&mut self, resource: u32) {
        if !self.encloses(resource) {
            self.fill.positions[resource as usize] = self.links.len() as u32;
            self.links.push(resource);
        }
    }

    fn end(&mut self) {
        for &resource in &self.links {
            self.fill.positions[resource as usize] = OUTSIDE;
        }
    }
}
