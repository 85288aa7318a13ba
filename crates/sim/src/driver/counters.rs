//! Named counters that hosts share: who added what, and who must know.

use std::collections::{BTreeMap, BTreeSet};

use venturi_plan::{ActorLine, Name, Step, TrialId};

/// Counters over all hosts.
#[derive(Debug, Default)]
pub(super) struct Counters {
    totals: BTreeMap<Name, u64>,
    /// Hosts on which somebody waits for a counter at some time; nobody else needs to know of it.
    listeners: BTreeMap<Name, BTreeSet<usize>>,
    /// What a good trial adds, where it adds something.
    of_trials: BTreeMap<TrialId, BTreeMap<Name, u64>>,
}

impl Counters {
    /// Look through a line of the plan for who waits for what, and which trials count.
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

    /// Add to a counter; its value over all hosts.
    pub fn add(&mut self, name: &Name, add: u64) -> u64 {
        let total = self.totals.entry(name.clone()).or_default();
        *total = total.saturating_add(add);
        *total
    }

    /// What this trial adds, now that it is recorded as good.
    pub fn of_trial(&self, trial: TrialId) -> impl Iterator<Item = (Name, u64)> + use<'_> {
        let counts = self.of_trials.get(&trial);
        counts
            .into_iter()
            .flatten()
            .map(|(name, add)| (name.clone(), *add))
    }

    /// Whether anybody ever waits for it.
    pub fn is_awaited(&self, name: &Name) -> bool {
        self.listeners.contains_key(name)
    }

    /// The hosts on which somebody does, in order.
    pub fn listeners(&self, name: &Name) -> Vec<usize> {
        self.listeners
            .get(name)
            .into_iter()
            .flatten()
            .copied()
            .collect()
    }
}
