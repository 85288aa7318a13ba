//! The flows of a class by the work at which they end.
//!
//! Few flows are a heap. Of many, a heap would go through as many places anywhere in memory as it has levels, at every end. But tags only grow: a
//! flow that begins is mostly among the last to end. So the next ones stand in order, those far ahead lie on a pile in none, and the heap takes
//! what comes between.

#[cfg(test)]
mod tests;

/// So many flows are few.
const FEW: usize = 64;
/// Of the pile, one in so many is put in order at once: each flow is looked at so often, more or less.
const SHARE: usize = 4;

/// A flow by the work at which it ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tagged {
    pub tag: f64,
    pub serial: u32,
    pub slot: u32,
}

/// Flows by tag; in what order those of one tag come means nothing.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Of all entries outside of `many`.
    heap: Vec<Tagged>,
    /// From when on there have been many.
    many: Option<Box<Many>>,
}

/// What the heap does not take.
#[derive(Debug, Default)]
struct Many {
    /// The next ones, last first. Empty, with the heap empty, only if the pile is, too.
    run: Vec<Tagged>,
    /// The pile: none before `horizon`, and none in `run` behind it.
    far: Vec<Tagged>,
    horizon: f64,
}

impl Queue {
    /// How many entries there are.
    #[inline]
    pub fn len(&self) -> usize {
        let many = self.many.as_ref();
        self.heap.len() + many.map_or(0, |many| many.run.len() + many.far.len())
    }

    /// The first to end.
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

    /// Of many flows: the first to end, and one of the next, to be fetched ahead.
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

    /// Take the first to end out.
    #[inline]
    pub fn pop(&mut self) {
        if self.many.is_none() {
            self.drop_first();
        } else {
            self.pop_of_many();
        }
    }

    /// Tags count from `origin`, and entries that are not to be kept go. `keep` sees the new tags.
    pub fn count_from(&mut self, origin: f64, mut keep: impl FnMut(&Tagged) -> bool) {
        if self.heap.is_empty() && self.many.is_none() {
            return;
        }
        // Taking the same from all of them keeps their order.
        let mut keep = |entry: &mut Tagged| {
            entry.tag -= origin;
            keep(entry)
        };
        let before = self.heap.len();
        self.heap.retain_mut(&mut keep);
        if self.heap.len() < before {
            self.heap
                .sort_unstable_by(|one, other| one.tag.total_cmp(&other.tag));
        }
        if let Some(many) = &mut self.many {
            many.run.retain_mut(&mut keep);
            many.far.retain_mut(&mut keep);
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

    /// The heap has become large: it and the run go on the pile, unless that would be looked at too often.
    fn put_in_order(&mut self) {
        let many = self.many.get_or_insert_default();
        if self.heap.len() > FEW + many.far.len() / SHARE {
            many.far.append(&mut self.heap);
            many.far.append(&mut many.run);
            self.refill();
        }
    }

    /// Put the next of the pile in order when nothing else is left.
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
        let mut place = self.heap.len() - 1;
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].tag <= entry.tag {
                break;
            }
            self.heap[place] = self.heap[parent];
            place = parent;
        }
        self.heap[place] = entry;
    }

    fn drop_first(&mut self) {
        let Some(entry) = self.heap.pop() else {
            return;
        };
        let count = self.heap.len();
        let mut place = 0;
        while 2 * place + 1 < count {
            let left = 2 * place + 1;
            let right = (left + 1).min(count - 1);
            let child = if self.heap[right].tag < self.heap[left].tag {
                right
            } else {
                left
            };
            if self.heap[child].tag >= entry.tag {
                break;
            }
            self.heap[place] = self.heap[child];
            place = child;
        }
        if count > 0 {
            self.heap[place] = entry;
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
            later = count - count / SHARE;
            let (_, last, _) = self.far.select_nth_unstable_by(later, by_tag);
            self.horizon = last.tag;
        }
        self.run.extend_from_slice(&self.far[later..]);
        self.far.truncate(later);
        self.run.sort_unstable_by(by_tag);
    }
}
