//! A class and its flows, in the order in which they end.
//!
//! All flows of a class have one rate, so a flow ends when the class has served each of its flows so many bytes: its *tag*, which never
//! changes while rates do (virtual time, as in fair queueing: Parekh and Gallager, IEEE/ACM ToN 1(3), 1993).

use super::super::flows::{Flows, started_before};

/// Clock of a class without flows.
pub(super) const IDLE: u32 = u32::MAX;
/// Clock of a class with a rate of its own.
pub(super) const OWN: u32 = u32::MAX - 1;
/// What limits a class that no resource limits.
pub(super) const CAP: u32 = u32::MAX;

/// Tags count from 0 again after so many flows, and so many for each live one: doubles are finest there.
const JOINS_A_FLOW: u32 = 8;
const JOINS: u32 = 64;

/// A flow by the work at which it ends.
#[derive(Debug, Clone, Copy)]
struct Tagged {
    tag: f64,
    serial: u32,
    slot: u32,
}

impl Tagged {
    fn before(&self, other: &Self) -> bool {
        self.tag < other.tag || (self.tag == other.tag && started_before(self.serial, other.serial))
    }
}

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
    heap: Vec<Tagged>,
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
            heap: Vec::new(),
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
        let pace = if self.clock == OWN {
            self.rate
        } else {
            self.weight
        };
        match self.first(flows) {
            // Rounding may leave a trace below nothing.
            Some((tag, _)) if pace > 0.0 => self.since + ((tag - self.served) / pace).max(0.0),
            _ => f64::INFINITY,
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
        let entry = Tagged {
            tag: flow.mark,
            serial: flow.serial,
            slot,
        };
        self.heap.push(entry);
        self.rise();
    }

    /// The next flow to end, by tag and place. Flows that were stopped are forgotten on the way.
    pub fn first(&mut self, flows: &Flows) -> Option<(f64, u32)> {
        loop {
            let first = *self.heap.first()?;
            // Nobody was stopped: no need to look the flow up.
            if self.heap.len() == self.live as usize || flows.holds(first.slot, first.serial) {
                return Some((first.tag, first.slot));
            }
            self.drop_first();
        }
    }

    /// Take the next flow to end out.
    pub fn pop(&mut self) {
        self.drop_first();
        self.live -= 1;
    }

    /// Tags count from 0 again, and entries of flows that were stopped go.
    fn count_again(&mut self, flows: &mut Flows) {
        self.joins = 0;
        // Taking the same from all of them keeps their order, so the heap stays one; taking some out does not.
        let served = std::mem::take(&mut self.served);
        let before = self.heap.len();
        self.heap
            .retain(|entry| flows.holds(entry.slot, entry.serial));
        for entry in &mut self.heap {
            entry.tag -= served;
            flows.at_mut(entry.slot).mark = entry.tag;
        }
        if self.heap.len() < before {
            self.heap
                .sort_unstable_by(|one, other| other.before(one).cmp(&one.before(other)));
        }
    }

    fn rise(&mut self) {
        let mut place = self.heap.len() - 1;
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if !entry.before(&self.heap[parent]) {
                break;
            }
            self.heap[place] = self.heap[parent];
            place = parent;
        }
        self.heap[place] = entry;
    }

    fn drop_first(&mut self) {
        let Some(entry) = self.heap.pop() else {
            return;
        };
        let count = self.heap.len();
        let mut place = 0;
        while 2 * place + 1 < count {
            let left = 2 * place + 1;
            let right = (left + 1).min(count - 1);
            let child = if self.heap[right].before(&self.heap[left]) {
                right
            } else {
                left
            };
            if !self.heap[child].before(&entry) {
                break;
            }
            self.heap[place] = self.heap[child];
            place = child;
        }
        if count > 0 {
            self.heap[place] = entry;
        }
    }
}
