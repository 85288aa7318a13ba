//! Batches of items for the queue, so that its lock is taken less often.

use super::shared::Shared;
use super::work::FtpDirection;

/// Items per batch.
const MAX_BATCH_ITEMS: usize = 32;
/// Listings in flight: their replies fill a path of 200 ms.
pub(crate) const DIRECTORIES_AHEAD: usize = 64;
/// Sources, or copies, whose metadata is requested in advance.
pub(crate) const ROOTS_AHEAD: usize = 256;

/// Items that are not in the queue yet.
pub(crate) struct Batch<'d> {
    shared: &'d Shared<'d>,
    jobs: Vec<FtpDirection>,
}

impl<'d> Batch<'d> {
    pub(crate) fn new(shared: &'d Shared<'d>) -> Self {
        Self {
            shared,
            jobs: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, job: FtpDirection) {
        self.jobs.push(job);
        if self.jobs.len() >= MAX_BATCH_ITEMS {
            self.give();
        }
    }

    /// Adds all items to the queue, for example before the scanner waits.
    pub(crate) fn give(&mut self) {
        if !self.jobs.is_empty() {
            let stop = self.shared.stop;
            let jobs = self.jobs.drain(..);
            self.shared.queue.push(jobs, || stop.is_cancelled());
        }
    }
}
