//! Waits that end after a timeout without progress, or when the copy stops.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::request_error::RequestError;
use crate::stop::CancelToken;

/// Interval of checks for cancellation.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Wait until work is done.
///
/// # Errors
/// [`RequestError::Silence`] after the limit, [`RequestError::Stopped`] soon after a cancellation.
pub(crate) async fn within<T>(
    stop: &CancelToken,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<T, RequestError> {
    while_moving(stop, limit, &Cell::new(Instant::now()), work).await
}

/// Wait as [`within`], but with a limit for the time since the last progress.
pub(super) async fn while_moving<T>(
    stop: &CancelToken,
    limit: Duration,
    moved: &Cell<Instant>,
    work: impl Future<Output = T>,
) -> Result<T, RequestError> {
    let mut work = std::pin::pin!(work);
    loop {
        match timeout(TICK, work.as_mut()).await {
            Ok(done) => return Ok(done),
            Err(_) if stop.is_cancelled() => return Err(RequestError::Stopped),
            Err(_) if moved.get().elapsed() > limit => return Err(RequestError::Silence(limit)),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(250);

    fn run<T>(work: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().build().expect("a runtime");
        runtime.block_on(work)
    }

    #[test]
    fn progress_extends_a_wait_beyond_the_limit_and_silence_does_not() {
        let moved = Cell::new(Instant::now());
        let moving = async {
            for _ in 0..8 {
                tokio::time::sleep(LIMIT / 4).await;
                moved.set(Instant::now());
            }
        };
        let done = run(while_moving(&CancelToken::default(), LIMIT, &moved, moving));
        assert_eq!(done, Ok(()));
        let silent = run(within(
            &CancelToken::default(),
            LIMIT,
            std::future::pending::<()>(),
        ));
        assert_eq!(silent, Err(RequestError::Silence(LIMIT)));
    }

    #[test]
    fn a_wait_without_a_limit_ends_at_cancellation() {
        let stop = CancelToken::default();
        stop.stop();
        let ended = run(within(&stop, Duration::MAX, std::future::pending::<()>()));
        assert_eq!(ended, Err(RequestError::Stopped));
    }
}
