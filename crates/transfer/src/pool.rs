//! Task pool: one stack that all workers share.
//!
//! A stack keeps memory small: workers finish recent tasks before they scan further directories. One lock is sufficient, because
//! a task contains many files, or a chunk of a large file. A worker that sees idle workers returns half of its task.

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
    /// Tasks in progress; they can still add tasks.
    active: usize,
}

/// Counts a task as active until it is dropped, also after a panic.
#[derive(Debug)]
pub(crate) struct TaskGuard<'p, T>(&'p Pool<T>);

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

    /// Adds tasks to the top of the stack; the last one is executed first.
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

    /// Waits for the next task. Returns none when the pool is empty and no task in progress can add another.
    pub(crate) fn take(&self) -> Option<(T, TaskGuard<'_, T>)> {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.stack.pop() {
                state.active += 1;
                return Some((task, TaskGuard(self)));
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

    /// Returns the next task, if there is one.
    pub(crate) fn try_take(&self) -> Option<(T, TaskGuard<'_, T>)> {
        let mut state = self.lock();
        let task = state.stack.pop()?;
        state.active += 1;
        Some((task, TaskGuard(self)))
    }

    /// Returns the number of waiting tasks.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().stack.len()
    }

    /// True if a worker is idle.
    pub(crate) fn hungry(&self) -> bool {
        self.idle.load(Ordering::Relaxed) > 0
    }

    /// True if the pool is empty and no task is in progress.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.lock();
        state.stack.is_empty() && state.active == 0
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for TaskGuard<'_, T> {
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
    fn every_task_of_a_growing_tree_is_run_once_by_many_workers() {
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
