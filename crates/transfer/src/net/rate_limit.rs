//! Rate limit of a copy (`--max-rate`), for all its connections and files together.
//!
//! A thread that has moved a block waits until the block would have been moved at the limit. The rate from the first byte on
//! is never above the limit, apart from [`SLACK`] and from data in the buffers of the kernel. A reader that waits makes the
//! sender wait, too, by the flow control of TCP.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::stop::CancelToken;

/// Longest wait between two checks whether the copy was cancelled.
const CHECK: Duration = Duration::from_millis(50);

/// Lost time that a copy can make up for: moving a block takes time, and a thread can wake up late.
const SLACK: Duration = Duration::from_millis(100);

/// One for the process, which executes one copy: each part of the copy moves bytes.
static LIMIT: OnceLock<RateLimit> = OnceLock::new();

#[derive(Debug)]
struct RateLimit {
    schedule: Mutex<Schedule>,
    stop: CancelToken,
}

/// Schedule of blocks at the limit.
#[derive(Debug)]
struct Schedule {
    bytes_per_s: f64,
    /// End of the latest block.
    end: Option<Instant>,
}

impl Schedule {
    /// Add a block that was moved before `now`; return the wait.
    ///
    /// A copy that was slower than the limit can make up for [`SLACK`] of it.
    fn add(&mut self, bytes: u64, now: Instant) -> Duration {
        #[allow(clippy::cast_precision_loss, reason = "a block is below 2^52 bytes")]
        let duration = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
        let earliest = now.checked_sub(SLACK).unwrap_or(now);
        let start = self.end.map_or(now, |end| end.max(earliest));
        let end = start + duration;
        self.end = Some(end);
        end.saturating_duration_since(now)
    }
}

/// Limit the rate of this process from now on.
pub(crate) fn set(bytes_per_s: u64, stop: &CancelToken) {
    #[allow(clippy::cast_precision_loss, reason = "a rate is below 2^52 bytes/s")]
    let bytes_per_s = bytes_per_s as f64;
    let schedule = Schedule {
        bytes_per_s,
        end: None,
    };
    // A second copy of the process keeps the limit of the first.
    let _ = LIMIT.set(RateLimit {
        schedule: Mutex::new(schedule),
        stop: stop.clone(),
    });
}

/// Wait after a block was moved, if the rate is limited and the copy is not cancelled.
pub(crate) fn wait_after(bytes: u64) {
    let Some(limit) = LIMIT.get() else {
        return;
    };
    let now = Instant::now();
    let wait = {
        let mut schedule = limit
            .schedule
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        schedule.add(bytes, now)
    };
    let end = now + wait;
    while !limit.stop.is_cancelled() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(CHECK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_all_threads_share_the_limit_and_lost_time_is_not_made_up() {
        let start = Instant::now();
        let mut schedule = Schedule {
            bytes_per_s: 1e6,
            end: None,
        };
        let second = Duration::from_secs(1);
        assert_eq!(schedule.add(1_000_000, start), second);
        // Another thread, at the same time.
        assert_eq!(schedule.add(500_000, start), second * 3 / 2);
        assert_eq!(schedule.add(1_000_000, start + second * 10), second - SLACK);
    }
}
