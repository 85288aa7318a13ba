//! State of a local copy and its reports.

use std::ffi::CStr;
use std::sync::atomic::Ordering;

use super::directory::{CopySide, Dir, LocalTree};
use super::tune::CopyPlan;
use super::walk::LocalTask;
use crate::decision::Decision;
use crate::error::Failure;
use crate::journal::Journal;
use crate::options::CopyOptions;
use crate::pool::Pool;
use crate::report::Report;
use crate::roots::Root;
use crate::stop::CancelToken;
use crate::totals::CopyTotals;

/// State that all workers share.
pub(crate) struct LocalContext<'o> {
    pub(crate) order: &'o CopyOptions,
    pub(crate) stop: &'o CancelToken,
    pub(crate) totals: &'o CopyTotals,
    pub(crate) report: &'o Report,
    pub(crate) pool: Pool<LocalTask>,
    pub(crate) plan: CopyPlan,
    pub(crate) umask: u32,
}

impl LocalContext<'_> {
    /// Report a failure in a tree, which is then incomplete.
    pub(crate) fn fail(&self, tree: &LocalTree, failure: &Failure) {
        tree.failures.fetch_add(1, Ordering::Relaxed);
        self.report_failure(failure);
    }

    /// Report a failure.
    pub(crate) fn report_failure(&self, failure: &Failure) {
        self.report.failure(failure, self.totals, self.stop);
    }

    pub(crate) fn copied(
        &self,
        dir: &Dir,
        name: &CStr,
        bytes: u64,
        outcome: &str,
        technique: Option<&str>,
    ) {
        self.totals.count(&self.totals.files);
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.file(dir, name, bytes, outcome, technique);
    }

    pub(crate) fn skipped_file(&self, dir: &Dir, name: &CStr, bytes: u64) {
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

    pub(crate) fn skipped(&self, dir: &Dir, name: &CStr, reason: &str) {
        self.totals.count(&self.totals.skipped);
        self.report
            .skipped(&dir.path(CopySide::Source, name), reason);
    }

    /// Report that a large file is resumed.
    pub(crate) fn resumed(&self, dir: &Dir, name: &CStr, existing: u64, chunks: u64) {
        let copy = dir.path(CopySide::Copy, name);
        self.report.chunks_kept(&copy, existing, chunks);
    }

    /// Report that a tree is resumed, and the skip check of its files.
    pub(crate) fn resuming(&self, root: &Root, journal: &Journal) {
        if journal.found {
            let by = if journal.reliable {
                "size and time"
            } else {
                "content, because the host may have crashed after it was written"
            };
            let reason = format!(
                "{}: resumes an interrupted copy; complete files are detected by {by}",
                root.destination.display()
            );
            self.report.decision(&Decision {
                setting: "resumed",
                value: 1,
                reason,
            });
        }
    }

    /// Report, once per tree, that a file system does not support direct I/O.
    pub(crate) fn no_direct(&self, tree: &LocalTree) {
        if tree.methods.no_direct() {
            let reason = format!(
                "{}: a file system does not support O_DIRECT",
                tree.source.display()
            );
            self.report.decision(&Decision {
                setting: "direct",
                value: 0,
                reason,
            });
        }
    }

    fn file(&self, dir: &Dir, name: &CStr, bytes: u64, outcome: &str, technique: Option<&str>) {
        if self.report.logs_files() {
            self.report
                .file(&dir.path(CopySide::Copy, name), bytes, outcome, technique);
        }
    }
}
