//! Scheduling of many files over few connections.
//!
//! HTTP transfers one request at a time on a connection, so connections are added while they raise the rate. Each
//! thread has its own runtime and connections, so a slow disk blocks only its own connections. All tasks are in one
//! pool.

use std::collections::{BTreeSet, HashSet};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use tokio::time::timeout;

use super::chunked_download::{LargeDownload, STREAMS};
use super::connect::Dialer;
use super::destination_dirs::DestinationDirs;
use super::directory::OpenDirectory;
use super::exchange::HttpClient;
use super::get::{self, HttpDownload};
use super::put::{self, HttpUpload};
use super::target::{HttpServer, HttpTarget};
use super::third_party::{self, ThirdPartyCopy};
use super::tree_journals::TreeJournals;
use super::{copy_spec, tree};
use crate::decision::Decision;
use crate::error::{CopyError, Failure};
use crate::journal::Origin;
use crate::net::pacing;
use crate::net::sockets::Tcp;
use crate::options::CopyOptions;
use crate::pool::Pool;
use crate::process;
use crate::report::Report;
use crate::roots;
use crate::stop::CancelToken;
use crate::threads;
use crate::totals::CopyTotals;

/// Threads for many files, and the initial number of sessions.
pub(super) const THREADS: usize = 8;
/// Number of threads with `--sync`, where each file blocks a thread until it is on stable storage.
const SYNCING_THREADS: usize = 32;
/// Initial number of sessions for this many waiting files.
const INITIAL_SESSIONS: usize = 64;
const FILES_A_SESSION: usize = 8;
/// Maximum number of sessions without `--concurrency`.
const MAX_SESSIONS: usize = 256;
/// Growth of the number of sessions.
const GROWTH: usize = 4;
/// Minimum time and files per session before the rate is evaluated.
const TRIAL: Duration = Duration::from_millis(50);
const TRIAL_FILES: u64 = 2;
/// Maximum wait for new sessions without a result: they have their handshakes, or a large file.
const MAX_START_TIME: Duration = Duration::from_secs(1);
/// Interval of checks for the end of a trial.
const TICK: Duration = Duration::from_millis(5);
/// Interval of checks for more tasks by a thread with free capacity.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Minimum gain of twice as many sessions.
const WORTH_DOUBLING: f64 = 1.3;

/// Unit of work.
#[derive(Debug)]
pub(crate) enum HttpTask {
    /// A source as it was written.
    Start(copy_spec::CopySpec),
    /// Download of a directory.
    DownloadTree {
        from: HttpTarget,
        directory: Arc<OpenDirectory>,
        name: CString,
        origin: Origin,
    },
    /// Upload of a local directory.
    StoreTree {
        directory: Arc<OpenDirectory>,
        name: CString,
        to: HttpTarget,
    },
    /// Copy of a directory between two servers.
    PassTree { from: HttpTarget, to: HttpTarget },
    /// Download of a file.
    HttpDownload(Box<HttpDownload>),
    /// Upload of a file.
    HttpUpload(Box<HttpUpload>),
    /// Copy of a file between two servers.
    Pass(Box<ThirdPartyCopy>),
    /// Chunks of a large file.
    Help(Arc<LargeDownload>),
    /// Open a connection ahead, while the weak reference is alive.
    Prepare(HttpServer, Weak<()>),
}

