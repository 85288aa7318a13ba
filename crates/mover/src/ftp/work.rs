//! What is to be transferred, on its way from those who look for files to the sessions that move them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use venturi_gridftp::Path;

use super::chunks::Large;

/// Most items that wait. Whoever looks for files waits then, too: a tree of millions needs no more memory than this.
const MOST_WAITING: usize = 20_000;

/// What is known of a file at a server or here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) size: Option<u64>,
    /// When it was modified, in seconds since 1970.
    pub(crate) modify_s: Option<i64>,
    /// Permission bits.
    pub(crate) mode: Option<u32>,
}

/// A file, or a chunk of one, to be moved.
#[derive(Debug)]
pub(crate) struct Item {
    /// One that no other has.
    pub(crate) number: u64,
    /// Sessions that have failed with it.
    pub(crate) tries: u32,
    pub(crate) job: Job,
}

/// Which way.
#[derive(Debug, Clone)]
pub(crate) enum Job {
    /// From a server.
    Fetch(Arc<Fetch>),
    /// One chunk of a large file from a server.
    Chunk(Arc<Large>, u64),
    /// To a server.
    Store(Arc<Store>),
}

/// A file of a server and the name of its copy here.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) from: Path,
    pub(crate) to: PathBuf,
    /// Its name while it is not whole.
    pub(crate) part: PathBuf,
    pub(crate) known: Known,
}

/// A file of this host and the name of its copy at a server.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) from: PathBuf,
    pub(crate) to: Path,
    /// Its name while it is not whole.
    pub(crate) part: Path,
    pub(crate) known: Known,
}

impl Item {
    /// Bytes to be moved, as far as they are known.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.job {
            Job::Fetch(fetch) => fetch.known.size.unwrap_or(0),
            Job::Chunk(large, index) => large.range(*index).end - large.range(*index).start,
            Job::Store(store) => store.known.size.unwrap_or(0),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Item>,
    /// Items that sessions have.
    taken: usize,
    /// Whether more may come from those who look for files.
    open: bool,
    wakers: Vec<Waker>,
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
        let number = || self.next.fetch_add(1, Ordering::Relaxed);
        let item = |job| Item {
            number: number(),
            tries: 0,
            job,
        };
        let items: Vec<Item> = jobs.into_iter().map(item).collect();
        let mut state = self.lock();
        while state.waiting.len() > MOST_WAITING && !stopped() {
            state = self.rest(state, Duration::from_millis(100));
        }
        state.waiting.extend(items);
        wake(state);
    }

    /// Nobody adds any more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.open = false;
        wake(state);
        self.changed.notify_all();
    }

    /// Up to so many items, and no more when they have so many bytes; none when all are settled and no more come. Each is to be settled or
    /// given back.
    pub(crate) fn poll_take(
        &self,
        cx: &mut Context<'_>,
        most: usize,
        mut bytes: u64,
    ) -> Poll<Option<Vec<Item>>> {
        let mut state = self.lock();
        if !state.waiting.is_empty() {
            let mut items = Vec::new();
            while items.len() < most
                && bytes > 0
                && let Some(item) = state.waiting.pop_front()
            {
                bytes = bytes.saturating_sub(item.bytes());
                items.push(item);
            }
            state.taken += items.len();
            drop(state);
            self.changed.notify_all();
            return Poll::Ready(Some(items));
        }
        if !state.open && state.taken == 0 {
            return Poll::Ready(None);
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// An item is done, or has failed for good.
    pub(crate) fn settle(&self) {
        let mut state = self.lock();
        state.taken -= 1;
        if state.taken == 0 && !state.open && state.waiting.is_empty() {
            wake(state);
            self.changed.notify_all();
        }
    }

    /// A session could not move an item; another may.
    pub(crate) fn give_back(&self, item: Item) {
        let mut state = self.lock();
        state.taken -= 1;
        state.waiting.push_front(Item {
            tries: item.tries + 1,
            ..item
        });
        wake(state);
    }

    /// Takes away all that waits, for nobody is there to move it.
    pub(crate) fn abandon(&self) -> Vec<Item> {
        std::mem::take(&mut self.lock().waiting).into()
    }

    /// Items that wait, and those that sessions have.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let state = self.lock();
        (state.waiting.len(), state.taken)
    }

    /// Waits until all are settled, but no longer than this. Whether they are.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let ended = |state: &State| !state.open && state.taken == 0 && state.waiting.is_empty();
        let state = self.lock();
        if ended(&state) {
            return true;
        }
        ended(&self.rest(state, patience))
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
mod tests {
    use super::*;

    fn fetch(size: u64) -> Job {
        let known = Known {
            size: Some(size),
            ..Known::default()
        };
        Job::Fetch(Arc::new(Fetch {
            from: Path::new("/a").expect("a path"),
            to: "a".into(),
            part: "b".into(),
            known,
        }))
    }

    fn take(queue: &Queue, most: usize, bytes: u64) -> Option<Option<Vec<Item>>> {
        let mut cx = Context::from_waker(Waker::noop());
        match queue.poll_take(&mut cx, most, bytes) {
            Poll::Ready(items) => Some(items),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_session_takes_no_more_files_and_bytes_than_it_has_room_for() {
        let queue = Queue::new();
        queue.push((0..10).map(|_| fetch(100)), || false);
        let count = |most, bytes| take(&queue, most, bytes).flatten().map(|items| items.len());
        assert_eq!(count(3, 1_000), Some(3));
        // The one with which it is full is taken, too: a file larger than all room must go as well.
        assert_eq!(count(10, 101), Some(2));
        assert_eq!(count(10, 1), Some(1));
        assert_eq!(queue.depth(), (4, 6));
    }

    #[test]
    fn it_ends_when_all_are_settled_and_none_can_come() {
        let queue = Queue::new();
        queue.push([fetch(1), fetch(1)], || false);
        let items = take(&queue, 2, 10).flatten().expect("two");
        assert!(take(&queue, 2, 10).is_none(), "more may come");
        queue.close();
        assert!(take(&queue, 2, 10).is_none(), "one may come back");
        let mut items = items.into_iter();
        queue.give_back(items.next().expect("the first"));
        queue.settle();
        let again = take(&queue, 2, 10).flatten().expect("it came back");
        assert_eq!((again.len(), again[0].tries), (1, 1));
        assert!(!queue.wait(Duration::ZERO));
        queue.settle();
        assert!(queue.wait(Duration::ZERO));
        assert!(take(&queue, 2, 10).expect("the end").is_none());
    }

    #[test]
    fn whoever_looks_for_files_waits_while_there_are_too_many() {
        let queue = Queue::new();
        queue.push((0..=MOST_WAITING).map(|_| fetch(1)), || false);
        std::thread::scope(|scope| {
            let pushing = scope.spawn(|| queue.push([fetch(1)], || false));
            assert!(!pushing.is_finished());
            drop(take(&queue, 10, u64::MAX));
            pushing.join().expect("it goes on");
        });
        assert_eq!(queue.depth(), (MOST_WAITING + 2 - 10, 10));
    }
}
