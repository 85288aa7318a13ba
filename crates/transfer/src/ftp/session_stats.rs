//! Progress of all sessions: transferred data and time of each, and the time that idle sessions would need.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::queue::{MIN_SESSION_BYTES, MIN_SESSION_ITEMS};
use super::work::Item;

/// Fixed cost of a file, in bytes: 0.2 ms of a Globus server at 100 MB/s.
const FILE_BYTES: u64 = 20_000;
/// Minimum observation of a session while others are idle: its speed can have changed.
const MIN_OBSERVATION: Duration = Duration::from_millis(500);
/// The same in round trips; also the time for a file on a window that opens again.
const ROUND_TRIPS: u32 = 4;
/// Minimum factor and seconds between a straggler and the others.
const MUCH: f64 = 2.0;
const MUCH_S: f64 = 0.5;

/// Progress of all sessions of a copy.
#[derive(Debug, Default)]
pub(crate) struct SessionStats {
    next: AtomicU64,
    progresses: Mutex<BTreeMap<u64, SessionProgress>>,
}

/// Progress of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SessionProgress {
    /// Number of assigned items.
    items: usize,
    /// Transferred bytes, with the fixed cost of files.
    work: u64,
    /// Time with assigned items.
    busy: Duration,
}

/// Idle sessions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct IdleSessions {
    sessions: usize,
    /// Mean throughput of one of them while it was busy.
    rate: f64,
}

impl SessionStats {
    /// True if a session is idle that was busy before.
    pub(crate) fn has_idle(&self) -> bool {
        self.progresses().values().any(SessionProgress::is_idle)
    }

    /// Records the progress of a session, and returns the idle ones.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a rate needs no more than 15 digits"
    )]
    pub(super) fn update(&self, key: u64, own: SessionProgress) -> Option<IdleSessions> {
        let mut progresses = self.progresses();
        progresses.insert(key, own);
        let idle = || {
            let others = progresses.iter().filter(|(other, _)| **other != key);
            others.map(|(_, found)| found).filter(|o| o.is_idle())
        };
        let sessions = idle().count();
        let rates = idle().filter_map(SessionProgress::rate);
        (sessions > 0).then(|| IdleSessions {
            sessions,
            rate: rates.sum::<f64>() / sessions as f64,
        })
    }

    /// Returns the speed of a session compared with the mean: 1 if it is faster or unknown.
    pub(super) fn pace(&self, key: u64) -> f64 {
        let progresses = self.progresses();
        let rates = progresses.values().filter_map(SessionProgress::rate);
        let (sum, sessions) = rates.fold((0.0, 0.0), |(sum, sessions), rate| {
            (sum + rate, sessions + 1.0)
        });
        let own = progresses.get(&key).and_then(SessionProgress::rate);
        own.map_or(1.0, |own| (own * sessions / sum).min(1.0))
    }

    /// Removes a session that has ended.
    pub(super) fn remove(&self, key: u64) {
        self.progresses().remove(&key);
    }

    fn progresses(&self) -> MutexGuard<'_, BTreeMap<u64, SessionProgress>> {
        let progresses = self.progresses.lock();
        progresses.unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionProgress {
    fn is_idle(&self) -> bool {
        self.items == 0 && self.rate().is_some()
    }

    /// Returns the throughput while busy, if there was any.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a rate needs no more than 15 digits"
    )]
    fn rate(&self) -> Option<f64> {
        let did = self.work > 0 && !self.busy.is_zero();
        did.then(|| self.work as f64 / self.busy.as_secs_f64())
    }
}

/// Progress tracker of a session.
#[derive(Debug)]
pub(super) struct ProgressTracker {
    pub(super) key: u64,
    /// Last known speed compared with all sessions: see [`SessionStats::pace`].
    pub(super) pace: f64,
    /// Received bytes of incomplete transfers.
    received: BTreeMap<u64, u64>,
    progress: SessionProgress,
    /// Time and work at the last update.
    last_update: (Duration, u64),
    /// Start of the observation while others are idle, and the work at that time.
    last: Option<(Duration, u64)>,
}

impl ProgressTracker {
    pub(super) fn new(stats: &SessionStats) -> Self {
        Self {
            key: stats.next.fetch_add(1, Ordering::Relaxed),
            pace: 1.0,
            received: BTreeMap::new(),
            progress: SessionProgress::default(),
            last_update: (Duration::ZERO, 0),
            last: None,
        }
    }

    /// Counts received bytes of a transfer.
    pub(super) fn received(&mut self, transfer: u64, bytes: u64) {
        *self.received.entry(transfer).or_default() += bytes;
        self.progress.work += bytes;
    }

    /// Removes a transfer that is complete or has failed.
    pub(super) fn ended(&mut self, transfer: u64) {
        self.received.remove(&transfer);
        self.progress.work += FILE_BYTES;
    }

    /// Returns the current progress.
    pub(super) fn advance(&mut self, now: Duration, items: usize) -> SessionProgress {
        let (then, work) = self.last_update;
        if self.progress.items > 0 || items > 0 || self.progress.work > work {
            self.progress.busy += now.saturating_sub(then);
        }
        self.progress.items = items;
        self.last_update = (now, self.progress.work);
        self.progress
    }

    /// Returns the received bytes of an item.
    pub(super) fn received_of(&self, item: &Item) -> u64 {
        self.received.get(&item.number).copied().unwrap_or(0)
    }

