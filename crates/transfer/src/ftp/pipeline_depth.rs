//! Pipeline depth of a session: as many transfers in flight as the server can complete in a round trip.
//!
//! A deeper pipeline gains nothing, and other sessions cannot take over its files. Examples from
//! the lab (2 cores):
//!
//! - 30,000 files of 10 KB over 6.9 Gb/s and 196 ms with 16 sessions, limited by the CPUs of the
//!   server: 9.6 s with a depth of 1,024, and 7.0 s with 256.
//! - 30,000 files of 1 byte from a faster server over 400 ms: 7.2 s with 250, and 5.8 s with a
//!   growing depth.

use std::time::Duration;

/// Assumed throughput of a server over all sessions, files per second.
const FILES_A_SECOND: f64 = 10_000.0;
/// Minimum and maximum of the automatic depth.
const LIMITS: (usize, usize) = (128, 1024);

/// Returns the initial depth per session for this round-trip time.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "files of a round trip, which is at most as long as a connection may take to open"
)]
pub(super) fn initial(round_trip: Duration, sessions: usize) -> usize {
    let per_session = FILES_A_SECOND / sessions.max(1) as f64;
    ((round_trip.as_secs_f64() * per_session) as usize).clamp(LIMITS.0, LIMITS.1)
}

/// Pipeline depth of a session.
#[derive(Debug)]
pub(super) struct PipelineDepth {
    /// Transfers in flight.
    pub(super) depth: usize,
    /// Round trips per transfer.
    flights: usize,
    /// None if the depth is fixed.
    round_trip: Option<Duration>,
    /// Time and completed transfers at the last update.
    last: (Duration, u64),
}

impl PipelineDepth {
    pub(super) fn new(depth: usize, flights: usize, round_trip: Option<Duration>) -> Self {
        Self {
            depth,
            flights,
            round_trip,
            last: (Duration::ZERO, 0),
        }
    }

    /// Returns the items of a session in progress.
    pub(super) fn items(&self) -> usize {
        self.depth * self.flights
    }

    /// Updates the depth with the number of completed transfers; call it regularly. If more than half of the pipeline completes within a round trip, the depth
    /// can be the limit: it is doubled up to the maximum, and returned.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a rate needs no more than 15 digits"
    )]
    pub(super) fn update(&mut self, now: Duration, done: u64) -> Option<usize> {
        let round_trip = self.round_trip?;
        let (then, before) = self.last;
        let time = now.saturating_sub(then);
        if round_trip.is_zero() || time < round_trip {
            return None;
        }
        self.last = (now, done);
        let round_trips = time.as_secs_f64() / round_trip.as_secs_f64();
        let ended = done.saturating_sub(before) as f64 / round_trips;
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
    fn all_sessions_together_start_with_the_files_a_server_may_finish_in_a_round_trip() {
        let depths = [1, 2, 4, 16].map(|sessions| initial(FAR, sessions));
        assert_eq!(depths, [1024, 1000, 500, 128]);
        assert_eq!(initial(Duration::from_millis(1), 1), 128);
    }

    #[test]
    fn the_depth_grows_if_the_pipeline_limits_a_session() {
        let at = Duration::from_millis;
        let mut ahead = PipelineDepth::new(128, 2, Some(FAR));
        assert_eq!(ahead.update(at(100), 100), None, "no round trip");
        assert_eq!(ahead.update(at(400), 100), None, "50 in a round trip");
        assert_eq!(ahead.update(at(600), 228), Some(256), "all of it");
        assert_eq!((ahead.depth, ahead.items()), (256, 512));
        assert_eq!(ahead.update(at(1_000), 428), None, "100 in a round trip");
        assert_eq!(
            ahead.update(at(1_200), 557),
            Some(512),
            "129 in a round trip"
        );
        assert_eq!(ahead.update(at(1_400), 100_000), Some(1024));
        assert_eq!(ahead.update(at(1_600), 200_000), None, "the most");
        let mut fixed = PipelineDepth::new(2, 1, None);
        assert_eq!(fixed.update(at(1_000), 10_000), None);
    }
}
