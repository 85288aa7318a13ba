//! Stall timer: slow trickles of bytes do not count as progress.

use std::time::Duration;

/// Minimum bytes within the stall timeout: 273 per second for a timeout of one minute. Web servers
/// with a similar limit require 500 per second (`mod_reqtimeout`).
const MIN_BYTES: u64 = 16 << 10;

/// Time of the last progress of a transfer.
///
/// ```
/// # use std::time::Duration;
/// # use venturi_gridftp::StallTimer;
/// let at = Duration::from_secs;
/// let mut moved = StallTimer::new(at(0));
/// moved.bytes(at(1), 1);
/// assert_eq!(moved.at(), at(0));
/// moved.bytes(at(2), 16_383);
/// assert_eq!(moved.at(), at(2));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct StallTimer {
    at: Duration,
    /// Bytes moved since then.
    bytes: u64,
}

impl StallTimer {
    /// Creates a timer.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self { at: now, bytes: 0 }
    }

    /// Returns the time of the last progress.
    #[must_use]
    pub fn at(&self) -> Duration {
        self.at
    }

    /// Records progress other than bytes.
    pub fn touch(&mut self, now: Duration) {
        *self = Self::new(self.at.max(now));
    }

    /// Records moved bytes. A trickle does not count, so that a slow peer cannot hold the session
    /// forever.
    pub fn bytes(&mut self, now: Duration, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= MIN_BYTES {
            self.touch(now);
        }
    }
}
