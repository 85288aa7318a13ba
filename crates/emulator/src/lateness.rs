//! Lateness of deliveries: a histogram with buckets that grow with the value, so that a few hundred
//! cover microseconds to seconds.

/// Buckets per octave; the accuracy of a quantile is 1/16, or 6 %.
const STEPS: u64 = 16;
const OCTAVES: u64 = 64 - STEPS.ilog2() as u64;
const BUCKETS: usize = ((OCTAVES + 1) * STEPS) as usize;

/// Counts of times in ns.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    total: u64,
    sum_ns: u64,
    largest_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            total: 0,
            sum_ns: 0,
            largest_ns: 0,
        }
    }
}

impl Histogram {
    /// Add a time.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.largest_ns = self.largest_ns.max(ns);
    }

    /// Add all times of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine += theirs;
        }
        self.total += other.total;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.largest_ns = self.largest_ns.max(other.largest_ns);
    }

    /// Remove all times.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
        self.sum_ns = 0;
        self.largest_ns = 0;
    }

    /// Return the number of added times.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Return the sum of the added times, exactly: 584 years at most.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Return the exact largest time, or none without times.
    #[must_use]
    pub fn largest_ns(&self) -> Option<u64> {
        (self.total > 0).then_some(self.largest_ns)
    }

    /// Return the upper bound of the bucket of this quantile, at most 6 % above the quantile. None
    /// without times.
    ///
    /// ```
    /// let mut histogram = venturi_emulator::lateness::Histogram::default();
    /// (1..=1000).for_each(|n| histogram.add(n * 1000));
    /// let median = histogram.quantile_ns(0.5).expect("there are some");
    /// assert!((500_000..540_000).contains(&median));
    /// assert_eq!(histogram.quantile_ns(1.0), Some(1_000_000));
    /// ```
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a rank, between 0 and the total"
    )]
    pub fn quantile_ns(&self, fraction: f64) -> Option<u64> {
        let rank = (self.total as f64 * fraction).ceil().max(1.0) as u64;
        let mut below = 0;
        self.counts
            .iter()
            .position(|count| {
                below += count;
                below >= rank
            })
            .filter(|_| self.total > 0)
            .map(|bucket| upper_ns(bucket).min(self.largest_ns))
    }

    /// Return the non-empty buckets: upper bound in ns, and count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let filled = self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        filled.map(|(bucket, count)| (upper_ns(bucket), *count))
    }
}

/// Return the bucket of a value: below `STEPS` the value itself, above it the octave and its first
/// four bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "below BUCKETS")]
fn bucket(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let shift = u64::from(ns.ilog2() - STEPS.ilog2());
    ((shift + 1) * STEPS + (ns >> shift) - STEPS) as usize
}

/// Return the largest value of a bucket.
fn upper_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let (shift, step) = (bucket / STEPS - 1, bucket % STEPS);
    ((STEPS + step) << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_value_is_at_most_a_sixteenth_below_the_bound_of_its_bucket(bits in 0..64_u32, low in any::<u64>()) {
            let ns = low >> bits;
            let upper = upper_ns(bucket(ns));
            prop_assert!(upper >= ns && upper - ns <= ns / STEPS);
            prop_assert!(upper == u64::MAX || bucket(upper + 1) == bucket(ns) + 1);
        }
    }

    #[test]
    fn an_empty_histogram_has_no_quantiles() {
        let histogram = Histogram::default();
        assert_eq!(
            (histogram.quantile_ns(0.5), histogram.largest_ns()),
            (None, None)
        );
    }
}
