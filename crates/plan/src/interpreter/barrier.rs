//! Barriers for the leading transfers of a `parallel`, which wait for each other.

use std::collections::BTreeMap;

use super::TaskId;

/// Slot of a barrier for the child of this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BarrierSlot {
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
    /// Tasks by number of the child, so that their release has the order of the plan.
    held: BTreeMap<usize, TaskId>,
}

impl Barriers {
    /// Open a barrier for this number of children.
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

    /// Record the armed transfer of a child. Return the tasks to release if it was the last.
    pub fn arrive(&mut self, slot: BarrierSlot, task: TaskId) -> Option<Vec<TaskId>> {
        self.open
            .get_mut(&slot.barrier)?
            .held
            .insert(slot.child, task);
        self.leave(slot)
    }

    /// Stop waiting for a child. Return the tasks to release if it was the last.
    pub fn leave(&mut self, slot: BarrierSlot) -> Option<Vec<TaskId>> {
        let barrier = self.open.get_mut(&slot.barrier)?;
        barrier.expected -= 1;
        if barrier.expected > 0 {
            return None;
        }
        let complete = self.open.remove(&slot.barrier)?;
        Some(complete.held.into_values().collect())
    }

    /// Remove a transfer that has ended at the barrier before its release.
    pub fn withdraw(&mut self, slot: BarrierSlot) -> Option<Vec<TaskId>> {
        self.open.get_mut(&slot.barrier)?.held.remove(&slot.child);
        None
    }
}
