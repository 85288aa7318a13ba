//! Resource and the clock of the classes that it limits.
//!
//! All classes that a resource limits have the same level (rate / weight). One clock, the integral
//! of the level, therefore determines the next end among their flows. A change of the level changes
//! one key, for any number of classes and flows.

use super::MOSTLY_GONE;
use super::heap::Heap;

/// Number of joined classes, per class in the heap and fixed, before keys restart from 0.
const JOINS_A_CLASS: usize = 16;
const JOINS: usize = 64;

/// Number of shifts, per class and fixed, before sums are recomputed, because every shift rounds
/// them.
const SHIFTS_A_CLASS: u32 = 4;
const SHIFTS: u32 = 64;
/// Number of shifts that exceeds the limit for any number of classes, and can still be incremented.
const WORN: u32 = u32::MAX / 2;

/// Solver state of a resource.
///
/// The first cache line has the fields that most events read of several resources.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct SolverLink {
    /// Classes with flows on it, each with its position in the list of all routes.
    pub on: Vec<(u32, u32)>,
    pub capacity: f64,
    /// Rate / weight of the classes that it limits; infinite if it limits none. A resource with one
    /// class does not use it, because the class has its own clock. When a second class arrives, it
    /// is the level of the first if the resource limited it, until both are filled.
    pub level: f64,
    /// Rate of its classes with other limits, in bytes/s.
    pub allocated: f64,
    /// Number of classes that it limits.
    pub bottleneck: u32,
    /// Number of its flows in the current solution.
    pub users: u32,
    /// Number of its classes that cross another shared resource.
    pub entangled: u32,
    /// Whether its capacity depends on its users.
    pub varies: bool,
    /// Whether flows were added, or the capacity changed, since the last solution.
    pub pressed: bool,
    /// Whether its position in the queue is out of date.
    pub stale: bool,
    /// Weight of the flows that it limits.
    pub weight: f64,
    /// Integral of the level up to `clock_at`.
    pub clock: f64,
    /// Time of the last update of `clock`.
    pub clock_at: f64,
    /// Classes by the clock reading at their next end.
    pub heap: Heap,
    pub joins: usize,
    /// Above the level `min_cap` some class may reach its cap, below `max_capped` some class may
    /// leave its cap. Both bounds are conservative.
    pub min_cap: f64,
    pub max_capped: f64,
    /// Changes since `allocated` and `weight` were summed, and the largest weight since.
    pub shifts: u32,
    pub heaviest: f64,
    /// Scratch space of a solution.
    pub mark: u64,
    pub change: f64,
}

/// Clock that reads `clock` at `at_s` and advances by `level` per second.
#[derive(Debug, Clone, Copy)]
pub(super) struct FillClock {
    level: f64,
    clock: f64,
    at_s: f64,
}

impl FillClock {
    /// Return the time of the clock reading `reading`.
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

impl SolverLink {
    /// Create a resource without classes.
    pub fn new(capacity: f64, varies: bool) -> Self {
        Self {
            capacity,
            varies,
            level: f64::INFINITY,
            min_cap: f64::INFINITY,
            max_capped: f64::INFINITY,
            ..Self::default()
        }
    }

    /// Return whether it has more than one class.
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

    /// Return the current state of its clock.
    pub fn pace(&self) -> FillClock {
        FillClock {
            level: self.level,
            clock: self.clock,
            at_s: self.clock_at,
        }
    }

    /// Return the end of the next flow that it limits.
    pub fn next_end(&self) -> f64 {
        self.heap
            .first()
            .map_or(f64::INFINITY, |(reading, _)| self.pace().time_of(reading))
    }

    /// Return whether enough classes have joined to restart its clock from 0.
    pub fn is_worn(&self) -> bool {
        self.joins > JOINS + JOINS_A_CLASS * self.heap.entries().len()
    }

    /// Return whether its sums have changed often enough to recompute them.
    pub fn is_worn_by_shifts(&self) -> bool {
        self.shifts > SHIFTS + SHIFTS_A_CLASS * self.on.len() as u32
    }

    /// Remove a class that it limits, with the weight of all flows of the class.
    pub fn release(&mut self, weight: f64) {
        self.heaviest = self.heaviest.max(self.weight);
        self.weight -= weight;
        self.bottleneck -= 1;
        if self.bottleneck == 0 {
            (self.level, self.weight, self.heaviest) = (f64::INFINITY, 0.0, 0.0);
        } else if self.weight < self.heaviest * MOSTLY_GONE {
            self.shifts = WORN;
        }
    }

    /// Reset the solution: the resource limits no class, and its bounds are unknown.
    pub fn forget(&mut self, now: f64) {
        debug_assert!(self.heap.is_empty());
        self.level = f64::INFINITY;
        (self.weight, self.heaviest) = (0.0, 0.0);
        self.bottleneck = 0;
        self.min_cap = f64::INFINITY;
        self.max_capped = f64::INFINITY;
        self.clock = 0.0;
        self.clock_at = now;
        self.joins = 0;
        self.shifts = 0;
    }
}
