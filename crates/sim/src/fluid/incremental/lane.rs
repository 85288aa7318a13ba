//! Class and its flows, in the order of their ends.
//!
//! All flows of a class have the same rate. A flow ends when the class has served a certain number
//! of bytes to each of its flows. This number is the *tag* of the flow. Tags never change, although
//! rates do (virtual time, as in fair queueing: Parekh and Gallager, IEEE/ACM ToN 1(3), 1993).

mod queue;

use super::super::FlowId;
use super::super::flows::Flows;
use queue::{LaneQueue, Tagged};

/// Clock of a class without flows.
pub(super) const IDLE: u32 = u32::MAX;
/// Clock of a class with its own rate.
pub(super) const OWN: u32 = u32::MAX - 1;
/// Limit of a class without a limiting resource.
pub(super) const CAP: u32 = u32::MAX;

/// Number of added flows, per live flow and fixed, before tags restart from 0, where doubles are
/// most precise.
const JOINS_A_FLOW: u32 = 8;
const JOINS: u32 = 64;

/// Solver state of a class.
///
/// The first cache line has the fields that a region reads of many classes.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Lane {
    pub weight: f64,
    /// Level of its cap, or of the limit of its unshared resources, from
    /// [`IncrementalSolver::cap_of`](super::IncrementalSolver::cap_of).
    pub top: f64,
    /// Bytes/s of each flow while the clock is its own.
    pub rate: f64,
    /// Scratch space of a solution.
    pub mark: u64,
    pub position: u32,
    /// [`IDLE`], [`OWN`], or the resource whose clock it follows.
    pub clock: u32,
    /// Number of flows in the current solution.
    pub solved: u32,
    /// First resource of its route, and one past the last.
    pub start: u32,
    pub end: u32,
    /// Number of positions on its route whose resource another class uses too.
    pub shared: u32,
    /// [`CAP`] or the resource that limits it.
    pub bottleneck: u32,
    /// Scratch space of a solution.
    pub filled: bool,
    pub dirty: bool,
    /// Whether its cap may have changed.
    pub loose: bool,
    /// Whether its route has a resource twice.
    pub twice: bool,
    pub cap: f64,
    /// Bytes served to each flow at the clock reading `since`.
    pub served: f64,
    /// Clock reading: seconds for its own clock, or level · seconds for the clock of a resource.
    pub since: f64,
    queue: LaneQueue,
    /// Number of live flows.
    pub live: u32,
    joins: u32,
}

impl Lane {
    /// Create a class without flows.
    pub fn new(weight: f64, cap: f64, (start, end): (u32, u32), twice: bool) -> Self {
        Self {
            weight,
            top: cap / weight,
            cap,
            rate: 0.0,
            served: 0.0,
            since: 0.0,
            clock: IDLE,
            bottleneck: CAP,
            solved: 0,
            live: 0,
            shared: 0,
            dirty: false,
            loose: false,
            mark: 0,
            filled: false,
            position: 0,
            start,
            end,
            twice,
            queue: LaneQueue::default(),
            joins: 0,
        }
    }

    /// Return the weight of all flows in the current solution.
    pub fn total(&self) -> f64 {
        f64::from(self.solved) * self.weight
    }

    /// Update `served` to the clock reading `clock`.
    pub fn catch_up(&mut self, clock: f64) {
        let pace = if self.clock == OWN {
            self.rate
        } else {
            self.weight
        };
        self.served += pace * (clock - self.since);
        self.since = clock;
    }

    /// Return the clock reading at the end of the next flow. Catching up first only improves the
    /// rounding.
    pub fn next_end(&mut self, flows: &Flows) -> f64 {
        match self.first(flows) {
            Some((tag, _)) => self.end_of(tag),
            None => f64::INFINITY,
        }
    }

    /// Return the clock reading at the end of a flow with this tag.
    pub fn end_of(&self, tag: f64) -> f64 {
        let pace = if self.clock == OWN {
            self.rate
        } else {
            self.weight
        };
        if pace > 0.0 {
            // Rounding can make the difference slightly negative.
            self.since + ((tag - self.served) / pace).max(0.0)
        } else {
            f64::INFINITY
        }
    }

    /// Add a flow. The lane must have caught up.
    pub fn push(&mut self, flows: &mut Flows, slot: u32, bytes: f64) {
        self.joins += 1;
        if self.live == 0 || self.joins > JOINS + JOINS_A_FLOW * self.live {
            self.count_again(flows);
        }
        self.live += 1;
        let flow = flows.at_mut(slot);
        flow.mark = self.served + bytes;
        self.queue.push(Tagged {
            tag: flow.mark,
            serial: flow.serial,
            slot,
        });
    }

    /// Return the tag and identifier of the next flow to end. Drop entries of stopped flows before
    /// it.
    #[inline]
    pub fn first(&mut self, flows: &Flows) -> Option<(f64, FlowId)> {
        loop {
            let Tagged { tag, serial, slot } = self.queue.first()?;
            // No flow was stopped, so no lookup is needed.
            if self.queue.len() == self.live as usize || flows.holds(slot, serial) {
                return Some((tag, FlowId { slot, serial }));
            }
            self.queue.pop();
        }
    }

    /// Return the token of the next flow to end, if there are many flows, and prefetch a later
    /// flow. The flow can still be stopped before its end.
    pub fn coming(&self, flows: &Flows) -> Option<u64> {
        let (first, next) = self.queue.coming()?;
        flows.fetch(next.slot);
        Some(flows.at(first.slot).token)
    }

    /// Remove the next flow to end.
    pub fn pop(&mut self) {
        self.queue.pop();
        self.live -= 1;
    }

    /// Restart tags from 0 and drop entries of stopped flows.
    fn count_again(&mut self, flows: &mut Flows) {
        self.joins = 0;
        let served = std::mem::take(&mut self.served);
        self.queue.count_from(served, |entry| {
            let holds = flows.holds(entry.slot, entry.serial);
            if holds {
                flows.at_mut(entry.slot).mark = entry.tag;
            }
            holds
        });
    }
}
