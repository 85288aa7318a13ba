//! Losses of a link.

use venturi_plan::Loss;

use super::random::Random;

/// State of the loss of a link: the number of segments before the next loss.
#[derive(Debug)]
pub(crate) struct LossProcess {
    random: Random,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    None,
    Independent {
        probability: f64,
        /// Number of segments before the next loss.
        gap: u64,
    },
    Bursty {
        enter: f64,
        leave: f64,
        probability: f64,
        bad: bool,
        /// Segments left in this state.
        stay: u64,
    },
}

impl LossProcess {
    pub(crate) fn new(loss: Option<Loss>, random: Random) -> Self {
        let mut process = Self {
            random,
            kind: Kind::None,
        };
        process.change(loss);
        process
    }

    /// Change the loss from the next segment on. A link starts in the good state.
    pub(crate) fn change(&mut self, loss: Option<Loss>) {
        self.kind = match loss {
            None => Kind::None,
            Some(Loss::Independent { probability }) => Kind::Independent {
                probability,
                gap: self.random.failures_before(probability),
            },
            Some(Loss::Bursty {
                enter,
                leave,
                probability,
            }) => Kind::Bursty {
                enter,
                leave,
                probability,
                bad: false,
                stay: stay(&mut self.random, enter),
            },
        };
    }

    /// Return the number of segments, up to `count`, before a loss; `count` without a loss. The
    /// state advances by these segments and the lost one.
    #[inline]
    pub(crate) fn pass(&mut self, count: u16) -> u16 {
        match &mut self.kind {
            Kind::None => count,
            Kind::Independent { probability, gap } => {
                if *gap >= u64::from(count) {
                    *gap -= u64::from(count);
                    return count;
                }
                let passed = u16::try_from(*gap).expect("less than `count`");
                *gap = self.random.failures_before(*probability);
                passed
            }
            Kind::Bursty { .. } => (0..count).find(|_| self.bursty_loses()).unwrap_or(count),
        }
    }

    /// Return whether the next segment is lost. Bursty loss is rare enough to advance segment by
    /// segment, with one decrement per step.
    fn bursty_loses(&mut self) -> bool {
        let Kind::Bursty {
            enter,
            leave,
            probability,
            bad,
            stay: left,
        } = &mut self.kind
        else {
            return false;
        };
        let lost = *bad && self.random.unit() < *probability;
        *left -= 1;
        if *left == 0 {
            *bad = !*bad;
            *left = stay(&mut self.random, if *bad { *leave } else { *enter });
        }
        lost
    }
}

/// Draw the number of segments in a state with this exit probability per segment: at least 1, `1 /
/// probability` on average.
fn stay(random: &mut Random, probability: f64) -> u64 {
    random.failures_before(probability).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Return the loss of each segment, requested in uneven runs.
    fn lost(loss: Loss, segments: usize) -> Vec<bool> {
        let mut process = LossProcess::new(Some(loss), Random::new(7, "a>b", "loss"));
        let mut loss_pattern = Vec::new();
        for run in [1_u16, 45, 7, 2].into_iter().cycle() {
            let mut left = run;
            while left > 0 {
                let passed = process.pass(left);
                loss_pattern.extend(std::iter::repeat_n(false, passed.into()));
                left -= passed;
                if left > 0 {
                    loss_pattern.push(true);
                    left -= 1;
                }
            }
            if loss_pattern.len() >= segments {
                return loss_pattern;
            }
        }
        unreachable!("the cycle has no end")
    }

    fn fraction(loss_pattern: &[bool]) -> f64 {
        loss_pattern.iter().filter(|lost| **lost).count() as f64 / loss_pattern.len() as f64
    }

    /// Return five standard deviations of a binomial fraction: a test fails by chance once in a
    /// million seeds, and the seed is fixed.
    fn tolerance(probability: f64, segments: usize) -> f64 {
        5.0 * (probability * (1.0 - probability) / segments as f64).sqrt()
    }

    #[test]
    fn independent_loss_has_its_probability_without_correlation() {
        for probability in [1e-4, 1e-3, 0.01, 0.3] {
            let loss_pattern = lost(Loss::Independent { probability }, 500_000);
            assert!(
                (fraction(&loss_pattern) - probability).abs()
                    < tolerance(probability, loss_pattern.len())
            );
            let after_a_loss: Vec<bool> = loss_pattern
                .windows(2)
                .filter(|w| w[0])
                .map(|w| w[1])
                .collect();
            let bound = tolerance(probability, after_a_loss.len()) + 1e-3;
            assert!((fraction(&after_a_loss) - probability).abs() < bound);
        }
    }

    #[test]
    fn probability_one_loses_all_segments_and_probability_zero_none() {
        assert!(
            (fraction(&lost(Loss::Independent { probability: 1.0 }, 1000)) - 1.0).abs() < 1e-12
        );
        assert!(fraction(&lost(Loss::Independent { probability: 0.0 }, 1000)) == 0.0);
    }

    #[test]
    fn bursts_have_the_mean_length_and_fraction_of_the_gilbert_elliott_model() {
        let (enter, leave) = (0.002, 0.1);
        let loss_pattern = lost(
            Loss::Bursty {
                enter,
                leave,
                probability: 1.0,
            },
            1_000_000,
        );
        let bursts = loss_pattern.windows(2).filter(|w| !w[0] && w[1]).count() as f64;
        let losses = loss_pattern.iter().filter(|lost| **lost).count() as f64;
        // About 2000 bursts of geometric length: the standard errors are 10 / sqrt(2000), or 2.2 %,
        // of their mean, and 3.2 % of the fraction.
        assert!((losses / bursts * leave - 1.0).abs() < 0.09);
        assert!((fraction(&loss_pattern) / (enter / (enter + leave)) - 1.0).abs() < 0.13);
        let mild = Loss::Bursty {
            enter,
            leave,
            probability: 0.5,
        };
        let expected = 0.5 * enter / (enter + leave);
        assert!((fraction(&lost(mild, 1_000_000)) / expected - 1.0).abs() < 0.13);
    }

    #[test]
    fn the_same_seed_loses_the_same_segments() {
        let loss = Loss::Independent { probability: 0.01 };
        assert_eq!(lost(loss, 10_000), lost(loss, 10_000));
    }
}
