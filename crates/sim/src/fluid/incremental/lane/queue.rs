//! Queue of the flows of a class, ordered by tag.
//!
//! A small queue is a heap. In a large heap, every end would access as many scattered memory
//! locations as the heap has levels. Tags only grow, so a flow that starts is usually among the
//! last to end. A large queue therefore has a sorted run of the next flows, an unsorted pile of
//! flows far ahead, and a heap for the flows in between.

#[cfg(test)]
mod tests;

/// Maximum number of flows in a small queue.
const FEW: usize = 64;
/// Divisor of the pile: this fraction of it is sorted at a time, so each flow is examined about
/// this many times.
const FAR_DIVISOR: usize = 4;

/// Flow with its tag.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tagged {
    pub tag: f64,
    pub serial: u32,
    pub slot: u32,
}

/// Flows by tag; the order of equal tags is unspecified.
#[derive(Debug, Default)]
pub(super) struct LaneQueue {
    /// Heap of all entries outside of `many`.
    heap: Vec<Tagged>,
    /// Set once the queue has been large.
    many: Option<Box<Many>>,
}

/// Entries outside of the heap.
#[derive(Debug, Default)]
struct Many {
    /// Sorted run of the next flows, last first. If the run and the heap are empty, the pile is
    /// empty too.
    run: Vec<Tagged>,
    /// Pile: no flow in it is before `horizon`, and no flow in `run` is after it.
    far: Vec<Tagged>,
    horizon: f64,
}

impl LaneQueue {
    /// Return the number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        let many = self.many.as_ref();
        self.heap.len() + many.map_or(0, |many| many.run.len() + many.far.len())
    }

    /// Return the first flow to end.
    #[inline]
    pub fn first(&self) -> Option<Tagged> {
        let first = self.heap.first();
        let Some(many) = &self.many else {
            return first.copied();
        };
        match (many.run.last(), first) {
            (Some(next), Some(first)) if first.tag < next.tag => Some(*first),
            (next, first) => next.or(first).copied(),
        }
    }

    /// Return the first flow to end and a later flow to prefetch, if the queue is large.
    #[inline]
    pub fn coming(&self) -> Option<(Tagged, Tagged)> {
        let run = &self.many.as_ref()?.run;
        Some((self.first()?, *run.iter().nth_back(2)?))
    }

    /// Add a flow.
    #[inline]
    pub fn push(&mut self, entry: Tagged) {
        if let Some(many) = &mut self.many
            && entry.tag >= many.horizon
        {
            many.far.push(entry);
            return;
        }
        self.heap.push(entry);
        self.rise();
        if self.heap.len() > FEW {
            self.put_in_order();
        }
    }

    /// Remove the first flow to end.
    #[inline]
    pub fn pop(&mut self) {
        if self.many.is_none() {
            self.drop_first();
        } else {
            self.pop_of_many();
        }
    }

    /// Subtract `origin` from all tags and keep only the entries that `local_update` accepts.
    /// `local_update` receives the new tags.
    pub fn count_from(&mut self, origin: f64, mut local_update: impl FnMut(&Tagged) -> bool) {
        if self.heap.is_empty() && self.many.is_none() {
            return;
        }
        // Subtracting the same value from all tags keeps their order.
        let mut local_update = |entry: &mut Tagged| {
            entry.tag -= origin;
            local_update(entry)
        };
        let before = self.heap.len();
        self.heap.retain_mut(&mut local_update);
        if self.heap.len() < before {
            self.heap
                .sort_unstable_by(|one, other| one.tag.total_cmp(&other.tag));
        }
        if let Some(many) = &mut self.many {
            many.run.retain_mut(&mut local_update);
            many.far.retain_mut(&mut local_update);
            many.horizon -= origin;
            self.refill();
        }
    }

    fn pop_of_many(&mut self) {
        let next = self.many.as_mut().filter(|many| match self.heap.first() {
            Some(first) => many.run.last().is_some_and(|next| next.tag <= first.tag),
            None => true,
        });
        match next {
            Some(many) => {
                many.run.pop();
            }
            None => self.drop_first(),
        }
        self.refill();
    }

    /// Move a large heap and the run to the pile, unless the pile would be scanned too often.
    fn put_in_order(&mut self) {
        let many = self.many.get_or_insert_default();
        if self.heap.len() > FEW + many.far.len() / FAR_DIVISOR {
            many.far.append(&mut self.heap);
            many.far.append(&mut many.run);
            self.refill();
        }
    }

    /// Sort the next part of the pile if the heap and the run are empty.
    fn refill(&mut self) {
        let empty = self.heap.is_empty();
        if let Some(many) = self
            .many
            .as_mut()
            .filter(|many| empty && many.run.is_empty())
        {
            many.refill();
        }
    }

    fn rise(&mut self) {
        let mut position = self.heap.len() - 1;
        let entry = self.heap[position];
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent].tag <= entry.tag {
                break;
            }
            self.heap[position] = self.heap[parent];
            position = parent;
        }
        self.heap[position] = entry;
    }

    fn drop_first(&mut self) {
        let Some(entry) = self.heap.pop() else {
            return;
        };
        let count = self.heap.len();
        let mut position = 0;
        while 2 * position + 1 < count {
            let left = 2 * position + 1;
            let right = (left + 1).min(count - 1);
            let child = if self.heap[right].tag < self.heap[left].tag {
                right
            } else {
                left
            };
            if self.heap[child].tag >= entry.tag {
                break;
            }
            self.heap[position] = self.heap[child];
            position = child;
        }
        if count > 0 {
            self.heap[position] = entry;
        }
    }
}

impl Many {
    fn refill(&mut self) {
        let by_tag = |one: &Tagged, other: &Tagged| other.tag.total_cmp(&one.tag);
        let count = self.far.len();
        let mut later = 0;
        self.horizon = f64::INFINITY;
        if count > FEW {
            later = count - count / FAR_DIVISOR;
            let (_, last, _) = self.far.select_nth_unstable_by(later, by_tag);
            self.horizon = last.tag;
        }
        self.run.extend_from_slice(&self.far[later..]);
        self.far.truncate(later);
        self.run.sort_unstable_by(by_tag);
    }
}
