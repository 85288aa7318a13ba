//! Levels move and everybody stays with who limits it: what most changes come to where resources are shared by many.
//!
//! From the resources of the changed class on, in the order of levels, each full one gets its new level from what lower ones leave it, and passes
//! the difference on to the other resources of the classes that it limits. Where nothing changes, nothing is passed on (Ros-Giralt et al.,
//! arXiv 2210.03534: rates depend on those of lower levels only). The outcome is right if it has the certificate of max-min fairness: no class
//! is above the level of a full resource on its way or above its cap, and no resource carries more than it gives. If it has not, somebody
//! changes sides, and a region is filled (`region`).

use std::hint::select_unpredictable;

use super::super::flows::Flows;
use super::super::network::Network;
use super::lane::{CAP, IDLE, OWN};
use super::{Change, FULL, Partial};

/// Levels that differ by less are one: equal resources make equal levels, but for rounding.
const TIE: f64 = 1.0 + 1e-14;

/// What classes with other limits get of a resource is summed anew after so many differences: each is rounded.
const DIFFERENCES: u32 = 32;

/// A resource in question.
#[derive(Debug, Clone, Copy, Default)]
struct Trial {
    mark: u64,
    /// Bytes/s of the classes that something else limits.
    given: f64,
    /// Infinite if nobody is limited.
    level: f64,
    done: bool,
}

/// Scratch of a trial.
#[derive(Debug, Default)]
pub(super) struct Keep {
    mark: u64,
    /// By resource.
    trials: Vec<Trial>,
    touched: Vec<u32>,
    /// Resources whose level is to be found, by their level before.
    open: Vec<(f64, u32)>,
}

/// What the changed class comes to.
#[derive(Debug, Clone, Copy)]
struct Fate {
    clock: u32,
    bound: u32,
    rate: f64,
    /// Weight of all its flows.
    total: f64,
}

impl Partial {
    /// Solve the change of a class, which has been taken out, if nobody else changes sides by it.
    pub(super) fn keep(&mut self, network: &Network, flows: &Flows, change: Change) -> bool {
        let mut keep = std::mem::take(&mut self.keep);
        keep.mark += 1;
        keep.touched.clear();
        keep.open.clear();
        keep.trials.resize(self.links.len(), Trial::default());
        let fate = self.fate(network, &mut keep, change);
        let kept = fate.is_some_and(|fate| {
            self.find_levels(network, &mut keep, change.class, fate)
                && self.is_certified(&keep, change.class, fate)
        });
        if let Some(fate) = fate.filter(|_| kept) {
            self.adopt(network, flows, &keep, change.class, fate);
        }
        self.keep = keep;
        kept
    }

    /// What limits the changed class, as far as the resources on its way can tell. Puts them in question.
    fn fate(&mut self, network: &Network, keep: &mut Keep, change: Change) -> Option<Fate> {
        let class = change.class;
        if self.lanes[class as usize].twice {
            return None;
        }
        let (clock, least) = self.limit_of(network, keep, change);
        let lane = &self.lanes[class as usize];
        let fate = |clock, bound, rate| {
            Some(Fate {
                clock,
                bound,
                rate,
                total: lane.total(),
            })
        };
        if lane.solved == 0 {
            return fate(IDLE, CAP, 0.0);
        }
        if lane.top <= least {
            let (cap, bound) = self.cap_of(network, class);
            for &resource in network.stretch(lane.begin, lane.end) {
                keep.trials[resource as usize].given += cap * f64::from(lane.solved);
            }
            return fate(OWN, bound, cap);
        }
        if self.links[clock as usize].bound == 0 {
            keep.open.push((least, clock));
        }
        fate(clock, clock, 0.0)
    }

    /// The resource that would limit the changed class, and the level that it would give; [`OWN`] if none is shared.
    fn limit_of(&mut self, network: &Network, keep: &mut Keep, change: Change) -> (u32, f64) {
        let lane = &self.lanes[change.class as usize];
        let total = lane.total();
        let (mut clock, mut least) = (OWN, f64::INFINITY);
        for &resource in network.stretch(lane.begin, lane.end) {
            if !self.links[resource as usize].is_shared() {
                continue;
            }
            self.question(keep, resource);
            let link = &self.links[resource as usize];
            let level = (link.capacity - link.given) / (link.weight + total);
            // It stays with what limited it, or is limited by what gives least.
            if resource == change.clock
                || (level < least && (clock == OWN || clock != change.clock))
            {
                (clock, least) = (resource, level);
            }
        }
        (clock, least)
    }

    /// A resource may come to another level.
    fn question(&mut self, keep: &mut Keep, resource: u32) {
        let trial = &mut keep.trials[resource as usize];
        if trial.mark == keep.mark {
            return;
        }
        if self.links[resource as usize].shifts > DIFFERENCES {
            self.sum_again(resource);
        }
        let link = &self.links[resource as usize];
        *trial = Trial {
            mark: keep.mark,
            given: link.given,
            level: link.level,
            done: false,
        };
        keep.touched.push(resource);
        if link.bound > 0 {
            keep.open.push((link.level, resource));
        }
    }

