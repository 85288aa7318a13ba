//! Heap of numbered items that can update the key of an item, because the keys of clocks change
//! with every rate.

/// Position of an item that is in no heap.
pub(super) const OUTSIDE: u32 = u32::MAX;

/// Children of a node: four fit into a cache line with their keys.
const ARITY: usize = 4;

/// Items by key, lowest first. `positions` holds the position of each item. Several heaps can share
/// it if no item is in two of them.
#[derive(Debug, Default)]
pub(super) struct Heap {
    entries: Vec<(f64, u32)>,
}

impl Heap {
    /// Return the lowest key and its item.
    pub fn first(&self) -> Option<(f64, u32)> {
        self.entries.first().copied()
    }

    /// Return all items in unspecified order.
    pub fn entries(&self) -> &[(f64, u32)] {
        &self.entries
    }

    /// Return whether the heap is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Set the key of an item, which is added if it is not in the heap.
    pub fn set(&mut self, item: u32, key: f64, positions: &mut [u32]) {
        let mut position = positions[item as usize] as usize;
        if position == OUTSIDE as usize {
            position = self.entries.len();
            self.entries.push((key, item));
            self.rise(position, positions);
        } else if key < self.entries[position].0 {
            self.entries[position].0 = key;
            self.rise(position, positions);
        } else {
            self.entries[position].0 = key;
            self.sink(position, positions);
        }
    }

    /// Remove an item if it is in the heap.
    pub fn remove(&mut self, item: u32, positions: &mut [u32]) {
        let position = positions[item as usize] as usize;
        if position == OUTSIDE as usize {
            return;
        }
        positions[item as usize] = OUTSIDE;
        let last = self.entries.pop().expect("the item is in it");
        if position < self.entries.len() {
            self.entries[position] = last;
            positions[last.1 as usize] = position as u32;
            self.rise(position, positions);
            self.sink(positions[last.1 as usize] as usize, positions);
        }
    }

    /// Subtract the same value from every key, which keeps the order.
    pub fn lower(&mut self, by: f64) {
        for entry in &mut self.entries {
            entry.0 -= by;
        }
    }

    fn rise(&mut self, mut position: usize, positions: &mut [u32]) {
        let entry = self.entries[position];
        while position > 0 {
            let parent = (position - 1) / ARITY;
            if self.entries[parent].0 <= entry.0 {
                break;
            }
            self.entries[position] = self.entries[parent];
            positions[self.entries[position].1 as usize] = position as u32;
            position = parent;
        }
        self.entries[position] = entry;
        positions[entry.1 as usize] = position as u32;
    }

    fn sink(&mut self, mut position: usize, positions: &mut [u32]) {
        let entries = &mut self.entries[..];
        let entry = entries[position];
        loop {
            let first = position * ARITY + 1;
            let Some(&(mut key, _)) = entries.get(first) else {
                break;
            };
            let mut lowest = first;
            for (child, other) in (first + 1..).zip(entries[first + 1..].iter().take(ARITY - 1)) {
                if other.0 < key {
                    (lowest, key) = (child, other.0);
                }
            }
            if key >= entry.0 {
                break;
            }
            entries[position] = entries[lowest];
            positions[entries[position].1 as usize] = position as u32;
            position = lowest;
        }
        entries[position] = entry;
        positions[entry.1 as usize] = position as u32;
    }
}
