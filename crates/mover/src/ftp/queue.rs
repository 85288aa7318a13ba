//! What is to be transferred, on its way from those who look for files to the sessions that move them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::chunks::LEAST_CHUNK_BYTES;
use super::work::{Item, Job};

/// Most items that wait. Whoever looks for files waits then, too: a tree of millions needs no more memory than this.
const MOST_WAITING: usize = 20_000;

/// So many items a session has in any case: what a path of 50 ms holds of files of 10 KB, at its share of 1 Gb/s.
pub(crate) const FEW: usize = 128;
/// So many bytes likewise.
pub(crate) const FEW_BYTES: u64 = 4 << 20;
/// Bytes that a session may have in any case: two of the smallest chunks of a large file.
const LEAST_AHEAD_BYTES: u64 = 2 * LEAST_CHUNK_BYTES;

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Item>,
    /// Items that sessions have.
    taken: usize,
    /// Bytes of all that came, and of those that wait.
    bytes: u64,
    waiting_bytes: u64,
    /// Whether more may come from those who look for files.
    open: bool,
    wakers: Vec<Waker>,
}

impl State {
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
        // Not `will_wake`: a runtime's clone may have a table of functions at another address, and each turn would leave one more here.
        let own = cx.waker();
        if !self.wakers.iter().any(|waker| waker.data() == own.data()) {
            self.wakers.push(own.clone());
        }
    }
}

/// What a session can take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Items that it has.
    pub(crate) held: usize,
    /// Items that it may have.
    pub(crate) depth: usize,
    /// Bytes of what it has.
    pub(crate) held_bytes: u64,
    /// Bytes that all sessions may have; the item with which they have more goes as well.
    pub(crate) ahead_bytes: u64,
    /// Sessions that there are, or will soon be.
    pub(crate) sessions: usize,
    /// How fast it is beside the mean of them: 1 of one that is faster.
    pub(crate) pace: f64,
}

impl Room {
    /// Items that it may take while so many are not settled: so that sessions end together none has more than half of its share of them,
    /// unless they are few.
    fn most(self, unsettled: usize) -> usize {
        let share = unsettled.div_ceil(2 * self.sessions.max(1));
        let most = self.depth.min(share.max(FEW));
        most.saturating_sub(self.held)
    }

    /// Bytes that it may have: its share of what the path holds, and in any case one item more than one, which is asked for before that ends.
    /// What a slow session has more than that, nobody can take off it when the others are done.
    fn most_bytes(self) -> u64 {
        let mean = self.held_bytes / self.held.max(1) as u64;
        let share = self.ahead_bytes / self.sessions.max(1) as u64;
        share.max(LEAST_AHEAD_BYTES).max(mean + 1)
    }

    /// Whether it can take nothing, however much waits.
    pub(crate) fn is_full(self) -> bool {
        self.held > self.depth - self.depth.div_ceil(4) || self.held_bytes >= self.most_bytes()
    }

    /// Bytes that it may take while so many wait: no more than half of its share of them by its pace, so that others
    /// have some, too, when they are few, and none has much left to do when the others are done.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share needs no more than 15 digits"
    )]
    fn bytes(self, waiting: u64) -> u64 {
        let share = (waiting as f64 * self.pace) as u64 / (2 * self.sessions.max(1) as u64);
        let most = self.most_bytes().min(share.max(FEW_BYTES));
        most.saturating_sub(self.held_bytes)
    }
}

/// The items of a copy. It ends when nobody can add any and all are settled.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    next: AtomicU64,
}

impl Queue {
    pub(crate) fn new() -> Self {
        let open = State {
            open: true,
            ..State::default()
        };
        Self {
            state: Mutex::new(open),
            changed: Condvar::new(),
            next: AtomicU64::new(0),
        }
    }

    /// Adds items. Waits while there are too many, unless `stopped` says to let it be.
    pub(crate) fn push(&self, jobs: impl IntoIterator<Item = Job>, stopped: impl Fn() -> bool) {
        let items: Vec<Item> = jobs.into_iter().map(|job| self.item(job)).collect();
        let mut state = self.lock();
        while state.waiting.len() > MOST_WAITING && !stopped() {
            state = self.rest(state, Duration::from_millis(100));
        }
        state.add(items);
        wake(state);
    }

