//! Lines before services that serve so many at a time: first come, first served.

use std::collections::{BTreeMap, VecDeque};

use venturi_plan::Name;

use super::transfers::Id;
use crate::world::World;

/// The lines of all services that have one.
#[derive(Debug, Default)]
pub(super) struct Lines(BTreeMap<Name, Line>);

#[derive(Debug)]
struct Line {
    free: u32,
    waiting: VecDeque<Id>,
}

impl Lines {
    pub fn new(world: &World) -> Self {
        let line = |name: &Name| {
            let line = Line {
                free: world.slots_of(name)?,
                waiting: VecDeque::new(),
            };
            Some((name.clone(), line))
        };
        Self(world.header.services.keys().filter_map(line).collect())
    }

    /// Take a slot; false: it waits in line.
    pub fn take(&mut self, service: &Name, id: Id) -> bool {
        let Some(line) = self.0.get_mut(service) else {
            return true;
        };
        if line.free > 0 {
            line.free -= 1;
            return true;
        }
        line.waiting.push_back(id);
        false
    }

    /// Give a slot back; who has it now.
    pub fn give_back(&mut self, service: &Name) -> Option<Id> {
        let line = self.0.get_mut(service)?;
        let next = line.waiting.pop_front();
        line.free += u32::from(next.is_none());
        next
    }

    /// Leave a line.
    pub fn leave(&mut self, service: &Name, id: Id) {
        if let Some(line) = self.0.get_mut(service) {
            line.waiting.retain(|other| *other != id);
        }
    }
}
