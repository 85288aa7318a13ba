//! The clock of an agent: `CLOCK_MONOTONIC`, and its relation to the epoch of the run.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds in a second.
pub(crate) const NS_PER_S: u64 = 1_000_000_000;

/// Returns the time of `CLOCK_MONOTONIC`, in nanoseconds. `std::time::Instant` would hide the
/// number that the controller and other programs on this host, such as the start probe of the
/// benchmark, compare.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Returns the time since the boot of the host, including suspend: the clock of process start
/// times.
pub(crate) fn boot_ns() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// Returns the CPU time of this thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec for the call to fill; the clock id is a constant that
    // every Linux supports.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.unsigned_abs() * NS_PER_S + time.tv_nsec.unsigned_abs()
}

/// Returns the wall-clock time in nanoseconds since 1970.
pub(crate) fn unix_ns() -> u64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts times of the monotonic clock to seconds since the epoch of the run.
///
/// The wall clock is read only once, to set the epoch, so a step of it during the run has no
/// effect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunClock {
    /// The epoch on the monotonic clock; negative if the run is older than the boot of the host.
    epoch_monotonic_ns: i128,
}

impl RunClock {
    /// Creates the clock of a run whose epoch is `epoch_unix_ns` on the wall clock.
    pub(crate) fn new(epoch_unix_ns: u64) -> Self {
        let age_ns = i128::from(unix_ns()) - i128::from(epoch_unix_ns);
        Self {
            epoch_monotonic_ns: i128::from(monotonic_ns()) - age_ns,
        }
    }

    /// Converts a time of [`monotonic_ns`] to seconds since the epoch.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a run of 100 days still resolves 2 ns in an f64"
    )]
    pub(crate) fn seconds_at(&self, monotonic_ns: u64) -> f64 {
        (i128::from(monotonic_ns) - self.epoch_monotonic_ns) as f64 / NS_PER_S as f64
    }

    /// Returns the current time in seconds since the epoch.
    pub(crate) fn now_s(&self) -> f64 {
        self.seconds_at(monotonic_ns())
    }

    /// Converts a time of the run to the monotonic clock; a time before this boot gives 0, which is
    /// in the past.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a time of the run is far below 2^63 ns"
    )]
    pub(crate) fn monotonic_ns_at(&self, time_s: f64) -> u64 {
        let ns = self.epoch_monotonic_ns + (time_s * NS_PER_S as f64) as i128;
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_the_run_survives_the_conversion_to_the_monotonic_clock_and_back() {
        let clock = RunClock::new(unix_ns() - 3 * NS_PER_S);
        let there = clock.monotonic_ns_at(12.5);
        assert!((clock.seconds_at(there) - 12.5).abs() < 1e-6);
        assert!(
            (clock.now_s() - 3.0).abs() < 0.5,
            "an epoch three seconds ago lies three seconds back"
        );
    }

    #[test]
    fn an_epoch_before_the_boot_of_the_host_does_not_overflow() {
        let clock = RunClock::new(0);
        assert!(clock.now_s() > 1e9);
        assert_eq!(clock.monotonic_ns_at(0.0), 0);
    }
}
