//! Caches: what is found in them.
//!
//! [`Lru`] is exact: what it does, a cache does that drops what was used least recently. The kernel's page cache is taken as one of whole
//! files: it has two lists and drops pages, so this holds for files that are read whole and once or often, not in between.

use std::collections::BTreeMap;

/// A cache that drops what was used least recently. `K` names a file.
///
/// ```
/// use venturi_sim::cost::Lru;
/// let mut cache = Lru::new(2_000);
/// assert!(!cache.request("a", 1_000) && !cache.request("b", 1_000) && cache.request("a", 1_000));
/// assert!(!cache.request("c", 1_000)); // drops b
/// assert!(cache.request("a", 1_000) && !cache.request("b", 1_000));
/// ```
#[derive(Debug, Clone)]
pub struct Lru<K> {
    capacity_bytes: u64,
    used_bytes: u64,
    clock: u64,
    files: BTreeMap<K, (u64, u64)>,
    by_use: BTreeMap<u64, K>,
}

impl<K: Ord + Clone> Lru<K> {
    /// An empty cache.
    #[must_use]
    pub fn new(capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            used_bytes: 0,
            clock: 0,
            files: BTreeMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    /// Ask for a file: whether it was there. Afterwards it is, unless it is larger than the cache.
    pub fn request(&mut self, file: K, bytes: u64) -> bool {
        let hit = self.remove(&file) == Some(bytes);
        if bytes <= self.capacity_bytes {
            self.make_room(bytes);
            self.clock += 1;
            self.used_bytes += bytes;
            self.by_use.insert(self.clock, file.clone());
            self.files.insert(file, (self.clock, bytes));
        }
        hit
    }

    /// Whether a file is there; asking so counts as no use.
    #[must_use]
    pub fn holds(&self, file: &K) -> bool {
        self.files.contains_key(file)
    }

    /// Take a file out: how many bytes it had, if it was there.
    pub fn remove(&mut self, file: &K) -> Option<u64> {
        let (used, bytes) = self.files.remove(file)?;
        self.by_use.remove(&used);
        self.used_bytes -= bytes;
        Some(bytes)
    }

    /// Take out all files that are not to stay.
    pub fn retain(&mut self, stays: impl Fn(&K) -> bool) {
        let gone = self.files.keys().filter(|file| !stays(file)).cloned();
        for file in gone.collect::<Vec<_>>() {
            self.remove(&file);
        }
    }

    /// Bytes of the files that are there.
    #[must_use]
    pub const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Drop everything, as `drop_caches` does.
    pub fn clear(&mut self) {
        self.files.clear();
        self.by_use.clear();
        self.used_bytes = 0;
    }

    fn make_room(&mut self, bytes: u64) {
        // Not the sum: a cache may be as large as numbers are.
        while self.used_bytes > self.capacity_bytes - bytes {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                return;
            };
            if let Some((_, freed)) = self.files.remove(&oldest) {
                self.used_bytes -= freed;
            }
        }
    }
}