    /// New levels, lowest first. Whether they could be found in that order.
    fn find_levels(&mut self, network: &Network, keep: &mut Keep, class: u32, fate: Fate) -> bool {
        // Every round finds the level of one resource, and none is found twice.
        while let Some(resource) = keep.next() {
            let link = &self.links[resource as usize];
            let trial = &mut keep.trials[resource as usize];
            let coming = if fate.clock == resource {
                fate.total
            } else {
                0.0
            };
            // Differences of nothing may leave a trace below it.
            let level = (link.capacity - trial.given.max(0.0)) / (link.weight + coming);
            let before = link.level;
            (trial.level, trial.done) = (level, true);
            // A class whose flows have just ended is not in the heap, and waits for its turn.
            if !(level > 0.0 && level < f64::INFINITY)
                || link.heap.entries().len() != link.bound as usize
            {
                return false;
            }
            if fate.clock == resource
                && (level > self.lanes[class as usize].top
                    || !self.pass_on(network, keep, class, resource, fate.total * level))
            {
                return false;
            }
            if level == before {
                continue;
            }
            for at in 0..self.links[resource as usize].heap.entries().len() {
                let other = self.links[resource as usize].heap.entries()[at].1 / 2;
                let lane = &self.lanes[other as usize];
                let more = lane.total() * (level - before);
                if level > lane.top || !self.pass_on(network, keep, other, resource, more) {
                    return false;
                }
            }
        }
        true
    }

    /// A class takes so much more of all resources on its way but the one that limits it. Whether none of them is done already.
    fn pass_on(
        &mut self,
        network: &Network,
        keep: &mut Keep,
        class: u32,
        limit: u32,
        more: f64,
    ) -> bool {
        let lane = &self.lanes[class as usize];
        for &resource in network.stretch(lane.begin, lane.end) {
            if resource == limit || !self.links[resource as usize].is_shared() {
                continue;
            }
            self.question(keep, resource);
            let trial = &mut keep.trials[resource as usize];
            if trial.done {
                return false;
            }
            trial.given += more;
        }
        true
    }

    /// Whether nobody is above the level of a full resource on its way, and nothing carries more than it gives. Caps were looked at on the way.
    fn is_certified(&self, keep: &Keep, class: u32, fate: Fate) -> bool {
        let level_of = |class: u32| {
            let lane = &self.lanes[class as usize];
            match lane.clock {
                OWN => lane.rate / lane.weight,
                IDLE => f64::INFINITY,
                clock => {
                    let (trial, link) = (&keep.trials[clock as usize], &self.links[clock as usize]);
                    // As likely one as the other: guessing wrong would cost more than reading both.
                    select_unpredictable(trial.mark == keep.mark, trial.level, link.level)
                }
            }
        };
        let own_level = match fate.clock {
            OWN => fate.rate / self.lanes[class as usize].weight,
            IDLE => 0.0,
            clock => keep.trials[clock as usize].level,
        };
        keep.touched.iter().all(|&resource| {
            let trial = &keep.trials[resource as usize];
            let link = &self.links[resource as usize];
            if !trial.done {
                return trial.given <= link.capacity * FULL;
            }
            link.on.iter().all(|&(other, _)| {
                let level = if other == class {
                    own_level
                } else {
                    level_of(other)
                };
                level <= trial.level * TIE
            })
        })
    }

    fn adopt(&mut self, network: &Network, flows: &Flows, keep: &Keep, class: u32, fate: Fate) {
        for &resource in &keep.touched {
            let trial = &keep.trials[resource as usize];
            if self.links[resource as usize].level != trial.level {
                self.spoil(resource);
            }
            let link = &mut self.links[resource as usize];
            if link.level != trial.level {
                link.catch_up(self.now);
                link.level = trial.level;
            }
            if fate.clock == resource {
                link.weight += fate.total;
                link.bound += 1;
            }
            link.given = trial.given;
            link.shifts += 1;
            // What is known of caps is not kept while classes meet each other elsewhere.
            (link.least_cap, link.most_capped) = (f64::NEG_INFINITY, f64::INFINITY);
        }
        for &resource in self.way(network, class) {
            self.links[resource as usize].pressed = false;
        }
        if fate.clock != IDLE {
            self.place(flows, class, fate.clock, fate.bound, fate.rate);
        }
    }
}

impl Keep {
    /// The resource with the lowest level before, of those whose level is to be found.
    fn next(&mut self) -> Option<u32> {
        let (mut first, mut least) = (0, self.open.first()?.0);
        for (at, &(level, _)) in self.open.iter().enumerate() {
            if level < least {
                (first, least) = (at, level);
            }
        }
        Some(self.open.swap_remove(first).1)
    }
}
