//! Items on their way from those who look for files to the queue: some at a time, for the queue is locked for each time.

use super::shared::Shared;
use super::work::Job;

/// Items that are given to the sessions at a time.
const MOST: usize = 32;
/// Directories that are asked for at a time: their answers fill a path of 200 ms.
pub(crate) const FOLDERS_AHEAD: usize = 64;
/// Sources, or copies, that a server is asked for at a time before they are begun.
pub(crate) const ROOTS_AHEAD: usize = 256;

/// Items that the sessions do not have yet.
pub(crate) struct Batch<'d> {
    shared: &'d Shared<'d>,
    jobs: Vec<Job>,
}

impl<'d> Batch<'d> {
    pub(crate) fn new(shared: &'d Shared<'d>) -> Self {
        Self {
            shared,
            jobs: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, job: Job) {
        self.jobs.push(job);
        if self.jobs.len() >= MOST {
            self.give();
        }
    }

    /// Gives the sessions all there is, as before whoever looks for files waits.
    pub(crate) fn give(&mut self) {
        if !self.jobs.is_empty() {
            let stop = self.shared.stop;
            let jobs = self.jobs.drain(..);
            self.shared.queue.push(jobs, || stop.asked());
        }
    }
}
