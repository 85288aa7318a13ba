//! Local update: levels change, and every class keeps its limit. Solves most changes of resources
//! that many classes share.
//!
//! The update starts at the resources of the changed class and proceeds in the order of levels.
//! Each full resource gets its new level from the capacity that lower levels leave. It passes the
//! difference on to the other resources of the classes that it limits. A resource without a change
//! passes nothing on, because rates depend only on lower levels (Ros-Giralt et al., arXiv
//! 2210.03534). The result is correct if it has the certificate of max-min fairness: no class is
//! above its cap or above the level of a full resource on its route, and no resource exceeds its
//! capacity. Without the certificate, some class has a new limit, and a region is filled
//! (`region`).

use std::hint::select_unpredictable;

use super::super::flows::Flows;
use super::super::network::SolverNetwork;
use super::lane::{CAP, IDLE, OWN};
use super::{Change, FULL, IncrementalSolver};

/// Levels that differ by less count as equal. Equal resources have equal levels, except for
/// rounding.
const TIE: f64 = 1.0 + 1e-14;

/// Maximum number of updates between two sums of the rates of classes with other limits, because
/// each update is rounded.
const DIFFERENCES: u32 = 32;

/// Tentative state of a resource.
#[derive(Debug, Clone, Copy, Default)]
struct Trial {
    mark: u64,
    /// Rate of the classes with other limits, in bytes/s.
    allocated: f64,
    /// Infinite if the resource limits no class.
    level: f64,
    done: bool,
}

/// Scratch space of an update.
#[derive(Debug, Default)]
pub(super) struct LocalUpdate {
    mark: u64,
    /// State of each resource.
    trials: Vec<Trial>,
    touched: Vec<u32>,
    /// Resources whose level is not found yet, with their previous level.
    open: Vec<(f64, u32)>,
}

/// New state of the changed class.
#[derive(Debug, Clone, Copy)]
struct ClassOutcome {
    clock: u32,
    bottleneck: u32,
    rate: f64,
    /// Weight of all its flows.
    total: f64,
}

impl IncrementalSolver {
    /// Solve the change of a class that was withdrawn, if all other classes keep their limits.
    /// Return whether they do.
    pub(super) fn local_update(
        &mut self,
        network: &SolverNetwork,
        flows: &Flows,
        change: Change,
    ) -> bool {
        let mut local_update = std::mem::take(&mut self.local_update);
        local_update.mark += 1;
        local_update.touched.clear();
        local_update.open.clear();
        local_update
            .trials
            .resize(self.links.len(), Trial::default());
        let outcome = self.outcome(network, &mut local_update, change);
        let kept = outcome.is_some_and(|outcome| {
            self.find_levels(network, &mut local_update, change.class, outcome)
                && self.is_certified(&local_update, change.class, outcome)
        });
        if let Some(outcome) = outcome.filter(|_| kept) {
            self.adopt(network, flows, &local_update, change.class, outcome);
        }
        self.local_update = local_update;
        kept
    }

    /// Return the limit of the changed class, as determined by the resources on its route, and
    /// examine these resources.
    fn outcome(
        &mut self,
        network: &SolverNetwork,
        local_update: &mut LocalUpdate,
        change: Change,
    ) -> Option<ClassOutcome> {
        let class = change.class;
        if self.lanes[class as usize].twice {
            return None;
        }
        let (clock, lowest) = self.limit_of(network, local_update, change);
        let lane = &self.lanes[class as usize];
        let outcome = |clock, bottleneck, rate| {
            Some(ClassOutcome {
                clock,
                bottleneck,
                rate,
                total: lane.total(),
            })
        };
        if lane.solved == 0 {
            return outcome(IDLE, CAP, 0.0);
        }
        if lane.top <= lowest {
            let (cap, bottleneck) = self.cap_of(network, class);
            for &resource in network.route_slice(lane.start, lane.end) {
                local_update.trials[resource as usize].allocated += cap * f64::from(lane.solved);
            }
            return outcome(OWN, bottleneck, cap);
        }
        if self.links[clock as usize].bottleneck == 0 {
            local_update.open.push((lowest, clock));
        }
        outcome(clock, clock, 0.0)
    }

    /// Return the resource that would limit the changed class, and its level; [`OWN`] if no
    /// resource is shared.
    fn limit_of(
        &mut self,
        network: &SolverNetwork,
        local_update: &mut LocalUpdate,
        change: Change,
    ) -> (u32, f64) {
        let lane = &self.lanes[change.class as usize];
        let total = lane.total();
        let (mut clock, mut lowest) = (OWN, f64::INFINITY);
        for &resource in network.route_slice(lane.start, lane.end) {
            if !self.links[resource as usize].is_shared() {
                continue;
            }
            self.examine(local_update, resource);
            let link = &self.links[resource as usize];
            let level = (link.capacity - link.allocated) / (link.weight + total);
            // Keep the previous limit. Without one, take the resource with the lowest level.
            if resource == change.clock
                || (level < lowest && (clock == OWN || clock != change.clock))
            {
                (clock, lowest) = (resource, level);
            }
        }
        (clock, lowest)
    }

