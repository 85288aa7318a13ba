//! Queues of services with a limit of concurrent clients: first come, first served.

use std::collections::{BTreeMap, VecDeque};

use venturi_plan::Name;

use super::transfers::Id;
use crate::world::World;

/// Queues of all services with a limit.
#[derive(Debug, Default)]
pub(super) struct ServiceQueues(BTreeMap<Name, ServiceQueue>);

#[derive(Debug)]
struct ServiceQueue {
    free: u32,
    waiting: VecDeque<Id>,
}

impl ServiceQueues {
    pub fn new(world: &World) -> Self {
        let queue = |name: &Name| {
            let queue = ServiceQueue {
                free: world.slots_of(name)?,
                waiting: VecDeque::new(),
            };
            Some((name.clone(), queue))
        };
        Self(world.header.services.keys().filter_map(queue).collect())
    }

    /// Take a slot. Return false if the transfer must wait in the queue.
    pub fn take(&mut self, service: &Name, id: Id) -> bool {
        let Some(queue) = self.0.get_mut(service) else {
            return true;
        };
        if queue.free > 0 {
            queue.free -= 1;
            return true;
        }
        queue.waiting.push_back(id);
        false
    }

    /// Release a slot and return the transfer that gets it.
    pub fn release(&mut self, service: &Name) -> Option<Id> {
        let queue = self.0.get_mut(service)?;
        let next = queue.waiting.pop_front();
        queue.free += u32::from(next.is_none());
        next
    }

    /// Remove a transfer from a queue.
    pub fn leave(&mut self, service: &Name, id: Id) {
        if let Some(queue) = self.0.get_mut(service) {
            queue.waiting.retain(|other| *other != id);
        }
    }
}
