//! Waiting that ends: when nothing has moved for too long, and when we are to stop.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::fault::Fault;
use crate::stop::Stop;

/// How often a wait looks whether we are to stop.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Waits for work until it is done.
///
/// # Errors
/// [`Fault::Silence`] after the limit, [`Fault::Stopped`] soon after we are to stop.
pub(super) async fn within<T>(
    stop: &Stop,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<T, Fault> {
    while_moving(stop, limit, &Cell::new(Instant::now()), work).await
}

/// The same; the limit is for the time since something last moved.
pub(super) async fn while_moving<T>(
    stop: &Stop,
    limit: Duration,
    moved: &Cell<Instant>,
    work: impl Future<Output = T>,
) -> Result<T, Fault> {
    let mut work = std::pin::pin!(work);
    loop {
        match timeout(TICK, work.as_mut()).await {
            Ok(done) => return Ok(done),
            Err(_) if stop.asked() => return Err(Fault::Stopped),
            Err(_) if moved.get().elapsed() > limit => return Err(Fault::Silence(limit)),
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
    fn what_goes_on_is_waited_for_longer_than_the_limit_and_what_is_silent_is_not() {
        let moved = Cell::new(Instant::now());
        let moving = async {
            for _ in 0..8 {
                tokio::time::sleep(LIMIT / 4).await;
                moved.set(Instant::now());
            }
        };
        let done = run(while_moving(&Stop::default(), LIMIT, &moved, moving));
        assert_eq!(done, Ok(()));
        let silent = run(within(
            &Stop::default(),
            LIMIT,
            std::future::pending::<()>(),
        ));
        assert_eq!(silent, Err(Fault::Silence(LIMIT)));
    }

    #[test]
    fn a_wait_without_a_limit_ends_when_we_are_to_stop() {
        let stop = Stop::default();
        stop.stop();
        let ended = run(within(&stop, Duration::MAX, std::future::pending::<()>()));
        assert_eq!(ended, Err(Fault::Stopped));
    }
}
