//! Estimate of the write speed: if writes do not wait, the thread of a session writes itself, with a third less CPU time than
//! with another thread. A write goes to the page cache without waiting, until the kernel throttles processes that write more than
//! the disk accepts, or on file systems without page cache.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::libc::c_long;
use nix::sys::resource::{UsageWho, getrusage};

/// A write of one buffer that sleeps for at least this time has waited for the disk. A slow write without sleep waited for a CPU;
/// another thread would not help.
const SLOW: Duration = Duration::from_millis(5);
/// Time during which other threads do all writes after a write that waited.
const AWAY: Duration = Duration::from_secs(1);

/// Write speed as seen by all sessions.
#[derive(Debug)]
pub(crate) struct DiskSpeed {
    started: Instant,
    /// Milliseconds since `start`.
    slow_until: AtomicU64,
}

impl DiskSpeed {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            slow_until: AtomicU64::new(0),
        }
    }

    /// True if the next write will probably not wait.
    pub(crate) fn is_fast(&self) -> bool {
        self.now_ms() >= self.slow_until.load(Ordering::Relaxed)
    }

    /// Runs a write and measures it.
    pub(crate) fn of<T>(&self, write: impl FnOnce() -> T) -> T {
        let (start, before) = (Instant::now(), sleeps());
        let written = write();
        if start.elapsed() > SLOW && sleeps() != before {
            let away = u64::try_from(AWAY.as_millis()).unwrap_or(u64::MAX);
            self.slow_until
                .store(self.now_ms() + away, Ordering::Relaxed);
        }
        written
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Returns how often this thread has slept.
fn sleeps() -> c_long {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.voluntary_context_switches())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_write_marks_the_disk_as_slow_and_a_fast_one_does_not() {
        let pace = DiskSpeed::new();
        assert_eq!(pace.of(|| 7), 7);
        assert!(pace.is_fast());
        pace.of(|| std::thread::sleep(SLOW * 2));
        assert!(!pace.is_fast());
    }

    #[test]
    fn a_long_write_on_a_busy_core_does_not_mark_the_disk_as_slow() {
        let pace = DiskSpeed::new();
        pace.of(|| {
            let start = Instant::now();
            while start.elapsed() < SLOW * 2 {}
        });
        assert!(pace.is_fast());
    }
}
