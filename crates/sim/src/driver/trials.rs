//! Trials while they run, and what is written down of them.

use std::collections::BTreeMap;

use venturi_plan::{CacheState, Finding, Outcome, TrialRef};

use super::said::{Transfer, Trial, Way};
use super::tally::Tally;

/// How the cache came to be as it is.
const METHOD: &str = "simulated";

/// A trial that has begun.
#[derive(Debug)]
pub(super) struct OpenTrial {
    told: venturi_plan::OpenTrial,
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
            told: venturi_plan::OpenTrial::new(start_s),
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
        self.told.cache = Some(CacheState {
            state: state.into(),
            method: METHOD.into(),
            resident_ratio: None,
        });
    }

    /// A preparation has failed.
    pub fn spoil(&mut self, finding: Finding) {
        self.told.spoilt = true;
        self.told.findings.push(finding);
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
        let good = transfers.iter().all(|it| it.record.outcome == Outcome::Ok)
            && tallies.iter().all(|(_, tally)| tally.is_good());
        let routes = tallies.into_iter().map(|(way, tally)| tally.told(way));
        Trial {
            record: self.told.close(trial, end_s, transfers, good),
            routes: routes.collect(),
        }
    }
}
