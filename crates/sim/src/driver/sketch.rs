//! Distribution of a quantity in little memory: counts of values by their logarithm, so that each
//! quantile has a bounded relative error (Masson, Rim and Lee, *DDSketch*, PVLDB 12(12), 2019).
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | α | relative error of a quantile | 1 |
//! | γ | (1 + α)/(1 − α) | 1 |
//! | i | number of a bucket, which contains γ^(i−1) < x ≤ γ^i and represents 2γ^i/(γ + 1) | 1 |

/// α of the table above.
pub const RELATIVE_ERROR: f64 = 0.01;
const GAMMA: f64 = (1.0 + RELATIVE_ERROR) / (1.0 - RELATIVE_ERROR);
/// Lower bound of values: a nanosecond if the unit is a second. Smaller values count as this.
const MIN: f64 = 1e-9;
/// Upper bound of values: three centuries, the longest time of a plan. Larger values count as this.
const MAX: f64 = 1e10;

/// Counts of values above 0 by their logarithm.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sketch {
    first: i32,
    counts: Vec<u32>,
}

impl Sketch {
    /// Add a value.
    pub fn add(&mut self, value: f64) {
        let value = value.clamp(MIN, MAX);
        let bucket = (value.ln() / GAMMA.ln()).ceil() as i32;
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let missing = (self.first - bucket) as usize;
            self.counts
                .splice(..0, std::iter::repeat_n(0, missing))
                .for_each(drop);
            self.first = bucket;
        }
        let index = (bucket - self.first) as usize;
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] = self.counts[index].saturating_add(1);
    }

    /// Return the quantile for this fraction, to [`RELATIVE_ERROR`]; none if there are no values.
    pub fn quantile(&self, fraction: f64) -> Option<f64> {
        let whole: u64 = self.counts.iter().map(|&count| u64::from(count)).sum();
        // The smallest value whose rank is at least this: the quantile of type 1 (Hyndman and Fan 1996).
        let rank = ((fraction * whole as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, &count) in (self.first..).zip(&self.counts) {
            seen += u64::from(count);
            if seen >= rank {
                return Some(2.0 * GAMMA.powi(bucket) / (GAMMA + 1.0));
            }
        }
        None
    }

    /// Return the number of the first bucket, and the counts from there.
    pub fn into_counts(self) -> (i32, Vec<u32>) {
        (self.first, self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_the_stated_error_regardless_of_the_distribution() {
        // Logarithmic, uniform and heavy-tailed distributions, in an order that rises and falls.
        let laws: [fn(f64) -> f64; 3] = [
            |u| (20.0 * u - 8.0).exp(),
            |u| 5.0 + u,
            |u| (1.0 - u).powf(-1.3),
        ];
        for law in laws {
            let mut sketch = Sketch::default();
            let mut all: Vec<f64> = (0..5000)
                .map(|number| law(f64::from(number * 1919 % 5000) / 5000.0))
                .collect();
            all.iter().for_each(|&value| sketch.add(value));
            all.sort_by(f64::total_cmp);
            for fraction in [0.0, 0.001, 0.5, 0.9, 0.99, 1.0] {
                let exact = all[((fraction * 5000.0_f64).ceil() as usize).max(1) - 1];
                let found = sketch.quantile(fraction).expect("there are values");
                let error = (found / exact - 1.0).abs();
                assert!(
                    error <= RELATIVE_ERROR * (1.0 + 1e-9),
                    "{fraction}: {error}"
                );
            }
        }
    }

    #[test]
    fn an_empty_sketch_has_no_quantile_and_zero_counts_as_a_nanosecond() {
        let mut sketch = Sketch::default();
        assert_eq!(sketch.quantile(0.5), None);
        sketch.add(0.0);
        let found = sketch.quantile(0.5).expect("there is one");
        assert!((found / 1e-9 - 1.0).abs() <= RELATIVE_ERROR, "{found}");
    }
}
