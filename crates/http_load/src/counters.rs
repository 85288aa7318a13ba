//! Counters of the whole load, of the steady state and of the current interval.

use std::collections::BTreeMap;

use crate::{FetchFailure, LatencyHistogram};

/// Counters over a time range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadCounters {
    /// Complete responses with a success status and the expected length.
    pub fetches: u64,
    /// Body bytes, including those of failed fetches and of fetches partly within the time range.
    pub bytes: u64,
    /// Fetches that failed.
    pub errors: u64,
}

/// All counters of a load.
#[derive(Debug, Default)]
pub struct PhaseCounters {
    /// Whole load.
    pub complete: LoadCounters,
    /// Steady state: all clients active, without the ramp.
    pub steady: LoadCounters,
    /// Since the last line.
    pub interval: LoadCounters,
    /// Body bytes of complete fetches.
    pub fetched_bytes: u64,
    /// Bytes of heads and framing.
    pub head_bytes: u64,
    /// Established connections.
    pub connections: u64,
    /// Failures by kind.
    pub failures: BTreeMap<FetchFailure, u64>,
    /// Latency of complete fetches that ended in the steady state: from the start to the last byte.
    pub latency: LatencyHistogram,
    is_steady: bool,
}

impl PhaseCounters {
    /// Sets whether new counts belong to the steady state.
    pub fn set_steady(&mut self, is_steady: bool) {
        self.is_steady = is_steady;
    }

    /// Count bytes that have arrived.
    pub fn arrived(&mut self, head_bytes: u64, body_bytes: u64) {
        self.head_bytes += head_bytes;
        self.each(|counts| counts.bytes += body_bytes);
    }

    /// Count a complete fetch.
    pub fn fetched(&mut self, body_bytes: u64, latency_ns: u64) {
        self.fetched_bytes += body_bytes;
        self.each(|counts| counts.fetches += 1);
        if self.is_steady {
            self.latency.add(latency_ns);
        }
    }

    /// Count a failed fetch.
    pub fn failed(&mut self, failure: FetchFailure) {
        *self.failures.entry(failure).or_default() += 1;
        self.each(|counts| counts.errors += 1);
    }

    fn each(&mut self, count: impl Fn(&mut LoadCounters)) {
        count(&mut self.complete);
        count(&mut self.interval);
        if self.is_steady {
            count(&mut self.steady);
        }
    }
}
