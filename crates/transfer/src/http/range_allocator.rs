//! Assignment of the byte ranges of a large file to workers. Idle workers take over a part of slow ranges.
//!
//! A worker claims bytes before it writes them, in order. Other workers take over only unclaimed bytes, so no byte
//! is written twice.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::partial_download::UNIT;
use crate::decision::MIN_GAIN;

/// Time before a range can count as slow. It doubles each time another worker takes over all remaining bytes,
/// because some servers respond late to every client.
const TIMEOUT: Duration = Duration::from_secs(1);
/// A range is slow if its remaining time exceeds the timeout by this factor.
const SLOW: f64 = 2.0;
/// Above this size, the remaining bytes are halved; below it, another worker takes over all of them.
const WORTH_HALVING: u64 = UNIT / 2;

/// Minimum remaining bytes for a split while each connection adds the same rate.
const WORTH_SHARING: u64 = 4 * UNIT;
/// Minimum chunk size: a smaller chunk waits longer for its first byte than for its data.
const MIN_CHUNK: u64 = 2 << 20;

/// Missing ranges of a file and their workers.
#[derive(Debug)]
pub(super) struct RangeAllocator {
    state: Mutex<AllocatorState>,
}

#[derive(Debug)]
struct AllocatorState {
    /// Maximum number of concurrent connections.
    max_workers: usize,
    /// Sufficient number of workers, unless one receives no bytes.
    limit: usize,
    /// True if each additional worker adds as much rate as the others.
    shared: bool,
    /// Number of workers at the last increase, and the bytes per second before it.
    last_trial: Option<(usize, f64)>,
    free: VecDeque<Range<u64>>,
    active: BTreeMap<u64, ActiveRange>,
    next: u64,
}

/// Range of one worker.
#[derive(Debug)]
struct ActiveRange {
    /// Remaining bytes.
    remaining: Range<u64>,
    /// Time and position of the last check, and bytes per second before it.
    last_seen: (Instant, u64),
    rate: Option<f64>,
    timeout: Duration,
    lost: Arc<Notify>,
}

/// A range of one worker until it ends or other workers have taken its remaining bytes.
#[derive(Debug)]
pub(super) struct RangeLease {
    id: u64,
    pub(super) start: u64,
    /// Notified when no bytes remain.
    pub(super) lost: Arc<Notify>,
}

impl RangeAllocator {
    pub(super) fn new(chunks: Vec<Range<u64>>, max_workers: usize) -> Self {
        Self {
            state: Mutex::new(AllocatorState {
                max_workers,
                limit: max_workers,
                shared: false,
                last_trial: None,
                free: chunks.into(),
                active: BTreeMap::new(),
                next: 0,
            }),
        }
    }

    /// Return a free range, otherwise a part of a slow range; none if all ranges are fast.
    pub(super) fn next(&self, now: Instant) -> Option<RangeLease> {
        let mut state = self.lock();
        let (remaining, timeout) = match state.free.pop_front() {
            Some(chunk) => (chunk, TIMEOUT),
            None if state.may_grow() => state.split_slowest(now)?,
            None => return None,
        };
        let (id, start, lost) = (state.next, remaining.start, Arc::new(Notify::new()));
        state.next += 1;
        let active = ActiveRange {
            last_seen: (now, remaining.start),
            remaining,
            rate: None,
            timeout,
            lost: Arc::clone(&lost),
        };
        state.active.insert(id, active);
        Some(RangeLease { id, start, lost })
    }

    /// Return whether another worker could take over a slow range.
    pub(super) fn is_slow(&self, now: Instant) -> bool {
        let mut state = self.lock();
        state.slowest(now).is_some() && state.may_grow()
    }

    /// Stop adding workers. Return their number if it changed.
    pub(super) fn stop_growing(&self) -> Option<usize> {
        let mut state = self.lock();
        let count = state.active.len().max(1);
        let before = std::mem::replace(&mut state.limit, count);
        (before != count).then_some(count)
    }

    /// Use all workers, because each one adds the same rate. Return whether this is new.
    pub(super) fn use_all_workers(&self) -> bool {
        !std::mem::replace(&mut self.lock().shared, true)
    }

