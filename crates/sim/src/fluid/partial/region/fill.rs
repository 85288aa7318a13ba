//! Progressive filling of a region: all classes rise together until a cap or a full resource stops them.

use super::super::heap::OUTSIDE;
use super::super::lane::{CAP, Lane};
use super::super::{MOSTLY_GONE, Network, Partial};

/// A resource of a region: what the classes of the region find on it, and what they have left while they rise.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Filling {
    pub resource: u32,
    pub capacity: f64,
    /// Bytes/s of classes that do not rise any more and that others limit.
    pub given: f64,
    /// Weight of those that rise or that it limits, what it was when it was last summed, and how many rise.
    pub weight: f64,
    pub summed: f64,
    pub rising: u32,
    /// How many it limits.
    pub bound: u32,
    /// Infinite as long as it is not full.
    pub level: f64,
    /// Its classes in the region: a stretch of [`Fill::classes`].
    pub begin: u32,
    pub end: u32,
}

impl Filling {
    fn level_if_full_now(&self) -> f64 {
        ((self.capacity - self.given) / self.weight).max(0.0)
    }

    /// Whether the weight of those that rise is rounding in part.
    fn is_worn(&self) -> bool {
        self.rising > 0 && self.weight < self.summed * MOSTLY_GONE
    }
}

/// Scratch of filling.
#[derive(Debug, Default)]
pub(super) struct Fill {
    /// Of each resource of a region, before and while it is filled.
    pub empty: Vec<Filling>,
    pub now: Vec<Filling>,
    /// Classes of the resources.
    pub classes: Vec<u32>,
    /// By resource: its place in the region, or [`OUTSIDE`].
    pub places: Vec<u32>,
    /// By place of a class: its rate, and what limits it.
    pub found: Vec<(f64, u32)>,
    /// Level and class of finite caps, least first.
    caps: Vec<(f64, u32)>,
    /// Resources by a level below which each is not full: a heap. Levels only rise, so an old one is a bound, and few are computed.
    open: Vec<(f64, u32)>,
}

impl Partial {
    /// Fill the classes of a region from level 0, with what other classes have taken out.
    pub(super) fn fill(&mut self, network: &Network, classes: &[u32], fill: &mut Fill) {
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
                // A cap by a tiny weight may be a level beyond all numbers.
                (Some(&(cap, class)), _) if cap < level || full.is_none() => {
                    let (rate, bound) = self.cap_of(network, class);
                    fill.stop(&mut self.lanes, network, class, rate, bound);
                    left -= 1;
                }
                (_, Some((level, place))) => {
                    left -= fill.stop_all(&mut self.lanes, network, level, place);
                }
                _ => unreachable!("a class of a region has a cap, or a resource in it"),
            }
        }
    }

    fn list_caps(&mut self, network: &Network, classes: &[u32], fill: &mut Fill) {
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
    /// Nothing has grown yet.
    pub fn begin(&mut self) {
        self.empty.clear();
        self.classes.clear();
    }

    fn queue_all(&mut self) {
        self.open.clear();
        self.open.extend(
            self.now
                .iter()
                .zip(0..)
                .map(|(filling, place)| (filling.level_if_full_now(), place)),
        );
        for at in (0..self.open.len() / 2).rev() {
            self.sink(at);
        }
    }

    /// The resource that is full first: its level and place.
    fn next_full(&mut self) -> Option<(f64, u32)> {
        // Every round closes a resource, or raises a bound to where it stays until a class stops.
        loop {
            let (floor, place) = *self.open.first()?;
            let filling = &self.now[place as usize];
            if filling.rising == 0 {
                self.open.swap_remove(0);
                self.sink(0);
                continue;
            }
            let level = filling.level_if_full_now();
            if level <= floor {
                return Some((level, place));
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

    /// A resource is full: all classes on it that rise have what they get. How many there were.
    fn stop_all(&mut self, lanes: &mut [Lane], network: &Network, level: f64, place: u32) -> usize {
        let filling = &mut self.now[place as usize];
        filling.level = level;
        let (begin, end, resource) = (filling.begin, filling.end, filling.resource);
        let mut stopped = 0;
        for at in begin..end {
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

    fn stop(&mut self, lanes: &mut [Lane], network: &Network, class: u32, rate: f64, bound: u32) {
        let lane = &mut lanes[class as usize];
        lane.filled = true;
        self.found[lane.place as usize] = (rate, bound);
        let (total, flow) = (lane.total(), rate * f64::from(lane.solved));
        let (way, mut worn) = (network.stretch(lane.begin, lane.end), false);
        for &resource in way {
            let place = self.places[resource as usize];
            if place == OUTSIDE {
                continue;
            }
            let filling = &mut self.now[place as usize];
            filling.rising -= 1;
            if resource == bound {
                filling.bound += 1;
            } else {
                filling.given += flow;
                filling.weight -= total;
                worn |= filling.is_worn();
            }
        }
        if worn {
            self.sum_again(lanes, way);
        }
    }

    /// Weigh the classes that still rise on these resources, where that has become little. A class that has just stopped has gone from all.
    fn sum_again(&mut self, lanes: &[Lane], way: &[u32]) {
        for &resource in way {
            let place = self.places[resource as usize];
            if place == OUTSIDE || !self.now[place as usize].is_worn() {
                continue;
            }
            let filling = &mut self.now[place as usize];
            let classes = &self.classes[filling.begin as usize..filling.end as usize];
            let lanes = classes.iter().map(|&class| &lanes[class as usize]);
            filling.weight = lanes.filter(|lane| !lane.filled).map(Lane::total).sum();
            filling.summed = filling.weight;
        }
    }
}
