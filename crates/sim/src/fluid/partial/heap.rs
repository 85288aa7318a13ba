//! A heap of numbered items by key, in which an item can be found again: keys of clocks change with every rate.

/// Place of an item that is in no heap.
pub(super) const OUTSIDE: u32 = u32::MAX;

/// Children of a node: four fit into a cache line with their keys.
const ARITY: usize = 4;

/// Items by key, least first. Where each is stands in `places`, which several heaps share as long as no item is in two of them.
#[derive(Debug, Default)]
pub(super) struct Heap {
    entries: Vec<(f64, u32)>,
}

impl Heap {
    /// The least key and its item.
    pub fn first(&self) -> Option<(f64, u32)> {
        self.entries.first().copied()
    }

    /// All items, in no order that means anything.
    pub fn entries(&self) -> &[(f64, u32)] {
        &self.entries
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Give an item a key, whether or not it is in the heap already.
    pub fn set(&mut self, item: u32, key: f64, places: &mut [u32]) {
        let mut place = places[item as usize] as usize;
        if place == OUTSIDE as usize {
            place = self.entries.len();
            self.entries.push((key, item));
            self.rise(place, places);
        } else if key < self.entries[place].0 {
            self.entries[place].0 = key;
            self.rise(place, places);
        } else {
            self.entries[place].0 = key;
            self.sink(place, places);
        }
    }

    /// Take an item out, if it is in.
    pub fn remove(&mut self, item: u32, places: &mut [u32]) {
        let place = places[item as usize] as usize;
        if place == OUTSIDE as usize {
            return;
        }
        places[item as usize] = OUTSIDE;
        let last = self.entries.pop().expect("the item is in it");
        if place < self.entries.len() {
            self.entries[place] = last;
            places[last.1 as usize] = place as u32;
            self.rise(place, places);
            self.sink(places[last.1 as usize] as usize, places);
        }
    }

    /// Take the same off every key; the order stays.
    pub fn lower(&mut self, by: f64) {
        for entry in &mut self.entries {
            entry.0 -= by;
        }
    }

    fn rise(&mut self, mut place: usize, places: &mut [u32]) {
        let entry = self.entries[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.entries[parent].0 <= entry.0 {
                break;
            }
            self.entries[place] = self.entries[parent];
            places[self.entries[place].1 as usize] = place as u32;
            place = parent;
        }
        self.entries[place] = entry;
        places[entry.1 as usize] = place as u32;
    }

    fn sink(&mut self, mut place: usize, places: &mut [u32]) {
        let entries = &mut self.entries[..];
        let entry = entries[place];
        loop {
            let first = place * ARITY + 1;
            let Some(&(mut key, _)) = entries.get(first) else {
                break;
            };
            let mut least = first;
            for (child, other) in (first + 1..).zip(entries[first + 1..].iter().take(ARITY - 1)) {
                if other.0 < key {
                    (least, key) = (child, other.0);
                }
            }
            if key >= entry.0 {
                break;
            }
            entries[place] = entries[least];
            places[entries[place].1 as usize] = place as u32;
            place = least;
        }
        entries[place] = entry;
        places[entry.1 as usize] = place as u32;
    }
}
