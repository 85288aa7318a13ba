//! What the workers of a local copy share, and how they tell what they have done.

use std::ffi::CStr;
use std::sync::atomic::Ordering;

use super::directory::{Dir, Side, Tree};
use super::tune::Plan;
use super::walk::Task;
use crate::decision::Decision;
use crate::error::Failure;
use crate::journal::Journal;
use crate::order::Order;
use crate::pool::Pool;
use crate::report::Report;
use crate::roots::Root;
use crate::stop::Stop;
use crate::totals::Totals;

/// What all workers share.
pub(crate) struct Context<'o> {
    pub(crate) order: &'o Order,
    pub(crate) stop: &'o Stop,
    pub(crate) totals: &'o Totals,
    pub(crate) report: &'o Report,
    pub(crate) pool: Pool<Task>,
    pub(crate) plan: Plan,
    pub(crate) umask: u32,
}

impl Context<'_> {
    /// Tells a failure of something in a tree, which is then not whole.
    pub(crate) fn fail(&self, tree: &Tree, failure: &Failure) {
        tree.failures.fetch_add(1, Ordering::Relaxed);
        self.tell(failure);
    }

    /// Tells a failure.
    pub(crate) fn tell(&self, failure: &Failure) {
        self.report.failure(failure, self.totals, self.stop);
    }

    pub(crate) fn copied(
        &self,
        dir: &Dir,
        name: &CStr,
        bytes: u64,
        outcome: &str,
        how: Option<&str>,
    ) {
        self.totals.count(&self.totals.files);
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.file(dir, name, bytes, outcome, how);
    }

    pub(crate) fn kept(&self, dir: &Dir, name: &CStr, bytes: u64) {
        self.totals.count(&self.totals.kept);
        self.file(dir, name, bytes, "kept", None);
    }

    pub(crate) fn linked(&self, dir: &Dir, name: &CStr) {
        self.totals.count(&self.totals.hard_links);
        self.file(dir, name, 0, "hard_link", None);
    }

    pub(crate) fn made(&self, dir: &Dir, name: &CStr, outcome: &str) {
        self.totals.count(&self.totals.links);
        self.file(dir, name, 0, outcome, None);
    }

    pub(crate) fn left_out(&self, dir: &Dir, name: &CStr, reason: &str) {
        self.totals.count(&self.totals.left_out);
        self.report.skipped(&dir.path(Side::Source, name), reason);
    }

    /// Tells that a large file goes on.
    pub(crate) fn resumed(&self, dir: &Dir, name: &CStr, there: u64, chunks: u64) {
        let copy = dir.path(Side::Copy, name);
        self.report.chunks_kept(&copy, there, chunks);
    }

    /// Tells that a tree goes on, and by what files are told that are there.
    pub(crate) fn going_on(&self, root: &Root, journal: &Journal) {
        if journal.found {
            let by = if journal.reliable {
                "size and time"
            } else {
                "content, since the machine may have gone down since they were written"
            };
            let reason = format!(
                "{}: an earlier copy was stopped; what is whole is told by {by}",
                root.destination.display()
            );
            self.report.decision(&Decision {
                what: "resumed",
                value: 1,
                reason,
            });
        }
    }

    /// Tells, once for a tree, that its file systems cannot do without the page cache.
    pub(crate) fn no_direct(&self, tree: &Tree) {
        if tree.ways.no_direct() {
            let reason = format!(
                "{}: a file system here has no O_DIRECT",
                tree.source.display()
            );
            self.report.decision(&Decision {
                what: "direct",
                value: 0,
                reason,
            });
        }
    }

    fn file(&self, dir: &Dir, name: &CStr, bytes: u64, outcome: &str, how: Option<&str>) {
        if self.report.tells_files() {
            self.report
                .file(&dir.path(Side::Copy, name), bytes, outcome, how);
        }
    }
}