    /// Returns the received bytes of all incomplete items.
    pub(super) fn received_total(&self) -> u64 {
        self.received.values().sum()
    }

    /// Resets the observation, because no other session is idle.
    pub(super) fn reset_observation(&mut self) {
        self.last = None;
    }

    /// Returns the throughput since others are idle, if known.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a rate needs no more than 15 digits"
    )]
    pub(super) fn last_rate(&mut self, now: Duration, round_trip: Duration) -> Option<f64> {
        let (since, work) = *self.last.get_or_insert((now, self.progress.work));
        let time = now.saturating_sub(since);
        let known = time >= MIN_OBSERVATION.max(ROUND_TRIPS * round_trip);
        known.then(|| (self.progress.work - work) as f64 / time.as_secs_f64())
    }
}

/// Remaining work of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct RemainingWork {
    pub(super) items: usize,
    pub(super) bytes: u64,
    /// Received bytes of these items.
    pub(super) received: u64,
    /// Throughput per second.
    pub(super) rate: f64,
}

impl RemainingWork {
    /// Returns the remaining seconds of this session and of the idle sessions, if the latter are
    /// much shorter.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a time needs no more than 15 digits"
    )]
    pub(super) fn compare(self, idle: IdleSessions, round_trip: Duration) -> Option<(f64, f64)> {
        let all = (self.bytes + self.items as u64 * FILE_BYTES) as f64;
        let own_s = (all - self.received as f64) / self.rate;
        // As the queue would divide it.
        let parts = self.items.div_ceil(MIN_SESSION_ITEMS) as u64;
        let parts = parts.max(self.bytes.div_ceil(MIN_SESSION_BYTES));
        let parts = parts.min(self.items.min(idle.sessions) as u64);
        let others_s = (ROUND_TRIPS * round_trip).as_secs_f64() + all / (idle.rate * parts as f64);
        (own_s > MUCH * others_s + MUCH_S).then_some((own_s, others_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Duration = Duration::from_millis(200);

    #[test]
    fn a_session_is_a_straggler_if_it_takes_much_longer_than_idle_sessions() {
        let check = |(items, bytes, received), rate, (sessions, others), expected| {
            let remaining = RemainingWork {
                items,
                bytes,
                received,
                rate,
            };
            let idle = IdleSessions {
                sessions,
                rate: others,
            };
            let found = remaining.compare(idle, FAR);
            assert_eq!(
                found.is_some(),
                expected,
                "{remaining:?} {idle:?} {found:?}"
            );
        };
        // 1000 files of 10 kB are 30 MB of work: 6 s at 5 MB/s, and 1.55 s elsewhere, round trips included.
        let files = (1_000, 10_000_000, 0);
        check(files, 5e6, (7, 5e6), true);
        check(files, 0.0, (1, 5e6), true);
        check(files, 5e6, (1, 5e6), false);
        check(files, 10e6, (7, 5e6), false);
        // A few files are one share, independent of the number of sessions.
        check((100, 1_000_000, 0), 1e6, (7, 1e6), false);
        // Other sessions would have to receive the received data again.
        let file = (1, 30_000_000, 20_000_000);
        check(file, 2e6, (7, 10e6), false);
        check(file, 0.5e6, (7, 10e6), true);
    }

    #[test]
    fn idle_sessions_are_rated_by_their_earlier_work() {
        let stats = SessionStats::default();
        let mut sessions: Vec<_> = (0..3).map(|_| ProgressTracker::new(&stats)).collect();
        let at = Duration::from_secs;
        let update = |session: &mut ProgressTracker, now, items| {
            let progress = session.advance(now, items);
            stats.update(session.key, progress)
        };
        for session in &mut sessions {
            assert_eq!(update(session, at(0), 2), None);
            session.received(7, 100_000 - FILE_BYTES);
            session.ended(7);
        }
        assert_eq!(update(&mut sessions[1], at(2), 0), None, "nobody else is");
        assert!(stats.has_idle());
        let idle = update(&mut sessions[0], at(2), 1).expect("the second");
        sessions[2].received(8, 200_000);
        update(&mut sessions[2], at(3), 1);
        let paces = [0, 1, 2].map(|session| stats.pace(sessions[session].key));
        assert_eq!(paces, [0.75, 0.75, 1.0], "of 50, 50 and 100 kB/s");
        assert_eq!((idle.sessions, idle.rate), (1, 50_000.0));
        // Idle time does not reduce the speed; a session that was never busy reports nothing.
        update(&mut sessions[1], at(10), 0);
        update(&mut ProgressTracker::new(&stats), at(10), 0);
        assert_eq!(update(&mut sessions[0], at(10), 1), Some(idle));
        stats.remove(sessions[1].key);
        assert_eq!(update(&mut sessions[0], at(10), 1), None);
    }

    #[test]
    fn the_last_rate_of_a_session_starts_when_others_become_idle() {
        let mut session = ProgressTracker::new(&SessionStats::default());
        session.received(1, 1_000_000);
        let at = Duration::from_millis;
        assert_eq!(session.last_rate(at(1_000), FAR), None);
        session.received(1, 1_000);
        assert_eq!(session.last_rate(at(1_700), FAR), None);
        assert_eq!(session.last_rate(at(2_000), FAR), Some(1_000.0));
    }
}
