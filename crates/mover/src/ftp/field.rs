//! How the sessions of a copy do beside each other: what each has moved and in which time, and what it would take those that have nothing to do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::queue::{FEW, FEW_BYTES};
use super::work::Item;

/// What a file costs besides its bytes, in bytes: 0.2 ms of a server of the Globus toolkit, at 100 MB/s.
const FILE_BYTES: u64 = 20_000;
/// How long a session is looked at while others have nothing to do, at least: it may be faster now.
const LEAST_LOOK: Duration = Duration::from_millis(500);
/// The same in round trips; and what a file takes that is asked for over a window that has to open again.
const ROUND_TRIPS: u32 = 4;
/// So many times as long, and this besides, is much longer than others take.
const MUCH: f64 = 2.0;
const MUCH_S: f64 = 0.5;

/// How all sessions of a copy do.
#[derive(Debug, Default)]
pub(crate) struct Field {
    next: AtomicU64,
    standings: Mutex<BTreeMap<u64, Standing>>,
}

/// How a session does.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Standing {
    /// Items that it has.
    items: usize,
    /// Bytes that it has moved, with what files cost besides.
    work: u64,
    /// How long it had something to do.
    busy: Duration,
}

/// Sessions that have nothing to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Idle {
    sessions: usize,
    /// What one of them did in a second while it had something to do.
    rate: f64,
}

impl Field {
    /// Whether a session has nothing to do that had something before.
    pub(crate) fn has_idle(&self) -> bool {
        self.standings().values().any(Standing::is_idle)
    }

    /// Tells how a session does, and how those do that have nothing to do.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a rate needs no more than 15 digits"
    )]
    pub(super) fn tell(&self, key: u64, own: Standing) -> Option<Idle> {
        let mut standings = self.standings();
        standings.insert(key, own);
        let idle = || {
            let others = standings.iter().filter(|(other, _)| **other != key);
            others.map(|(_, found)| found).filter(|o| o.is_idle())
        };
        let sessions = idle().count();
        let rates = idle().filter_map(Standing::rate);
        (sessions > 0).then(|| Idle {
            sessions,
            rate: rates.sum::<f64>() / sessions as f64,
        })
    }

    /// How fast a session has been beside the mean of all: 1 of one that was faster, or of which nothing is known.
    pub(super) fn pace(&self, key: u64) -> f64 {
        let standings = self.standings();
        let rates = standings.values().filter_map(Standing::rate);
        let (sum, sessions) = rates.fold((0.0, 0.0), |(sum, sessions), rate| {
            (sum + rate, sessions + 1.0)
        });
        let own = standings.get(&key).and_then(Standing::rate);
        own.map_or(1.0, |own| (own * sessions / sum).min(1.0))
    }

    /// A session does nothing any more.
    pub(super) fn leave(&self, key: u64) {
        self.standings().remove(&key);
    }

    fn standings(&self) -> MutexGuard<'_, BTreeMap<u64, Standing>> {
        let standings = self.standings.lock();
        standings.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Standing {
    fn is_idle(&self) -> bool {
        self.items == 0 && self.rate().is_some()
    }

    /// What it did in a second while it had something to do, if it did anything.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a rate needs no more than 15 digits"
    )]
    fn rate(&self) -> Option<f64> {
        let did = self.work > 0 && !self.busy.is_zero();
        did.then(|| self.work as f64 / self.busy.as_secs_f64())
    }
}

/// What a session has done so far.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) key: u64,
    /// How fast it is beside all sessions, as that was seen last: see [`Field::pace`].
    pub(super) pace: f64,
    /// Bytes that came of transfers that are not done.
    came: BTreeMap<u64, u64>,
    standing: Standing,
    /// When it was told, and what was done then.
    told: (Duration, u64),
    /// Since when others have nothing to do, and what was done then.
    last: Option<(Duration, u64)>,
}

impl Progress {
    pub(super) fn new(field: &Field) -> Self {
        Self {
            key: field.next.fetch_add(1, Ordering::Relaxed),
            pace: 1.0,
            came: BTreeMap::new(),
            standing: Standing::default(),
            told: (Duration::ZERO, 0),
            last: None,
        }
    }

    /// Bytes of a transfer are here.
    pub(super) fn came(&mut self, transfer: u64, bytes: u64) {
        *self.came.entry(transfer).or_default() += bytes;
        self.standing.work += bytes;
    }

    /// A transfer is done, or comes to nothing.
    pub(super) fn ended(&mut self, transfer: u64) {
        self.came.remove(&transfer);
        self.standing.work += FILE_BYTES;
    }

    /// Where it stands now, with so many items.
    pub(super) fn stand(&mut self, now: Duration, items: usize) -> Standing {
        let (then, work) = self.told;
        if self.standing.items > 0 || items > 0 || self.standing.work > work {
            self.standing.busy += now.saturating_sub(then);
        }
        self.standing.items = items;
        self.told = (now, self.standing.work);
        self.standing
    }

    /// Bytes of an item that are here.
    pub(super) fn came_of(&self, item: &Item) -> u64 {
        self.came.get(&item.number).copied().unwrap_or(0)
    }

