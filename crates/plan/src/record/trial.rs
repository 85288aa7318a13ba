//! Record of a trial, written by the driver that runs it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Finding, TransferRecord};
use crate::{Name, Seconds, TrialId, TrialRef};

/// A trial that was executed by one actor.
///
/// `T` is the record of a transfer: the measurement of an agent, possibly with more data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Trial")]
pub struct Trial<T = TransferRecord> {
    /// Which.
    pub trial: TrialId,
    /// Actor of the trial.
    pub actor: Name,
    /// Start of the trial.
    pub start_s: Seconds,
    /// End of its last step.
    pub end_s: Seconds,
    /// Whether all of its transfers succeeded.
    pub outcome: TrialOutcome,
    /// State of the page cache for the files that it read, if the plan requested the state.
    pub cache: Option<CacheState>,
    /// Its transfers.
    pub transfers: Vec<T>,
    /// Doubts about it.
    pub findings: Vec<Finding>,
}

/// Outcome of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrialOutcome {
    /// All transfers succeeded.
    Ok,
    /// At least one transfer failed.
    Failed,
}

/// State of the page cache for some files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheState {
    /// `cold`, `warm`, or another state.
    pub state: String,
    /// Method that produced the state.
    pub method: String,
    /// Fraction of the files' pages in memory, from 0 to 1; null if it is unknown.
    pub resident_ratio: Option<f64>,
}

/// A started trial: its record without the transfers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OpenTrial {
    /// Start of the trial.
    pub start_s: f64,
    /// Latest state of the page cache.
    pub cache: Option<CacheState>,
    /// Doubts so far.
    pub findings: Vec<Finding>,
    /// A preparation has failed.
    pub spoilt: bool,
}

impl OpenTrial {
    /// Create a trial that starts now.
    #[must_use]
    pub fn new(start_s: f64) -> Self {
        Self {
            start_s,
            ..Self::default()
        }
    }

    /// Return its record. `good`: whether all its transfers succeeded.
    #[must_use]
    pub fn close<T>(self, trial: &TrialRef, end_s: f64, transfers: Vec<T>, good: bool) -> Trial<T> {
        Trial {
            trial: trial.trial,
            actor: trial.actor.clone(),
            start_s: Seconds::new(self.start_s),
            end_s: Seconds::new(end_s),
            outcome: if good && !self.spoilt {
                TrialOutcome::Ok
            } else {
                TrialOutcome::Failed
            },
            cache: self.cache,
            transfers,
            findings: self.findings,
        }
    }
}
