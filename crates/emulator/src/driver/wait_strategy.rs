//! Strategy for waiting for the next delivery: sleep as long as possible, then poll, within a CPU
//! budget.
//!
//! A sleep ends some microseconds late. Waking up for an arriving packet takes tens of
//! microseconds, and longer after a long sleep. Polling avoids both delays, but permanent polling
//! would use a whole core and take CPU time from the hosts on the same machine. So polling has a
//! budget. The few deliveries of a round trip or a request are awaited exactly by polling. For the
//! many deliveries of a bulk transfer, some microseconds do not matter, so the thread sleeps.

use super::idle_pollers::IdlePollers;

/// Minimum and maximum time of polling at the end of a wait for a delivery, within the budget …
const AWAKE_NS: std::ops::RangeInclusive<u64> = 60_000..=200_000;
/// … and in between this fraction of the wait, because longer sleeps end later (in a virtual
/// machine about 15 µs after 1 ms, 45 µs after 10 ms, 90 µs after 25 ms). The rest is a short wait,
/// with another sleep in most of it.
const AWAKE_DIVISOR: u64 = 50;
/// Time of polling after an event, because the next event (a response, an acknowledgement) often
/// follows soon. Only if CPUs are idle; otherwise the host that must respond may need this CPU.
const LINGER_NS: u64 = 100_000;
/// Shorter waits than this take less time than a sleep and a wake-up.
const TOO_SHORT_NS: u64 = 4_000;
/// Work and polling together should take at most this percentage of a core. Work itself is not
/// limited; only polling is reduced.
const BUDGET_PERCENT: u64 = 33;
/// With this number of packets in the network, there is a bulk transfer. Its packets come in groups. It does not notice
/// that a group is some microseconds late, so the thread sleeps until the next delivery …
const BULK_PACKETS: u64 = 32;
/// … if all round trips are this long. A sleep ends up to 90 µs late, which is then below 1 % of a round trip, as the
/// groups themselves are (`model/limits.rs`).
const BULK_RTT_NS: u64 = 10_000_000;
/// Limits of the saved and the owed budget.
const MAX_BUDGET_NS: i64 = 2_000_000;
/// A thread that works more than this percentage of its time gets a helper if a CPU is free …
const START_HELP_PERCENT: u64 = 70;
/// … and keeps it while it works more than this percentage with the helper.
const STOP_HELP_PERCENT: u64 = 25;
/// Weight of a new reading of the number of running threads.
const READING_WEIGHT: f64 = 0.3;

/// Action until the next due time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Check for a packet, and return immediately.
    Poll,
    /// Sleep until a packet arrives, or until this time.
    Sleep { until_ns: u64 },
}

#[derive(Debug)]
pub(crate) struct WaitStrategy {
    spin: bool,
    /// In a bulk transfer, sleep until the next delivery.
    sleeps_in_bulk: bool,
    awake: IdlePollers,
    /// Number of CPUs of the machine.
    cpus: f64,
    running: f64,
    budget_ns: i64,
    /// Time up to which the budget has been charged.
    paid_ns: u64,
    /// Time of the last event.
    active_ns: u64,
    /// Time of work on packets since the last reading.
    work_ns: u64,
    /// Time of the last reading.
    read_ns: u64,
    is_helped: bool,
}