/// State that all sessions share.
pub(crate) struct HttpContext<'o> {
    pub(crate) order: &'o CopyOptions,
    pub(crate) stop: &'o CancelToken,
    pub(crate) totals: &'o CopyTotals,
    pub(crate) report: &'o Report,
    pub(crate) pool: Pool<HttpTask>,
    pub(super) destination_dirs: DestinationDirs,
    /// Journals of downloaded trees.
    pub(super) trees: TreeJournals,
    /// True if a tree was uploaded to a new directory, so the same command would now copy into it.
    pub(super) nests: AtomicBool,
    /// Connections for one file, if set with `--streams`.
    pub(super) streams: Option<usize>,
    pub(crate) token: Option<HeaderValue>,
    pub(super) dialer: Dialer,
    /// Number of connections to be opened ahead of requests.
    pub(super) preparing: AtomicUsize,
    /// Sessions of each thread.
    width: AtomicUsize,
    pub(super) threads: usize,
    /// True if a single file is copied.
    pub(super) is_one: bool,
    /// True if the number of sessions is tuned.
    tunes: bool,
    /// Destinations of the sources; each must be unique.
    claimed: Mutex<HashSet<PathBuf>>,
}

/// Result after the end of all sessions.
pub(crate) struct CopyEnd {
    /// True if any server responded.
    pub(crate) any_response: bool,
    /// True if the same command would create another copy inside the new directory.
    pub(crate) nests: bool,
}

/// Execute all tasks. Failures of single files are reported.
///
/// # Errors
/// An unusable token or certificate.
pub(crate) fn execute(
    order: &CopyOptions,
    stop: &CancelToken,
    report: &Report,
    totals: &CopyTotals,
    specs: Vec<copy_spec::CopySpec>,
) -> Result<CopyEnd, CopyError> {
    process::raise_open_files();
    let servers: HashSet<HttpServer> = specs
        .iter()
        .flat_map(copy_spec::CopySpec::servers)
        .collect();
    let tls = if servers.iter().any(|server| server.tls) {
        Some(super::tls::client()?)
    } else {
        None
    };
    let proxies = order.network.proxy.proxies();
    let mut through = BTreeSet::new();
    for server in &servers {
        through.extend(proxies.to(server)?.map(ToString::to_string));
    }
    let token = super::token::ours()?.map(|token| {
        let mut value = HeaderValue::try_from([b"Bearer ", token.0.as_slice()].concat())
            .expect("letters, digits and marks");
        value.set_sensitive(true);
        value
    });
    let many = order.recursive || specs.len() > 1;
    let streams = order.network.streams.map(usize::from);
    let requested = order.concurrency.map(|count| count as usize);
    let requested = requested.or(streams.filter(|_| !many));
    let (sessions, reason) = match requested {
        Some(count) => (count, "set by an option"),
        None if order.fixed => (1, "--fixed without --concurrency"),
        None if many => (
            if order.sync { SYNCING_THREADS } else { THREADS },
            "each connection transfers one file at a time; more connections are opened while they raise the rate",
        ),
        None => (
            STREAMS,
            "one file starts with one connection; more are opened if it is slow and they raise the rate",
        ),
    };
    let tcp = Tcp {
        window_bytes: order.network.window_bytes,
        congestion: order.network.congestion.clone(),
        pacing_bytes_per_s: order.network.pacing_bytes_per_s,
    };
    pacing::report(&tcp, report);
    let started_all = specs.len() as u64;
    let cx = &HttpContext {
        order,
        stop,
        totals,
        report,
        destination_dirs: DestinationDirs::of(order, &specs),
        trees: TreeJournals::default(),
        nests: AtomicBool::new(false),
        pool: Pool::new(specs.into_iter().rev().map(HttpTask::Start).collect()),
        streams: streams
            .or(requested)
            .or(order.fixed.then_some(1))
            .map(|streams| streams.min(sessions.max(1))),
        token,
        dialer: Dialer::new(tls, tcp, stop.clone())
            .alone(servers.len() == 1)
            .through(proxies),
        preparing: AtomicUsize::new(0),
        width: AtomicUsize::new(1),
        threads: sessions,
        is_one: !many,
        tunes: many && requested.is_none() && !order.fixed,
        claimed: Mutex::default(),
    };
    if !through.is_empty() {
        let count = through.len() as u64;
        cx.decided("proxies", count, Vec::from_iter(through).join(", "));
    }
    cx.decided("sessions", sessions as u64, reason.into());
    cx.expect(started_all);
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        // As many threads as the limits permit.
        let started = (0..sessions).try_for_each(|_| {
            workers.push(threads::start(scope, || work(cx))?);
            Ok(())
        });
        if started.is_ok() && cx.tunes {
            tune(cx);
        }
        if let (Err(error), []) = (&started, &workers[..]) {
            return Err(threads::start_error(error, threads::COPY_OPTION));
        }
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
        if totals.failed.load(Ordering::Relaxed) == 0 && !stop.is_cancelled() {
            cx.trees.close(cx);
        }
        Ok(CopyEnd {
            any_response: !cx.dialer.is_unreached(),
            nests: cx.nests.load(Ordering::Relaxed),
        })
    })
}

