//! Progressive filling of a region: all classes rise together until a cap or a full resource stops them.

use super::super::heap::OUTSIDE;
use super::super::lane::{CAP, Lane};
use super::super::{IncrementalSolver, MOSTLY_GONE, SolverNetwork};

/// State of a resource of a region while its classes rise.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Filling {
    pub resource: u32,
    pub capacity: f64,
    /// Rate of the classes that no longer rise and have other limits, in bytes/s.
    pub allocated: f64,
    /// Weight of the classes that rise or that it limits, the weight at the last sum, and the
    /// number of rising classes.
    pub weight: f64,
    pub summed: f64,
    pub rising: u32,
    /// Number of classes that it limits.
    pub bottleneck: u32,
    /// Infinite while it is not full.
    pub level: f64,
    /// Its classes in the region: a range of [`Fill::classes`].
    pub start: u32,
    pub end: u32,
}

impl Filling {
    fn level_if_full_now(&self) -> f64 {
        ((self.capacity - self.allocated) / self.weight).max(0.0)
    }

    /// Return whether the weight of the rising classes is partly rounding error.
    fn is_worn(&self) -> bool {
        self.rising > 0 && self.weight < self.summed * MOSTLY_GONE
    }
}

/// Scratch space of filling.
#[derive(Debug, Default)]
pub(super) struct Fill {
    /// State of each resource of a region, before and during the filling.
    pub empty: Vec<Filling>,
    pub now: Vec<Filling>,
    /// Classes of the resources.
    pub classes: Vec<u32>,
    /// Position of each resource in the region, or [`OUTSIDE`].
    pub positions: Vec<u32>,
    /// Rate and limit of each class, by position in the region.
    pub found: Vec<(f64, u32)>,
    /// Level and class of finite caps, lowest first.
    caps: Vec<(f64, u32)>,
    /// Heap of resources by a lower bound of their level. Levels only rise, so an old level is a
    /// bound, and few levels are computed.
    open: Vec<(f64, u32)>,
}

impl IncrementalSolver {
    /// Fill the classes of a region from level 0. The rates of other classes are already
    /// subtracted.
    pub(super) fn fill(&mut self, network: &SolverNetwork, classes: &[u32], fill: &mut Fill) {
        fill.found.clear();
        fill.found.resize(classes.len(), (f64::NAN, CAP));
        fill.now.clone_from(&fill.empty);
        fill.queue_all();
        self.list_caps(network, classes, fill);
        let (mut caps, mut left) = (0, classes.len());
        // Every round stops at least one class.
        while left > 0 {
            let full = fill.next_full();
            while caps < fill.caps.len() && self.lanes[fill.caps[caps].1 as usize].filled {
                caps += 1;
            }
            let level = full.map_or(f64::INFINITY, |(level, _)| level);
            match (fill.caps.get(caps), full) {
                // A cap divided by a tiny weight can overflow to infinity.
                (Some(&(cap, class)), _) if cap < level || full.is_none() => {
                    let (rate, bottleneck) = self.cap_of(network, class);
                    fill.stop(&mut self.lanes, network, class, rate, bottleneck);
                    left -= 1;
                }
                (_, Some((level, position))) => {
                    left -= fill.stop_all(&mut self.lanes, network, level, position);
                }
                _ => unreachable!("a class of a region has a cap, or a resource in it"),
            }
        }
    }

    fn list_caps(&mut self, network: &SolverNetwork, classes: &[u32], fill: &mut Fill) {
        fill.caps.clear();
        for &class in classes {
            let (cap, _) = self.learn_top(network, class);
            let lane = &mut self.lanes[class as usize];
            lane.filled = false;
            if cap < f64::INFINITY {
                fill.caps.push((cap / lane.weight, class));
            }
        }
        fill.caps
            .sort_unstable_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    }
}

impl Fill {
    /// Clear the state before a region grows.
    pub fn start(&mut self) {
        self.empty.clear();
        self.classes.clear();
    }

    fn queue_all(&mut self) {
        self.open.clear();
        self.open.extend(
            self.now
                .iter()
                .zip(0..)
                .map(|(filling, position)| (filling.level_if_full_now(), position)),
        );
        for at in (0..self.open.len() / 2).rev() {
            self.sink(at);
        }
    }

    /// Return the level and position of the resource that is full first.
    fn next_full(&mut self) -> Option<(f64, u32)> {
        // Every round removes a resource, or raises a bound to a value that holds until a class
        // stops.
        loop {
            let (floor, position) = *self.open.first()?;
            let filling = &self.now[position as usize];
            if filling.rising == 0 {
                self.open.swap_remove(0);
                self.sink(0);
                continue;
            }
            let level = filling.level_if_full_now();
            if level <= floor {
                return Some((level, position));
            }
            self.open[0].0 = level;
            self.sink(0);
        }
    }

    fn sink(&mut self, mut at: usize) {
        let Some(&entry) = self.open.get(at) else {
            return;
        };
        let mut child = 2 * at + 1;
        while child < self.open.len() {
            if child + 1 < self.open.len() && self.open[child + 1].0 < self.open[child].0 {
                child += 1;
            }
            if self.open[child].0 >= entry.0 {
                break;
            }
            self.open[at] = self.open[child];
            at = child;
            child = 2 * at + 1;
        }
        self.open[at] = entry;
    }

    /// Stop all rising classes on a full resource and return their number.
    fn stop_all(
        &mut self,
        lanes: &mut [Lane],
        network: &SolverNetwork,
        level: f64,
        position: u32,
    ) -> usize {
        let filling = &mut self.now[position as usize];
        filling.level = level;
        let (start, end, resource) = (filling.start, filling.end, filling.resource);
        let mut stopped = 0;
        for at in start..end {
            let class = self.classes[at as usize];
            let lane = &lanes[class as usize];
            if !lane.filled {
                let rate = lane.weight * level;
                self.stop(lanes, network, class, rate, resource);
                stopped += 1;
            }
        }
        stopped
    }

    fn stop(
        &mut self,
        lanes: &mut [Lane],
        network: &SolverNetwork,
        class: u32,
        rate: f64,
        bottleneck: u32,
    ) {
        let lane = &mut lanes[class as usize];
        lane.filled = true;
        self.found[lane.position as usize] = (rate, bottleneck);
        let (total, flow) = (lane.total(), rate * f64::from(lane.solved));
        let (route, mut worn) = (network.route_slice(lane.start, lane.end), false);
        for &resource in route {
            let position = self.positions[resource as usize];
            if position == OUTSIDE {
                continue;
            }
            let filling = &mut self.now[position as usize];
            filling.rising -= 1;
            if resource == bottleneck {
                filling.bottleneck += 1;
            } else {
                filling.allocated += flow;
                filling.weight -= total;
                worn |= filling.is_worn();
            }
        }
        if worn {
            self.sum_again(lanes, route);
        }
    }

    /// Recompute the weight of the rising classes on resources of `route` where it has become
    /// small. The class that has just stopped is already subtracted.
    fn sum_again(&mut self, lanes: &[Lane], route: &[u32]) {
        for &resource in route {
            let position = self.positions[resource as usize];
            if position == OUTSIDE || !self.now[position as usize].is_worn() {
                continue;
            }
            let filling = &mut self.now[position as usize];
            let classes = &self.classes[filling.start as usize..filling.end as usize];
            let lanes = classes.iter().map(|&class| &lanes[class as usize]);
            filling.weight = lanes.filter(|lane| !lane.filled).map(Lane::total).sum();
            filling.summed = filling.weight;
        }
    }
}
