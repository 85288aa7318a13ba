//! How to wait for the next delivery: asleep as long as possible, awake for the end, as long as that is cheap.
//!
//! A sleep ends some microseconds late, and waking up for a packet that comes takes tens, more after a long sleep.
//! Waiting awake hides both; doing it all the time would cost a core, and would keep the hosts, which live on the same
//! cores, from running. So being awake is on a budget: the few deliveries of a round trip or a request are waited for
//! exactly; for the many of a bulk transfer, where some microseconds change nothing, one sleeps.

use super::awake::Awake;

/// The last part of a wait for a delivery is spent awake, if there is budget: so much at least and at most …
const AWAKE_NS: std::ops::RangeInclusive<u64> = 60_000..=200_000;
/// … and in between one part in so many of the wait, as a sleep ends the later the longer it was (in a virtual machine
/// some 15 µs after 1 ms, 45 after 10, 90 after 25). What is left then is a short wait, most of which is slept again.
const AWAKE_SHARE: u64 = 50;
/// After something happened the next is often near (an answer, an acknowledgement): so long one looks for it before
/// falling asleep. Only where processors are idle; else the host that is to answer may want this one.
const LINGER_NS: u64 = 100_000;
/// A wait that is shorter than falling asleep and waking up.
const TOO_SHORT_NS: u64 = 4_000;
/// Work and being awake together shall not take more than this part of a core, in hundredths. More work is done, of
/// course; it is being awake that has to give way.
const BUDGET_PERCENT: u64 = 33;
/// What may be saved up, and what may be owed.
const BUDGET_MOST_NS: i64 = 2_000_000;
/// A thread that works more than this part of its time, in hundredths, wants help if a processor is free …
const WANTS_HELP_PERCENT: u64 = 70;
/// … and as long as it works more than this part with it.
const KEEPS_HELP_PERCENT: u64 = 25;
/// Weight of a new reading of how many threads run.
const READING_WEIGHT: f64 = 0.3;

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
    awake: Awake,
    /// Processors of the machine.
    processors: f64,
    running: f64,
    budget_ns: i64,
    /// Up to when time has been paid for.
    paid_ns: u64,
    /// When something happened last.
    active_ns: u64,
    /// Time that was spent on packets since the last reading.
    work_ns: u64,
    /// When that was.
    read_ns: u64,
    is_helped: bool,
}

