//! Where the leading transfers of a `parallel` wait for each other.

use std::collections::BTreeMap;

use super::Task;

/// A place at a barrier: of the child of this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub barrier: BarrierId,
    pub child: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BarrierId(u64);

#[derive(Debug, Default)]
pub(super) struct Barriers {
    open: BTreeMap<BarrierId, Barrier>,
    next: u64,
}

#[derive(Debug, Default)]
struct Barrier {
    /// Children that have neither arrived nor left.
    expected: usize,
    /// By number of the child, so that they are released in the order of the plan.
    held: BTreeMap<usize, Task>,
}

impl Barriers {
    /// A barrier for so many children.
    pub fn open(&mut self, expected: usize) -> BarrierId {
        let id = BarrierId(self.next);
        self.next += 1;
        self.open.insert(
            id,
            Barrier {
                expected,
                held: BTreeMap::new(),
            },
        );
        id
    }

    /// A child's transfer is armed. The tasks to release, if it was the last.
    pub fn arrive(&mut self, place: Place, task: Task) -> Option<Vec<Task>> {
        self.open
            .get_mut(&place.barrier)?
            .held
            .insert(place.child, task);
        self.leave(place)
    }

    /// Nothing is to be expected of a child any more. The tasks to release, if it was the last.
    pub fn leave(&mut self, place: Place) -> Option<Vec<Task>> {
        let barrier = self.open.get_mut(&place.barrier)?;
        barrier.expected -= 1;
        if barrier.expected > 0 {
            return None;
        }
        let complete = self.open.remove(&place.barrier)?;
        Some(complete.held.into_values().collect())
    }

    /// A transfer that stood at the barrier has ended before it opened.
    pub fn withdraw(&mut self, place: Place) -> Option<Vec<Task>> {
        self.open.get_mut(&place.barrier)?.held.remove(&place.child);
        None
    }
}
