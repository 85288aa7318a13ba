//! Named counters and the fibers that wait for them.

use std::collections::BTreeMap;

use super::FiberId;
use crate::Name;

/// Counters, which never decrease.
#[derive(Debug, Default)]
pub(super) struct PlanCounters {
    counters: BTreeMap<Name, Counter>,
}

#[derive(Debug, Default)]
struct Counter {
    value: u64,
    /// Waiting fibers, in order of arrival.
    waiting: Vec<(u64, FiberId)>,
}

impl PlanCounters {
    /// Add to a counter, and return the fibers that need not wait any more.
    pub fn add(&mut self, name: &Name, add: u64) -> Vec<FiberId> {
        let value = self.counter(name).value.saturating_add(add);
        self.raise_to(name, value)
    }

    /// Increase a counter to a value if it is lower, and return the fibers that need not wait any
    /// more.
    pub fn raise_to(&mut self, name: &Name, value: u64) -> Vec<FiberId> {
        let counter = self.counter(name);
        counter.value = counter.value.max(value);
        let (reached, waiting) = counter
            .waiting
            .drain(..)
            .partition(|&(until, _)| until <= counter.value);
        counter.waiting = waiting;
        let reached: Vec<_> = reached;
        reached.into_iter().map(|(_, id)| id).collect()
    }

    /// Return whether the value is reached; if not, queue `id`.
    pub fn wait(&mut self, name: &Name, until: u64, id: FiberId) -> bool {
        let counter = self.counter(name);
        if counter.value < until {
            counter.waiting.push((until, id));
            return false;
        }
        true
    }

    /// Return the waiting fibers, each with a description.
    pub fn waiting(&self) -> impl Iterator<Item = (FiberId, String)> {
        self.counters.iter().flat_map(|(name, counter)| {
            let describe = move |&(until, id)| {
                (
                    id,
                    format!("counter `{name}` to reach {until} (now {})", counter.value),
                )
            };
            counter.waiting.iter().map(describe)
        })
    }

    fn counter(&mut self, name: &Name) -> &mut Counter {
        self.counters.entry(name.clone()).or_default()
    }
}
