//! Caches and their hits.
//!
//! [`Lru`] is an exact model of a cache that drops the least recently used file. The kernel's page
//! cache is modelled as an LRU cache of complete files. The real cache has two lists and drops
//! pages, so the model holds for files that are read completely, either once or often.

use std::collections::BTreeMap;

/// Cache that drops the least recently used file. `K` identifies a file.
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
    /// Create an empty cache.
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

    /// Request a file and return whether it was cached. The file is cached afterwards, unless it is
    /// larger than the cache.
    pub fn request(&mut self, file: K, bytes: u64) -> bool {
        let hit = self.remove(&file) == Some(bytes);
        if bytes <= self.capacity_bytes {
            self.free_space(bytes);
            self.clock += 1;
            self.used_bytes += bytes;
            self.by_use.insert(self.clock, file.clone());
            self.files.insert(file, (self.clock, bytes));
        }
        hit
    }

    /// Return whether a file is cached; this does not count as a use.
    #[must_use]
    pub fn holds(&self, file: &K) -> bool {
        self.files.contains_key(file)
    }

    /// Remove a file and return its bytes, if it was cached.
    pub fn remove(&mut self, file: &K) -> Option<u64> {
        let (used, bytes) = self.files.remove(file)?;
        self.by_use.remove(&used);
        self.used_bytes -= bytes;
        Some(bytes)
    }

    /// Keep only the files that `stays` accepts.
    pub fn retain(&mut self, stays: impl Fn(&K) -> bool) {
        let gone = self.files.keys().filter(|file| !stays(file)).cloned();
        for file in gone.collect::<Vec<_>>() {
            self.remove(&file);
        }
    }

    /// Return the bytes of all cached files.
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

    fn free_space(&mut self, bytes: u64) {
        // A subtraction, because the sum can overflow.
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
