//! Activity monitor for slow work on files: decides when to stop it, because a file system without
//! its server may never respond.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clock::monotonic_ns;

/// Shared by the working threads and the waiting loop. One monitor covers all work of a host, which
/// is done in turns.
#[derive(Debug)]
pub(crate) struct ActivityMonitor {
    stop: Arc<AtomicBool>,
    last_ns: AtomicU64,
}

impl ActivityMonitor {
    /// Monitor work that runs until `stop` becomes true.
    pub(crate) fn new(stop: Arc<AtomicBool>) -> Self {
        Self {
            stop,
            last_ns: AtomicU64::new(monotonic_ns()),
        }
    }

    /// Record progress; return false if the work must stop.
    pub(crate) fn beat(&self) -> bool {
        self.last_ns.store(monotonic_ns(), Ordering::Relaxed);
        !self.is_stopped()
    }

    /// Return whether the work must stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Return the time of the last progress, by the monotonic clock.
    pub(crate) fn last_ns(&self) -> u64 {
        self.last_ns.load(Ordering::Relaxed)
    }
}
