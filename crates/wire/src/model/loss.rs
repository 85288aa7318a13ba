//! Which segments a link loses.

use venturi_plan::Loss;

use super::random::Random;

/// The state of a link's loss: how far it is to the next one.
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
        /// Segments that pass before the next loss.
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

    /// Another law from the next segment on. A link begins in the good state.
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

    /// How many of the next `count` segments pass before one is lost; `count` if none is. Those and the lost one are
    /// past then.
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

    /// Whether the next segment is lost. Bursty loss is rare enough to go segment by segment: a step is a decrement.
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

/// Segments in a state that is left with this probability after each: at least 1, `1 / probability` on average.
fn stay(random: &mut Random, probability: f64) -> u64 {
    random.failures_before(probability).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lost or not, segment by segment, asked for in uneven runs.
    fn lost(loss: Loss, segments: usize) -> Vec<bool> {
        let mut process = LossProcess::new(Some(loss), Random::new(7, "a>b", "loss"));
        let mut fate = Vec::new();
        for run in [1_u16, 45, 7, 2].into_iter().cycle() {
            let mut left = run;
            while left > 0 {
                let passed = process.pass(left);
                fate.extend(std::iter::repeat_n(false, passed.into()));
                left -= passed;
                if left > 0 {
                    fate.push(true);
                    left -= 1;
                }
            }
            if fate.len() >= segments {
                return fate;
            }
        }
        unreachable!("the cycle has no end")
    }

    fn share(fate: &[bool]) -> f64 {
        fate.iter().filter(|lost| **lost).count() as f64 / fate.len() as f64
    }

    /// Five standard deviations of a binomial share: fails by chance once in a million seeds, and the seed is fixed.
    fn tolerance(probability: f64, segments: usize) -> f64 {
        5.0 * (probability * (1.0 - probability) / segments as f64).sqrt()
    }

    #[test]
    fn independent_loss_takes_its_share_and_neighbours_do_not_matter() {
        for probability in [1e-4, 1e-3, 0.01, 0.3] {
            let fate = lost(Loss::Independent { probability }, 500_000);
            assert!((share(&fate) - probability).abs() < tolerance(probability, fate.len()));
            let after_a_loss: Vec<bool> = fate.windows(2).filter(|w| w[0]).map(|w| w[1]).collect();
            let bound = tolerance(probability, after_a_loss.len()) + 1e-3;
            assert!((share(&after_a_loss) - probability).abs() < bound);
        }
    }

    #[test]
    fn certain_loss_takes_all_and_none_takes_nothing() {
        assert!((share(&lost(Loss::Independent { probability: 1.0 }, 1000)) - 1.0).abs() < 1e-12);
        assert!(share(&lost(Loss::Independent { probability: 0.0 }, 1000)) == 0.0);
    }

    #[test]
    fn bursts_have_the_mean_length_and_share_of_gilbert_and_elliott() {
        let (enter, leave) = (0.002, 0.1);
        let fate = lost(
            Loss::Bursty {
                enter,
                leave,
                probability: 1.0,
            },
            1_000_000,
        );
        let bursts = fate.windows(2).filter(|w| !w[0] && w[1]).count() as f64;
        let losses = fate.iter().filter(|lost| **lost).count() as f64;
        // About 2000 bursts of geometric length: its standard error is 10 / sqrt(2000), or 2.2 %; that of the share
        // 3.2 %.
        assert!((losses / bursts * leave - 1.0).abs() < 0.09);
        assert!((share(&fate) / (enter / (enter + leave)) - 1.0).abs() < 0.13);
        let mild = Loss::Bursty {
            enter,
            leave,
            probability: 0.5,
        };
        let expected = 0.5 * enter / (enter + leave);
        assert!((share(&lost(mild, 1_000_000)) / expected - 1.0).abs() < 0.13);
    }

    #[test]
    fn the_same_seed_loses_the_same_segments() {
        let loss = Loss::Independent { probability: 0.01 };
        assert_eq!(lost(loss, 10_000), lost(loss, 10_000));
    }
}
