//! Who fetches what of a large file: pieces that nobody has yet, and those that somebody has, of which others take over what is slow to come.
//!
//! Bytes are claimed before they are written, in their order, and only what is not claimed yet is taken over: no byte is written twice.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::landing::UNIT;
use crate::decision::WORTH;

/// How long a piece is watched before it is called slow. Each time that another has to begin with all that is left of it, twice as long: a server
/// may be slow to begin, whoever asks.
const PATIENCE: Duration = Duration::from_secs(1);
/// It is slow if what is left takes so many times as long.
const SLOW: f64 = 2.0;
/// What is left is halved; of less than this, all is taken over.
const WORTH_HALVING: u64 = UNIT / 2;

/// Where all that are there bring as much, a part of less is left to who has it.
const WORTH_SHARING: u64 = 4 * UNIT;
/// A piece of less would have its stream wait longer for the first byte than it takes to come.
const LEAST_PIECE: u64 = 2 << 20;

/// What is missing of a file.
#[derive(Debug)]
pub(super) struct Claims {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Connections for it at a time, at most.
    most: usize,
    /// So many are enough, unless one brings nothing at all.
    enough: usize,
    /// Whether each one more brings as much as those that there are.
    shared: bool,
    /// How many there were with the last that was added, and what those before it brought in a second.
    tried: Option<(usize, f64)>,
    free: VecDeque<Range<u64>>,
    held: BTreeMap<u64, Held>,
    next: u64,
}

/// What somebody fetches.
#[derive(Debug)]
struct Held {
    /// What is yet to come.
    left: Range<u64>,
    /// What was yet to come at that time, and how much came in a second before.
    seen: (Instant, u64),
    rate: Option<f64>,
    patience: Duration,
    lost: Arc<Notify>,
}

/// A piece that is ours until it ends, or others have taken all that was left of it.
#[derive(Debug)]
pub(super) struct Claim {
    id: u64,
    pub(super) start: u64,
    /// Told when nothing is left of it.
    pub(super) lost: Arc<Notify>,
}

impl Claims {
    pub(super) fn new(pieces: Vec<Range<u64>>, most: usize) -> Self {
        Self {
            state: Mutex::new(State {
                most,
                enough: most,
                shared: false,
                tried: None,
                free: pieces.into(),
                held: BTreeMap::new(),
                next: 0,
            }),
        }
    }

    /// A piece that nobody has, else a part of one that is slow; none if all goes well.
    pub(super) fn next(&self, now: Instant) -> Option<Claim> {
        let mut state = self.lock();
        let (left, patience) = match state.free.pop_front() {
            Some(piece) => (piece, PATIENCE),
            None if state.may_grow() => state.take_over(now)?,
            None => return None,
        };
        let (id, start, lost) = (state.next, left.start, Arc::new(Notify::new()));
        state.next += 1;
        let held = Held {
            seen: (now, left.start),
            left,
            rate: None,
            patience,
            lost: Arc::clone(&lost),
        };
        state.held.insert(id, held);
        Some(Claim { id, start, lost })
    }

    /// Whether something is slow that another could take over.
    pub(super) fn is_slow(&self, now: Instant) -> bool {
        let mut state = self.lock();
        state.slowest(now).is_some() && state.may_grow()
    }

    /// Those that are at it are enough; how many, if that is new.
    pub(super) fn settle(&self) -> Option<usize> {
        let mut state = self.lock();
        let count = state.held.len().max(1);
        let before = std::mem::replace(&mut state.enough, count);
        (before != count).then_some(count)
    }

    /// Each one more brings as much as those that there are. Whether that is new.
    pub(super) fn share(&self) -> bool {
        !std::mem::replace(&mut self.lock().shared, true)
    }

    /// Whether each one more brings as much.
    pub(super) fn is_shared(&self) -> bool {
        self.lock().shared
    }

    /// What is left of a piece.
    pub(super) fn left(&self, claim: &Claim) -> Range<u64> {
        self.lock().held[&claim.id].left.clone()
    }

