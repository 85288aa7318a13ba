//! Named counters that hosts share, their additions, and the hosts to notify.

use std::collections::{BTreeMap, BTreeSet};

use venturi_plan::{ActorLine, Name, Step, TrialId};

/// Counters of all hosts.
#[derive(Debug, Default)]
pub(super) struct SimCounters {
    totals: BTreeMap<Name, u64>,
    /// Hosts with a step that waits for a counter; only they are notified.
    listeners: BTreeMap<Name, BTreeSet<usize>>,
    /// Additions of each trial that takes effect if the trial is good.
    of_trials: BTreeMap<TrialId, BTreeMap<Name, u64>>,
}

impl SimCounters {
    /// Register the waits and the counting trials of a line of the plan.
    pub fn read(&mut self, host: usize, line: &ActorLine) {
        self.read_steps(host, &line.steps);
    }

    fn read_steps(&mut self, host: usize, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Wait(wait) => {
                    let listeners = self.listeners.entry(wait.counter.clone()).or_default();
                    listeners.insert(host);
                }
                Step::Trial(trial) => {
                    if !trial.counts.is_empty() {
                        self.of_trials.insert(trial.id, trial.counts.clone());
                    }
                    self.read_steps(host, &trial.steps);
                }
                Step::Parallel(parallel) => {
                    parallel
                        .children
                        .iter()
                        .for_each(|child| self.read_steps(host, child));
                }
                Step::Repeat(repeat) => self.read_steps(host, &repeat.steps),
                Step::Arrivals(arrivals) => self.read_steps(host, &arrivals.steps),
                _ => {}
            }
        }
    }

    /// Add to a counter and return its value over all hosts.
    pub fn add(&mut self, name: &Name, add: u64) -> u64 {
        let total = self.totals.entry(name.clone()).or_default();
        *total = total.saturating_add(add);
        *total
    }

    /// Return the additions of this trial, for a trial that is recorded as good.
    pub fn of_trial(&self, trial: TrialId) -> impl Iterator<Item = (Name, u64)> + use<'_> {
        let counts = self.of_trials.get(&trial);
        counts
            .into_iter()
            .flatten()
            .map(|(name, add)| (name.clone(), *add))
    }

    /// Return whether any step waits for this counter.
    pub fn is_awaited(&self, name: &Name) -> bool {
        self.listeners.contains_key(name)
    }

    /// Return the hosts that wait for this counter, in order.
    pub fn listeners(&self, name: &Name) -> Vec<usize> {
        self.listeners
            .get(name)
            .into_iter()
            .flatten()
            .copied()
            .collect()
    }
}
