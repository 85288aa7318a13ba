//! Trials while they run, and what is written down of them.

use std::collections::BTreeMap;

use venturi_plan::{CacheState, Finding, Outcome, Seconds, TrialOutcome, TrialRef};

use super::said::{Transfer, Trial};
use super::tally::{Tally, Way};

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
    /// In place of them, what they come to by route.
    tallies: BTreeMap<Way, Tally>,
    /// Routes of transfers that are told in brief.
    pub brief: Vec<usize>,
}

impl OpenTrial {
    pub fn new(start_s: f64) -> Self {
        Self {
            start_s,
            cache: None,
            findings: Vec::new(),
            spoilt: false,
            transfers: Vec::new(),
            tallies: BTreeMap::new(),
            brief: Vec::new(),
        }
    }

    /// What the transfers of a route have come to so far.
    pub fn tally(&mut self, way: Way) -> &mut Tally {
        self.tallies.entry(way).or_default()
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

    /// `routes`: what was told in brief.
    pub fn close(mut self, trial: &TrialRef, end_s: f64, routes: Vec<(Way, Tally)>) -> Trial {
        self.transfers.sort_by_key(|(task, _)| *task);
        let transfers: Vec<Transfer> = self
            .transfers
            .into_iter()
            .map(|(_, transfer)| transfer)
            .collect();
        let tallies: Vec<_> = routes.into_iter().chain(self.tallies).collect();
        let good = !self.spoilt
            && transfers.iter().all(|it| it.record.outcome == Outcome::Ok)
            && tallies.iter().all(|(_, tally)| tally.is_good());
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
            routes: tallies
                .into_iter()
                .map(|(way, tally)| tally.told(way))
                .collect(),
            findings: self.findings,
        }
    }
}
