//! How to wait for the next delivery: asleep as long as possible, awake for the end, as long as that is cheap.
//!
//! A sleep ends 5 to 30 µs late, and more after a long one. Waiting awake for the last part hides that; doing it
//! before every delivery of a busy link would cost a whole core, and would keep the hosts, which live on the same
//! cores, from running. So being awake is on a budget: a few deliveries (round trips, requests) are waited for
//! exactly; the many of a bulk transfer, where some microseconds change nothing, are slept for.

/// The last part of a wait that is spent awake, while the budget lasts.
const AWAKE_NS: u64 = 60_000;
/// A wait that is shorter than falling asleep and waking up.
const TOO_SHORT_NS: u64 = 4_000;
/// Share of the time that may be spent awake: one part in so many.
const BUDGET_SHARE: u64 = 10;
/// What may be saved up.
const BUDGET_MOST_NS: u64 = 2_000_000;

/// What to do until something is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Look whether a packet has come, and come back at once.
    Look,
    /// Sleep until a packet comes, or this time.
    Sleep { until_ns: u64 },
}

#[derive(Debug)]
pub(crate) struct Patience {
    spin: bool,
    budget_ns: u64,
    /// When the budget was last filled.
    filled_ns: u64,
    /// Since when we have been looking, if the last wait was that.
    looking_ns: Option<u64>,
}

impl Patience {
    pub(crate) fn new(spin: bool) -> Self {
        Self {
            spin,
            budget_ns: BUDGET_MOST_NS,
            filled_ns: 0,
            looking_ns: None,
        }
    }

    /// How to wait from now on until something is due.
    pub(crate) fn wait(&mut self, now_ns: u64, due_ns: u64) -> Wait {
        self.account(now_ns);
        let left_ns = due_ns.saturating_sub(now_ns);
        let affordable = self.budget_ns > AWAKE_NS;
        if self.spin || left_ns <= TOO_SHORT_NS {
            Wait::Look
        } else if !affordable {
            Wait::Sleep { until_ns: due_ns }
        } else if left_ns <= AWAKE_NS {
            self.looking_ns = Some(now_ns);
            Wait::Look
        } else {
            Wait::Sleep {
                until_ns: due_ns - AWAKE_NS,
            }
        }
    }

    /// Pays for the time awake, and fills the budget.
    fn account(&mut self, now_ns: u64) {
        let earned_ns = (now_ns - self.filled_ns) / BUDGET_SHARE;
        self.filled_ns = now_ns;
        let spent_ns = self
            .looking_ns
            .take()
            .map_or(0, |since_ns| now_ns - since_ns);
        self.budget_ns = (self.budget_ns + earned_ns)
            .saturating_sub(spent_ns)
            .min(BUDGET_MOST_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets time pass as the waits say, with something due every `period_ns`; the share of the time awake.
    fn share_awake(spin: bool, period_ns: u64) -> f64 {
        const LOOK_NS: u64 = 200;
        let mut patience = Patience::new(spin);
        let (mut now_ns, mut awake_ns) = (0, 0);
        let mut due_ns = period_ns;
        while now_ns < 1_000_000_000 {
            match patience.wait(now_ns, due_ns) {
                Wait::Look => {
                    now_ns += LOOK_NS;
                    awake_ns += LOOK_NS;
                }
                Wait::Sleep { until_ns } => now_ns = until_ns.max(now_ns + 1),
            }
            if now_ns >= due_ns {
                due_ns = now_ns + period_ns;
            }
        }
        awake_ns as f64 / now_ns as f64
    }

    #[test]
    fn rare_deliveries_are_waited_for_awake_and_many_do_not_cost_a_core() {
        let rare = share_awake(false, 10_000_000);
        assert!((0.004..0.02).contains(&rare), "60 µs in 10 ms: {rare}");
        for period_ns in [10_000, 50_000, 125_000, 500_000] {
            let busy = share_awake(false, period_ns);
            assert!(busy < 0.15, "every {period_ns} ns: {busy}");
        }
    }

    #[test]
    fn spinning_never_sleeps() {
        assert!(share_awake(true, 10_000_000) > 0.999);
    }
}
