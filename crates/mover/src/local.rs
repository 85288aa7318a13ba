//! Copies between places of this host: sources to the pool, workers to their end, totals.

mod begin;
mod block;
mod context;
mod directory;
mod file;
mod judge;
pub(crate) mod lane;
mod large;
mod links;
mod part;
mod thing;
mod tune;
mod walk;

use std::collections::HashMap;
use std::path::PathBuf;

use crate::decision::Decision;
use crate::error::Error;
use crate::given::Given;
use crate::order::{Order, Output};
use crate::outcome::{self, Outcome};
use crate::pool::Pool;
use crate::process;
use crate::report::Report;
use crate::roots::{self, Root};
use crate::stop::Stop;
use crate::threads;
use crate::totals::Totals;
use context::Context;
use lane::Lane;
use tune::Set;
use walk::Task;

/// Carries out an order.
///
/// # Errors
/// If its places do not fit together: nothing was done then.
pub(crate) fn carry_out(order: &Order, stop: &Stop, given: &Given) -> Result<Outcome, Error> {
    let found = roots::resolve(order, given)?;
    process::raise_open_files();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let chunk_bytes = tune::decide(order, cores, Set::Many).0.chunk_bytes;
    let (plan, decisions) = tune::decide(order, cores, tune::set_of(&found, chunk_bytes));
    let (report, totals) = (Report::new(order.output, stop), Totals::default());
    report.start(order);
    begin(order, &report, &found, &decisions);
    let cx = Context {
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
            // The first is on top.
            cx.pool.push(turn.into_iter().rev().map(Task::Root));
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

/// Sources in turns: of those that go to one place each has its own, so that the last wins, whoever is faster.
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

fn work(cx: &Context<'_>) {
    let mut lane = Lane::new(cx.plan.block_bytes, cx.stop, &cx.totals.moved_bytes);
    while let Some((task, taken)) = cx.pool.take() {
        walk::carry_out(cx, &mut lane, task);
        drop(taken);
    }
}

fn begin(order: &Order, report: &Report, found: &[Root], decisions: &[Decision]) {
    decisions
        .iter()
        .for_each(|decision| report.decision(decision));
    if order.output == Output::Verbose || order.output == Output::Json {
        for root in found.iter().take(1) {
            let reason = format!(
                "{} becomes {}",
                root.source.display(),
                root.destination.display()
            );
            report.decision(&Decision {
                what: "sources",
                value: found.len() as u64,
                reason,
            });
        }
    }
}
