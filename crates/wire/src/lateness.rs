//! How late deliveries are: a histogram whose buckets grow with the value, so that microseconds and seconds fit in a
//! few hundred.

/// Buckets an octave: a quantile is known to 1/16, or 6 %.
const STEPS: u64 = 16;
const OCTAVES: u64 = 64 - STEPS.ilog2() as u64;
const BUCKETS: usize = ((OCTAVES + 1) * STEPS) as usize;

/// Counts of times in ns.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    total: u64,
    largest_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            total: 0,
            largest_ns: 0,
        }
    }
}

impl Histogram {
    /// Adds a time.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.largest_ns = self.largest_ns.max(ns);
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine += theirs;
        }
        self.total += other.total;
        self.largest_ns = self.largest_ns.max(other.largest_ns);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
        self.largest_ns = 0;
    }

    /// How many times were added.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The largest, exactly; none if there are none.
    #[must_use]
    pub fn largest_ns(&self) -> Option<u64> {
        (self.total > 0).then_some(self.largest_ns)
    }

    /// A time that this share of all does not exceed: the upper bound of the bucket that the quantile falls into, at
    /// most 6 % above it. None if there are none.
    ///
    /// ```
    /// let mut histogram = venturi_wire::lateness::Histogram::default();
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
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let rank = (self.total as f64 * share).ceil().max(1.0) as u64;
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

    /// Buckets that are not empty: upper bound in ns, and count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let filled = self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        filled.map(|(bucket, count)| (upper_ns(bucket), *count))
    }
}

/// Below `STEPS` the value itself; above, the octave and its first four bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "below BUCKETS")]
fn bucket(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let shift = u64::from(ns.ilog2() - STEPS.ilog2());
    ((shift + 1) * STEPS + (ns >> shift) - STEPS) as usize
}

/// The largest value of a bucket.
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
