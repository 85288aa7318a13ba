//! Limits for plans that would not end: a deadlock, too many events at one instant, or times that
//! are too late.

use super::Simulation;
use super::hosts::SimHost;
use crate::world::WorldError;

/// Maximum number of events at one instant; a plan with more would never reach the next.
const MAX_CONCURRENT: u64 = if cfg!(test) { 10_000 } else { 100_000_000 };
/// Three hundred years; beyond this time, a double is coarser than a microsecond.
const MAX_S: f64 = 1e10;

impl Simulation {
    /// Count an event at this instant.
    pub(super) fn count_one(&mut self) -> Result<(), WorldError> {
        self.happened += 1;
        if self.happened < MAX_CONCURRENT {
            return Ok(());
        }
        Err(WorldError::Endless {
            time_s: self.now,
            happened: self.happened,
        })
    }

    /// Return the error for a plan with waiting actors and no event left.
    pub(super) fn deadlock(&self) -> WorldError {
        WorldError::Deadlock {
            time_s: self.now,
            waiting: self.waiting(),
        }
    }

    /// Check a time of the plan.
    pub(super) fn check_time(&self, next_s: f64) -> Result<(), WorldError> {
        if next_s <= MAX_S {
            return Ok(());
        }
        // NaN counts as too late.
        Err(WorldError::TooLate {
            time_s: self.now,
            next_s,
            max_s: MAX_S,
        })
    }

    /// Return the waiting actors of all hosts with their reasons.
    fn waiting(&self) -> String {
        let waits = |host: &SimHost| {
            host.interpreter
                .waiting()
                .into_iter()
                .map(|what| format!("on {}, {what}", host.name))
                .collect::<Vec<_>>()
        };
        let waiting: Vec<String> = self.hosts.iter().flat_map(waits).collect();
        waiting.join("; ")
    }
}
