//! Named counters and who waits for them.

use std::collections::BTreeMap;

use super::StrandId;
use crate::Name;

/// Counters only grow.
#[derive(Debug, Default)]
pub(super) struct Counters {
    counters: BTreeMap<Name, Counter>,
}

#[derive(Debug, Default)]
struct Counter {
    value: u64,
    /// In the order in which they came.
    waiting: Vec<(u64, StrandId)>,
}

impl Counters {
    /// Add, and return who need not wait any more.
    pub fn add(&mut self, name: &Name, add: u64) -> Vec<StrandId> {
        let value = self.counter(name).value.saturating_add(add);
        self.raise_to(name, value)
    }

    /// Raise to a value, if it is lower, and return who need not wait any more.
    pub fn raise_to(&mut self, name: &Name, value: u64) -> Vec<StrandId> {
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

    /// Whether the value is reached; if not, `id` is remembered.
    pub fn wait(&mut self, name: &Name, until: u64, id: StrandId) -> bool {
        let counter = self.counter(name);
        if counter.value < until {
            counter.waiting.push((until, id));
            return false;
        }
        true
    }

    /// Who waits, and for what.
    pub fn waiting(&self) -> impl Iterator<Item = (StrandId, String)> {
        self.counters.iter().flat_map(|(name, counter)| {
            let say = move |&(until, id)| {
                (
                    id,
                    format!("counter `{name}` to reach {until} (now {})", counter.value),
                )
            };
            counter.waiting.iter().map(say)
        })
    }

    fn counter(&mut self, name: &Name) -> &mut Counter {
        self.counters.entry(name.clone()).or_default()
    }
}
