//! A class and its flows, in the order in which they end.
//!
//! All flows of a class have one rate, so a flow ends when the class has served each of its flows so many bytes: its *tag*, which never
//! changes while rates do (virtual time, as in fair queueing: Parekh and Gallager, IEEE/ACM ToN 1(3), 1993).

mod queue;

use super::super::FlowId;
use super::super::flows::Flows;
use queue::{Queue, Tagged};

/// Clock of a class without flows.
pub(super) const IDLE: u32 = u32::MAX;
/// Clock of a class with a rate of its own.
pub(super) const OWN: u32 = u32::MAX - 1;
/// What limits a class that no resource limits.
pub(super) const CAP: u32 = u32::MAX;

/// Tags count from 0 again after so many flows, and so many for each live one: doubles are finest there.
const JOINS_A_FLOW: u32 = 8;
const JOINS: u32 = 64;

/// A class as the solver sees it.
///
/// What a region reads of many classes stands first, in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Lane {
    pub weight: f64,
    /// Level at which it meets its cap or what it has for itself alone, as [`Partial::cap_of`](super::Partial::cap_of) tells.
    pub top: f64,
    /// Bytes/s of each flow while the clock is its own.
    pub rate: f64,
    /// Scratch of a solution.
    pub mark: u64,
    pub place: u32,
    /// [`IDLE`], [`OWN`], or the resource whose clock it follows.
    pub clock: u32,
    /// Flows in the rates of now.
    pub solved: u32,
    /// First and one past the last of its resources.
    pub begin: u32,
    pub end: u32,
    /// How often its way meets a resource that another class is on too.
    pub shared: u32,
    /// [`CAP`] or the resource that limits it.
    pub bound: u32,
    /// Scratch of a solution.
    pub filled: bool,
    pub dirty: bool,
    /// Whether its cap may have changed.
    pub loose: bool,
    /// Whether a resource is on its way twice.
    pub twice: bool,
    pub cap: f64,
    /// Bytes served to each flow …
    pub served: f64,
    /// … when the clock told this: seconds of its own clock, or level · seconds of a resource's.
    pub since: f64,
    queue: Queue,
    /// Live flows.
    pub live: u32,
    joins: u32,
}

impl Lane {
    /// Without flows.
    pub fn new(weight: f64, cap: f64, (begin, end): (u32, u32), twice: bool) -> Self {
        Self {
            weight,
            top: cap / weight,
            cap,
            rate: 0.0,
            served: 0.0,
            since: 0.0,
            clock: IDLE,
            bound: CAP,
            solved: 0,
            live: 0,
            shared: 0,
            dirty: false,
            loose: false,
            mark: 0,
            filled: false,
            place: 0,
            begin,
            end,
            twice,
            queue: Queue::default(),
            joins: 0,
        }
    }

    /// Weight of all flows in the rates of now.
    pub fn total(&self) -> f64 {
        f64::from(self.solved) * self.weight
    }

    /// Bring `served` up to what the clock tells now.
    pub fn catch_up(&mut self, clock: f64) {
        let pace = if self.clock == OWN {
            self.rate
        } else {
            self.weight
        };
        self.served += pace * (clock - self.since);
        self.since = clock;
    }

    /// What the clock tells when the next flow ends; needs to be caught up only as far as rounding goes.
    pub fn next_end(&mut self, flows: &Flows) -> f64 {
        match self.first(flows) {
            Some((tag, _)) => self.end_of(tag),
            None => f64::INFINITY,
        }
    }

    /// What the clock tells when a flow with this tag ends.
    pub fn end_of(&self, tag: f64) -> f64 {
        let pace = if self.clock == OWN {
            self.rate
        } else {
            self.weight
        };
        if pace > 0.0 {
            // Rounding may leave a trace below nothing.
            self.since + ((tag - self.served) / pace).max(0.0)
        } else {
            f64::INFINITY
        }
    }

    /// A flow begins. The lane has caught up.
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

    /// The next flow to end, by tag and place. Flows that were stopped are forgotten on the way.
    #[inline]
    pub fn first(&mut self, flows: &Flows) -> Option<(f64, FlowId)> {
        loop {
            let Tagged { tag, serial, slot } = self.queue.first()?;
            // Nobody was stopped: no need to look the flow up.
            if self.queue.len() == self.live as usize || flows.holds(slot, serial) {
                return Some((tag, FlowId { slot, serial }));
            }
            self.queue.pop();
        }
    }

    /// Of many flows: what the caller calls the one that ends next, unless it is stopped before.
    pub fn coming(&self, flows: &Flows) -> Option<u64> {
        let (first, next) = self.queue.coming()?;
        flows.fetch(next.slot);
        Some(flows.at(first.slot).token)
    }

    /// Take the next flow to end out.
    pub fn pop(&mut self) {
        self.queue.pop();
        self.live -= 1;
    }

    /// Tags count from 0 again, and entries of flows that were stopped go.
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
