//! Queue of items between scanners and sessions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::chunks::MIN_CHUNK_BYTES;
use super::work::{FtpDirection, Item};

/// Maximum waiting items. Above it, scanners wait, so that a tree of millions needs no more memory.
const MAX_WAITING: usize = 20_000;

/// Minimum items of a session: the number of files of 10 KB in flight on a path of 50 ms, at its part of 1 Gb/s.
pub(crate) const MIN_SESSION_ITEMS: usize = 128;
/// Minimum bytes of a session.
pub(crate) const MIN_SESSION_BYTES: u64 = 4 << 20;
/// Bytes that each session can always have: two of the smallest chunks of a large file.
const MIN_AHEAD_BYTES: u64 = 2 * MIN_CHUNK_BYTES;

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<Item>,
    /// Items that are assigned to sessions.
    taken: usize,
    /// Bytes of all items, and of the waiting ones.
    bytes: u64,
    waiting_bytes: u64,
    /// True while scanners can add items.
    open: bool,
    wakers: Vec<Waker>,
}

impl QueueState {
    fn is_over(&self) -> bool {
        !self.open && self.taken == 0 && self.waiting.is_empty()
    }

    fn add(&mut self, items: Vec<Item>) {
        let bytes = items.iter().map(Item::bytes).sum::<u64>();
        self.bytes += bytes;
        self.waiting_bytes += bytes;
        self.waiting.extend(items);
    }

    fn wake_later(&mut self, cx: &Context<'_>) {
        // Not `will_wake`: the clone of a runtime can have its function table at another address, so that each poll would add a waker.
        let own = cx.waker();
        if !self.wakers.iter().any(|waker| waker.data() == own.data()) {
            self.wakers.push(own.clone());
        }
    }
}

/// Capacity of a session for items.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionCapacity {
    /// Assigned items.
    pub(crate) assigned: usize,
    /// Maximum items.
    pub(crate) depth: usize,
    /// Bytes of the assigned items.
    pub(crate) assigned_bytes: u64,
    /// Bytes of all sessions; the item that exceeds them is taken as well.
    pub(crate) ahead_bytes: u64,
    /// Number of open and opening sessions.
    pub(crate) sessions: usize,
    /// Speed compared with the mean of all sessions: 1 for a faster one.
    pub(crate) pace: f64,
}

impl SessionCapacity {
    /// Returns the number of items that it can take. To let all sessions end together, none has more than half of its share of the incomplete items,
    /// unless there are few.
    fn max_items(self, incomplete: usize) -> usize {
        let per_session = incomplete.div_ceil(2 * self.sessions.max(1));
        let max_items = self.depth.min(per_session.max(MIN_SESSION_ITEMS));
        max_items.saturating_sub(self.assigned)
    }

    /// Returns its maximum bytes: its share of the data in flight, and at least one item more than
    /// one, for pipelining. Other sessions cannot take over any excess of a slow session.
    fn max_bytes(self) -> u64 {
        let mean = self.assigned_bytes / self.assigned.max(1) as u64;
        let per_session = self.ahead_bytes / self.sessions.max(1) as u64;
        per_session.max(MIN_AHEAD_BYTES).max(mean + 1)
    }

    /// True if it can take no item at all.
    pub(crate) fn is_full(self) -> bool {
        self.assigned > self.depth - self.depth.div_ceil(4)
            || self.assigned_bytes >= self.max_bytes()
    }

    /// Returns the bytes that it can take: at most half of its share by its speed, so that others
    /// get some of the last ones, and no session ends much later than the others.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "half of a session's part needs no more than 15 digits"
    )]
    fn bytes(self, waiting: u64) -> u64 {
        let per_session = (waiting as f64 * self.pace) as u64 / (2 * self.sessions.max(1) as u64);
        let max_items = self.max_bytes().min(per_session.max(MIN_SESSION_BYTES));
        max_items.saturating_sub(self.assigned_bytes)
    }
}

/// Items of a copy. The queue ends when it is closed and all items are complete.
#[derive(Debug)]
pub(crate) struct WorkQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
    next: AtomicU64,
}

impl WorkQueue {
    pub(crate) fn new() -> Self {
        let open = QueueState {
            open: true,
            ..QueueState::default()
        };
        Self {
            state: Mutex::new(open),
            changed: Condvar::new(),
            next: AtomicU64::new(0),
        }
    }

    /// Adds items. Waits while there are too many, until `stopped`.
    pub(crate) fn push(
        &self,
        jobs: impl IntoIterator<Item = FtpDirection>,
        stopped: impl Fn() -> bool,
    ) {
        let items: Vec<Item> = jobs.into_iter().map(|job| self.item(job)).collect();
        let mut state = self.lock();
        while state.waiting.len() > MAX_WAITING && !stopped() {
            state = self.wait_changed(state, Duration::from_millis(100));
        }
        state.add(items);
        wake(state);
    }

