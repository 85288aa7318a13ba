//! What has been counted: of the whole, of the steady stretch, of the interval that runs.

use std::collections::BTreeMap;

use crate::{Failure, Histogram};

/// Counts over some stretch of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Whole responses with a good status and the length that was asked for.
    pub fetches: u64,
    /// Of bodies, those of fetches that failed or were not whole at the end of the stretch among them.
    pub bytes: u64,
    /// Fetches that failed.
    pub errors: u64,
}

/// Everything that is counted of a load.
#[derive(Debug, Default)]
pub struct Phases {
    /// From beginning to end.
    pub whole: Tally,
    /// While all clients were at work, the ramp left out.
    pub steady: Tally,
    /// Since the last line.
    pub interval: Tally,
    /// Bytes of the bodies of fetches that were whole.
    pub fetched_bytes: u64,
    /// Bytes of heads and framing.
    pub head_bytes: u64,
    /// Connections that came to be.
    pub connections: u64,
    /// By kind; as many kinds as there are statuses and other failures.
    pub failures: BTreeMap<Failure, u64>,
    /// Of whole fetches that ended in the steady stretch: from their beginning to the last byte.
    pub latency: Histogram,
    is_steady: bool,
}

impl Phases {
    /// Whether what comes now counts as steady.
    pub fn set_steady(&mut self, is_steady: bool) {
        self.is_steady = is_steady;
    }

    /// Bytes have arrived.
    pub fn arrived(&mut self, head_bytes: u64, body_bytes: u64) {
        self.head_bytes += head_bytes;
        self.each(|tally| tally.bytes += body_bytes);
    }

    /// A fetch is whole.
    pub fn fetched(&mut self, body_bytes: u64, latency_ns: u64) {
        self.fetched_bytes += body_bytes;
        self.each(|tally| tally.fetches += 1);
        if self.is_steady {
            self.latency.add(latency_ns);
        }
    }

    /// A fetch has failed.
    pub fn failed(&mut self, failure: Failure) {
        *self.failures.entry(failure).or_default() += 1;
        self.each(|tally| tally.errors += 1);
    }

    fn each(&mut self, count: impl Fn(&mut Tally)) {
        count(&mut self.whole);
        count(&mut self.interval);
        if self.is_steady {
            count(&mut self.steady);
        }
    }
}