    /// Add a resource whose level may change.
    fn examine(&mut self, local_update: &mut LocalUpdate, resource: u32) {
        let trial = &mut local_update.trials[resource as usize];
        if trial.mark == local_update.mark {
            return;
        }
        if self.links[resource as usize].shifts > DIFFERENCES {
            self.sum_again(resource);
        }
        let link = &self.links[resource as usize];
        *trial = Trial {
            mark: local_update.mark,
            allocated: link.allocated,
            level: link.level,
            done: false,
        };
        local_update.touched.push(resource);
        if link.bottleneck > 0 {
            local_update.open.push((link.level, resource));
        }
    }

    /// Find the new levels, lowest first. Return false if a class changes its limit, or if a level
    /// that was found changes again.
    fn find_levels(
        &mut self,
        network: &SolverNetwork,
        local_update: &mut LocalUpdate,
        class: u32,
        outcome: ClassOutcome,
    ) -> bool {
        // Every round finds the level of one resource, each at most once.
        while let Some(resource) = local_update.next() {
            let link = &self.links[resource as usize];
            let trial = &mut local_update.trials[resource as usize];
            let coming = if outcome.clock == resource {
                outcome.total
            } else {
                0.0
            };
            // Rounding can make a sum of 0 slightly negative.
            let level = (link.capacity - trial.allocated.max(0.0)) / (link.weight + coming);
            let before = link.level;
            (trial.level, trial.done) = (level, true);
            // A class whose flows have just ended is not in the heap; its change is solved later.
            if !(level > 0.0 && level < f64::INFINITY)
                || link.heap.entries().len() != link.bottleneck as usize
            {
                return false;
            }
            if outcome.clock == resource
                && (level > self.lanes[class as usize].top
                    || !self.pass_on(
                        network,
                        local_update,
                        class,
                        resource,
                        outcome.total * level,
                    ))
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
                if level > lane.top || !self.pass_on(network, local_update, other, resource, more) {
                    return false;
                }
            }
        }
        true
    }

    /// Add `more` to the load of the resources on the route of a class, except its limit. Return
    /// false if the level of one of them was already found.
    fn pass_on(
        &mut self,
        network: &SolverNetwork,
        local_update: &mut LocalUpdate,
        class: u32,
        limit: u32,
        more: f64,
    ) -> bool {
        let lane = &self.lanes[class as usize];
        for &resource in network.route_slice(lane.start, lane.end) {
            if resource == limit || !self.links[resource as usize].is_shared() {
                continue;
            }
            self.examine(local_update, resource);
            let trial = &mut local_update.trials[resource as usize];
            if trial.done {
                return false;
            }
            trial.allocated += more;
        }
        true
    }

    /// Return whether no class is above the level of a full resource on its route, and no resource
    /// exceeds its capacity. Caps were checked before.
    fn is_certified(&self, local_update: &LocalUpdate, class: u32, outcome: ClassOutcome) -> bool {
        let level_of = |class: u32| {
            let lane = &self.lanes[class as usize];
            match lane.clock {
                OWN => lane.rate / lane.weight,
                IDLE => f64::INFINITY,
                clock => {
                    let (trial, link) = (
                        &local_update.trials[clock as usize],
                        &self.links[clock as usize],
                    );
                    // Both cases are equally likely: a wrong prediction would cost more than
                    // reading both.
                    select_unpredictable(trial.mark == local_update.mark, trial.level, link.level)
                }
            }
        };
        let own_level = match outcome.clock {
            OWN => outcome.rate / self.lanes[class as usize].weight,
            IDLE => 0.0,
            clock => local_update.trials[clock as usize].level,
        };
        local_update.touched.iter().all(|&resource| {
            let trial = &local_update.trials[resource as usize];
            let link = &self.links[resource as usize];
            if !trial.done {
                return trial.allocated <= link.capacity * FULL;
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

    fn adopt(
        &mut self,
        network: &SolverNetwork,
        flows: &Flows,
        local_update: &LocalUpdate,
        class: u32,
        outcome: ClassOutcome,
    ) {
        for &resource in &local_update.touched {
            let trial = &local_update.trials[resource as usize];
            if self.links[resource as usize].level != trial.level {
                self.spoil(resource);
            }
            let link = &mut self.links[resource as usize];
            if link.level != trial.level {
                link.catch_up(self.now);
                link.level = trial.level;
            }
            if outcome.clock == resource {
                link.weight += outcome.total;
                link.bottleneck += 1;
            }
            link.allocated = trial.allocated;
            link.shifts += 1;
            // The bounds on caps are not maintained while classes share other resources.
            (link.min_cap, link.max_capped) = (f64::NEG_INFINITY, f64::INFINITY);
        }
        for &resource in self.route(network, class) {
            self.links[resource as usize].pressed = false;
        }
        if outcome.clock != IDLE {
            self.position(
                flows,
                class,
                outcome.clock,
                outcome.bottleneck,
                outcome.rate,
            );
        }
    }
}

impl LocalUpdate {
    /// Remove and return the open resource with the lowest previous level.
    fn next(&mut self) -> Option<u32> {
        let (mut first, mut lowest) = (0, self.open.first()?.0);
        for (at, &(level, _)) in self.open.iter().enumerate() {
            if level < lowest {
                (first, lowest) = (at, level);
            }
        }
        Some(self.open.swap_remove(first).1)
    }
}
