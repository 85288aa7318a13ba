//! Pools of slots: first come, first served.

use std::collections::{BTreeMap, VecDeque};

use super::StrandId;
use crate::Name;

#[derive(Debug)]
pub(super) struct Pools {
    pools: BTreeMap<Name, Pool>,
}

#[derive(Debug)]
struct Pool {
    slots: u32,
    taken: u32,
    waiting: VecDeque<(u32, StrandId)>,
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

    /// Whether the slots are taken now; if not, `id` is queued, and gets them in its turn.
    pub fn acquire(&mut self, name: &Name, count: u32, id: StrandId) -> bool {
        let pool = self.pool(name);
        // A small request does not pass a large one that came before, which might else wait for ever.
        if pool.waiting.is_empty() && pool.has(count) {
            pool.taken += count;
            return true;
        }
        pool.waiting.push_back((count, id));
        false
    }

    /// Give slots back, and return who got some; or how many are taken, if these are fewer.
    pub fn release(&mut self, name: &Name, count: u32) -> Result<Vec<StrandId>, u32> {
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

    /// Who waits, and for what.
    pub fn waiting(&self) -> impl Iterator<Item = (StrandId, String)> {
        self.pools.iter().flat_map(|(name, pool)| {
            let say = move |&(count, id)| {
                (
                    id,
                    format!(
                        "{count} of pool `{name}` ({} of {} taken)",
                        pool.taken, pool.slots
                    ),
                )
            };
            pool.waiting.iter().map(say)
        })
    }

    fn pool(&mut self, name: &Name) -> &mut Pool {
        self.pools
            .get_mut(name)
            .expect("compiling admits only pools of the header")
    }
}
