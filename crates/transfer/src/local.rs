//! Local copies: adds the sources to the pool, runs the workers, and reports the totals.

mod context;
pub(crate) mod copy_bytes;
mod directory;
mod file;
mod large;
mod links;
mod part;
mod skip_check;
mod source;
mod special;
mod tune;
mod walk;

use std::collections::HashMap;
use std::path::PathBuf;

use crate::decision::Decision;
use crate::error::CopyError;
use crate::inputs::CopyInputs;
use crate::options::{CopyOptions, OutputMode};
use crate::outcome::{self, CopyExit};
use crate::pool::Pool;
use crate::process;
use crate::report::Report;
use crate::roots::{self, Root};
use crate::stop::CancelToken;
use crate::threads;
use crate::totals::CopyTotals;
use context::LocalContext;
use copy_bytes::FileCopier;
use tune::InputSummary;
use walk::LocalTask;

/// Executes a local copy.
///
/// # Errors
/// Locations that do not fit together; nothing was copied.
pub(crate) fn execute(
    order: &CopyOptions,
    stop: &CancelToken,
    inputs: &CopyInputs,
) -> Result<CopyExit, CopyError> {
    let found = roots::resolve(order, inputs)?;
    process::raise_open_files();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let chunk_bytes = tune::decide(order, cores, InputSummary::Multiple)
        .0
        .chunk_bytes;
    let (plan, decisions) = tune::decide(order, cores, tune::summarize_inputs(&found, chunk_bytes));
    let (report, totals) = (Report::new(order.output, stop), CopyTotals::default());
    report.start(order);
    report_start(order, &report, &found, &decisions);
    let cx = LocalContext {
        order,
        stop,
        totals: &totals,
        report: &report,
        pool: Pool::new(Vec::new()),
        plan,
        umask: process::umask(),
    };
    std::thread::scope(|scope| {
        let _ticking = report.ticking(scope, &totals);
        for turn in turns(found) {
            // The first source is on top of the stack.
            cx.pool.push(turn.into_iter().rev().map(LocalTask::Root));
            std::thread::scope(|scope| {
                for started in 1..plan.workers {
                    if let Err(error) = threads::start(scope, || work(&cx)) {
                        report.decision(&threads::fewer("workers", started, &error));
                        break;
                    }
                }
                work(&cx);
            });
        }
    });
    Ok(outcome::end(stop, &totals, &report))
}

/// Groups sources into rounds: sources with the same destination are in different rounds, so that the last one wins.
fn turns(found: Vec<Root>) -> Vec<Vec<Root>> {
    let mut before: HashMap<PathBuf, usize> = HashMap::new();
    let mut turns: Vec<Vec<Root>> = Vec::new();
    for root in found {
        let turn = before.entry(root.destination.clone()).or_default();
        if turns.len() == *turn {
            turns.push(Vec::new());
        }
        turns[*turn].push(root);
        *turn += 1;
    }
    turns
}

fn work(cx: &LocalContext<'_>) {
    let mut copier = FileCopier::new(cx.plan.block_bytes, cx.stop, &cx.totals.moved_bytes);
    while let Some((task, lock_error)) = cx.pool.take() {
        walk::execute(cx, &mut copier, task);
        drop(lock_error);
    }
}

fn report_start(order: &CopyOptions, report: &Report, found: &[Root], decisions: &[Decision]) {
    decisions
        .iter()
        .for_each(|decision| report.decision(decision));
    if order.output == OutputMode::Verbose || order.output == OutputMode::Json {
        for root in found.iter().take(1) {
            let reason = format!(
                "{} becomes {}",
                root.source.display(),
                root.destination.display()
            );
            report.decision(&Decision {
                setting: "sources",
                value: found.len() as u64,
                reason,
            });
        }
    }
}
