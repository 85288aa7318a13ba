//! What is written down of a trial, by whoever carries it out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Finding, TransferRecord};
use crate::{Name, Seconds, TrialId, TrialRef};

/// A trial as it was carried out by one actor.
///
/// `T` is what is told of a transfer: what an agent measures, or more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Trial")]
pub struct Trial<T = TransferRecord> {
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
    /// What the page cache held of the files it read, where the plan asked.
    pub cache: Option<CacheState>,
    /// Its transfers.
    pub transfers: Vec<T>,
    /// Doubts about it.
    pub findings: Vec<Finding>,
}

/// Whether a trial went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrialOutcome {
    /// All transfers were.
    Ok,
    /// One at least was not.
    Failed,
}

/// What the page cache held of some files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheState {
    /// `cold`, `warm`, or what else was found.
    pub state: String,
    /// How the cache was brought there.
    pub method: String,
    /// Share of the files' pages in memory, from 0 to 1; null where it cannot be told.
    pub resident_ratio: Option<f64>,
}

/// A trial that has begun: what will be told of it besides its transfers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OpenTrial {
    /// When it began.
    pub start_s: f64,
    /// The latest word on the page cache.
    pub cache: Option<CacheState>,
    /// Doubts so far.
    pub findings: Vec<Finding>,
    /// A preparation has failed.
    pub spoilt: bool,
}

impl OpenTrial {
    /// A trial that begins now.
    #[must_use]
    pub fn new(start_s: f64) -> Self {
        Self {
            start_s,
            ..Self::default()
        }
    }

    /// Its record. `good`: whether all of its transfers are.
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