    /// Bytes that came of all that is not done.
    pub(super) fn came_of_all(&self) -> u64 {
        self.came.values().sum()
    }

    /// Others have something to do.
    pub(super) fn look_away(&mut self) {
        self.last = None;
    }

    /// What it has done in a second since others have nothing to do, if that is known.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a rate needs no more than 15 digits"
    )]
    pub(super) fn last_rate(&mut self, now: Duration, round_trip: Duration) -> Option<f64> {
        let (since, work) = *self.last.get_or_insert((now, self.standing.work));
        let time = now.saturating_sub(since);
        let known = time >= LEAST_LOOK.max(ROUND_TRIPS * round_trip);
        known.then(|| (self.standing.work - work) as f64 / time.as_secs_f64())
    }
}

/// What a session has left to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    pub(super) items: usize,
    pub(super) bytes: u64,
    /// Bytes of these that are here already.
    pub(super) came: u64,
    /// What it does in a second.
    pub(super) rate: f64,
}

impl Left {
    /// How long it takes for that and how long those take that have nothing to do, in seconds, if that is much less.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a time needs no more than 15 digits"
    )]
    pub(super) fn compare(self, idle: Idle, round_trip: Duration) -> Option<(f64, f64)> {
        let all = (self.bytes + self.items as u64 * FILE_BYTES) as f64;
        let own_s = (all - self.came as f64) / self.rate;
        // As the queue shares it out among them.
        let shares = self.items.div_ceil(FEW) as u64;
        let shares = shares.max(self.bytes.div_ceil(FEW_BYTES));
        let shares = shares.min(self.items.min(idle.sessions) as u64);
        let others_s = (ROUND_TRIPS * round_trip).as_secs_f64() + all / (idle.rate * shares as f64);
        (own_s > MUCH * others_s + MUCH_S).then_some((own_s, others_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Duration = Duration::from_millis(200);

    #[test]
    fn a_session_is_left_behind_that_takes_much_longer_than_those_that_have_nothing_to_do() {
        let check = |(items, bytes, came), rate, (sessions, others), expected| {
            let left = Left {
                items,
                bytes,
                came,
                rate,
            };
            let idle = Idle {
                sessions,
                rate: others,
            };
            let found = left.compare(idle, FAR);
            assert_eq!(found.is_some(), expected, "{left:?} {idle:?} {found:?}");
        };
        // 1000 files of 10 kB are 30 MB of work: 6 s at 5 MB/s, and 1.55 s elsewhere, round trips included.
        let files = (1_000, 10_000_000, 0);
        check(files, 5e6, (7, 5e6), true);
        check(files, 0.0, (1, 5e6), true);
        check(files, 5e6, (1, 5e6), false);
        check(files, 10e6, (7, 5e6), false);
        // Of a few files there is one share, however many sessions there are.
        check((100, 1_000_000, 0), 1e6, (7, 1e6), false);
        // What came already others would have to get again.
        let file = (1, 30_000_000, 20_000_000);
        check(file, 2e6, (7, 10e6), false);
        check(file, 0.5e6, (7, 10e6), true);
    }

    #[test]
    fn those_that_have_nothing_to_do_are_known_by_what_they_did_while_they_had_something() {
        let field = Field::default();
        let mut sessions: Vec<_> = (0..3).map(|_| Progress::new(&field)).collect();
        let at = Duration::from_secs;
        let tell = |session: &mut Progress, now, items| {
            let standing = session.stand(now, items);
            field.tell(session.key, standing)
        };
        for session in &mut sessions {
            assert_eq!(tell(session, at(0), 2), None);
            session.came(7, 100_000 - FILE_BYTES);
            session.ended(7);
        }
        assert_eq!(tell(&mut sessions[1], at(2), 0), None, "nobody else is");
        assert!(field.has_idle());
        let idle = tell(&mut sessions[0], at(2), 1).expect("the second");
        sessions[2].came(8, 200_000);
        tell(&mut sessions[2], at(3), 1);
        let paces = [0, 1, 2].map(|session| field.pace(sessions[session].key));
        assert_eq!(paces, [0.75, 0.75, 1.0], "of 50, 50 and 100 kB/s");
        assert_eq!((idle.sessions, idle.rate), (1, 50_000.0));
        // Time in which there is nothing to do does not make it slower; one that never had anything tells nothing.
        tell(&mut sessions[1], at(10), 0);
        tell(&mut Progress::new(&field), at(10), 0);
        assert_eq!(tell(&mut sessions[0], at(10), 1), Some(idle));
        field.leave(sessions[1].key);
        assert_eq!(tell(&mut sessions[0], at(10), 1), None);
    }

    #[test]
    fn a_session_is_looked_at_from_when_others_have_nothing_to_do() {
        let mut session = Progress::new(&Field::default());
        session.came(1, 1_000_000);
        let at = Duration::from_millis;
        assert_eq!(session.last_rate(at(1_000), FAR), None);
        session.came(1, 1_000);
        assert_eq!(session.last_rate(at(1_700), FAR), None);
        assert_eq!(session.last_rate(at(2_000), FAR), Some(1_000.0));
    }
}
