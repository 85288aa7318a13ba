//! Whether slow work on files is to go on, and whether it does: a file system whose server is gone may never answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clock::monotonic_ns;

/// Shared by the threads that work and the loop that waits for them. One for all work of a host: it is done by turns.
#[derive(Debug)]
pub(crate) struct Pulse {
    stop: Arc<AtomicBool>,
    last_ns: AtomicU64,
}

impl Pulse {
    /// Work that goes on until `stop` becomes true.
    pub(crate) fn new(stop: Arc<AtomicBool>) -> Self {
        Self {
            stop,
            last_ns: AtomicU64::new(monotonic_ns()),
        }
    }

    /// Says that the work goes on. False: it is to end.
    pub(crate) fn beat(&self) -> bool {
        self.last_ns.store(monotonic_ns(), Ordering::Relaxed);
        !self.is_stopped()
    }

    /// Whether the work is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// When it last went on, by the monotonic clock.
    pub(crate) fn last_ns(&self) -> u64 {
        self.last_ns.load(Ordering::Relaxed)
    }
}