    /// Return whether each additional worker adds as much rate as the others.
    pub(super) fn is_shared(&self) -> bool {
        self.lock().shared
    }

    /// Return the remaining bytes of a range.
    pub(super) fn remaining(&self, claim: &RangeLease) -> Range<u64> {
        self.lock().active[&claim.id].remaining.clone()
    }

    /// Claim received bytes and return the number of bytes that still belong to this range.
    pub(super) fn take(&self, claim: &RangeLease, bytes: usize) -> usize {
        let mut state = self.lock();
        let remaining = &mut state
            .active
            .get_mut(&claim.id)
            .expect("it has not ended")
            .remaining;
        let max_workers = usize::try_from(remaining.end - remaining.start).unwrap_or(usize::MAX);
        let ours = bytes.min(max_workers);
        remaining.start += ours as u64;
        ours
    }

    /// Release a range.
    pub(super) fn end(&self, claim: &RangeLease) {
        self.lock().active.remove(&claim.id);
    }

    fn lock(&self) -> MutexGuard<'_, AllocatorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AllocatorState {
    /// Return the second half of the remaining bytes of the slowest range, or all of them.
    fn split_slowest(&mut self, now: Instant) -> Option<(Range<u64>, Duration)> {
        let id = self.slowest(now)?;
        let rates = self.active.values().filter_map(|active| active.rate);
        self.last_trial = Some((self.active.len() + 1, rates.sum()));
        let active = self.active.get_mut(&id).expect("just found");
        let Range { start, end } = active.remaining;
        if end - start < WORTH_HALVING {
            active.remaining.end = start;
            active.lost.notify_one();
            return Some((start..end, active.timeout * 2));
        }
        let middle = start + (end - start) / 2;
        // A range that starts at a unit boundary can be recorded for the next copy.
        let unit = middle.next_multiple_of(UNIT);
        let near = end - (end - start) / 4;
        active.remaining.end = if unit <= near { unit } else { middle };
        Some((active.remaining.end..end, active.timeout))
    }

    /// Return whether one more worker is allowed: the count is below an earlier one, or the last increase raised
    /// the rate.
    fn may_grow(&mut self) -> bool {
        let count = self.active.len();
        let stands = self.active.values().any(|active| active.rate == Some(0.0));
        if count >= self.max_workers || self.shared {
            return count < self.max_workers;
        }
        if count >= self.limit && !stands {
            return false;
        }
        let Some((last_trial, before)) = self
            .last_trial
            .filter(|(last_trial, _)| count >= *last_trial)
        else {
            return true;
        };
        let rates: Option<f64> = self.active.values().map(|active| active.rate).sum();
        match rates {
            // Some workers have just started.
            None => false,
            Some(rate) if rate < MIN_GAIN * before && !stands => {
                self.limit = last_trial;
                false
            }
            Some(_) => true,
        }
    }

    /// Return the range to split.
    fn slowest(&mut self, now: Instant) -> Option<u64> {
        if self.shared {
            let remaining = |active: &ActiveRange| active.remaining.end - active.remaining.start;
            let largest = self
                .active
                .iter()
                .max_by_key(|(_, active)| remaining(active));
            if let Some((id, _)) = largest.filter(|(_, active)| remaining(active) >= WORTH_SHARING)
            {
                return Some(*id);
            }
        }
        let slow = self.active.iter_mut().filter_map(|(id, active)| {
            let needs = active.needs_s(now)?;
            (needs > SLOW * active.timeout.as_secs_f64()).then_some((*id, needs))
        });
        slow.max_by(|(_, a), (_, b)| a.total_cmp(b))
            .map(|(id, _)| id)
    }
}

impl ActiveRange {
    /// Return the seconds for the remaining bytes at the last rate; none if no bytes remain or the rate is unknown.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a rate needs no more than 15 digits"
    )]
    fn needs_s(&mut self, now: Instant) -> Option<f64> {
        let (since, from) = self.last_seen;
        let watched = now.saturating_duration_since(since);
        if watched >= self.timeout {
            self.rate = Some((self.remaining.start - from) as f64 / watched.as_secs_f64());
            self.last_seen = (now, self.remaining.start);
        }
        let remaining = self.remaining.end - self.remaining.start;
        (remaining > 0).then_some(remaining as f64 / self.rate?)
    }
}