/// Add sessions while each addition raises the rate enough.
fn tune(cx: &HttpContext<'_>) {
    let done = || cx.totals.files.load(Ordering::Relaxed) + cx.totals.kept.load(Ordering::Relaxed);
    waited(cx, || done() > 0);
    let (mut sessions, mut min_rate) = (cx.threads * cx.width.load(Ordering::Relaxed), 0.0);
    while sessions < MAX_SESSIONS {
        let clock = Instant::now();
        // Sessions that are still in a handshake would distort the rate.
        let late = || clock.elapsed() > MAX_START_TIME;
        let started = waited(cx, || late() || cx.dialer.opened() >= sessions);
        let (start, clock) = (done(), Instant::now());
        let files = TRIAL_FILES * sessions as u64;
        let has_sample = waited(cx, || clock.elapsed() >= TRIAL && done() - start >= files);
        if !(started && has_sample) {
            return;
        }
        #[allow(clippy::cast_precision_loss, reason = "a count of files")]
        let rate = (done() - start) as f64 / clock.elapsed().as_secs_f64();
        let more = (sessions * GROWTH).min(MAX_SESSIONS);
        if rate < min_rate || cx.pool.waiting() < more {
            let why =
                format!("{rate:.0} files/s, below the {min_rate:.0} that justify more connections");
            return cx.decided("sessions", sessions as u64, why);
        }
        #[allow(clippy::cast_precision_loss, reason = "small counts")]
        let doublings = (more as f64 / sessions as f64).log2();
        let why = format!("{rate:.0} files/s with {sessions} connections, so more are opened");
        sessions = cx.widen(more, why);
        min_rate = rate * WORTH_DOUBLING.powf(doublings);
    }
}

/// Wait for a condition. Return false if all work ended before.
fn waited(cx: &HttpContext<'_>, condition: impl Fn() -> bool) -> bool {
    while !condition() {
        if cx.stop.is_cancelled() || cx.pool.is_over() {
            return false;
        }
        std::thread::sleep(TICK);
    }
    true
}

fn work(cx: &HttpContext<'_>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let found = crate::error::describe(&error);
            cx.report_failure(&Failure::found(
                "a session".into(),
                "a runtime",
                found,
                "raise the limit of open files (`ulimit -n`), then run the same command again",
            ));
            return;
        }
    };
    let secrets = cx.token.iter().map(|token| (AUTHORIZATION, token.clone()));
    let exchange = HttpClient::new(cx.dialer.clone(), secrets.collect());
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let mut lanes = FuturesUnordered::new();
        loop {
            while lanes.len() < cx.width.load(Ordering::Relaxed) {
                let next = match lanes.is_empty() {
                    true => cx.pool.take(),
                    false => cx.pool.try_take(),
                };
                let Some((task, permit)) = next else { break };
                let exchange = &exchange;
                lanes.push(async move {
                    // No task waits for a connection that is opened ahead.
                    let permit = (!matches!(task, HttpTask::Prepare(..))).then_some(permit);
                    execute_task(cx, exchange, task).await;
                    drop(permit);
                });
            }
            if lanes.is_empty() || cx.pool.is_over() {
                return;
            }
            // Tasks of other threads are taken too.
            let _ = timeout(POLL_INTERVAL, lanes.next()).await;
        }
    });
}

