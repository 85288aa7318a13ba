//! How long round trips take on the data connections of a copy, and how long one takes through empty queues: what is more, data wait in a queue of
//! the path. Where it is more on every connection, the path carries all that it can.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::net::tcp_info::Seen;

/// In which a receiver counts round trips, by timestamps.
const RESOLUTION_US: u64 = 1000;
/// A connection on which nothing has moved for so long tells of other days.
const MOVES: Duration = Duration::from_millis(100);

/// What all connections tell.
#[derive(Debug)]
pub(crate) struct Trips {
    /// The shortest that was ever seen, in microseconds.
    least_us: AtomicU64,
    /// The shortest of connections that move something, since it was asked for.
    now_us: AtomicU64,
}

impl Trips {
    pub(crate) fn new() -> Self {
        Self {
            least_us: u64::MAX.into(),
            now_us: u64::MAX.into(),
        }
    }

    /// What a connection that only has commands tells.
    pub(crate) fn tell_least(&self, seen: &Seen) {
        let least = seen.least_round_trip.as_ref().map_or(u64::MAX, us);
        self.least_us.fetch_min(least, Ordering::Relaxed);
    }

    /// What a data connection tells.
    pub(crate) fn tell(&self, seen: &Seen) {
        self.tell_least(seen);
        if seen.idle < MOVES {
            self.now_us
                .fetch_min(us(&seen.round_trip), Ordering::Relaxed);
        }
    }

    /// How many times as long as the least a round trip has been at least, on all connections, since this was asked for; none if nothing moved.
    #[allow(
        clippy::cast_precision_loss,
        reason = "times need no more than 15 digits"
    )]
    pub(crate) fn take_stretch(&self) -> Option<f64> {
        let now = self.now_us.swap(u64::MAX, Ordering::Relaxed);
        let least = self.least_us.load(Ordering::Relaxed);
        let known = now < u64::MAX && (1..u64::MAX).contains(&least);
        known.then(|| now.saturating_sub(RESOLUTION_US) as f64 / least as f64)
    }
}

fn us(time: &Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(idle_ms: u64, now_ms: u64, least_ms: u64) -> Seen {
        Seen {
            idle: Duration::from_millis(idle_ms),
            round_trip: Duration::from_millis(now_ms),
            least_round_trip: (least_ms > 0).then(|| Duration::from_millis(least_ms)),
        }
    }

    #[test]
    fn a_path_is_as_full_as_its_fastest_connection_finds_it() {
        let trips = Trips::new();
        assert_eq!(trips.take_stretch(), None);
        trips.tell(&seen(0, 101, 0));
        assert_eq!(trips.take_stretch(), None, "an empty path is not known");
        // Opened through the queue, it does not know better; one with commands does.
        trips.tell(&seen(0, 101, 80));
        trips.tell_least(&seen(0, 300, 50));
        assert_eq!(trips.take_stretch(), Some(2.0));
        assert_eq!(trips.take_stretch(), None, "that was before");
        trips.tell(&seen(0, 101, 80));
        trips.tell(&seen(200, 51, 80));
        assert_eq!(
            trips.take_stretch(),
            Some(2.0),
            "nothing moves on one of them"
        );
        trips.tell(&seen(0, 101, 80));
        trips.tell(&seen(0, 51, 80));
        assert_eq!(trips.take_stretch(), Some(1.0));
    }
}
