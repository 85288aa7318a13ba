//! What a simulation says: the records of an agent, and what only a simulation knows of a transfer.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use venturi_plan::{
    CacheState, Done, Event, Finding, Name, Sample, Seconds, TransferRecord, TrialId, TrialOutcome,
};

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

/// A trial as it was carried out by one actor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trial {
    /// Which.
    pub trial: TrialId,
    /// By whom.
    pub actor: Name,
    /// When it began.
    pub start_s: Seconds,
    /// When its last step ended.
    pub end_s: Seconds,
    /// Whether all of its transfers are good.
    pub outcome: TrialOutcome,
    /// What was assumed of the page cache, where the plan asked.
    pub cache: Option<CacheState>,
    /// Its transfers.
    pub transfers: Vec<Transfer>,
    /// Doubts about it.
    pub findings: Vec<Finding>,
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