    /// Replaces an assigned item by other items.
    pub(crate) fn replace(&self, jobs: impl IntoIterator<Item = FtpDirection>) {
        let items = jobs.into_iter().map(|job| self.item(job)).collect();
        let mut state = self.lock();
        state.taken -= 1;
        state.add(items);
        wake(state);
        self.changed.notify_all();
    }

    fn item(&self, job: FtpDirection) -> Item {
        Item {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            attempts: 0,
            resume_offset: 0,
            starts: 0,
            since: None,
            passed: false,
            job,
        }
    }

    /// Closes the queue: no scanner adds items any more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.open = false;
        wake(state);
        self.changed.notify_all();
    }

    /// Returns items for a session with capacity, or none at the end of the queue. Each item must be completed or requeued.
    pub(crate) fn poll_take(
        &self,
        cx: &mut Context<'_>,
        capacity: SessionCapacity,
    ) -> Poll<Option<Vec<Item>>> {
        let mut state = self.lock();
        let max_items = capacity.max_items(state.waiting.len() + state.taken);
        let mut bytes = capacity.bytes(state.waiting_bytes);
        if !state.waiting.is_empty() && max_items > 0 && bytes > 0 {
            let mut items = Vec::new();
            while items.len() < max_items
                && bytes > 0
                && let Some(item) = state.waiting.pop_front()
            {
                bytes = bytes.saturating_sub(item.bytes());
                items.push(item);
            }
            state.taken += items.len();
            state.waiting_bytes -= items.iter().map(Item::bytes).sum::<u64>();
            drop(state);
            self.changed.notify_all();
            return Poll::Ready(Some(items));
        }
        if state.is_over() {
            return Poll::Ready(None);
        }
        state.wake_later(cx);
        Poll::Pending
    }

    /// Ready at the end of the queue.
    pub(crate) fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.is_over() {
            return Poll::Ready(());
        }
        state.wake_later(cx);
        Poll::Pending
    }

    /// Removes an item that is complete or has failed for good.
    pub(crate) fn complete(&self) {
        let mut state = self.lock();
        state.taken -= 1;
        if state.is_over() {
            wake(state);
            self.changed.notify_all();
        }
    }

    /// Returns an item to the queue for another session.
    pub(crate) fn requeue(&self, item: Item) {
        let mut state = self.lock();
        state.taken -= 1;
        state.waiting_bytes += item.bytes();
        state.waiting.push_front(Item {
            attempts: item.attempts + 1,
            ..item
        });
        wake(state);
    }

    /// Returns items of a straggler for other sessions.
    pub(crate) fn reassign(&self, items: Vec<Item>) {
        let mut state = self.lock();
        state.taken -= items.len();
        state.waiting_bytes += items.iter().map(Item::bytes).sum::<u64>();
        state.waiting.extend(items.into_iter().map(|item| Item {
            passed: true,
            ..item
        }));
        wake(state);
    }

    /// True if no item waits, and none will be added except requeued ones.
    pub(crate) fn is_drained(&self) -> bool {
        let state = self.lock();
        !state.open && state.waiting.is_empty()
    }

    /// Removes all waiting items, because no session can transfer them.
    pub(crate) fn abandon(&self) -> Vec<Item> {
        let mut state = self.lock();
        state.waiting_bytes = 0;
        std::mem::take(&mut state.waiting).into()
    }

    /// Returns the incomplete items, and their bytes estimated from the mean of all items.
    pub(crate) fn incomplete(&self) -> (usize, u64) {
        let state = self.lock();
        let items = state.waiting.len() + state.taken;
        (items, self.compute_mean(&state) * items as u64)
    }

    /// Returns the mean size of an item, bytes.
    pub(crate) fn mean_bytes(&self) -> u64 {
        self.compute_mean(&self.lock())
    }

    fn compute_mean(&self, state: &QueueState) -> u64 {
        state.bytes / self.next.load(Ordering::Relaxed).max(1)
    }

    /// Returns the number of waiting and of assigned items.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let state = self.lock();
        (state.waiting.len(), state.taken)
    }

    /// Returns the bytes of all added items.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Waits for the end of the queue, at most until the timeout. Returns true at the end.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let state = self.lock();
        if state.is_over() {
            return true;
        }
        self.wait_changed(state, timeout).is_over()
    }

    fn wait_changed<'q>(
        &self,
        state: MutexGuard<'q, QueueState>,
        timeout: Duration,
    ) -> MutexGuard<'q, QueueState> {
        let waited = self.changed.wait_timeout(state, timeout);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes all waiting sessions, after it has released the lock.
fn wake(mut state: MutexGuard<'_, QueueState>) {
    let wakers = std::mem::take(&mut state.wakers);
    drop(state);
    wakers.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests;
