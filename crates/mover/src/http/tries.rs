//! Attempts at one thing, and the time between them.

use std::time::Duration;

use super::exchange::Exchange;
use super::fault::Fault;
use super::wait::within;

/// Waiting between them usually begins with this and doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest that a server may have us wait with `Retry-After`.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Attempts that have failed.
pub(super) struct Tries {
    failed: u32,
    pause: Duration,
}

impl Default for Tries {
    fn default() -> Self {
        Self::from(FIRST_PAUSE)
    }
}

impl From<Duration> for Tries {
    /// Of a thing that takes at least so long to come right.
    fn from(pause: Duration) -> Self {
        Self { failed: 0, pause }
    }
}

impl Tries {
    /// Counts one that has failed, and waits until it is time for the next.
    ///
    /// # Errors
    /// The fault, if another is not worth it; that we are to stop.
    pub(super) async fn again(&mut self, exchange: &Exchange, fault: Fault) -> Result<(), Fault> {
        self.failed += 1;
        if !fault.is_worth_another(self.failed) {
            return Err(fault);
        }
        let pause = match fault {
            Fault::Status {
                after: Some(after), ..
            } => after.min(LONGEST_PAUSE),
            _ => self.pause,
        };
        self.pause *= 2;
        let asleep = tokio::time::sleep(pause);
        within(exchange.connections.stop(), Duration::MAX, asleep).await
    }
}
