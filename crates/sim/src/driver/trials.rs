//! Trials while they run, and what is written down of them.

use venturi_plan::{CacheState, Finding, Outcome, Seconds, TrialOutcome, TrialRef};

use super::said::{Transfer, Trial};

/// How the cache came to be as it is.
const METHOD: &str = "simulated";

/// A trial that has begun.
#[derive(Debug)]
pub(super) struct OpenTrial {
    start_s: f64,
    cache: Option<CacheState>,
    findings: Vec<Finding>,
    spoilt: bool,
    /// By the number of their task, which is the order of the plan.
    transfers: Vec<(u64, Transfer)>,
}

impl OpenTrial {
    pub fn new(start_s: f64) -> Self {
        Self {
            start_s,
            cache: None,
            findings: Vec::new(),
            spoilt: false,
            transfers: Vec::new(),
        }
    }

    pub fn add(&mut self, task: u64, transfer: Transfer) {
        self.transfers.push((task, transfer));
    }

    /// What the plan asked of the page cache, and so has.
    pub fn cached(&mut self, state: &str) {
        self.cache = Some(CacheState {
            state: state.into(),
            method: METHOD.into(),
            resident_ratio: None,
        });
    }

    /// A preparation has failed.
    pub fn spoil(&mut self, finding: Finding) {
        self.spoilt = true;
        self.findings.push(finding);
    }

    pub fn close(mut self, trial: &TrialRef, end_s: f64) -> Trial {
        self.transfers.sort_by_key(|(task, _)| *task);
        let transfers: Vec<Transfer> = self
            .transfers
            .into_iter()
            .map(|(_, transfer)| transfer)
            .collect();
        let good = !self.spoilt && transfers.iter().all(|it| it.record.outcome == Outcome::Ok);
        Trial {
            trial: trial.trial,
            actor: trial.actor.clone(),
            start_s: Seconds::new(self.start_s),
            end_s: Seconds::new(end_s),
            outcome: if good {
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
