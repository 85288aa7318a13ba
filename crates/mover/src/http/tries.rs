//! Attempts at one thing, and the time between them: one rule for whatever is asked of a server.

use std::time::Duration;

use super::exchange::Exchange;
use super::fault::Fault;
use super::wait::within;

/// Attempts at one thing: what all of its requests have together, however often a connection breaks or a server is busy.
pub(super) const MOST_TRIES: u32 = 4;
/// Waiting between them begins with this.
const FIRST_PAUSE: Duration = Duration::from_millis(400);
/// How many times as long is waited each time: 8.4 s in all, as long as a server that is started again takes.
const GROWTH: u32 = 4;
/// The longest that a server may have us wait with `Retry-After`.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Attempts that have failed.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    failed: u32,
    /// Signs of life that there were at the second: with the first, others may have been under way yet.
    signs: Option<usize>,
}

impl Tries {
    /// Counts one that has failed, and waits until it is time for the next.
    ///
    /// # Errors
    /// The fault, if another is not worth it; that we are to stop.
    pub(super) async fn again(&mut self, exchange: &Exchange, fault: Fault) -> Result<(), Fault> {
        self.failed += 1;
        if !fault.is_worth_another(self.failed) {
            return Err(exchange.connections.judged(fault, self.signs));
        }
        if self.failed == 2 {
            self.signs = Some(exchange.connections.signs());
        }
        let asleep = tokio::time::sleep(pause(self.failed, &fault));
        within(exchange.connections.stop(), Duration::MAX, asleep).await
    }
}

/// How long is waited after so many that have failed, of which this is the last.
fn pause(failed: u32, fault: &Fault) -> Duration {
    match fault {
        Fault::Status {
            after: Some(after), ..
        } => *after.min(&LONGEST_PAUSE),
        _ => FIRST_PAUSE * GROWTH.pow(failed - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    #[test]
    fn pauses_grow_unless_the_server_says_how_long_it_wants() {
        let broken = Fault::Connection("reset".into());
        let pauses: Vec<u128> = (1..MOST_TRIES)
            .map(|failed| pause(failed, &broken).as_millis())
            .collect();
        assert_eq!(pauses, [400, 1600, 6400]);
        let busy = |after_s| Fault::Status {
            status: StatusCode::SERVICE_UNAVAILABLE,
            said: String::new(),
            after: Some(Duration::from_secs(after_s)),
        };
        assert_eq!(pause(3, &busy(0)), Duration::ZERO);
        assert_eq!(pause(1, &busy(3600)), LONGEST_PAUSE);
    }
}
