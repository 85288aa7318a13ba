//! How long round trips take on the data connections of a copy, and how long one takes through empty queues: what is more, data wait in a queue of
//! the path. Where most take longer, the path carries all that it can.
//!
//! Most, and not all: over a path of 5 Gb/s and 53 ms that uploads of 8 sessions with 4 connections each had filled, the median of the round trips that
//! were seen within 0.1 s was 1.1 to 1.6 times the least, and the shortest of them 1.02 to 1.4 times. Over paths of 2 Gb/s and 40 ms that lose a packet in
//! 2000 or in 50, the medians within 0.4 s were 1.00 to 1.07 times the least once windows had opened, and once 1.13.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::net::tcp_info::Seen;

/// So many times as long as the least are round trips through a queue that fills.
const LONG: f64 = 1.1;
/// In which a receiver counts round trips, by timestamps.
const RESOLUTION: Duration = Duration::from_millis(1);
/// So often connections have lost something before it is taken for what the path does to all of them: one packet may only have been overtaken.
const WORTH_LOSSES: u64 = 3;
/// A connection on which nothing has moved for so long tells of other days.
const MOVES: Duration = Duration::from_millis(100);

/// What all connections tell.
#[derive(Debug)]
pub(crate) struct Trips {
    /// The shortest that was ever seen, in microseconds.
    least_us: AtomicU64,
    /// Round trips of connections that move something, since it was asked for, and how many of them were long.
    seen: AtomicU64,
    long: AtomicU64,
    /// How often a connection had lost something while its round trips were short.
    losses: AtomicU64,
}

impl Trips {
    pub(crate) fn new() -> Self {
        Self {
            least_us: u64::MAX.into(),
            seen: 0.into(),
            long: 0.into(),
            losses: 0.into(),
        }
    }

    /// What a connection that only has commands tells.
    pub(crate) fn tell_least(&self, seen: &Seen) {
        let least = seen.least_round_trip.map_or(u64::MAX, us);
        self.least_us.fetch_min(least, Ordering::Relaxed);
    }

    /// What a data connection tells, and whether it has lost something since it told last.
    pub(crate) fn tell(&self, seen: &Seen, loses: bool) {
        self.tell_least(seen);
        let least = self.least_us.load(Ordering::Relaxed);
        if seen.idle >= MOVES || least == u64::MAX {
            return;
        }
        let least = Duration::from_micros(least);
        let is_long = is_long(seen.round_trip, least);
        self.long.fetch_add(is_long.into(), Ordering::Relaxed);
        self.seen.fetch_add(1, Ordering::Relaxed);
        let count = u64::from(loses && !is_long);
        self.losses.fetch_add(count, Ordering::Relaxed);
    }

    /// Why more connections bring as much each as those that there are, in words: packets were lost that did not find a queue full, so that windows
    /// are what losses leave of them. None where that is not so, or not known.
    pub(crate) fn losses(&self) -> Option<String> {
        let losses = self.losses.load(Ordering::Relaxed);
        (losses >= WORTH_LOSSES).then(|| {
            format!(
                "packets are lost, {losses} times so far, though queues are empty: of more connections each brings as much"
            )
        })
    }

    /// Counts them anew.
    pub(crate) fn forget_losses(&self) {
        self.losses.store(0, Ordering::Relaxed);
    }

    /// Whether most round trips since [`Self::take_full`] were long. None were, if nothing moved.
    pub(crate) fn is_full(&self) -> bool {
        2 * self.long.load(Ordering::Relaxed) > self.seen.load(Ordering::Relaxed)
    }

    /// The same; what comes from now on is counted anew.
    pub(crate) fn take_full(&self) -> bool {
        let is_full = self.is_full();
        self.long.store(0, Ordering::Relaxed);
        self.seen.store(0, Ordering::Relaxed);
        is_full
    }
}

/// Whether a round trip takes so much longer than one through empty queues that a queue fills.
pub(crate) fn is_long(round_trip: Duration, least: Duration) -> bool {
    round_trip > RESOLUTION + least.mul_f64(LONG)
}

fn us(time: Duration) -> u64 {
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
            bytes_a_trip: 0,
            lost: 0,
            acknowledged: 0,
        }
    }

    #[test]
    fn a_path_is_full_when_most_of_its_round_trips_are_long() {
        let trips = Trips::new();
        let check = |told: &[Seen], expected| {
            told.iter().for_each(|seen| trips.tell(seen, false));
            assert_eq!(trips.is_full(), expected, "{told:?}");
            assert_eq!(trips.take_full(), expected, "{told:?}");
        };
        check(&[], false);
        // An empty path is not known.
        check(&[seen(0, 101, 0)], false);
        // Opened through the queue, it does not know better; one with commands does.
        check(&[seen(0, 81, 80)], false);
        trips.tell_least(&seen(0, 300, 50));
        check(&[seen(0, 81, 80)], true);
        check(&[], false);
        // One whose round trips are short for a moment does not empty the queue; nor does one fill it.
        check(&[seen(0, 60, 80), seen(0, 51, 80), seen(0, 57, 80)], true);
        check(&[seen(0, 60, 80), seen(0, 51, 80), seen(0, 56, 80)], false);
        // Nothing moves on two of them.
        check(
            &[seen(0, 51, 80), seen(200, 60, 80), seen(100, 60, 80)],
            false,
        );
    }

    #[test]
    fn what_is_lost_in_a_full_queue_is_the_path_s_way_to_say_so_and_what_is_lost_else_is_counted() {
        let trips = Trips::new();
        trips.tell_least(&seen(0, 300, 50));
        for _ in 0..WORTH_LOSSES {
            assert_eq!(trips.losses(), None);
            trips.tell(&seen(0, 80, 80), true);
            trips.tell(&seen(0, 51, 80), false);
            assert_eq!(trips.losses(), None);
            trips.tell(&seen(0, 51, 80), true);
        }
        let told = trips.losses().expect("enough were");
        assert!(
            told.contains(&format!("lost, {WORTH_LOSSES} times")),
            "{told}"
        );
        trips.forget_losses();
        assert_eq!(trips.losses(), None);
    }
}
