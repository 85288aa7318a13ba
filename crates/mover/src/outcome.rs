//! How a copy ends, and what is said of it.

use std::sync::atomic::Ordering;

use crate::report::Report;
use crate::stop::Stop;
use crate::totals::Totals;

/// How a copy ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All is there.
    Done,
    /// Some files failed.
    Failed,
    /// No server could be reached, so that nothing was done.
    Unreached,
    /// A signal came.
    Stopped,
}

/// Tells what came of a copy.
pub(crate) fn end(stop: &Stop, totals: &Totals, report: &Report) -> Outcome {
    let failed = totals.failed.load(Ordering::Relaxed);
    let (outcome, name) = match (stop.signalled(), failed) {
        (true, _) => (Outcome::Stopped, "stopped"),
        (_, 0) => (Outcome::Done, "done"),
        _ => (Outcome::Failed, "failed"),
    };
    report.end(totals, name);
    if outcome != Outcome::Stopped && report.tells_of_missing_events() {
        return Outcome::Failed;
    }
    match outcome {
        Outcome::Stopped => {
            report.talk("stopped; no file is half there. Run the same command again to go on")
        }
        Outcome::Failed if stop.asked() => {
            report.talk("ended before the rest, which would fare no better; what is whole stays");
        }
        Outcome::Failed => {
            let rest = if totals.has_any() {
                ", the rest is there"
            } else {
                ""
            };
            report.talk(&format!(
                "{failed} failed{rest}. When the cause is mended, run the same command again"
            ));
        }
        Outcome::Done | Outcome::Unreached => {}
    }
    outcome
}

/// The same where no server has answered: why, was told.
pub(crate) fn unreached(stop: &Stop, totals: &Totals, report: &Report) -> Outcome {
    if stop.signalled() {
        return end(stop, totals, report);
    }
    report.end(totals, "failed");
    Outcome::Unreached
}
