//! Output records of a simulation: the records of an agent, and values that only a simulation
//! knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use venturi_plan::{AgentEvent, Done, Finding, Name, Outcome, Sample, TransferRecord};

/// Line of output.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimLine {
    /// Host of the record; `network` for the links between hosts.
    pub host: Name,
    /// Record of the line.
    #[serde(flatten)]
    pub record: SimRecord,
}

/// Record, as in the protocol of agents.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum SimRecord {
    /// A trial has ended.
    Trial(Box<SimTrial>),
    /// A transfer outside any trial.
    Transfer(Box<SimTransfer>),
    /// Counters at one time.
    Sample(Sample),
    /// An event with its time.
    Event(AgentEvent),
    /// A finding.
    Finding(Finding),
    /// The end of the plan.
    Done(Done),
}

/// Trial: the record of an agent, and more.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimTrial {
    /// The record of an agent; for the page cache, the assumed state.
    #[serde(flatten)]
    pub record: venturi_plan::Trial<SimTransfer>,
    /// Results of its transfers by route, if the plan requests routes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteRecord>,
}

/// Properties that identify a route: call, source, destination and size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RouteKey {
    /// Call of the header.
    pub call: Name,
    /// Storage of the source.
    pub source: Name,
    /// Service and service port for reading.
    pub source_via: Option<String>,
    /// Storage of the destination.
    pub destination: Name,
    /// Service and service port for writing.
    pub destination_via: Option<String>,
    /// Files of each transfer.
    pub files: u64,
    /// Bytes that the plan requests in each transfer.
    pub size_bytes: u64,
}

/// Transfers of a trial on one route.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RouteRecord {
    /// Common properties.
    #[serde(flatten)]
    pub route_key: RouteKey,
    /// Number of transfers.
    pub transfers: u64,
    /// Number of transfers by outcome.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Requested bytes of all transfers.
    pub requested_bytes: u64,
    /// Received bytes of all transfers; null for a sink.
    pub received_bytes: Option<u64>,
    /// Start of the first transfer.
    pub start_s: Option<f64>,
    /// End of the last transfer.
    pub end_s: Option<f64>,
    /// Total time from intended to actual starts.
    pub wait_s: f64,
    /// Total time from release to end.
    pub duration_s: f64,
    /// Shortest duration.
    pub min_duration_s: Option<f64>,
    /// Longest duration.
    pub max_duration_s: Option<f64>,
    /// Duration of one transfer without load; null if it differs between transfers.
    pub unloaded_s: Option<f64>,
    /// Median of the durations; quantiles are right to 1 %.
    pub p50_s: Option<f64>,
    /// Their quantile 0.9.
    pub p90_s: Option<f64>,
    /// Their quantile 0.95.
    pub p95_s: Option<f64>,
    /// Their quantile 0.99.
    pub p99_s: Option<f64>,
    /// Number of the first bucket of a histogram of durations by logarithm. Bucket i holds γ^(i−1)
    /// < duration ≤ γ^i seconds, γ = 1.01/0.99.
    pub sketch_first: i32,
    /// Counts of the buckets from `sketch_first`.
    pub sketch_counts: Vec<u32>,
    /// Fraction of the total time for each bottleneck, as for a transfer.
    pub bottleneck: BTreeMap<Arc<str>, f64>,
}

/// Transfer: the record of an agent, and more.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimTransfer {
    /// The record of an agent.
    #[serde(flatten)]
    pub record: TransferRecord,
    /// Output of its tool.
    #[serde(flatten)]
    pub tool_report: ToolReport,
    /// Fraction of its time for each bottleneck: `set-up`, `queue`, a cap (`window`), a resource (`link:a>b`).
    pub bottleneck: BTreeMap<Arc<str>, f64>,
}

/// Values that a tool reports, if the simulation knows them; the columns of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ToolReport {
    /// Bytes that the tool moved, if the plan does not set them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_bytes: Option<u64>,
    /// Duration by the clock of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_duration_s: Option<f64>,
    /// Rate as printed by the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_rate_bytes_per_s: Option<f64>,
    /// Time from the start of the tool to the first byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_first_byte_s: Option<f64>,
    /// Other values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<BTreeMap<&'static str, f64>>,
}