/// Cut the missing ranges into chunks; no chunk crosses the end of the first response. Chunks become smaller
/// towards the end, so that all streams finish at about the same time. A stream alone with a large chunk would use
/// only its share of the path.
pub(super) fn cut(
    missing: &[Range<u64>],
    streams: usize,
    max_workers: u64,
    first: u64,
) -> Vec<Range<u64>> {
    let mut remaining: u64 = missing.iter().map(|range| range.end - range.start).sum();
    let mut chunks = Vec::new();
    for range in missing {
        let mut at = range.start;
        while at < range.end {
            let use_all_workers = remaining / (2 * streams as u64 - 1) / UNIT * UNIT;
            let chunk = use_all_workers.max(MIN_CHUNK).min(max_workers);
            let end = if at < first {
                first
            } else {
                at.saturating_add(chunk)
            };
            chunks.push(at..end.min(range.end));
            remaining -= end.min(range.end) - at;
            at = end.min(range.end);
        }
    }
    chunks
}

/// Return the missing ranges, split only at the end of the first response.
pub(super) fn split(missing: &[Range<u64>], first: u64) -> Vec<Range<u64>> {
    let halves = |range: &Range<u64>| {
        let middle = first.clamp(range.start, range.end);
        [range.start..middle, middle..range.end]
    };
    let chunks = missing.iter().flat_map(halves);
    chunks.filter(|chunk| !chunk.is_empty()).collect()
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
    fn a_slow_chunk_is_halved_until_it_is_finished_without_duplicate_bytes() {
        let start = Instant::now();
        let claims = RangeAllocator::new(vec![0..4 * UNIT, 4 * UNIT..8 * UNIT], 2);
        let slow = claims.next(start).expect("a piece");
        let quick = claims.next(start).expect("a piece");
        assert!(claims.next(start).is_none());
        assert_eq!(claims.take(&slow, 1000), 1000);
        assert_eq!(claims.take(&quick, 9 << 20), 4 << 20);
        claims.end(&quick);
        assert!(!claims.is_slow(start + SECOND / 2));
        let now = start + SECOND;
        let mut leases = vec![];
        while let Some(part) = claims.next(now) {
            let remaining = claims.remaining(&part);
            assert_eq!(remaining.start, part.start);
            leases.push(remaining.clone());
            claims.take(&part, (remaining.end - remaining.start) as usize);
            claims.end(&part);
        }
        // Halves start at a unit boundary if possible.
        assert_eq!(leases[..2], [3 * UNIT..4 * UNIT, 2 * UNIT..3 * UNIT]);
        assert_eq!(leases.last().expect("many").start, 1000);
        assert_eq!(claims.remaining(&slow), 1000..1000);
        assert_eq!(claims.take(&slow, 1000), 0);
        for pair in leases.windows(2) {
            assert_eq!(pair[1].end, pair[0].start);
        }
    }

    #[test]
    fn the_time_limit_doubles_when_a_chunk_that_did_not_start_is_taken_over() {
        let mut now = Instant::now();
        let claims = RangeAllocator::new(vec![0..1000], 4);
        let mut holder = claims.next(now).expect("a piece");
        for timeout in [1, 2, 4] {
            assert!(!claims.is_slow(now + SECOND * timeout - SECOND / 2));
            now += SECOND * timeout;
            let next = claims.next(now).expect("it is slow");
            assert_eq!(claims.remaining(&holder), 0..0);
            assert_eq!(claims.remaining(&next), 0..1000);
            claims.end(&holder);
            holder = next;
        }
    }

    #[test]
    fn a_fast_chunk_is_not_split_and_one_that_becomes_slow_is_split() {
        let start = Instant::now();
        let claims = RangeAllocator::new(vec![0..10 * UNIT], 2);
        let chunk = claims.next(start).expect("a piece");
        claims.take(&chunk, 6 * UNIT as usize);
        assert!(!claims.is_slow(start + SECOND));
        claims.take(&chunk, 1);
        assert!(claims.is_slow(start + 2 * SECOND));
        assert!(RangeAllocator::new(vec![], 2).next(start).is_none());
    }

    #[test]
    fn a_worker_is_added_while_the_last_one_increased_the_throughput() {
        let check = |gain: f64, grows: bool| {
            let start = Instant::now();
            let claims = RangeAllocator::new(vec![0..1 << 40], 4);
            let first = claims.next(start).expect("a piece");
            claims.take(&first, 100 << 20);
            let second = claims
                .next(start + SECOND)
                .expect("all of it has long to go");
            assert!(
                !claims.is_slow(start + SECOND),
                "the second has just started"
            );
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a part of 100 MiB"
            )]
            let each = (gain * f64::from(50 << 20)) as usize;
            claims.take(&first, each);
            claims.take(&second, each);
            assert_eq!(claims.is_slow(start + 2 * SECOND), grows, "{gain}");
            // A worker that ends can always be replaced.
            claims.take(&first, 1);
            claims.end(&second);
            assert!(claims.is_slow(start + 3 * SECOND), "{gain}");
            assert_eq!(
                (claims.stop_growing(), claims.stop_growing()),
                (Some(1), None)
            );
            claims.take(&first, 1);
            assert!(!claims.is_slow(start + 4 * SECOND), "one is enough now");
            assert!(claims.is_slow(start + 5 * SECOND), "and brings nothing");
        };
        check(1.0, false);
        check(1.04, false);
        check(1.1, true);
    }

    #[test]
    fn all_workers_start_at_once_with_halves_of_the_remaining_ranges() {
        let start = Instant::now();
        let claims = RangeAllocator::new(vec![0..32 * UNIT], 4);
        let first = claims.next(start).expect("a piece");
        assert!(claims.next(start).is_none());
        assert!(claims.use_all_workers() && !claims.use_all_workers());
        let parts: Vec<_> = (0..3).map(|_| claims.next(start)).collect();
        let remaining = |claim: &RangeLease| claims.remaining(claim);
        let parts: Vec<_> = parts.iter().flatten().map(remaining).collect();
        assert_eq!(parts[0], 16 * UNIT..32 * UNIT - 8 * UNIT);
        assert_eq!(claims.remaining(&first), 0..8 * UNIT);
        assert_eq!(parts.len(), 3);
        assert!(claims.next(start).is_none(), "four are at it");
    }

    #[test]
    fn missing_ranges_are_split_only_at_the_end_of_the_first_reply() {
        assert_eq!(split(&[0..9], 9), [0..9]);
        assert_eq!(split(&[0..9], 4), [0..4, 4..9]);
        assert_eq!(split(&[2..4, 6..9], 4), [2..4, 6..9]);
        assert_eq!(split(&[], 4), []);
    }

    #[test]
    fn no_more_workers_than_allowed_receive_chunks() {
        let start = Instant::now();
        let claims = RangeAllocator::new(vec![0..10 * UNIT], 1);
        let _chunk = claims.next(start).expect("a piece");
        assert!(!claims.is_slow(start + SECOND));
        assert!(claims.next(start + SECOND).is_none());
    }

    #[test]
    fn chunks_cover_all_missing_bytes_and_become_smaller_towards_the_end() {
        let size = |chunk: &Range<u64>| chunk.end - chunk.start;
        let (max_workers, whole) = (64 << 20, 1_000_000_000);
        for (missing, first) in [
            (vec![0..whole], 0),
            (vec![0..whole], max_workers),
            (vec![5 << 20..7 << 20, 9 << 20..whole], 0),
        ] {
            let chunks = cut(&missing, 4, max_workers, first);
            let mut joined: Vec<Range<u64>> = Vec::new();
            for chunk in &chunks {
                assert!((1..=max_workers).contains(&size(chunk)), "{chunk:?}");
                match joined.last_mut() {
                    Some(last) if last.end == chunk.start => last.end = chunk.end,
                    _ => joined.push(chunk.clone()),
                }
            }
            assert_eq!(joined, missing);
            assert!(
                chunks
                    .iter()
                    .all(|chunk| chunk.start == 0 || chunk.start >= first)
            );
            assert!(
                chunks
                    .iter()
                    .rev()
                    .take(4)
                    .all(|chunk| size(chunk) <= MIN_CHUNK)
            );
        }
        assert_eq!(cut(&[0..9 << 20], 1, max_workers, 0), [0..9 << 20]);
    }
}