impl Patience {
    pub(crate) fn new(spin: bool, processors: usize, awake: Awake) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a number of processors")]
        let processors = processors as f64;
        Self {
            spin,
            awake,
            processors,
            // Crowded until proven otherwise.
            running: f64::INFINITY,
            budget_ns: BUDGET_MOST_NS,
            paid_ns: 0,
            active_ns: 0,
            work_ns: 0,
            read_ns: 0,
            is_helped: false,
        }
    }

    /// A packet came or was handed over.
    #[inline]
    pub(crate) fn happened(&mut self, now_ns: u64) {
        self.active_ns = now_ns;
        if self.is_roomy() {
            self.awake.happened(now_ns);
        }
    }

    /// Whether the machine has idle processors.
    #[inline]
    fn is_roomy(&self) -> bool {
        self.running <= self.processors / 2.0
    }

    /// So many threads run on the machine right now, those included that only keep it awake; none: it does not tell.
    pub(crate) fn see_running(&mut self, now_ns: u64, threads: Option<u32>) {
        let threads = threads.map(|threads| threads.saturating_sub(self.awake.polling(now_ns)));
        let threads = threads.map_or(f64::INFINITY, f64::from);
        self.running = if self.running.is_finite() {
            self.running + READING_WEIGHT * (threads - self.running)
        } else {
            threads
        };
        if !self.is_roomy() {
            self.awake.rest();
        }
        let passed_ns = now_ns - std::mem::replace(&mut self.read_ns, now_ns);
        let percent = 100 * std::mem::take(&mut self.work_ns) / passed_ns.max(1);
        self.is_helped = if self.is_helped {
            // With the helper one thread more runs; being crowded for a moment is not a reason.
            percent > KEEPS_HELP_PERCENT && self.running < self.processors + 1.0
        } else {
            percent > WANTS_HELP_PERCENT && self.running < self.processors
        };
    }

    /// Whether packets are to be written by a second thread.
    #[inline]
    pub(crate) fn is_helped(&self) -> bool {
        self.is_helped
    }

    /// How to wait from now on until something is due.
    #[inline]
    pub(crate) fn wait(&mut self, now_ns: u64, due_ns: u64) -> Wait {
        // What was not slept is work or being awake.
        if self.active_ns >= self.paid_ns {
            self.work_ns += now_ns - self.paid_ns;
        }
        self.pay(now_ns, true);
        let left_ns = due_ns.saturating_sub(now_ns);
        if self.spin || left_ns <= TOO_SHORT_NS {
            return Wait::Look;
        }
        if self.budget_ns <= 0 {
            return Wait::Sleep { until_ns: due_ns };
        }
        let lingers = self.is_roomy() && now_ns < self.active_ns + LINGER_NS;
        let awake_ns = (left_ns / AWAKE_SHARE).clamp(*AWAKE_NS.start(), *AWAKE_NS.end());
        if left_ns <= awake_ns || lingers {
            Wait::Look
        } else {
            Wait::Sleep {
                until_ns: due_ns - awake_ns,
            }
        }
    }

    /// Processor time that went into keeping the machine awake, in ns: only such as nobody else wanted.
    pub(crate) fn awake_cpu_ns(&self) -> u64 {
        self.awake.cpu_ns()
    }

    /// A sleep is over.
    #[inline]
    pub(crate) fn slept(&mut self, now_ns: u64) {
        self.pay(now_ns, false);
    }

    #[inline]
    fn pay(&mut self, now_ns: u64, awake: bool) {
        let passed_ns = now_ns - self.paid_ns;
        self.paid_ns = now_ns;
        let spent_ns = if awake { passed_ns } else { 0 };
        let change_ns = (passed_ns * BUDGET_PERCENT / 100).cast_signed() - spent_ns.cast_signed();
        self.budget_ns = (self.budget_ns + change_ns).clamp(-BUDGET_MOST_NS, BUDGET_MOST_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK_NS: u64 = 200;

    /// Lets a second pass as the waits say, with something due every `period_ns` that is `work_ns` of work: the share of
    /// the time spent awake without work.
    fn share_awake(patience: &mut Patience, period_ns: u64, work_ns: u64) -> f64 {
        let (mut now_ns, mut awake_ns) = (0, 0);
        let mut due_ns = period_ns;
        while now_ns < 1_000_000_000 {
            match patience.wait(now_ns, due_ns) {
                Wait::Look => {
                    now_ns += LOOK_NS;
                    awake_ns += LOOK_NS;
                }
                Wait::Sleep { until_ns } => {
                    now_ns = until_ns.max(now_ns + 1);
                    patience.slept(now_ns);
                }
            }
            if now_ns >= due_ns {
                patience.happened(now_ns);
                now_ns += work_ns;
                due_ns = now_ns + period_ns;
            }
        }
        awake_ns as f64 / now_ns as f64
    }

    #[test]
    fn rare_deliveries_are_waited_for_awake() {
        let mut patience = Patience::new(false, 4, Awake::default());
        let share = share_awake(&mut patience, 10_000_000, 5_000);
        assert!((0.005..0.008).contains(&share), "60 µs in 10 ms: {share}");
        patience = Patience::new(false, 4, Awake::default());
        patience.see_running(0, Some(1));
        let share = share_awake(&mut patience, 10_000_000, 5_000);
        assert!(
            (0.014..0.018).contains(&share),
            "and 100 µs of lingering where processors are idle: {share}"
        );
    }

    #[test]
    fn many_deliveries_do_not_cost_more_than_the_budget() {
        for (period_ns, work_ns) in [(10_000, 1_000), (50_000, 15_000), (125_000, 30_000)] {
            let mut patience = Patience::new(false, 4, Awake::default());
            patience.see_running(0, Some(1));
            let share = share_awake(&mut patience, period_ns, work_ns);
            let work = work_ns as f64 / (period_ns + work_ns) as f64;
            assert!(
                share + work < 0.36,
                "every {period_ns} ns: {share} + {work}"
            );
        }
    }

    #[test]
    fn where_work_takes_all_of_the_budget_nothing_is_waited_for_awake() {
        let mut patience = Patience::new(false, 4, Awake::default());
        let share = share_awake(&mut patience, 20_000, 30_000);
        assert!(share < 0.01, "{share}");
    }

    #[test]
    fn spinning_never_sleeps() {
        assert!(
            share_awake(
                &mut Patience::new(true, 4, Awake::default()),
                10_000_000,
                5_000
            ) > 0.99
        );
    }

    #[test]
    fn help_is_wanted_by_who_works_most_of_the_time_where_a_processor_is_free() {
        for (working_ns, threads, expected) in
            [(90_000, 2, true), (50_000, 2, false), (90_000, 4, false)]
        {
            let mut patience = Patience::new(false, 4, Awake::default());
            // Turns of 100 µs: a packet is worked on, then a sleep.
            for turn in 0..1000 {
                let start_ns = turn * 100_000;
                patience.happened(start_ns);
                let _ = patience.wait(start_ns + working_ns, u64::MAX);
                patience.slept(start_ns + 100_000);
            }
            patience.see_running(100_000_000, Some(threads));
            assert_eq!(
                patience.is_helped(),
                expected,
                "{working_ns} ns of 100 µs beside {threads}"
            );
        }
    }
}
