//! What a simulation says: the records of an agent, and what only a simulation knows of a transfer.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use venturi_plan::{Done, Event, Finding, Name, Outcome, Sample, TransferRecord};

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// The host that it is of; `network` for the links between them.
    pub host: Name,
    /// What.
    #[serde(flatten)]
    pub said: Said,
}

/// A record, as in the protocol of agents.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Said {
    /// A trial has ended.
    Trial(Box<Trial>),
    /// A transfer outside any trial.
    Transfer(Box<Transfer>),
    /// Counters at one moment.
    Sample(Sample),
    /// Something worth knowing when.
    Event(Event),
    /// A doubt.
    Finding(Finding),
    /// The end of the plan.
    Done(Done),
}

/// A trial: the record of an agent, and more.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trial {
    /// What an agent would write; of the page cache, what was assumed.
    #[serde(flatten)]
    pub record: venturi_plan::Trial<Transfer>,
    /// What its transfers came to by route, where the plan wants that in their place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// What makes two transfers of a trial belong together: who carries how much from where to where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Way {
    /// Which call of the header.
    pub call: Name,
    /// The place that the bytes came from.
    pub source: Name,
    /// The service and door through which they were read.
    pub source_via: Option<String>,
    /// The place that they went to.
    pub destination: Name,
    /// The service and door through which they were written.
    pub destination_via: Option<String>,
    /// Files of each transfer.
    pub files: u64,
    /// Bytes that the plan asked for in each.
    pub size_bytes: u64,
}

/// The transfers of a trial on one way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Route {
    /// What they have in common.
    #[serde(flatten)]
    pub way: Way,
    /// How many there were.
    pub transfers: u64,
    /// How many by what became of them.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Bytes asked for, of all.
    pub asked_bytes: u64,
    /// Bytes that receivers hold, of all; null of a sink.
    pub received_bytes: Option<u64>,
    /// When the first began.
    pub start_s: Option<f64>,
    /// When the last ended.
    pub end_s: Option<f64>,
    /// From when they should have started until they did, of all.
    pub waited_s: f64,
    /// From release to end, of all.
    pub duration_s: f64,
    /// Of the shortest.
    pub shortest_s: Option<f64>,
    /// Of the longest.
    pub longest_s: Option<f64>,
    /// Of one while nothing else moves; null where that differs from one to the next.
    pub alone_s: Option<f64>,
    /// Median of the durations; quantiles are right to 1 %.
    pub p50_s: Option<f64>,
    /// Their quantile 0.9.
    pub p90_s: Option<f64>,
    /// Their quantile 0.95.
    pub p95_s: Option<f64>,
    /// Their quantile 0.99.
    pub p99_s: Option<f64>,
    /// Counts of durations by logarithm: number of the first bucket. Bucket i holds γ^(i−1) < duration ≤ γ^i seconds, γ = 1.01/0.99.
    pub sketch_first: i32,
    /// The counts from there on.
    pub sketch_counts: Vec<u32>,
    /// As of a transfer, of the time of all.
    pub bound: BTreeMap<Arc<str>, f64>,
}

/// A transfer: the record of an agent, and more.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Transfer {
    /// What an agent would write.
    #[serde(flatten)]
    pub record: TransferRecord,
    /// What its tool would say.
    #[serde(flatten)]
    pub told: Told,
    /// Which share of its time each thing kept it from being faster: `set-up`, `queue`, a cap (`window`), a resource (`link:a>b`).
    pub bound: BTreeMap<Arc<str>, f64>,
}

/// What a tool says of itself, where the simulation can tell; the columns of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Told {
    /// Bytes that it moved, where the plan does not fix them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_bytes: Option<u64>,
    /// By its own clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_duration_s: Option<f64>,
    /// As it would print it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_rate_bytes_per_s: Option<f64>,
    /// From its start to the first byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_first_byte_s: Option<f64>,
    /// More.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<BTreeMap<&'static str, f64>>,
}
