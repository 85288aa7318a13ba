//! Pools of slots: first come, first served.

use std::collections::{BTreeMap, VecDeque};

use super::FiberId;
use crate::Name;

#[derive(Debug)]
pub(super) struct Pools {
    pools: BTreeMap<Name, Pool>,
}

#[derive(Debug)]
struct Pool {
    slots: u32,
    taken: u32,
    waiting: VecDeque<(u32, FiberId)>,
}

impl Pool {
    fn has(&self, count: u32) -> bool {
        count <= self.slots - self.taken
    }
}

impl Pools {
    pub fn new(slots: &BTreeMap<Name, u32>) -> Self {
        let pool = |(name, &slots): (&Name, &u32)| {
            (
                name.clone(),
                Pool {
                    slots,
                    taken: 0,
                    waiting: VecDeque::new(),
                },
            )
        };
        Self {
            pools: slots.iter().map(pool).collect(),
        }
    }

    /// Acquire the slots and return true; if they are not free, queue `id`, which gets them later.
    pub fn acquire(&mut self, name: &Name, count: u32, id: FiberId) -> bool {
        let pool = self.pool(name);
        // A small request does not overtake an earlier large request, which could otherwise wait
        // forever.
        if pool.waiting.is_empty() && pool.has(count) {
            pool.taken += count;
            return true;
        }
        pool.waiting.push_back((count, id));
        false
    }

    /// Release slots, and return the fibers that got slots. Return the number of acquired slots as
    /// an error if it is smaller.
    pub fn release(&mut self, name: &Name, count: u32) -> Result<Vec<FiberId>, u32> {
        let pool = self.pool(name);
        pool.taken = pool.taken.checked_sub(count).ok_or(pool.taken)?;
        let mut granted = Vec::new();
        while let Some(&(count, id)) = pool.waiting.front() {
            if !pool.has(count) {
                break;
            }
            pool.waiting.pop_front();
            pool.taken += count;
            granted.push(id);
        }
        Ok(granted)
    }

    /// Return the waiting fibers, each with a description.
    pub fn waiting(&self) -> impl Iterator<Item = (FiberId, String)> {
        self.pools.iter().flat_map(|(name, pool)| {
            let describe = move |&(count, id)| {
                (
                    id,
                    format!(
                        "{count} of pool `{name}` ({} of {} taken)",
                        pool.taken, pool.slots
                    ),
                )
            };
            pool.waiting.iter().map(describe)
        })
    }

    fn pool(&mut self, name: &Name) -> &mut Pool {
        self.pools
            .get_mut(name)
            .expect("compiling admits only pools of the header")
    }
}
