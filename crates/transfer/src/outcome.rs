//! Outcome of a copy, and its final messages.

use std::sync::atomic::Ordering;

use crate::report::Report;
use crate::stop::CancelToken;
use crate::totals::CopyTotals;

/// Outcome of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyExit {
    /// All files are complete.
    Done,
    /// Some files failed.
    Failed,
    /// No server could be reached; nothing was copied.
    Unreached,
    /// Interrupted by a signal.
    Stopped,
}

/// Reports the end of a copy and returns its outcome.
pub(crate) fn end(stop: &CancelToken, totals: &CopyTotals, report: &Report) -> CopyExit {
    let failed = totals.failed.load(Ordering::Relaxed);
    let (outcome, name) = match (stop.signalled(), failed) {
        (true, _) => (CopyExit::Stopped, "stopped"),
        (_, 0) => (CopyExit::Done, "done"),
        _ => (CopyExit::Failed, "failed"),
    };
    report.end(totals, name);
    if outcome != CopyExit::Stopped && report.reports_missing_events() {
        return CopyExit::Failed;
    }
    match outcome {
        CopyExit::Stopped => report.print("Interrupted. Run the same command again to resume."),
        CopyExit::Failed if stop.is_cancelled() => {
            report.print("Aborted: the remaining files would fail for the same reason. Complete files are kept.");
        }
        CopyExit::Failed => {
            let rest = if totals.has_any() {
                "; all other files are complete"
            } else {
                ""
            };
            report.print(&format!(
                "{failed} failed{rest}. Fix the cause, then run the same command again."
            ));
        }
        CopyExit::Done | CopyExit::Unreached => {}
    }
    outcome
}

/// Returns the outcome of a copy whose servers were not reached; the reason is already reported.
pub(crate) fn unreached(stop: &CancelToken, totals: &CopyTotals, report: &Report) -> CopyExit {
    if stop.signalled() {
        return end(stop, totals, report);
    }
    report.end(totals, "failed");
    CopyExit::Unreached
}
