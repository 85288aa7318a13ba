//! Scheduled events in a defined order: by time, and at equal times in the order of scheduling.

use std::collections::BTreeMap;

use venturi_plan::{InterpreterInput, Name, Seconds};

use super::stage_runner::Owner;
use super::transfers::Id;

/// Scheduled event.
#[derive(Debug)]
pub(super) enum AgendaEvent {
    /// A link changes; index of the change in the plan.
    Change(usize),
    /// A host receives an input.
    Report(usize, InterpreterInput),
    /// The hosts receive the value of a counter.
    Counter(Name, u64),
    /// A stage of a transfer has ended.
    StageOver(Owner),
    /// The fixed duration of a transfer has ended.
    TimeOver(Owner),
    /// A client of a load starts its next fetch.
    Fetch(Id, u32),
    /// A bulk transfer continues: its slot, and its number there.
    Onward(u32, u32),
    /// A paused transfer continues, identified by the number of its pause.
    Resume(Owner, u64),
    /// A paused transfer is aborted.
    Abort(Owner, u64),
}

/// Pending events.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    events: BTreeMap<(Seconds, u64), AgendaEvent>,
    put_down: u64,
}

impl Agenda {
    pub fn put(&mut self, time_s: f64, event: AgendaEvent) {
        self.events
            .insert((Seconds::new(time_s), self.put_down), event);
        self.put_down += 1;
    }

    pub fn next_s(&self) -> Option<f64> {
        self.events
            .first_key_value()
            .map(|((time, _), _)| time.get())
    }

    /// Remove and return the next due event.
    pub fn take(&mut self, now: f64) -> Option<AgendaEvent> {
        let entry = self.events.first_entry()?;
        (entry.key().0.get() <= now).then(|| entry.remove())
    }
}