impl WaitStrategy {
    /// `smallest_rtt_ns`: smallest round-trip time of the network, if hosts can communicate.
    pub(crate) fn new(
        spin: bool,
        cpus: usize,
        awake: IdlePollers,
        smallest_rtt_ns: Option<u64>,
    ) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a number of CPUs")]
        let cpus = cpus as f64;
        Self {
            spin,
            sleeps_in_bulk: smallest_rtt_ns.is_some_and(|rtt_ns| rtt_ns >= BULK_RTT_NS),
            awake,
            cpus,
            // Assume a busy machine until the first reading.
            running: f64::INFINITY,
            budget_ns: MAX_BUDGET_NS,
            paid_ns: 0,
            active_ns: 0,
            work_ns: 0,
            read_ns: 0,
            is_helped: false,
        }
    }

    /// Record that a packet arrived or was delivered.
    #[inline]
    pub(crate) fn happened(&mut self, now_ns: u64) {
        self.active_ns = now_ns;
        if self.is_roomy() {
            self.awake.happened(now_ns);
        }
    }

    /// Return whether the machine has idle CPUs.
    #[inline]
    fn is_roomy(&self) -> bool {
        self.running <= self.cpus / 2.0
    }

    /// Take a reading of the number of running threads of the machine, including pollers; none:
    /// unknown.
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
            // The helper is one more running thread; a short overload does not stop it.
            percent > STOP_HELP_PERCENT && self.running < self.cpus + 1.0
        } else {
            percent > START_HELP_PERCENT && self.running < self.cpus
        };
    }

    /// Return whether a second thread must write packets.
    #[inline]
    pub(crate) fn is_helped(&self) -> bool {
        self.is_helped
    }

    /// Return how to wait until the next due event. `held`: packets in the network.
    #[inline]
    pub(crate) fn wait(&mut self, now_ns: u64, due_ns: u64, held: u64) -> Wait {
        // Time without sleep is work or polling.
        if self.active_ns >= self.paid_ns {
            self.work_ns += now_ns - self.paid_ns;
        }
        self.pay(now_ns, true);
        let left_ns = due_ns.saturating_sub(now_ns);
        if self.spin || left_ns <= TOO_SHORT_NS {
            return Wait::Poll;
        }
        let is_bulk = self.sleeps_in_bulk && held >= BULK_PACKETS;
        if is_bulk || self.budget_ns <= 0 {
            return Wait::Sleep { until_ns: due_ns };
        }
        let lingers = self.is_roomy() && now_ns < self.active_ns + LINGER_NS;
        let awake_ns = (left_ns / AWAKE_DIVISOR).clamp(*AWAKE_NS.start(), *AWAKE_NS.end());
        if left_ns <= awake_ns || lingers {
            Wait::Poll
        } else {
            Wait::Sleep {
                until_ns: due_ns - awake_ns,
            }
        }
    }

    /// Return the CPU time for keeping the machine awake, in ns, which no other thread needed.
    pub(crate) fn awake_cpu_ns(&self) -> u64 {
        self.awake.cpu_ns()
    }

    /// Record the end of a sleep.
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
        self.budget_ns = (self.budget_ns + change_ns).clamp(-MAX_BUDGET_NS, MAX_BUDGET_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL_NS: u64 = 200;

    fn new(spin: bool) -> WaitStrategy {
        WaitStrategy::new(spin, 4, IdlePollers::default(), Some(1_000_000))
    }

    /// Simulate a second of waits, with `work_ns` ns of work every `period_ns` ns; return the
    /// fraction of time spent polling.
    fn awake_fraction(strategy: &mut WaitStrategy, period_ns: u64, work_ns: u64, held: u64) -> f64 {
        let (mut now_ns, mut awake_ns) = (0, 0);
        let mut due_ns = period_ns;
        while now_ns < 1_000_000_000 {
            match strategy.wait(now_ns, due_ns, held) {
                Wait::Poll => {
                    now_ns += POLL_NS;
                    awake_ns += POLL_NS;
                }
                Wait::Sleep { until_ns } => {
                    now_ns = until_ns.max(now_ns + 1);
                    strategy.slept(now_ns);
                }
            }
            if now_ns >= due_ns {
                strategy.happened(now_ns);
                now_ns += work_ns;
                due_ns = now_ns + period_ns;
            }
        }
        awake_ns as f64 / now_ns as f64
    }

    #[test]
    fn the_strategy_stays_awake_for_rare_deliveries() {
        let mut strategy = new(false);
        let fraction = awake_fraction(&mut strategy, 10_000_000, 5_000, 1);
        assert!(
            (0.005..0.008).contains(&fraction),
            "60 µs in 10 ms: {fraction}"
        );
        strategy = new(false);
        strategy.see_running(0, Some(1));
        let fraction = awake_fraction(&mut strategy, 10_000_000, 5_000, 1);
        assert!(
            (0.014..0.018).contains(&fraction),
            "and 100 µs of lingering on idle cores: {fraction}"
        );
    }

    #[test]
    fn many_deliveries_stay_within_the_budget() {
        for (period_ns, work_ns) in [(10_000, 1_000), (50_000, 15_000), (125_000, 30_000)] {
            let mut strategy = new(false);
            strategy.see_running(0, Some(1));
            let fraction = awake_fraction(&mut strategy, period_ns, work_ns, 100);
            let work = work_ns as f64 / (period_ns + work_ns) as f64;
            assert!(
                fraction + work < 0.36,
                "every {period_ns} ns: {fraction} + {work}"
            );
        }
    }

    #[test]
    fn the_strategy_sleeps_if_work_uses_the_whole_budget() {
        let mut strategy = new(false);
        let fraction = awake_fraction(&mut strategy, 20_000, 30_000, 100);
        assert!(fraction < 0.01, "{fraction}");
    }

    #[test]
    fn the_strategy_sleeps_during_a_bulk_transfer_over_a_long_round_trip() {
        for (rtt_ns, held, expected) in [
            (BULK_RTT_NS, BULK_PACKETS, false),
            (BULK_RTT_NS, BULK_PACKETS - 1, true),
            (BULK_RTT_NS - 1, BULK_PACKETS, true),
        ] {
            let awake = IdlePollers::default();
            let mut strategy = WaitStrategy::new(false, 4, awake, Some(rtt_ns));
            let fraction = awake_fraction(&mut strategy, 125_000, 10_000, held);
            assert_eq!(
                fraction > 0.01,
                expected,
                "{rtt_ns} ns, {held} packets: {fraction}"
            );
        }
    }

    #[test]
    fn spinning_never_sleeps() {
        assert!(awake_fraction(&mut new(true), 10_000_000, 5_000, 1) > 0.99);
    }

    #[test]
    fn a_busy_worker_is_helped_if_a_core_is_free() {
        for (working_ns, threads, expected) in
            [(90_000, 2, true), (50_000, 2, false), (90_000, 4, false)]
        {
            let mut strategy = new(false);
            // Turns of 100 µs: work on a packet, then a sleep.
            for turn in 0..1000 {
                let start_ns = turn * 100_000;
                strategy.happened(start_ns);
                let _ = strategy.wait(start_ns + working_ns, u64::MAX, 1);
                strategy.slept(start_ns + 100_000);
            }
            strategy.see_running(100_000_000, Some(threads));
            assert_eq!(
                strategy.is_helped(),
                expected,
                "{working_ns} ns of 100 µs with {threads}"
            );
        }
    }
}
