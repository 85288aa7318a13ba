//! Where a plan has to end that would not come to its end: nothing happens any more, too much at one instant, or for ages.

use super::Simulation;
use super::hosts::Host;
use crate::world::Error;

/// Things that may happen at one instant; a plan in which more do would never come to the next.
const MOST_AT_ONCE: u64 = if cfg!(test) { 10_000 } else { 100_000_000 };
/// Three hundred years: from then on a double is coarser than a microsecond.
const MOST_S: f64 = 1e10;

impl Simulation {
    /// Something has happened at this instant.
    pub(super) fn count_one(&mut self) -> Result<(), Error> {
        self.happened += 1;
        if self.happened < MOST_AT_ONCE {
            return Ok(());
        }
        Err(Error::Endless {
            time_s: self.now,
            happened: self.happened,
        })
    }

    /// Nothing can happen any more, and somebody waits.
    pub(super) fn deadlock(&self) -> Error {
        Error::Deadlock {
            time_s: self.now,
            waiting: self.waiting(),
        }
    }

    /// A time that a plan may come to.
    pub(super) fn check_time(&self, next_s: f64) -> Result<(), Error> {
        if next_s <= MOST_S {
            return Ok(());
        }
        // What is no number is too late as well.
        Err(Error::TooLate {
            time_s: self.now,
            next_s,
            most_s: MOST_S,
        })
    }

    /// Who waits for what, host by host.
    fn waiting(&self) -> String {
        let waits = |host: &Host| {
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
