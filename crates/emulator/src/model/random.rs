//! Random draws of a link. Each purpose has a separate stream, keyed by seed, link and purpose, so
//! an additional link or purpose does not change other draws.

use venturi_plan::DrawStream;

/// A stream of draws.
#[derive(Debug, Clone)]
pub(crate) struct Random(DrawStream);

impl Random {
    pub(crate) fn new(seed: u64, link: &str, purpose: &str) -> Self {
        Self(DrawStream::new(seed, "wire", link, purpose))
    }

    /// Return a uniform number from [0, 1).
    #[expect(
        clippy::cast_precision_loss,
        reason = "53 bits fit exactly into a double"
    )]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Return the number of failures before the first success with this probability per trial; it
    /// needs one draw per success, not per trial.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the quotient is not negative; beyond 2^64 it saturates, which is as good as never"
    )]
    pub(crate) fn failures_before(&mut self, probability: f64) -> u64 {
        if probability <= 0.0 {
            return u64::MAX;
        }
        // ln_1p keeps small probabilities exact. For 1 the divisor is −∞ and the quotient 0.
        ((-self.unit()).ln_1p() / (-probability).ln_1p()) as u64
    }

    /// Return a normal deviate of mean 0 and standard deviation 1 (Box and Muller, 1958).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (-self.unit()).ln_1p()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}