    /// Takes so many bytes that have come, or as many of them as are still ours.
    pub(super) fn take(&self, claim: &Claim, bytes: usize) -> usize {
        let mut state = self.lock();
        let left = &mut state
            .held
            .get_mut(&claim.id)
            .expect("it has not ended")
            .left;
        let most = usize::try_from(left.end - left.start).unwrap_or(usize::MAX);
        let ours = bytes.min(most);
        left.start += ours as u64;
        ours
    }

    /// Lets a piece go.
    pub(super) fn end(&self, claim: &Claim) {
        self.lock().held.remove(&claim.id);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The later half of what is left of the slowest piece, or all of it.
    fn take_over(&mut self, now: Instant) -> Option<(Range<u64>, Duration)> {
        let id = self.slowest(now)?;
        let rates = self.held.values().filter_map(|held| held.rate);
        self.tried = Some((self.held.len() + 1, rates.sum()));
        let held = self.held.get_mut(&id).expect("just found");
        let Range { start, end } = held.left;
        if end - start < WORTH_HALVING {
            held.left.end = start;
            held.lost.notify_one();
            return Some((start..end, held.patience * 2));
        }
        let middle = start + (end - start) / 2;
        // What begins with a unit is known to the next copy as soon as that is there.
        let unit = middle.next_multiple_of(UNIT);
        let near = end - (end - start) / 4;
        held.left.end = if unit <= near { unit } else { middle };
        Some((held.left.end..end, held.patience))
    }

    /// Whether there may be one more: as long as there are fewer than were tried before, and if the last one that was tried has brought something.
    fn may_grow(&mut self) -> bool {
        let count = self.held.len();
        let stands = self.held.values().any(|held| held.rate == Some(0.0));
        if count >= self.most || self.shared {
            return count < self.most;
        }
        if count >= self.enough && !stands {
            return false;
        }
        let Some((tried, before)) = self.tried.filter(|(tried, _)| count >= *tried) else {
            return true;
        };
        let rates: Option<f64> = self.held.values().map(|held| held.rate).sum();
        match rates {
            // Some have just begun.
            None => false,
            Some(rate) if rate < WORTH * before && !stands => {
                self.enough = tried;
                false
            }
            Some(_) => true,
        }
    }

    /// That of which others should have a part.
    fn slowest(&mut self, now: Instant) -> Option<u64> {
        if self.shared {
            let left = |held: &Held| held.left.end - held.left.start;
            let largest = self.held.iter().max_by_key(|(_, held)| left(held));
            if let Some((id, _)) = largest.filter(|(_, held)| left(held) >= WORTH_SHARING) {
                return Some(*id);
            }
        }
        let slow = self.held.iter_mut().filter_map(|(id, held)| {
            let needs = held.needs_s(now)?;
            (needs > SLOW * held.patience.as_secs_f64()).then_some((*id, needs))
        });
        slow.max_by(|(_, a), (_, b)| a.total_cmp(b))
            .map(|(id, _)| id)
    }
}

impl Held {
    /// How long what is left takes at its last rate; none if nothing is left, or it was not watched for long enough.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a rate needs no more than 15 digits"
    )]
    fn needs_s(&mut self, now: Instant) -> Option<f64> {
        let (since, from) = self.seen;
        let watched = now.saturating_duration_since(since);
        if watched >= self.patience {
            self.rate = Some((self.left.start - from) as f64 / watched.as_secs_f64());
            self.seen = (now, self.left.start);
        }
        let left = self.left.end - self.left.start;
        (left > 0).then_some(left as f64 / self.rate?)
    }
}

