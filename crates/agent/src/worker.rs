//! Slow work on threads of its own, and its results back to the event loop.

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

/// Starts threads and takes their results. A job is one thread: there are as many at once as actors that wait for one.
#[derive(Debug)]
pub(crate) struct Workers<T> {
    waker: Waker,
    sender: Sender<Result<T, Panicked>>,
    receiver: Receiver<Result<T, Panicked>>,
}

/// A job panicked: a mistake in this program, after which the actor that waits for it would wait for ever.
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
        // Fails only when the counter is full, and then it is readable already.
        let _ = self.event.write(1);
    }

    /// Makes the descriptor quiet again.
    pub(crate) fn clear(&self) {
        let _ = self.event.read();
    }

    /// The descriptor to watch.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl<T: Send + 'static> Workers<T> {
    /// No job yet.
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        Ok(Self {
            waker: Waker::new()?,
            sender,
            receiver,
        })
    }

    /// What wakes the loop.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Runs a job on a thread of its own.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub(crate) fn run(
        &self,
        name: &str,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<()> {
        let (sender, waker) = (self.sender.clone(), self.waker.clone());
        let work = move || {
            let result = catch_unwind(AssertUnwindSafe(job)).map_err(|_| Panicked);
            // Nobody listens any more when the agent ends.
            let _ = sender.send(result);
            waker.wake();
        };
        std::thread::Builder::new()
            .name(name.into())
            .spawn(work)
            .map(drop)
    }

    /// The next result, if there is one.
    pub(crate) fn poll(&self) -> Option<Result<T, Panicked>> {
        self.receiver.try_recv().ok()
    }
}
