//! What will happen when, in a defined order: by time, and at one time in the order in which it was put down.

use std::collections::BTreeMap;

use venturi_plan::{Input, Name, Seconds};

use super::transfers::Id;
use super::walk::Owner;

/// Something that will happen by itself.
#[derive(Debug)]
pub(super) enum Event {
    /// A link changes: which change of the plan.
    Change(usize),
    /// A host learns something.
    Tell(usize, Input),
    /// The hosts learn the value of a counter.
    Counter(Name, u64),
    /// The stage of a walk is over.
    StageOver(Owner),
    /// The time of a walk that goes on for a time is over.
    TimeOver(Owner),
    /// A client of a load begins its next fetch.
    Fetch(Id, u32),
    /// A transfer that is told in brief goes on: its place, and its number there.
    Onward(u32, u32),
    /// A walk that is held, by the number of its hold, goes on.
    Resume(Owner, u64),
    /// It gives up.
    GiveUp(Owner, u64),
}

/// Events to come.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    events: BTreeMap<(Seconds, u64), Event>,
    put_down: u64,
}

impl Agenda {
    pub fn put(&mut self, time_s: f64, event: Event) {
        self.events
            .insert((Seconds::new(time_s), self.put_down), event);
        self.put_down += 1;
    }

    pub fn next_s(&self) -> Option<f64> {
        self.events
            .first_key_value()
            .map(|((time, _), _)| time.get())
    }

    /// The next event that is due.
    pub fn take(&mut self, now: f64) -> Option<Event> {
        let entry = self.events.first_entry()?;
        (entry.key().0.get() <= now).then(|| entry.remove())
    }
}
