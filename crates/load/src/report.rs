//! What is said: one JSON object a line. `docs/reference/load.md` describes it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Histogram, Phases};

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// Counts of the last interval.
    Interval(Interval),
    /// The last line: everything.
    Total(Box<Total>),
}

/// Counts of an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Interval {
    /// Since the first client began.
    pub start_s: f64,
    /// Since the first client began.
    pub end_s: f64,
    /// Fetches that became whole.
    pub fetches: u64,
    /// Of bodies.
    pub bytes: u64,
    /// Fetches that failed.
    pub errors: u64,
    /// Clients that are not done.
    pub clients: u32,
}

/// Everything that was counted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Total {
    /// Clients asked for.
    pub clients: u32,
    /// From the first beginning to the last end.
    pub duration_s: f64,
    /// Whole fetches.
    pub fetches: u64,
    /// Of all bodies.
    pub bytes: u64,
    /// Of the bodies of whole fetches.
    pub fetched_bytes: u64,
    /// Of heads and framing.
    pub head_bytes: u64,
    /// Connections that came to be.
    pub connections: u64,
    /// Failed fetches by kind.
    pub errors: BTreeMap<String, u64>,
    /// The stretch in which all clients were at work, without the ramp; none if there was no such stretch.
    pub steady: Option<Steady>,
    /// Of whole fetches that ended in the steady stretch.
    pub latency: Option<Latency>,
}

/// Counts of the steady stretch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Steady {
    /// Since the first client began.
    pub start_s: f64,
    /// Since the first client began.
    pub end_s: f64,
    /// Fetches that became whole in it.
    pub fetches: u64,
    /// Of bodies that arrived in it.
    pub bytes: u64,
    /// Goodput: bytes over the length of the stretch.
    pub rate_bytes_per_s: f64,
}

/// Times of fetches, from their beginning (of the connection, where a new one was needed) to the last byte.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// The shortest.
    pub min_s: f64,
    /// Exact.
    pub mean_s: f64,
    /// Half are as short, to 1/32 of it.
    pub p50_s: f64,
    /// 9 in 10 are.
    pub p90_s: f64,
    /// 99 in 100 are.
    pub p99_s: f64,
    /// The longest.
    pub max_s: f64,
    /// Largest time of a bucket, and how many are in it.
    pub buckets: Vec<(f64, u64)>,
}

/// Seconds of nanoseconds.
pub(crate) fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 * 1e-9
}

impl Total {
    pub(crate) fn new(
        clients: u32,
        end_ns: u64,
        steady_ns: Option<(u64, u64)>,
        phases: &Phases,
    ) -> Self {
        let steady = steady_ns.map(|(start_ns, stop_ns)| Steady {
            start_s: seconds(start_ns),
            end_s: seconds(stop_ns),
            fetches: phases.steady.fetches,
            bytes: phases.steady.bytes,
            rate_bytes_per_s: phases.steady.bytes as f64 / seconds(stop_ns - start_ns),
        });
        Self {
            clients,
            duration_s: seconds(end_ns),
            fetches: phases.whole.fetches,
            bytes: phases.whole.bytes,
            fetched_bytes: phases.fetched_bytes,
            head_bytes: phases.head_bytes,
            connections: phases.connections,
            errors: phases
                .failures
                .iter()
                .map(|(failure, count)| (failure.name(), *count))
                .collect(),
            steady,
            latency: Latency::of(&phases.latency),
        }
    }
}

impl Latency {
    fn of(times: &Histogram) -> Option<Self> {
        let (min_ns, max_ns) = times.range_ns()?;
        let quantile = |share| times.quantile_ns(share).map(seconds);
        Some(Self {
            count: times.count(),
            min_s: seconds(min_ns),
            mean_s: times.mean_ns()? * 1e-9,
            p50_s: quantile(0.5)?,
            p90_s: quantile(0.9)?,
            p99_s: quantile(0.99)?,
            max_s: seconds(max_ns),
            buckets: times
                .buckets()
                .map(|(upper_ns, count)| (seconds(upper_ns), count))
                .collect(),
        })
    }
}
