//! Round-trip times on the data connections of a copy, compared with the minimum on empty queues. The excess is the time in a queue of
//! the path. If most round trips are longer, the path is saturated.
//!
//! The criterion is most round trips, not all:
//!
//! - On a path of 5 Gb/s and 53 ms, uploads of 8 sessions with 4 connections each saturated the
//!   path. The median of the round-trip times within 0.1 s was 1.1 to 1.6 times the minimum, and
//!   their minimum 1.02 to 1.4 times.
//! - On paths of 2 Gb/s and 40 ms that lose one packet in 2000 or in 50, the medians within 0.4 s
//!   were 1.00 to 1.07 times the minimum after the windows had opened, and once 1.13.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::net::tcp_info::TcpSnapshot;

/// Minimum ratio to the minimum round-trip time that indicates a queue.
const LONG: f64 = 1.1;
/// Resolution of the round-trip times that a receiver measures by timestamps.
const RESOLUTION: Duration = Duration::from_millis(1);
/// Minimum number of losses that count as a property of the path, because a single packet can be
/// reordered.
const MIN_LOSSES: u64 = 3;
/// Maximum age of the last data on a connection that counts.
const MOVES: Duration = Duration::from_millis(100);

/// Round-trip times and losses of all connections.
#[derive(Debug)]
pub(crate) struct RttMonitor {
    /// Minimum round-trip time, microseconds.
    min_us: AtomicU64,
    /// Round trips on active connections since the last reset, and the long ones among them.
    snapshot: AtomicU64,
    long: AtomicU64,
    /// Losses on connections with short round trips.
    losses: AtomicU64,
}

impl RttMonitor {
    pub(crate) fn new() -> Self {
        Self {
            min_us: u64::MAX.into(),
            snapshot: 0.into(),
            long: 0.into(),
            losses: 0.into(),
        }
    }

    /// Records the minimum of a control connection.
    pub(crate) fn record_min(&self, snapshot: &TcpSnapshot) {
        let min = snapshot.min_round_trip.map_or(u64::MAX, us);
        self.min_us.fetch_min(min, Ordering::Relaxed);
    }

    /// Records a data connection, and whether it has lost packets since the last record.
    pub(crate) fn record(&self, snapshot: &TcpSnapshot, loses: bool) {
        self.record_min(snapshot);
        let min = self.min_us.load(Ordering::Relaxed);
        if snapshot.idle >= MOVES || min == u64::MAX {
            return;
        }
        let min = Duration::from_micros(min);
        let is_long = is_long(snapshot.round_trip, min);
        self.long.fetch_add(is_long.into(), Ordering::Relaxed);
        self.snapshot.fetch_add(1, Ordering::Relaxed);
        let count = u64::from(loses && !is_long);
        self.losses.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the reason why each further connection adds throughput: packets were lost while queues were empty, so losses
    /// limit the windows. None if this is not the case or not known.
    pub(crate) fn losses(&self) -> Option<String> {
        let losses = self.losses.load(Ordering::Relaxed);
        (losses >= MIN_LOSSES).then(|| {
            format!(
                "{losses} packet losses so far with empty queues: each further connection adds throughput"
            )
        })
    }

    /// Resets the losses.
    pub(crate) fn forget_losses(&self) {
        self.losses.store(0, Ordering::Relaxed);
    }

    /// True if most round trips since [`Self::take_saturated`] were long. False without active connections.
    pub(crate) fn is_saturated(&self) -> bool {
        2 * self.long.load(Ordering::Relaxed) > self.snapshot.load(Ordering::Relaxed)
    }

    /// Returns [`Self::is_saturated`] and resets the counts.
    pub(crate) fn take_saturated(&self) -> bool {
        let is_saturated = self.is_saturated();
        self.long.store(0, Ordering::Relaxed);
        self.snapshot.store(0, Ordering::Relaxed);
        is_saturated
    }
}

/// True if a round trip exceeds the minimum so far that a queue fills.
pub(crate) fn is_long(round_trip: Duration, min: Duration) -> bool {
    round_trip > RESOLUTION + min.mul_f64(LONG)
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(idle_ms: u64, now_ms: u64, min_ms: u64) -> TcpSnapshot {
        TcpSnapshot {
            idle: Duration::from_millis(idle_ms),
            round_trip: Duration::from_millis(now_ms),
            min_round_trip: (min_ms > 0).then(|| Duration::from_millis(min_ms)),
            bytes_a_trip: 0,
            lost: 0,
            acknowledged: 0,
        }
    }

    #[test]
    fn a_path_is_full_when_most_of_its_round_trips_are_long() {
        let round_trips = RttMonitor::new();
        let check = |snapshots: &[TcpSnapshot], expected| {
            snapshots
                .iter()
                .for_each(|snapshot| round_trips.record(snapshot, false));
            assert_eq!(round_trips.is_saturated(), expected, "{snapshots:?}");
            assert_eq!(round_trips.take_saturated(), expected, "{snapshots:?}");
        };
        check(&[], false);
        // The minimum is not known.
        check(&[snapshot(0, 101, 0)], false);
        // A connection through the queue does not know the minimum; a control connection does.
        check(&[snapshot(0, 81, 80)], false);
        round_trips.record_min(&snapshot(0, 300, 50));
        check(&[snapshot(0, 81, 80)], true);
        check(&[], false);
        // One connection with short round trips does not empty the queue, and one with long ones does not fill it.
        check(
            &[
                snapshot(0, 60, 80),
                snapshot(0, 51, 80),
                snapshot(0, 57, 80),
            ],
            true,
        );
        check(
            &[
                snapshot(0, 60, 80),
                snapshot(0, 51, 80),
                snapshot(0, 56, 80),
            ],
            false,
        );
        // Two of the connections are idle.
        check(
            &[
                snapshot(0, 51, 80),
                snapshot(200, 60, 80),
                snapshot(100, 60, 80),
            ],
            false,
        );
    }

    #[test]
    fn losses_in_a_full_queue_are_ignored_and_other_losses_are_counted() {
        let round_trips = RttMonitor::new();
        round_trips.record_min(&snapshot(0, 300, 50));
        for _ in 0..MIN_LOSSES {
            assert_eq!(round_trips.losses(), None);
            round_trips.record(&snapshot(0, 80, 80), true);
            round_trips.record(&snapshot(0, 51, 80), false);
            assert_eq!(round_trips.losses(), None);
            round_trips.record(&snapshot(0, 51, 80), true);
        }
        let reason = round_trips.losses().expect("enough were");
        assert!(
            reason.contains(&format!("{MIN_LOSSES} packet losses")),
            "{reason}"
        );
        round_trips.forget_losses();
        assert_eq!(round_trips.losses(), None);
    }
}
