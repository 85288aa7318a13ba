//! Jitter of the delay of a link.
//!
//! An Ornstein–Uhlenbeck process: at any time normal with the requested standard deviation σ, and
//! correlated over a time τ. Independent draws for each packet would be wrong. Because packets keep
//! their order, a link with many packets per σ would deliver each packet at the largest draw around
//! it. Then neither the mean nor the deviation would have the requested value.

use super::random::Random;

/// Correlation time in standard deviations. Within a time σ, the delay changes by less than σ/2, so
/// keeping the order rarely changes it.
const CORRELATION: f64 = 10.0;

/// Shortest correlation time.
const SHORTEST_NS: f64 = 1e6;

#[derive(Debug)]
pub(crate) struct Jitter {
    random: Random,
    deviation_ns: f64,
    /// Current value in standard deviations.
    value: f64,
    at_ns: u64,
}

impl Jitter {
    pub(crate) fn new(deviation_ns: f64, mut random: Random) -> Self {
        Self {
            value: random.normal(),
            random,
            deviation_ns,
            at_ns: 0,
        }
    }

    pub(crate) fn change(&mut self, deviation_ns: f64) {
        self.deviation_ns = deviation_ns;
    }

    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.deviation_ns == 0.0
    }

    /// Return the additional delay at a time, in ns. Times must not decrease.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a difference of times is far below 2^53 ns where it matters"
    )]
    pub(crate) fn at(&mut self, now_ns: u64) -> f64 {
        let tau_ns = (CORRELATION * self.deviation_ns).max(SHORTEST_NS);
        let kept = (-(now_ns.saturating_sub(self.at_ns) as f64) / tau_ns).exp();
        self.value = self.value * kept + (1.0 - kept * kept).sqrt() * self.random.normal();
        self.at_ns = now_ns;
        self.value * self.deviation_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_as_requested_at_any_packet_rate() {
        for spacing_ns in [10_000, 300_000, 20_000_000] {
            let mut jitter = Jitter::new(2e5, Random::new(1, "a>b", "jitter"));
            let draws: Vec<f64> = (0..100_000_u64)
                .map(|n| jitter.at(n * spacing_ns))
                .collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let variance =
                draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
            // The densest case has 1 s of a process with a correlation time of 2 ms: about 250
            // independent values, 1/sqrt(500) = 4.5 %.
            assert!(
                (variance.sqrt() / 2e5 - 1.0).abs() < 0.16,
                "{spacing_ns} ns: {}",
                variance.sqrt()
            );
            assert!(mean.abs() < 4e4, "{spacing_ns} ns: {mean}");
        }
    }
}
