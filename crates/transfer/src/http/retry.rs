//! Retries and pauses for all requests to servers.

use std::time::Duration;

use super::exchange::HttpClient;
use super::request_error::RequestError;
use super::wait::within;

/// Maximum attempts of one operation, over all of its requests.
pub(super) const MAX_ATTEMPTS: u32 = 4;
/// First pause.
const FIRST_PAUSE: Duration = Duration::from_millis(400);
/// Growth of the pauses: 8.4 s in total, about the time of a server restart.
const GROWTH: u32 = 4;
/// Maximum accepted `Retry-After`.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Failed attempts so far.
#[derive(Debug, Default)]
pub(crate) struct RetryState {
    failed: u32,
    /// Signs of life at the second attempt; at the first, other requests may still have been in
    /// flight.
    signs: Option<usize>,
}

impl RetryState {
    /// Count a failed attempt and wait for the next one.
    ///
    /// # Errors
    /// The error if it is not retryable; an interruption.
    pub(super) async fn again(
        &mut self,
        exchange: &HttpClient,
        fault: RequestError,
    ) -> Result<(), RequestError> {
        self.failed += 1;
        if !fault.is_retryable(self.failed) {
            return Err(exchange.connections.classify(fault, self.signs));
        }
        if self.failed == 2 {
            self.signs = Some(exchange.connections.signs());
        }
        let asleep = tokio::time::sleep(pause(self.failed, &fault));
        within(exchange.connections.stop(), Duration::MAX, asleep).await
    }
}

/// Return the pause after this many failed attempts with this last error.
fn pause(failed: u32, fault: &RequestError) -> Duration {
    match fault {
        RequestError::Status {
            after: Some(after), ..
        } => *after.min(&MAX_PAUSE),
        _ => FIRST_PAUSE * GROWTH.pow(failed - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    #[test]
    fn pauses_grow_unless_the_server_requests_a_delay() {
        let broken = RequestError::Connection("reset".into());
        let pauses: Vec<u128> = (1..MAX_ATTEMPTS)
            .map(|failed| pause(failed, &broken).as_millis())
            .collect();
        assert_eq!(pauses, [400, 1600, 6400]);
        let busy = |after_s| RequestError::Status {
            status: StatusCode::SERVICE_UNAVAILABLE,
            message: String::new(),
            after: Some(Duration::from_secs(after_s)),
        };
        assert_eq!(pause(3, &busy(0)), Duration::ZERO);
        assert_eq!(pause(1, &busy(3600)), MAX_PAUSE);
    }
}
