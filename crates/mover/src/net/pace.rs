//! Whether disks are fast enough now that a thread of sessions may write by itself, which costs a third less of processors than to
//! hand bytes to another core. A write goes to the page cache and waits for nothing, until the kernel holds back who writes more than
//! disks take; or on file systems without such a cache.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A write of one buffer that takes longer has waited.
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

    /// Tells how long a write took.
    pub(crate) fn took(&self, time: Duration) {
        if time > SLOW {
            let away = u64::try_from(AWAY.as_millis()).unwrap_or(u64::MAX);
            self.slow_until
                .store(self.now_ms() + away, Ordering::Relaxed);
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_write_that_waits_sends_the_next_ones_away_and_quick_ones_do_not() {
        let pace = Pace::new();
        pace.took(Duration::from_micros(100));
        assert!(pace.is_fast());
        pace.took(SLOW * 2);
        assert!(!pace.is_fast());
    }
}