    /// Adds others in place of an item that a session has.
    pub(crate) fn replace(&self, jobs: impl IntoIterator<Item = Job>) {
        let items = jobs.into_iter().map(|job| self.item(job)).collect();
        let mut state = self.lock();
        state.taken -= 1;
        state.add(items);
        wake(state);
        self.changed.notify_all();
    }

    fn item(&self, job: Job) -> Item {
        Item {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            tries: 0,
            there: 0,
            begins: 0,
            since: None,
            passed: false,
            job,
        }
    }

    /// Nobody adds any more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.open = false;
        wake(state);
        self.changed.notify_all();
    }

    /// Items for a session that has room for them; none when all are settled and no more come. Each is to be settled or given back.
    pub(crate) fn poll_take(&self, cx: &mut Context<'_>, room: Room) -> Poll<Option<Vec<Item>>> {
        let mut state = self.lock();
        let most = room.most(state.waiting.len() + state.taken);
        let mut bytes = room.bytes(state.waiting_bytes);
        if !state.waiting.is_empty() && most > 0 && bytes > 0 {
            let mut items = Vec::new();
            while items.len() < most
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

    /// Ready when all are settled and no more come.
    pub(crate) fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.is_over() {
            return Poll::Ready(());
        }
        state.wake_later(cx);
        Poll::Pending
    }

    /// An item is done, or has failed for good.
    pub(crate) fn settle(&self) {
        let mut state = self.lock();
        state.taken -= 1;
        if state.is_over() {
            wake(state);
            self.changed.notify_all();
        }
    }

    /// A session could not move an item; another may.
    pub(crate) fn give_back(&self, item: Item) {
        let mut state = self.lock();
        state.taken -= 1;
        state.waiting_bytes += item.bytes();
        state.waiting.push_front(Item {
            tries: item.tries + 1,
            ..item
        });
        wake(state);
    }

    /// A session that is left behind has others move these.
    pub(crate) fn pass_on(&self, items: Vec<Item>) {
        let mut state = self.lock();
        state.taken -= items.len();
        state.waiting_bytes += items.iter().map(Item::bytes).sum::<u64>();
        state.waiting.extend(items.into_iter().map(|item| Item {
            passed: true,
            ..item
        }));
        wake(state);
    }

    /// Whether nothing waits, and no more comes but what sessions give back.
    pub(crate) fn is_spent(&self) -> bool {
        let state = self.lock();
        !state.open && state.waiting.is_empty()
    }

    /// Takes away all that waits, for nobody is there to move it.
    pub(crate) fn abandon(&self) -> Vec<Item> {
        let mut state = self.lock();
        state.waiting_bytes = 0;
        std::mem::take(&mut state.waiting).into()
    }

    /// Items that are not settled, and their bytes if they are like all that came.
    pub(crate) fn unsettled(&self) -> (usize, u64) {
        let state = self.lock();
        let items = state.waiting.len() + state.taken;
        (items, self.mean_of(&state) * items as u64)
    }

    /// Bytes of an item, on average.
    pub(crate) fn mean_bytes(&self) -> u64 {
        self.mean_of(&self.lock())
    }

    fn mean_of(&self, state: &State) -> u64 {
        state.bytes / self.next.load(Ordering::Relaxed).max(1)
    }

    /// Items that wait, and those that sessions have.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let state = self.lock();
        (state.waiting.len(), state.taken)
    }

    /// Bytes of all items that were ever added.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Waits until all are settled, but no longer than this. Whether they are.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let state = self.lock();
        if state.is_over() {
            return true;
        }
        self.rest(state, patience).is_over()
    }

    fn rest<'q>(&self, state: MutexGuard<'q, State>, patience: Duration) -> MutexGuard<'q, State> {
        let waited = self.changed.wait_timeout(state, patience);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes all that wait, with the lock given back first.
fn wake(mut state: MutexGuard<'_, State>) {
    let wakers = std::mem::take(&mut state.wakers);
    drop(state);
    wakers.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests;
