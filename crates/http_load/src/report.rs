//! Output records: one JSON object per line. `docs/reference/http-load.md` describes them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{LatencyHistogram, PhaseCounters};

/// Line of output.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum LoadRecord {
    /// Counts of the last interval.
    Interval(IntervalCounts),
    /// The last line: totals of the load.
    Total(Box<LoadTotals>),
}

/// Counts of an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IntervalCounts {
    /// Seconds since the start of the first client.
    pub start_s: f64,
    /// Seconds since the start of the first client.
    pub end_s: f64,
    /// Completed fetches.
    pub fetches: u64,
    /// Bytes of bodies.
    pub bytes: u64,
    /// Fetches that failed.
    pub errors: u64,
    /// Clients that have not stopped.
    pub clients: u32,
}

/// Totals of the load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadTotals {
    /// Requested clients.
    pub clients: u32,
    /// Time from the first start to the last end.
    pub duration_s: f64,
    /// Complete fetches.
    pub fetches: u64,
    /// Bytes of all bodies.
    pub bytes: u64,
    /// Body bytes of complete fetches.
    pub fetched_bytes: u64,
    /// Bytes of heads and framing.
    pub head_bytes: u64,
    /// Established connections.
    pub connections: u64,
    /// Failed fetches by kind.
    pub errors: BTreeMap<String, u64>,
    /// Steady state: all clients active, without the ramp. `None` if there was none.
    pub steady: Option<SteadyCounts>,
    /// Latency of complete fetches that ended in the steady state.
    pub latency: Option<LatencySummary>,
}

/// Counters of the steady state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SteadyCounts {
    /// Seconds since the start of the first client.
    pub start_s: f64,
    /// Seconds since the start of the first client.
    pub end_s: f64,
    /// Fetches completed in the steady state.
    pub fetches: u64,
    /// Body bytes received in the steady state.
    pub bytes: u64,
    /// Goodput: bytes divided by the duration of the steady state.
    pub rate_bytes_per_s: f64,
}

/// Latency of fetches, from the start (including the connection setup, if any) to the last byte.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Number of fetches.
    pub count: u64,
    /// Minimum.
    pub min_s: f64,
    /// Exact mean.
    pub mean_s: f64,
    /// Median, within 1/32.
    pub p50_s: f64,
    /// 90th percentile.
    pub p90_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
    /// Maximum.
    pub max_s: f64,
    /// Largest time and count of each bucket.
    pub buckets: Vec<(f64, u64)>,
}

/// Convert nanoseconds to seconds.
pub(crate) fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 * 1e-9
}

impl LoadTotals {
    pub(crate) fn new(
        clients: u32,
        end_ns: u64,
        steady_ns: Option<(u64, u64)>,
        phases: &PhaseCounters,
    ) -> Self {
        let steady = steady_ns.map(|(start_ns, stop_ns)| SteadyCounts {
            start_s: seconds(start_ns),
            end_s: seconds(stop_ns),
            fetches: phases.steady.fetches,
            bytes: phases.steady.bytes,
            rate_bytes_per_s: phases.steady.bytes as f64 / seconds(stop_ns - start_ns),
        });
        Self {
            clients,
            duration_s: seconds(end_ns),
            fetches: phases.complete.fetches,
            bytes: phases.complete.bytes,
            fetched_bytes: phases.fetched_bytes,
            head_bytes: phases.head_bytes,
            connections: phases.connections,
            errors: phases
                .failures
                .iter()
                .map(|(failure, count)| (failure.name(), *count))
                .collect(),
            steady,
            latency: LatencySummary::of(&phases.latency),
        }
    }
}

impl LatencySummary {
    fn of(times: &LatencyHistogram) -> Option<Self> {
        let (min_ns, max_ns) = times.range_ns()?;
        let quantile = |fraction| times.quantile_ns(fraction).map(seconds);
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
