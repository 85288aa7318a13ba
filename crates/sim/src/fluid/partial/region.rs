//! Filling again what a change can reach, and only from where on it can.
//!
//! Below some level θ the old and the new filling are the same: classes at lower levels keep their rates. For a class that leaves, θ is its
//! old level (a resource that was full before that cannot have been on its way). For one that comes, it is the level at which the first resource
//! of its way would be full if all others kept min(old level, θ). From the resources of the changed classes, the region grows over classes at θ
//! or above to the other resources that limit somebody; those that are not full are watched, and join only when the new rates fill them.
//!
//! Equal capacities make equal levels, and a θ too high by a unit in the last place would keep a class at its rate that has to be faster: the
//! comparison leaves [`BELOW`] of room.

use super::super::flows::Flows;
use super::super::network::Network;
use super::lane::{CAP, IDLE, OWN};
use super::{FULL, Partial};

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
    /// Level and class of finite caps, least first.
    caps: Vec<(f64, u32)>,
    /// By place in `lanes`: new rate and limit.
    found: Vec<(f64, u32)>,
}

/// What `mark` of a resource says besides the number of the solution.
const WATCHED: u64 = 1;
const INSIDE: u64 = 2;
const MARKS: u64 = 4;

impl Partial {
    /// Solve all `changes` and `pressed` resources together.
    pub(super) fn fill_region(&mut self, network: &Network, flows: &Flows) {
        self.work.regions += 1;
        let mut region = std::mem::take(&mut self.region);
        region.mark += MARKS;
        region.links.clear();
        region.lanes.clear();
        region.watched.clear();
        let theta = self.first_difference(network, &mut region);
        for at in 0..self.changes.len() {
            let class = self.changes[at].class;
            if self.lanes[class as usize].solved > 0 {
                self.include(network, &mut region, class);
            }
        }
        let mut grown = 0;
        // Every round takes at least one resource in.
        loop {
            grown = self.grow_region(network, &mut region, theta * BELOW, grown);
            self.fill(network, &mut region);
            if !self.overflows(network, &mut region) {
                break;
            }
        }
        self.apply(flows, &mut region);
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
                self.enclose(region, resource);
            }
        }
        for at in 0..self.changes.len() {
            let change = self.changes[at];
            theta = theta.min(change.level);
            if change.level < f64::INFINITY && self.lanes[change.class as usize].solved > 0 {
                let (cap, _) = self.cap_of(network, change.class);
                theta = theta.min(cap / self.lanes[change.class as usize].weight);
            }
            for &resource in network.way(change.class) {
                let link = &mut self.links[resource as usize];
                link.pressed |= network.resources[resource as usize].depends_on_users();
                if link.is_shared() {
                    self.enclose(region, resource);
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

    /// A resource belongs to the region.
    fn enclose(&mut self, region: &mut Region, resource: u32) {
        let link = &mut self.links[resource as usize];
        if link.mark != region.mark + INSIDE {
            link.mark = region.mark + INSIDE;
            region.links.push(resource);
        }
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
        for &resource in network.way(class) {
            let link = &mut self.links[resource as usize];
            if !link.is_shared() || link.mark == region.mark + INSIDE {
                continue;
            }
            if link.bound > 0 {
                self.enclose(region, resource);
            } else if link.mark != region.mark + WATCHED {
                link.mark = region.mark + WATCHED;
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
            self.work.classes += self.links[resource as usize].on.len() as u64;
            for at in 0..self.links[resource as usize].on.len() {
                let (class, _) = self.links[resource as usize].on[at];
                if self.level_of(class) >= least {
                    self.include(network, region, class);
                }
            }
        }
        next
    }

    /// Fill the region from level 0, with what the other classes have taken out.
    fn fill(&mut self, network: &Network, region: &mut Region) {
        region.found.clear();
        region.found.resize(region.lanes.len(), (f64::NAN, CAP));
        region.caps.clear();
        for &class in &region.lanes {
            let (cap, _) = self.cap_of(network, class);
            let lane = &mut self.lanes[class as usize];
            lane.filled = false;
            if cap < f64::INFINITY {
                region.caps.push((cap / lane.weight, class));
            }
        }
        region
            .caps
            .sort_unstable_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        for &resource in &region.links {
            self.empty(region.mark, resource);
        }
        let mut open = std::mem::take(&mut self.open);
        open.clear();
        open.extend(region.links.iter().map(|&link| (0.0, link)));
        let mut caps = 0;
        let mut left = region.lanes.len();
        // Every round fills at least one class.
        while left > 0 {
            let full = self.next_full(&mut open);
            while caps < region.caps.len() && self.lanes[region.caps[caps].1 as usize].filled {
                caps += 1;
            }
            let level = full.map_or(f64::INFINITY, |(level, _)| level);
            match (region.caps.get(caps), full) {
                (Some(&(cap, class)), _) if cap < level => {
                    let (rate, bound) = self.cap_of(network, class);
                    self.stop_rising(network, region, class, rate, bound);
                    left -= 1;
                }
                (_, Some((level, resource))) => {
                    for at in 0..self.links[resource as usize].on.len() {
                        let (class, _) = self.links[resource as usize].on[at];
                        let lane = &self.lanes[class as usize];
                        if lane.mark == region.mark && !lane.filled {
                            let rate = lane.weight * level;
                            self.stop_rising(network, region, class, rate, resource);
                            left -= 1;
                        }
                    }
                    self.links[resource as usize].next_level = level;
                }
                _ => unreachable!("a class of a region has a cap, or a resource in it"),
            }
        }
        self.open = open;
    }

    /// What a resource of the region has left for the classes of it.
    fn empty(&mut self, mark: u64, resource: u32) {
        let (mut given, mut weight, mut rising) = (0.0, 0.0, 0);
        let link = &self.links[resource as usize];
        for &(class, _) in &link.on {
            let lane = &self.lanes[class as usize];
            if lane.mark == mark {
                weight += lane.total();
                rising += 1;
            } else {
                given += self.flow_of(class);
            }
        }
        let link = &mut self.links[resource as usize];
        (link.next_given, link.next_weight, link.rising) = (given, weight, rising);
        link.next_level = f64::INFINITY;
        link.next_bound = 0;
    }

    /// The resource that is full first, of `open` with a level below which each is not. Levels only rise while a region is filled, so an
    /// old one is a bound, and few are computed.
    fn next_full(&mut self, open: &mut Vec<(f64, u32)>) -> Option<(f64, u32)> {
        // Every round closes a resource, finds one, or raises a bound to where it stays until a class stops.
        loop {
            let (mut first, mut least) = (0, open.first()?.0);
            for (at, &(floor, _)) in open.iter().enumerate() {
                if floor < least {
                    (first, least) = (at, floor);
                }
            }
            let resource = open[first].1;
            let link = &self.links[resource as usize];
            if link.rising == 0 {
                open.swap_remove(first);
                continue;
            }
            let level = ((link.capacity - link.next_given) / link.next_weight).max(0.0);
            if level <= least {
                return Some((level, resource));
            }
            open[first].0 = level;
        }
    }

    fn stop_rising(
        &mut self,
        network: &Network,
        region: &mut Region,
        class: u32,
        rate: f64,
        bound: u32,
    ) {
        let lane = &mut self.lanes[class as usize];
        lane.filled = true;
        region.found[lane.place as usize] = (rate, bound);
        let (total, flow) = (lane.total(), rate * f64::from(lane.solved));
        for &resource in network.way(class) {
            let link = &mut self.links[resource as usize];
            if resource == bound {
                link.next_bound += 1;
            } else {
                link.next_given += flow;
                link.next_weight -= total;
            }
            link.rising = link.rising.wrapping_sub(1);
        }
    }

    /// Whether the new rates fill a resource that was only watched: it belongs to the region then.
    fn overflows(&mut self, network: &Network, region: &mut Region) -> bool {
        for &resource in &region.watched {
            self.links[resource as usize].change = 0.0;
        }
        for (&class, &(rate, _)) in region.lanes.iter().zip(&region.found) {
            let more = rate * f64::from(self.lanes[class as usize].solved) - self.flow_of(class);
            for &resource in network.way(class) {
                self.links[resource as usize].change += more;
            }
        }
        let before = region.links.len();
        let mut watched = std::mem::take(&mut region.watched);
        watched.retain(|&resource| {
            let link = &self.links[resource as usize];
            let fits = link.given + link.change <= link.capacity * FULL;
            if !fits {
                self.enclose(region, resource);
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
        for &resource in &region.links {
            let link = &mut self.links[resource as usize];
            link.catch_up(self.now);
            link.level = link.next_level;
            self.stale.push(resource);
        }
        for (&class, &(rate, bound)) in region.lanes.iter().zip(&region.found) {
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
        for &resource in &region.links {
            let link = &mut self.links[resource as usize];
            (link.given, link.weight, link.bound) =
                (link.next_given, link.next_weight, link.next_bound);
            (link.least_cap, link.most_capped) = (f64::NEG_INFINITY, f64::INFINITY);
            if link.bound == 0 {
                (link.weight, link.clock, link.joins) = (0.0, 0.0, 0);
            }
        }
    }
}
