//! Random values, which are equal for all readers of a plan.
//!
//! A stream is ChaCha8 keyed by SHA-256 of the seed of the plan, the actor, the stream and the
//! *fiber*: the part of the actor's program that draws. An actor outside of trials is a fiber, and
//! so are each trial and each child of a `parallel`. The *n*-th value of a fiber uses the *n*-th 64
//! bits of the key stream, so:
//!
//! - an additional stream, actor or trial does not change other values;
//! - a trial that is skipped on resume does not change later trials, even if only the run
//!   determines its number of draws;
//! - parallel children draw the same values in any order of execution.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Error, Scalar};

/// A distribution to draw from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Draw {
    /// Uniform from `low` (included) to `high` (not included).
    Uniform {
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
    /// Exponential.
    Exponential {
        /// Mean.
        mean: f64,
    },
    /// One of some values, with equal probabilities.
    Choice {
        /// The values.
        values: Vec<Scalar>,
    },
    /// One of some values, with probabilities proportional to weights.
    Weighted {
        /// The values.
        values: Vec<Scalar>,
        /// One weight per value, not negative, in any unit.
        weights: Vec<f64>,
    },
}

impl Draw {
    /// Return the value for 64 random bits.
    ///
    /// `Uniform` and `Exponential` (by inversion, −mean · ln(1−u)) use the upper 53 bits as u in [0, 1).
    ///
    /// # Panics
    /// If [`Draw::check`] rejects it.
    #[must_use]
    pub fn value(&self, bits: u64) -> Scalar {
        match self {
            Self::Uniform { low, high } => Scalar::Number(low + (high - low) * unit(bits)),
            // `ln_1p` keeps small values exact, which `ln(1 - u)` would round to 0.
            Self::Exponential { mean } => Scalar::Number(-mean * (-unit(bits)).ln_1p()),
            Self::Choice { values } => {
                let index = (u128::from(bits) * values.len() as u128) >> 64;
                values[usize::try_from(index).expect("below the number of values")].clone()
            }
            Self::Weighted { values, weights } => {
                values[weighted_index(weights, unit(bits))].clone()
            }
        }
    }

    /// Check that values can be drawn.
    ///
    /// # Errors
    /// [`Error::Draw`] with `name` if there are no values, bounds are not in ascending order, or
    /// weights are not valid.
    pub fn check(&self, name: &str) -> Result<(), Error> {
        let wrong = |expected, found: String| {
            Err(Error::Draw {
                draw: name.into(),
                expected,
                found,
            })
        };
        match self {
            Self::Uniform { low, high } if low > high => {
                wrong("low ≤ high", format!("{low} and {high}"))
            }
            Self::Uniform { low, high } if !(high - low).is_finite() => wrong(
                "limits with a finite difference",
                format!("{low} and {high}"),
            ),
            Self::Exponential { mean } if mean.is_nan() || *mean <= 0.0 => {
                wrong("a mean above 0", mean.to_string())
            }
            Self::Choice { values } | Self::Weighted { values, .. } if values.is_empty() => {
                wrong("at least one value", "none".into())
            }
            Self::Weighted { values, weights } if values.len() != weights.len() => wrong(
                "a weight for each value",
                format!("{} values, {} weights", values.len(), weights.len()),
            ),
            Self::Weighted { weights, .. } if !are_weights(weights) => wrong(
                "weights of at least 0, not all of them 0, with a finite sum",
                format!("{weights:?}"),
            ),
            _ => Ok(()),
        }
    }

    /// Return the listed values, or the bounds of a continuous distribution.
    pub(crate) fn range(&self) -> Vec<Scalar> {
        match self {
            Self::Uniform { low, high } => vec![Scalar::Number(*low), Scalar::Number(*high)],
            Self::Exponential { .. } => [0, u64::MAX].map(|bits| self.value(bits)).into(),
            Self::Choice { values } | Self::Weighted { values, .. } => values.clone(),
        }
    }
}

/// Values of one stream in one fiber of one actor.
///
/// ```
/// use venturi_plan::DrawStream;
/// let mut stream = DrawStream::new(1, "client", "size", "");
/// let first = stream.next_bits();
/// let second = stream.next_bits();
/// assert_eq!(DrawStream::new(1, "client", "size", "").nth_bits(1), second);
/// assert_ne!(first, second);
/// ```
#[derive(Debug, Clone)]
pub struct DrawStream {
    generator: ChaCha8Rng,
}

impl DrawStream {
    /// Create the stream of this name. `fiber` is empty for an actor outside of any trial, and the
    /// id in a trial. Each surrounding `parallel` appends `/` and the number of the child:
    /// `t0000012/3`.
    #[must_use]
    pub fn new(seed: u64, actor: &str, stream: &str, fiber: &str) -> Self {
        let mut key = Sha256::new();
        key.update(b"venturi-draw-1");
        key.update(seed.to_le_bytes());
        for part in [actor, stream, fiber] {
            // Hash the length first, so that `ab`, `c` and `a`, `bc` are different streams.
            key.update((part.len() as u64).to_le_bytes());
            key.update(part);
        }
        Self {
            generator: ChaCha8Rng::from_seed(key.finalize().into()),
        }
    }

    /// Return the next 64 bits.
    pub fn next_bits(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// Return the *n*-th 64 bits, from 0; the next value is number *n* + 1.
    pub fn nth_bits(&mut self, n: u64) -> u64 {
        const WORDS_PER_VALUE: u128 = 2;
        self.generator.set_word_pos(u128::from(n) * WORDS_PER_VALUE);
        self.generator.next_u64()
    }
}

/// Return a number in [0, 1) from the upper 53 bits.
#[allow(clippy::cast_precision_loss)] // a double has exactly 53 bits
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

fn are_weights(weights: &[f64]) -> bool {
    let sum: f64 = weights.iter().sum();
    weights.iter().all(|&weight| weight >= 0.0) && sum.is_finite() && sum > 0.0
}

fn weighted_index(weights: &[f64], unit: f64) -> usize {
    let mut left = unit * weights.iter().sum::<f64>();
    for (index, &weight) in weights.iter().enumerate() {
        if left < weight {
            return index;
        }
        left -= weight;
    }
    // Rounding can leave a remainder, which belongs to the last possible value.
    weights
        .iter()
        .rposition(|&weight| weight > 0.0)
        .expect("checked: not all weights are 0")
}

#[cfg(test)]
mod tests;
