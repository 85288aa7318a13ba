//! When something last moved: bytes that drip count for nothing.

use std::time::Duration;

/// Bytes that a transfer has to move in the time in which one that is silent is given up: 273 a second where that is a minute. Web servers that
/// have such a bound ask for 500 (`mod_reqtimeout`).
const LEAST_BYTES: u64 = 16 << 10;

/// When a transfer last moved, as whoever waits for it counts that.
///
/// ```
/// # use std::time::Duration;
/// # use venturi_gridftp::LastMoved;
/// let at = Duration::from_secs;
/// let mut moved = LastMoved::new(at(0));
/// moved.bytes(at(1), 1);
/// assert_eq!(moved.at(), at(0));
/// moved.bytes(at(2), 16_383);
/// assert_eq!(moved.at(), at(2));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct LastMoved {
    at: Duration,
    /// Since then.
    bytes: u64,
}

impl LastMoved {
    /// It begins.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self { at: now, bytes: 0 }
    }

    /// When enough moved.
    #[must_use]
    pub fn at(&self) -> Duration {
        self.at
    }

    /// Something else than bytes moved it.
    pub fn touch(&mut self, now: Duration) {
        *self = Self::new(self.at.max(now));
    }

    /// So many bytes moved. Few of them are worth nothing: who has one come in a second would stay for ever.
    pub fn bytes(&mut self, now: Duration, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= LEAST_BYTES {
            self.touch(now);
        }
    }
}
