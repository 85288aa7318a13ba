//! Trials while they run, and their records.

use std::collections::BTreeMap;

use venturi_plan::{CacheState, Finding, Outcome, TrialRef};

use super::records::{RouteKey, SimTransfer, SimTrial};
use super::tally::Tally;

/// Method that produced the state of the cache.
const METHOD: &str = "simulated";

/// Trial that has started.
#[derive(Debug)]
pub(super) struct SimOpenTrial {
    reported: venturi_plan::OpenTrial,
    /// Transfers by task number, which is the order of the plan.
    transfers: Vec<(u64, SimTransfer)>,
    /// Results by route, instead of transfers.
    tallies: BTreeMap<RouteKey, Tally>,
    /// Routes of bulk transfers.
    pub brief: Vec<usize>,
}

impl SimOpenTrial {
    pub fn new(start_s: f64) -> Self {
        Self {
            reported: venturi_plan::OpenTrial::new(start_s),
            transfers: Vec::new(),
            tallies: BTreeMap::new(),
            brief: Vec::new(),
        }
    }

    /// Return the results of a route so far.
    pub fn tally(&mut self, route_key: RouteKey) -> &mut Tally {
        self.tallies.entry(route_key).or_default()
    }

    pub fn add(&mut self, task: u64, transfer: SimTransfer) {
        self.transfers.push((task, transfer));
    }

    /// Set the state of the page cache to the requested state.
    pub fn cached(&mut self, state: &str) {
        self.reported.cache = Some(CacheState {
            state: state.into(),
            method: METHOD.into(),
            resident_ratio: None,
        });
    }

    /// Record a failed preparation.
    pub fn spoil(&mut self, finding: Finding) {
        self.reported.spoilt = true;
        self.reported.findings.push(finding);
    }

    /// Close the trial. `routes`: results of bulk transfers.
    pub fn close(
        mut self,
        trial: &TrialRef,
        end_s: f64,
        routes: Vec<(RouteKey, Tally)>,
    ) -> SimTrial {
        self.transfers.sort_by_key(|(task, _)| *task);
        let transfers: Vec<SimTransfer> = self
            .transfers
            .into_iter()
            .map(|(_, transfer)| transfer)
            .collect();
        let tallies: Vec<_> = routes.into_iter().chain(self.tallies).collect();
        let good = transfers.iter().all(|it| it.record.outcome == Outcome::Ok)
            && tallies.iter().all(|(_, tally)| tally.is_good());
        let routes = tallies
            .into_iter()
            .map(|(route_key, tally)| tally.into_record(route_key));
        SimTrial {
            record: self.reported.close(trial, end_s, transfers, good),
            routes: routes.collect(),
        }
    }
}
