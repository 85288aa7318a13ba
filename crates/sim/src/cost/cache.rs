//! Caches: what is found in them.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | λi | requests for file i | 1/s |
//! | si | its size | bytes |
//! | C | size of the cache | bytes |
//! | T | characteristic time: how long a file stays that nobody asks for again | s |
//!
//! [`Lru`] is exact: what it does, a cache does that drops what was used least recently. [`characteristic_time_s`] and
//! [`hit_probability`] say what comes out of it in the mean, without a single request. The kernel's page cache is taken as an [`Lru`] of
//! whole files: it has two lists and drops pages, so this holds for files that are read whole and once or often, not in between.

use std::collections::BTreeMap;

use super::Error;

/// Halvings of an interval of 2^±1024 until nothing is left of a `f64`.
const MOST_HALVINGS: u32 = 2200;

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

/// The probability that a file is found: h = 1 − e^(−λT).
///
/// Source: Che, Tung, Wang, IEEE JSAC 20(7), 2002. Range: independent requests (IRM), see [`characteristic_time_s`].
#[must_use]
pub fn hit_probability(requests_per_s: f64, characteristic_time_s: f64) -> f64 {
    -(-requests_per_s * characteristic_time_s).exp_m1()
}

/// T of a cache of `capacity_bytes`: the root of Σ si (1 − e^(−λi T)) = C. Infinite if all files fit.
///
/// `files` are pairs of λi and si. Source as [`hit_probability`]. Range: requests that are independent of each other, files small beside the
/// cache; the error of hit ratios is then about one per cent, more in caches of a few files.
///
/// # Errors
/// For a rate, a size or a capacity that is negative or no number.
///
/// ```
/// use venturi_sim::cost::{characteristic_time_s, hit_probability};
/// // 100 equal files and room for half of them: half of the requests are hits.
/// let time_s = characteristic_time_s(&vec![(1.0, 1e6); 100], 50e6)?;
/// assert!((time_s - 2.0_f64.ln()).abs() < 1e-12 && (hit_probability(1.0, time_s) - 0.5).abs() < 1e-12);
/// # Ok::<(), venturi_sim::cost::Error>(())
/// ```
pub fn characteristic_time_s(files: &[(f64, f64)], capacity_bytes: f64) -> Result<f64, Error> {
    for &(rate, bytes) in files {
        check("a rate of requests", rate)?;
        check("the size of a file", bytes)?;
    }
    check("the size of a cache", capacity_bytes)?;
    let held = |time_s: f64| -> f64 {
        files
            .iter()
            .map(|&(rate, bytes)| bytes * hit_probability(rate, time_s))
            .sum()
    };
    // Files that nobody asks for take no room, however long one waits.
    let all: f64 = files.iter().filter(|it| it.0 > 0.0).map(|it| it.1).sum();
    if all <= capacity_bytes {
        return Ok(f64::INFINITY);
    }
    bisect(|time_s| held(time_s) < capacity_bytes)
}

/// The largest time for which `below` still holds, which it does from 0 to there.
fn bisect(below: impl Fn(f64) -> bool) -> Result<f64, Error> {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..MOST_HALVINGS {
        if below(high) {
            (low, high) = (high, high * 2.0);
            if high.is_infinite() {
                break;
            }
            continue;
        }
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            return Ok(high);
        }
        if below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Err(Error::NoSolution {
        rounds: MOST_HALVINGS,
    })
}

fn check(what: &'static str, found: f64) -> Result<(), Error> {
    let expected = "finite, and 0 or more";
    if found.is_finite() && found >= 0.0 {
        Ok(())
    } else {
        Err(Error::Value {
            what,
            expected,
            found,
        })
    }
}
