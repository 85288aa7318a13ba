//! Latencies in buckets whose width grows with the value: bounded memory, known error.

/// Buckets of a power of two.
const STEPS: u64 = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Up to 2⁴⁴ ns, nearly five hours: whatever is longer counts in the last bucket.
const POWERS: usize = 44;
const BUCKETS: usize = (POWERS - STEP_BITS as usize + 1) * STEPS as usize;

/// Counts of times in nanoseconds, each known to 1/32 of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
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

impl Histogram {
    /// Counts one time.
    pub fn add(&mut self, time_ns: u64) {
        self.counts[bucket(time_ns)] += 1;
        self.count += 1;
        self.sum_ns += u128::from(time_ns);
        self.min_ns = self.min_ns.min(time_ns);
        self.max_ns = self.max_ns.max(time_ns);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The exact mean; none of nothing.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// The exact smallest and largest; none of nothing.
    #[must_use]
    pub fn range_ns(&self) -> Option<(u64, u64)> {
        (self.count > 0).then_some((self.min_ns, self.max_ns))
    }

    /// The time that a share of all is at or below, to 1/32 of itself above; none of nothing.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let wanted = ((share * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Some(upper(index).min(self.max_ns));
            }
        }
        None
    }

    /// The buckets that hold something: the largest time of each, and how many are in it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate();
        counts
            .filter(|(_, count)| **count > 0)
            .map(|(index, count)| (upper(index), *count))
    }
}

/// Below 32 ns each nanosecond has a bucket; from there on each power of two has 32.
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
    fn of_nothing_there_is_no_mean_and_no_quantile() {
        let empty = Histogram::default();
        assert_eq!(
            (empty.mean_ns(), empty.quantile_ns(0.5), empty.range_ns()),
            (None, None, None)
        );
    }

    #[test]
    fn a_time_beyond_the_last_bucket_is_counted_in_it() {
        let mut histogram = Histogram::default();
        histogram.add(u64::MAX);
        assert_eq!(histogram.count(), 1);
        assert_eq!(histogram.range_ns(), Some((u64::MAX, u64::MAX)));
    }

    proptest! {
        #[test]
        fn a_bucket_holds_the_time_and_is_no_wider_than_a_32nd_of_it(time_ns in 0u64..(1 << 43)) {
            let index = bucket(time_ns);
            prop_assert!(time_ns <= upper(index));
            prop_assert!(index == 0 || time_ns > upper(index - 1));
            prop_assert!(upper(index) - time_ns <= time_ns / STEPS);
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_times_to_a_32nd(
            mut times in prop::collection::vec(0u64..10_000_000_000, 1..200), share in 0.01f64..1.0,
        ) {
            let mut histogram = Histogram::default();
            for time in &times {
                histogram.add(*time);
            }
            times.sort_unstable();
            let exact = times[((share * times.len() as f64).ceil() as usize).max(1) - 1];
            let found = histogram.quantile_ns(share).expect("there are some");
            prop_assert!(found >= exact && found - exact <= exact / STEPS, "{found} for {exact}");
            prop_assert_eq!(histogram.buckets().map(|(_, count)| count).sum::<u64>(), times.len() as u64);
        }
    }
}
