//! Latencies in buckets whose width grows with the value: bounded memory, known error.

/// Number of buckets per power of two.
const STEPS: u64 = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Number of powers of two: up to 2⁴⁴ ns, nearly five hours. Longer times count in the last bucket.
const POWERS: usize = 44;
const BUCKETS: usize = (POWERS - STEP_BITS as usize + 1) * STEPS as usize;

/// Counts of times in nanoseconds, with a relative error of at most 1/32.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencyHistogram {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            count: 0,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }
}

impl LatencyHistogram {
    /// Counts one time.
    pub fn add(&mut self, time_ns: u64) {
        self.counts[bucket(time_ns)] += 1;
        self.count += 1;
        self.sum_ns += u128::from(time_ns);
        self.min_ns = self.min_ns.min(time_ns);
        self.max_ns = self.max_ns.max(time_ns);
    }

    /// Number of counted times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Exact mean; `None` if empty.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// Exact minimum and maximum; `None` if empty.
    #[must_use]
    pub fn range_ns(&self) -> Option<(u64, u64)> {
        (self.count > 0).then_some((self.min_ns, self.max_ns))
    }

    /// Quantile, at most 1/32 too high; `None` if empty.
    #[must_use]
    pub fn quantile_ns(&self, fraction: f64) -> Option<u64> {
        let rank = ((fraction * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Some(upper(index).min(self.max_ns));
            }
        }
        None
    }

    /// Non-empty buckets: largest time and count of each.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate();
        counts
            .filter(|(_, count)| **count > 0)
            .map(|(index, count)| (upper(index), *count))
    }
}

/// Return the bucket of a time: below 32 ns each nanosecond has a bucket, above that each power of
/// two has 32.
fn bucket(time_ns: u64) -> usize {
    if time_ns < STEPS {
        return time_ns as usize;
    }
    let power = time_ns.ilog2() - STEP_BITS;
    let index = (u64::from(power) + 1) * STEPS + ((time_ns >> power) - STEPS);
    (index as usize).min(BUCKETS - 1)
}

fn upper(index: usize) -> u64 {
    let (power, step) = (index as u64 / STEPS, index as u64 % STEPS);
    if power == 0 {
        return step;
    }
    ((STEPS + step + 1) << (power - 1)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_histogram_has_no_mean_and_no_quantile() {
        let empty = LatencyHistogram::default();
        assert_eq!(
            (empty.mean_ns(), empty.quantile_ns(0.5), empty.range_ns()),
            (None, None, None)
        );
    }

    #[test]
    fn a_time_beyond_the_last_bucket_is_counted_in_it() {
        let mut histogram = LatencyHistogram::default();
        histogram.add(u64::MAX);
        assert_eq!(histogram.count(), 1);
        assert_eq!(histogram.range_ns(), Some((u64::MAX, u64::MAX)));
    }

    proptest! {
        #[test]
        fn a_bucket_contains_its_time_and_is_at_most_a_32nd_of_it_wide(time_ns in 0u64..(1 << 43)) {
            let index = bucket(time_ns);
            prop_assert!(time_ns <= upper(index));
            prop_assert!(index == 0 || time_ns > upper(index - 1));
            prop_assert!(upper(index) - time_ns <= time_ns / STEPS);
        }

        #[test]
        fn quantiles_match_the_sorted_times_within_one_32nd(
            mut times in prop::collection::vec(0u64..10_000_000_000, 1..200), fraction in 0.01f64..1.0,
        ) {
            let mut histogram = LatencyHistogram::default();
            for time in &times {
                histogram.add(*time);
            }
            times.sort_unstable();
            let exact = times[((fraction * times.len() as f64).ceil() as usize).max(1) - 1];
            let found = histogram.quantile_ns(fraction).expect("there are some");
            prop_assert!(found >= exact && found - exact <= exact / STEPS, "{found} for {exact}");
            prop_assert_eq!(histogram.buckets().map(|(_, count)| count).sum::<u64>(), times.len() as u64);
        }
    }
}
