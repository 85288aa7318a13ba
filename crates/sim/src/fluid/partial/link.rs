//! A resource, and the clock of the classes that it limits.
//!
//! All classes that a resource limits have the same level (rate / weight), so one clock, the integral of the level, tells when the next flow
//! of any of them ends. A change of the level changes one key, whatever the number of classes and flows.

use super::MOSTLY_GONE;
use super::heap::Heap;

/// Keys count from 0 again after so many classes have joined, and so many for each that is on the resource.
const JOINS_A_CLASS: usize = 16;
const JOINS: usize = 64;

/// Sums are made anew after so many shifts, and so many for each class: they are rounded at every one.
const SHIFTS_A_CLASS: u32 = 4;
const SHIFTS: u32 = 64;
/// More than any number of classes allows, and few enough to be counted on.
const WORN: u32 = u32::MAX / 2;

/// A resource as the solver sees it.
///
/// What most events read of several resources stands first, in one cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Link {
    /// Classes on it that have flows, with the number of the place in their way.
    pub on: Vec<(u32, u32)>,
    pub capacity: f64,
    /// Rate / weight of the classes that it limits; infinite if it limits none. Of a resource with one class, that class's own clock tells; when
    /// another comes it is the level of the one, if that was limited by it, until both are filled.
    pub level: f64,
    /// Bytes/s of the classes on it that something else limits.
    pub given: f64,
    /// How many classes it limits.
    pub bound: u32,
    /// Flows on it in the rates of now.
    pub users: u32,
    /// How many of its classes meet another shared resource besides.
    pub entangled: u32,
    /// Whether its capacity depends on its users.
    pub varies: bool,
    /// Whether flows were added, or the capacity changed, since the last solution.
    pub pressed: bool,
    /// Whether its place in the queue is out of date.
    pub stale: bool,
    /// Weight of the flows that it limits.
    pub weight: f64,
    /// Integral of the level …
    pub clock: f64,
    /// … up to here.
    pub clock_at: f64,
    /// Classes by the reading of the clock at which their next flow ends.
    pub heap: Heap,
    pub joins: usize,
    /// At a level above it some class may meet its cap, below it some class may leave it. Both may be too careful, never too bold.
    pub least_cap: f64,
    pub most_capped: f64,
    /// Changes since `given` and `weight` were summed, and the largest weight since.
    pub shifts: u32,
    pub heaviest: f64,
    /// Scratch of a solution.
    pub mark: u64,
    pub change: f64,
}

/// A clock that tells `clock` at `at_s` and goes on by `level` a second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    level: f64,
    clock: f64,
    at_s: f64,
}

impl Pace {
    /// When the clock tells `reading`.
    pub fn time_of(&self, reading: f64) -> f64 {
        if self.level > 0.0 {
            self.at_s + ((reading - self.clock) / self.level).max(0.0)
        } else if reading <= self.clock {
            self.at_s
        } else {
            f64::INFINITY
        }
    }
}

impl Link {
    /// Without classes.
    pub fn new(capacity: f64, varies: bool) -> Self {
        Self {
            capacity,
            varies,
            level: f64::INFINITY,
            least_cap: f64::INFINITY,
            most_capped: f64::INFINITY,
            ..Self::default()
        }
    }

    /// Whether more than one class is on it.
    pub fn is_shared(&self) -> bool {
        self.on.len() > 1
    }

    /// Bring the clock up to `now`.
    pub fn catch_up(&mut self, now: f64) {
        if self.level < f64::INFINITY {
            self.clock += self.level * (now - self.clock_at);
        }
        self.clock_at = now;
    }

    /// How its clock goes now.
    pub fn pace(&self) -> Pace {
        Pace {
            level: self.level,
            clock: self.clock,
            at_s: self.clock_at,
        }
    }

    /// When the next flow ends, of those that it limits.
    pub fn next_end(&self) -> f64 {
        self.heap
            .first()
            .map_or(f64::INFINITY, |(reading, _)| self.pace().time_of(reading))
    }

    /// Whether its clock has run for so long that counting from 0 pays.
    pub fn is_worn(&self) -> bool {
        self.joins > JOINS + JOINS_A_CLASS * self.heap.entries().len()
    }

    /// Whether its sums have been changed so often that making them anew pays.
    pub fn is_worn_by_shifts(&self) -> bool {
        self.shifts > SHIFTS + SHIFTS_A_CLASS * self.on.len() as u32
    }

    /// A class that it limits goes, with the weight of all its flows.
    pub fn release(&mut self, weight: f64) {
        self.heaviest = self.heaviest.max(self.weight);
        self.weight -= weight;
        self.bound -= 1;
        if self.bound == 0 {
            (self.level, self.weight, self.heaviest) = (f64::INFINITY, 0.0, 0.0);
        } else if self.weight < self.heaviest * MOSTLY_GONE {
            self.shifts = WORN;
        }
    }

    /// Nothing is limited by it, and what was known of it is not.
    pub fn forget(&mut self, now: f64) {
        debug_assert!(self.heap.is_empty());
        self.level = f64::INFINITY;
        (self.weight, self.heaviest) = (0.0, 0.0);
        self.bound = 0;
        self.least_cap = f64::INFINITY;
        self.most_capped = f64::INFINITY;
        self.clock = 0.0;
        self.clock_at = now;
        self.joins = 0;
        self.shifts = 0;
    }
}
