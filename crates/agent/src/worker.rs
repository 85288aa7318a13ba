//! Slow work on separate threads; the results go to the event loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Wakes the event loop from any thread.
#[derive(Debug, Clone)]
pub(crate) struct Waker {
    event: Arc<EventFd>,
}

/// Starts threads and receives their results. Each job has one thread, so there is at most one per
/// waiting actor.
#[derive(Debug)]
pub(crate) struct WorkerThreads<T> {
    waker: Waker,
    sender: Sender<Result<T, Panicked>>,
    receiver: Receiver<Result<T, Panicked>>,
}

/// Result of a job that panicked because of an error in this program. Without it, the actor would
/// wait forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Panicked;

impl Waker {
    fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self {
            event: Arc::new(event),
        })
    }

    /// Makes the descriptor readable.
    pub(crate) fn wake(&self) {
        // Fails only if the counter is full, and then it is readable already.
        let _ = self.event.write(1);
    }

    /// Resets the descriptor.
    pub(crate) fn clear(&self) {
        let _ = self.event.read();
    }

    /// Returns the descriptor to watch.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl<T: Send + 'static> WorkerThreads<T> {
    /// Creates it without jobs.
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        Ok(Self {
            waker: Waker::new()?,
            sender,
            receiver,
        })
    }

    /// Returns the waker of the loop.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Runs a job on a separate thread.
    ///
    /// # Errors
    /// If no thread can start.
    pub(crate) fn run(
        &self,
        name: &str,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<()> {
        let (sender, waker) = (self.sender.clone(), self.waker.clone());
        let work = move || {
            let result = catch_unwind(AssertUnwindSafe(job)).map_err(|_| Panicked);
            // The receiver may be dropped at the end of the agent.
            let _ = sender.send(result);
            waker.wake();
        };
        std::thread::Builder::new()
            .name(name.into())
            .spawn(work)
            .map(drop)
    }

    /// Returns the next result, if any.
    pub(crate) fn poll(&self) -> Option<Result<T, Panicked>> {
        self.receiver.try_recv().ok()
    }
}