/// Cuts what is missing into pieces; none crosses the end of the first answer. They become smaller towards the end, so that all streams end at about the
/// same time: one that is left alone with a large piece has its share of the path, and not yet more.
pub(super) fn cut(
    missing: &[Range<u64>],
    streams: usize,
    most: u64,
    first: u64,
) -> Vec<Range<u64>> {
    let mut left: u64 = missing.iter().map(|range| range.end - range.start).sum();
    let mut pieces = Vec::new();
    for range in missing {
        let mut at = range.start;
        while at < range.end {
            let share = left / (2 * streams as u64 - 1) / UNIT * UNIT;
            let piece = share.max(LEAST_PIECE).min(most);
            let end = if at < first {
                first
            } else {
                at.saturating_add(piece)
            };
            pieces.push(at..end.min(range.end));
            left -= end.min(range.end) - at;
            at = end.min(range.end);
        }
    }
    pieces
}

/// What is missing, in pieces as large as can be; none crosses the end of the first answer.
pub(super) fn split(missing: &[Range<u64>], first: u64) -> Vec<Range<u64>> {
    let halves = |range: &Range<u64>| {
        let middle = first.clamp(range.start, range.end);
        [range.start..middle, middle..range.end]
    };
    let pieces = missing.iter().flat_map(halves);
    pieces.filter(|piece| !piece.is_empty()).collect()
}

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "a list of one range is what is meant"
)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_piece_that_drips_is_halved_until_the_rest_is_taken_and_no_byte_is_twice() {
        let begin = Instant::now();
        let claims = Claims::new(vec![0..4 * UNIT, 4 * UNIT..8 * UNIT], 2);
        let slow = claims.next(begin).expect("a piece");
        let quick = claims.next(begin).expect("a piece");
        assert!(claims.next(begin).is_none());
        assert_eq!(claims.take(&slow, 1000), 1000);
        assert_eq!(claims.take(&quick, 9 << 20), 4 << 20);
        claims.end(&quick);
        assert!(!claims.is_slow(begin + SECOND / 2));
        let now = begin + SECOND;
        let mut taken = vec![];
        while let Some(part) = claims.next(now) {
            let left = claims.left(&part);
            assert_eq!(left.start, part.start);
            taken.push(left.clone());
            claims.take(&part, (left.end - left.start) as usize);
            claims.end(&part);
        }
        // Halves begin with a unit while there is one.
        assert_eq!(taken[..2], [3 * UNIT..4 * UNIT, 2 * UNIT..3 * UNIT]);
        assert_eq!(taken.last().expect("many").start, 1000);
        assert_eq!(claims.left(&slow), 1000..1000);
        assert_eq!(claims.take(&slow, 1000), 0);
        for pair in taken.windows(2) {
            assert_eq!(pair[1].end, pair[0].start);
        }
    }

    #[test]
    fn who_takes_over_all_from_one_who_has_not_begun_has_twice_the_time() {
        let mut now = Instant::now();
        let claims = Claims::new(vec![0..1000], 4);
        let mut holder = claims.next(now).expect("a piece");
        for patience in [1, 2, 4] {
            assert!(!claims.is_slow(now + SECOND * patience - SECOND / 2));
            now += SECOND * patience;
            let next = claims.next(now).expect("it is slow");
            assert_eq!(claims.left(&holder), 0..0);
            assert_eq!(claims.left(&next), 0..1000);
            claims.end(&holder);
            holder = next;
        }
    }

    #[test]
    fn what_is_quick_enough_is_left_alone_and_what_becomes_slow_is_not() {
        let begin = Instant::now();
        let claims = Claims::new(vec![0..10 * UNIT], 2);
        let piece = claims.next(begin).expect("a piece");
        claims.take(&piece, 6 * UNIT as usize);
        assert!(!claims.is_slow(begin + SECOND));
        claims.take(&piece, 1);
        assert!(claims.is_slow(begin + 2 * SECOND));
        assert!(Claims::new(vec![], 2).next(begin).is_none());
    }

    #[test]
    fn one_more_is_tried_as_long_as_the_last_one_has_brought_something() {
        let check = |gain: f64, grows: bool| {
            let begin = Instant::now();
            let claims = Claims::new(vec![0..1 << 40], 4);
            let first = claims.next(begin).expect("a piece");
            claims.take(&first, 100 << 20);
            let second = claims
                .next(begin + SECOND)
                .expect("all of it has long to go");
            assert!(!claims.is_slow(begin + SECOND), "the second has just begun");
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a part of 100 MiB"
            )]
            let each = (gain * f64::from(50 << 20)) as usize;
            claims.take(&first, each);
            claims.take(&second, each);
            assert_eq!(claims.is_slow(begin + 2 * SECOND), grows, "{gain}");
            // In place of one that ends another may come in any case.
            claims.take(&first, 1);
            claims.end(&second);
            assert!(claims.is_slow(begin + 3 * SECOND), "{gain}");
            assert_eq!((claims.settle(), claims.settle()), (Some(1), None));
            claims.take(&first, 1);
            assert!(!claims.is_slow(begin + 4 * SECOND), "one is enough now");
            assert!(claims.is_slow(begin + 5 * SECOND), "and brings nothing");
        };
        check(1.0, false);
        check(1.04, false);
        check(1.1, true);
    }

    #[test]
    fn where_each_one_more_brings_as_much_all_are_at_it_at_once_with_halves_of_what_is_left() {
        let begin = Instant::now();
        let claims = Claims::new(vec![0..32 * UNIT], 4);
        let first = claims.next(begin).expect("a piece");
        assert!(claims.next(begin).is_none());
        assert!(claims.share() && !claims.share());
        let parts: Vec<_> = (0..3).map(|_| claims.next(begin)).collect();
        let left = |claim: &Claim| claims.left(claim);
        let parts: Vec<_> = parts.iter().flatten().map(left).collect();
        assert_eq!(parts[0], 16 * UNIT..32 * UNIT - 8 * UNIT);
        assert_eq!(claims.left(&first), 0..8 * UNIT);
        assert_eq!(parts.len(), 3);
        assert!(claims.next(begin).is_none(), "four are at it");
    }

    #[test]
    fn what_is_missing_stays_whole_but_for_what_the_first_answer_brings() {
        assert_eq!(split(&[0..9], 9), [0..9]);
        assert_eq!(split(&[0..9], 4), [0..4, 4..9]);
        assert_eq!(split(&[2..4, 6..9], 4), [2..4, 6..9]);
        assert_eq!(split(&[], 4), []);
    }

    #[test]
    fn there_are_no_more_at_it_than_may_be() {
        let begin = Instant::now();
        let claims = Claims::new(vec![0..10 * UNIT], 1);
        let _piece = claims.next(begin).expect("a piece");
        assert!(!claims.is_slow(begin + SECOND));
        assert!(claims.next(begin + SECOND).is_none());
    }

    #[test]
    fn pieces_are_all_that_is_missing_and_become_smaller_towards_the_end() {
        let size = |piece: &Range<u64>| piece.end - piece.start;
        let (most, whole) = (64 << 20, 1_000_000_000);
        for (missing, first) in [
            (vec![0..whole], 0),
            (vec![0..whole], most),
            (vec![5 << 20..7 << 20, 9 << 20..whole], 0),
        ] {
            let pieces = cut(&missing, 4, most, first);
            let mut joined: Vec<Range<u64>> = Vec::new();
            for piece in &pieces {
                assert!((1..=most).contains(&size(piece)), "{piece:?}");
                match joined.last_mut() {
                    Some(last) if last.end == piece.start => last.end = piece.end,
                    _ => joined.push(piece.clone()),
                }
            }
            assert_eq!(joined, missing);
            assert!(
                pieces
                    .iter()
                    .all(|piece| piece.start == 0 || piece.start >= first)
            );
            assert!(
                pieces
                    .iter()
                    .rev()
                    .take(4)
                    .all(|piece| size(piece) <= LEAST_PIECE)
            );
        }
        assert_eq!(cut(&[0..9 << 20], 1, most, 0), [0..9 << 20]);
    }
}
