//! What is still to be done: one stack for all workers.
//!
//! Last in, first out keeps memory small: what was found last is finished before more is looked for. One lock is enough, since
//! a task is many files, or a chunk of a large one; one whose worker sees others idle gives half of it back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(crate) struct Pool<T> {
    state: Mutex<State<T>>,
    wake: Condvar,
    idle: AtomicUsize,
}

#[derive(Debug)]
struct State<T> {
    stack: Vec<T>,
    /// Tasks that are being carried out, which may yet push others.
    active: usize,
}

/// A task that is counted as active until this is dropped, also by a panic.
#[derive(Debug)]
pub(crate) struct Taken<'p, T>(&'p Pool<T>);

impl<T> Pool<T> {
    pub(crate) fn new(tasks: Vec<T>) -> Self {
        Self {
            state: Mutex::new(State {
                stack: tasks,
                active: 0,
            }),
            wake: Condvar::new(),
            idle: AtomicUsize::new(0),
        }
    }

    /// Puts tasks on top; the last is carried out first.
    pub(crate) fn push(&self, tasks: impl IntoIterator<Item = T>) {
        let mut state = self.lock();
        let before = state.stack.len();
        state.stack.extend(tasks);
        match state.stack.len() - before {
            0 => {}
            1 => self.wake.notify_one(),
            _ => self.wake.notify_all(),
        }
    }

    /// The next task; none when nothing is left and nobody can add anything.
    pub(crate) fn take(&self) -> Option<(T, Taken<'_, T>)> {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.stack.pop() {
                state.active += 1;
                return Some((task, Taken(self)));
            }
            if state.active == 0 {
                return None;
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
            state = self
                .wake
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The next task, if there is one.
    pub(crate) fn try_take(&self) -> Option<(T, Taken<'_, T>)> {
        let mut state = self.lock();
        let task = state.stack.pop()?;
        state.active += 1;
        Some((task, Taken(self)))
    }

    /// Tasks that nobody has taken.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().stack.len()
    }

    /// Whether a worker has nothing to do.
    pub(crate) fn hungry(&self) -> bool {
        self.idle.load(Ordering::Relaxed) > 0
    }

    /// Whether nothing is left and nobody can add anything.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.lock();
        state.stack.is_empty() && state.active == 0
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.active -= 1;
        if state.active == 0 && state.stack.is_empty() {
            self.0.wake.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_task_of_a_growing_tree_is_carried_out_once_by_many_workers() {
        const DEPTH: u32 = 10;
        let pool = Pool::new(vec![0_u32]);
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while let Some((depth, _taken)) = pool.take() {
                        done.fetch_add(1, Ordering::Relaxed);
                        if depth < DEPTH {
                            pool.push([depth + 1, depth + 1]);
                        }
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), (1 << (DEPTH + 1)) - 1);
    }

    #[test]
    fn a_worker_that_panics_does_not_keep_the_others_waiting() {
        let pool = Pool::new(vec![true, false]);
        let ended = std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _taken = pool.take();
                panic!("on purpose");
            });
            let panicked = panics.join().is_err();
            let rest =
                scope.spawn(|| std::iter::from_fn(|| pool.take().map(|(task, _)| task)).count());
            (panicked, rest.join().expect("ends"))
        });
        assert_eq!(ended, (true, 1));
    }
}
