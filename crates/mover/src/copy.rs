//! A copy from beginning to end: sources to the pool, workers to their end, totals.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit};
use serde_json::json;

use crate::bytes::Lane;
use crate::directory::{Dir, Side, Tree};
use crate::error::{Error, Failure};
use crate::ftp;
use crate::given::{Given, Route};
use crate::http;
use crate::journal::Journal;
use crate::order::{Order, Output};
use crate::pool::Pool;
use crate::report::Report;
use crate::roots::{self, Root};
use crate::stop::Stop;
use crate::tune::{self, Decision, Plan, Set};
use crate::walk::{self, Task};

/// How a copy ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All is there.
    Done,
    /// Some files failed.
    Failed,
    /// A signal came.
    Stopped,
}

/// What was done so far.
#[derive(Debug, Default)]
pub struct Totals {
    /// Files that are there now and were not before.
    pub files: AtomicU64,
    /// Their sizes.
    pub bytes: AtomicU64,
    /// Bytes that were read and written for it, or copied by the kernel: no holes, no clones.
    pub moved_bytes: AtomicU64,
    /// What was there already.
    pub kept: AtomicU64,
    /// Directories.
    pub directories: AtomicU64,
    /// Symbolic links, pipes, sockets, devices.
    pub links: AtomicU64,
    /// Names that became hard links to a copy.
    pub hard_links: AtomicU64,
    /// Names of files with several that became copies of their own.
    pub copied_apart: AtomicU64,
    /// What cannot be copied, or was not asked for.
    pub left_out: AtomicU64,
    /// Errors.
    pub failed: AtomicU64,
}

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

/// Carries out an order.
///
/// # Errors
/// If its places do not fit together: nothing was done then. What goes wrong with single files is told, and in the outcome.
pub fn carry_out(order: &Order, stop: &Stop) -> Result<Outcome, Error> {
    let given = Given::read(order)?;
    let route = given.route()?;
    order.fits(route)?;
    match route {
        Route::Local => local(order, stop, &given),
        Route::Ftp => ftp::carry_out(order, stop, &given),
        Route::Http => http::carry_out(order, stop, &given),
    }
}

fn local(order: &Order, stop: &Stop, given: &Given) -> Result<Outcome, Error> {
    let found = roots::resolve(order, given)?;
    raise_open_files();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let chunk_bytes = tune::decide(order, cores, Set::Many).0.chunk_bytes;
    let (plan, decisions) = tune::decide(order, cores, roots::set_of(&found, chunk_bytes));
    let (report, totals) = (Report::new(order.output), Totals::default());
    report.start(order);
    begin(order, &report, &found, &decisions);
    // The first is on top.
    let tasks = found.into_iter().rev().map(Task::Root).collect();
    let cx = Context {
        order,
        stop,
        totals: &totals,
        report: &report,
        pool: Pool::new(tasks),
        plan,
        umask: umask(),
    };
    std::thread::scope(|scope| {
        let ticking = (order.output != Output::Quiet).then(|| scope.spawn(|| report.tick(&totals)));
        let workers: Vec<_> = (1..plan.workers)
            .map(|_| scope.spawn(|| work(&cx)))
            .collect();
        work(&cx);
        for worker in workers {
            if let Err(panic) = worker.join() {
                report.stop_ticking();
                std::panic::resume_unwind(panic);
            }
        }
        report.stop_ticking();
        drop(ticking);
    });
    Ok(end(stop, &totals, &report))
}

fn work(cx: &Context<'_>) {
    let mut lane = Lane::new(cx.plan.block_bytes, cx.stop, &cx.totals.moved_bytes);
    while let Some((task, taken)) = cx.pool.take() {
        walk::carry_out(cx, &mut lane, task);
        drop(taken);
        if cx.report.deaf() {
            cx.stop.stop();
        }
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

/// Tells what came of a copy.
pub(crate) fn end(stop: &Stop, totals: &Totals, report: &Report) -> Outcome {
    let failed = totals.failed.load(Ordering::Relaxed);
    let (outcome, name) = match (stop.signalled(), failed) {
        (true, _) => (Outcome::Stopped, "stopped"),
        (_, 0) => (Outcome::Done, "done"),
        _ => (Outcome::Failed, "failed"),
    };
    report.end(totals, name);
    match outcome {
        Outcome::Stopped => report.talk("stopped; no file is half there. Run the same command again to go on"),
        Outcome::Failed if stop.asked() => {
            report.talk("ended before the rest, which would fare no better; what is whole stays");
        }
        Outcome::Failed => report.talk(&format!("{failed} failed, the rest is there. When the cause is mended, run the same command again")),
        Outcome::Done => {}
    }
    outcome
}

/// Every directory on the way down takes two, every worker two more.
pub(crate) fn raise_open_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // Where that is refused, the limit that there is has to do; who meets it is told.
    let _ = rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}

/// The bits that new files do not get. It can only be read by setting it, so this is done before there are other threads of ours.
fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.as_raw_mode()
}

impl Totals {
    pub(crate) fn count(&self, what: &AtomicU64) {
        what.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn event(&self, event: &str, elapsed: Duration) -> serde_json::Value {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let elapsed_s = elapsed.as_secs_f64();
        #[allow(
            clippy::cast_precision_loss,
            reason = "a rate needs no more than 15 digits"
        )]
        let rate = if elapsed_s > 0.0 {
            Some(read(&self.moved_bytes) as f64 / elapsed_s)
        } else {
            None
        };
        json!({
            "event": event, "files": read(&self.files), "bytes": read(&self.bytes), "moved_bytes": read(&self.moved_bytes),
            "kept": read(&self.kept), "directories": read(&self.directories), "links": read(&self.links),
            "hard_links": read(&self.hard_links), "hard_links_copied_apart": read(&self.copied_apart),
            "left_out": read(&self.left_out), "errors": read(&self.failed), "duration_s": elapsed_s, "rate_bytes_per_s": rate,
        })
    }
}

impl Context<'_> {
    /// Tells a failure of something in a tree, which is then not whole.
    pub(crate) fn fail(&self, tree: &Tree, failure: &Failure) {
        tree.failures.fetch_add(1, Ordering::Relaxed);
        self.tell(failure);
    }

    /// Tells a failure; one that no file can fare better than ends all. That we were stopped is told once, at the end.
    pub(crate) fn tell(&self, failure: &Failure) {
        if self.stop.asked() {
            return;
        }
        self.totals.count(&self.totals.failed);
        self.report.failure(failure);
        if failure.ends_all {
            self.stop.give_up();
        }
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
        let reason = format!(
            "{}: an earlier copy was stopped after {there} of {chunks} chunks",
            dir.path(Side::Copy, name).display()
        );
        self.report.decision(&Decision {
            what: "chunks_kept",
            value: there,
            reason,
        });
    }

    /// Tells that a tree goes on, and by what files are told that are there.
    pub(crate) fn going_on(&self, root: &Root, journal: &Journal) {
        if journal.found {
            let by = if journal.reliable {
                "size and time"
            } else {
                "content, since the machine was started anew meanwhile"
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
