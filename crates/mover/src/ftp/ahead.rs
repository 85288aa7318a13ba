//! How many transfers a session asks for ahead of their end: as many as the server may end in a round trip, and no more.
//!
//! What is asked for too early does not come sooner, and what a slow session has of it nobody can take off it: 30,000 files of 10 KB over 6.9 Gb/s and
//! 196 ms take 16 sessions 9.6 s with 1,024 each, and 7.0 s with 256, where the server's processors bound; 30,000 of 1 byte from one that is faster, over
//! 400 ms, 7.2 s with 250, and 5.8 s where these grow (the lab's network, 2 cores).

use std::time::Duration;

/// Files that a server is taken to end in a second, all sessions together.
const FILES_A_SECOND: f64 = 10_000.0;
/// The least and the most that is decided here.
const LIMITS: (usize, usize) = (128, 1024);

/// What each of so many sessions begins with, over such a round trip.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "files of a round trip, which is at most as long as a connection may take to open"
)]
pub(super) fn begin(round_trip: Duration, sessions: usize) -> usize {
    let share = FILES_A_SECOND / sessions.max(1) as f64;
    ((round_trip.as_secs_f64() * share) as usize).clamp(LIMITS.0, LIMITS.1)
}

/// What a session asks for ahead.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Transfers.
    pub(super) depth: usize,
    /// Round trips that one takes to its end.
    flights: usize,
    /// None where the depth is fixed.
    round_trip: Option<Duration>,
    /// When it was looked at last, and what was done then.
    seen: (Duration, u64),
}

impl Ahead {
    pub(super) fn new(depth: usize, flights: usize, round_trip: Option<Duration>) -> Self {
        Self {
            depth,
            flights,
            round_trip,
            seen: (Duration::ZERO, 0),
        }
    }

    /// Items that a session has at a time.
    pub(super) fn items(&self) -> usize {
        self.depth * self.flights
    }

    /// To be called now and then, with what is done so far. Where more than half of what is asked for ends within a round trip, it may be that which
    /// bounds: twice as much is asked for then, which is given; at most as much as is decided here.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a rate needs no more than 15 digits"
    )]
    pub(super) fn look(&mut self, now: Duration, done: u64) -> Option<usize> {
        let round_trip = self.round_trip?;
        let (then, before) = self.seen;
        let time = now.saturating_sub(then);
        if round_trip.is_zero() || time < round_trip {
            return None;
        }
        self.seen = (now, done);
        let trips = time.as_secs_f64() / round_trip.as_secs_f64();
        let ended = done.saturating_sub(before) as f64 / trips;
        let bounds = ended > self.depth as f64 / 2.0 && self.depth < LIMITS.1;
        bounds.then(|| {
            self.depth = (2 * self.depth).min(LIMITS.1);
            self.depth
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Duration = Duration::from_millis(200);

    #[test]
    fn all_sessions_together_begin_with_what_a_server_may_end_in_a_round_trip() {
        let begun = [1, 2, 4, 16].map(|sessions| begin(FAR, sessions));
        assert_eq!(begun, [1024, 1000, 500, 128]);
        assert_eq!(begin(Duration::from_millis(1), 1), 128);
    }

    #[test]
    fn a_session_whose_pipeline_bounds_it_has_a_deeper_one() {
        let at = Duration::from_millis;
        let mut ahead = Ahead::new(128, 2, Some(FAR));
        assert_eq!(ahead.look(at(100), 100), None, "no round trip");
        assert_eq!(ahead.look(at(400), 100), None, "50 in a round trip");
        assert_eq!(ahead.look(at(600), 228), Some(256), "all of it");
        assert_eq!((ahead.depth, ahead.items()), (256, 512));
        assert_eq!(ahead.look(at(1_000), 428), None, "100 in a round trip");
        assert_eq!(ahead.look(at(1_200), 557), Some(512), "129 in a round trip");
        assert_eq!(ahead.look(at(1_400), 100_000), Some(1024));
        assert_eq!(ahead.look(at(1_600), 200_000), None, "the most");
        let mut fixed = Ahead::new(2, 1, None);
        assert_eq!(fixed.look(at(1_000), 10_000), None);
    }
}