async fn execute_task(cx: &HttpContext<'_>, exchange: &Rc<HttpClient>, task: HttpTask) {
    let going_on = !cx.stop.is_cancelled();
    match task {
        // The last owner of a directory finishes it.
        HttpTask::Help(large) => large.help(cx, exchange).await,
        _ if !going_on => {}
        HttpTask::Start(start) => copy_spec::start(cx, exchange, start).await,
        HttpTask::DownloadTree {
            from,
            directory,
            name,
            origin,
        } => {
            tree::download(cx, exchange, &from, (&directory, &name), origin).await;
            OpenDirectory::release(cx, directory);
        }
        HttpTask::StoreTree {
            directory,
            name,
            to,
        } => tree::store(cx, exchange, &directory, &name, &to).await,
        HttpTask::PassTree { from, to } => tree::pass(cx, exchange, &from, &to).await,
        HttpTask::HttpDownload(job) => get::download(cx, exchange, *job).await,
        HttpTask::HttpUpload(job) => put::store(cx, exchange, *job).await,
        HttpTask::Pass(job) => third_party::pass(cx, exchange, *job).await,
        HttpTask::Prepare(server, requested) => {
            if requested.strong_count() > 0 {
                exchange.prepare(&server).await;
            }
            cx.preparing.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl HttpContext<'_> {
    /// Report a failure.
    pub(crate) fn report_failure(&self, failure: &Failure) {
        self.report.failure(failure, self.totals, self.stop);
    }

    /// Check that no other source has this copy.
    ///
    /// # Errors
    /// Another source has it.
    pub(super) fn claim(&self, copy: PathBuf) -> Result<(), Failure> {
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        match claimed.insert(copy.clone()) {
            true => Ok(()),
            false => {
                let (expected, found, advice) = roots::DUPLICATE_NAME;
                Err(Failure::found(copy, expected, found, advice))
            }
        }
    }

    pub(crate) fn copied(&self, path: &Path, bytes: u64, outcome: &str, flags: Option<&str>) {
        self.totals.count(&self.totals.files);
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.report.file(path, bytes, outcome, flags);
    }

    pub(crate) fn skipped_file(&self, path: &Path, bytes: u64) {
        self.totals.count(&self.totals.kept);
        self.report.file(path, bytes, "kept", None);
    }

    pub(crate) fn skipped(&self, path: &Path, reason: &str) {
        self.totals.count(&self.totals.skipped);
        self.report.skipped(path, reason);
    }

    /// Report that a large file is resumed.
    pub(crate) fn resumed(&self, path: &Path, existing: u64, size: u64) {
        self.report.bytes_kept(path, existing, size);
    }

    /// Raise the number of sessions for this many files, before their rate is known. Return the number of sessions.
    pub(crate) fn expect(&self, files: u64) -> usize {
        let worth = usize::try_from(files).unwrap_or(usize::MAX) / FILES_A_SESSION;
        let worth = worth.min(INITIAL_SESSIONS);
        if self.tunes && worth > self.threads * self.width.load(Ordering::Relaxed) {
            return self.widen(
                worth,
                format!("at least {FILES_A_SESSION} files for each connection"),
            );
        }
        worth.min(self.threads)
    }

    /// Set the number of sessions, rounded up for the threads, and return it.
    fn widen(&self, sessions: usize, reason: String) -> usize {
        let width = sessions.div_ceil(self.threads);
        self.width.store(width, Ordering::Relaxed);
        self.decided("sessions", (width * self.threads) as u64, reason);
        width * self.threads
    }

    pub(crate) fn decided(&self, what: &'static str, value: u64, reason: String) {
        self.report.decision(&Decision {
            setting: what,
            value,
            reason,
        });
    }
}
