//! Whether disks are fast enough now that a thread of sessions may write by itself, which costs a third less of processors than to
//! hand bytes to another core. A write goes to the page cache and waits for nothing, until the kernel holds back who writes more than
//! disks take; or on file systems without such a cache.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::libc::c_long;
use nix::sys::resource::{UsageWho, getrusage};

/// A write of one buffer that sleeps, and takes longer, has waited. One that takes as long and does not sleep waited for a processor: to
/// hand its bytes to another core would make that worse.
const SLOW: Duration = Duration::from_millis(5);
/// How long all writes are other threads' after one has waited.
const AWAY: Duration = Duration::from_secs(1);

/// What is known of the speed of disks, by all sessions together.
#[derive(Debug)]
pub(crate) struct Pace {
    began: Instant,
    /// In milliseconds from then on.
    slow_until: AtomicU64,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            slow_until: AtomicU64::new(0),
        }
    }

    /// Whether a write is not expected to wait.
    pub(crate) fn is_fast(&self) -> bool {
        self.now_ms() >= self.slow_until.load(Ordering::Relaxed)
    }

    /// Writes, and sees how fast that is.
    pub(crate) fn of<T>(&self, write: impl FnOnce() -> T) -> T {
        let (begin, before) = (Instant::now(), sleeps());
        let written = write();
        if begin.elapsed() > SLOW && sleeps() != before {
            let away = u64::try_from(AWAY.as_millis()).unwrap_or(u64::MAX);
            self.slow_until
                .store(self.now_ms() + away, Ordering::Relaxed);
        }
        written
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// How often this thread has slept.
fn sleeps() -> c_long {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.voluntary_context_switches())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_write_that_waits_sends_the_next_ones_away_and_quick_ones_do_not() {
        let pace = Pace::new();
        assert_eq!(pace.of(|| 7), 7);
        assert!(pace.is_fast());
        pace.of(|| std::thread::sleep(SLOW * 2));
        assert!(!pace.is_fast());
    }

    #[test]
    fn one_write_that_takes_long_where_processors_are_busy_has_not_waited_for_a_disk() {
        let pace = Pace::new();
        pace.of(|| {
            let begin = Instant::now();
            while begin.elapsed() < SLOW * 2 {}
        });
        assert!(pace.is_fast());
    }
}
