//! Many files over few connections: what is to be done, who does it, and how many do.
//!
//! HTTP has one request under way on a connection, so that files in flight are connections: there are more while that pays. A thread has a runtime and
//! connections of its own, few at first and then many, so that a slow disk holds back its own connections and no others; what all are to do is in one pool.

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

use super::collections::Collections;
use super::connect::Dialer;
use super::exchange::Exchange;
use super::folder::Folder;
use super::get::{self, Fetch};
use super::pieces::{Large, STREAMS};
use super::put::{self, Store};
use super::target::{Server, Target};
use super::third::{self, Pass};
use super::trees::Trees;
use super::{begin, tree};
use crate::decision::Decision;
use crate::error::{Error, Failure};
use crate::journal::Origin;
use crate::net::pacing;
use crate::net::sockets::Tcp;
use crate::order::Order;
use crate::pool::Pool;
use crate::process;
use crate::report::Report;
use crate::roots;
use crate::stop::Stop;
use crate::threads;
use crate::totals::Totals;

/// Threads where there are many files: sessions that are begun with.
pub(super) const THREADS: usize = 8;
/// The same where each file is waited for until it is on stable storage: that holds a thread.
const SYNCING_THREADS: usize = 32;
/// Sessions without knowing what they bring, where so many files wait for each.
const UNJUDGED_SESSIONS: usize = 64;
const FILES_A_SESSION: usize = 8;
/// The most sessions without being asked for.
const MOST_SESSIONS: usize = 256;
/// How many times as many come next.
const GROWTH: usize = 4;
/// A number of sessions is judged after so long, and so many files of each.
const TRIAL: Duration = Duration::from_millis(50);
const TRIAL_FILES: u64 = 2;
/// How long new sessions are waited for that have not done anything yet: they have their handshakes, or a large file.
const LONGEST_BEGIN: Duration = Duration::from_secs(1);
/// How often is looked whether a trial is over.
const TICK: Duration = Duration::from_millis(5);
/// How often a thread that could do more looks whether there is more.
const LOOK_AROUND: Duration = Duration::from_millis(100);
/// What twice the sessions must bring to be worth more.
const WORTH_DOUBLING: f64 = 1.3;

/// Something to be done.
#[derive(Debug)]
pub(crate) enum Task {
    /// A source as it was written.
    Begin(begin::Begin),
    /// A directory of a server that comes to be here.
    FetchTree {
        from: Target,
        folder: Arc<Folder>,
        name: CString,
        origin: Origin,
    },
    /// A directory of ours that comes to be at a server.
    StoreTree {
        folder: Arc<Folder>,
        name: CString,
        to: Target,
    },
    /// A directory of a server that comes to be at another.
    PassTree { from: Target, to: Target },
    /// A file.
    Fetch(Box<Fetch>),
    /// A file.
    Store(Box<Store>),
    /// A file.
    Pass(Box<Pass>),
    /// Pieces of a file.
    Help(Arc<Large>),
    /// A connection for what is yet to be found, as long as that is so.
    Prepare(Server, Weak<()>),
}

/// What all sessions share.
pub(crate) struct Context<'o> {
    pub(crate) order: &'o Order,
    pub(crate) stop: &'o Stop,
    pub(crate) totals: &'o Totals,
    pub(crate) report: &'o Report,
    pub(crate) pool: Pool<Task>,
    pub(super) collections: Collections,
    /// Trees that come here.
    pub(super) trees: Trees,
    /// Whether a tree goes to a server under a name that was free, and that is then a directory's to put things into.
    pub(super) nests: AtomicBool,
    /// Connections for one file, where they were asked for.
    pub(super) streams: Option<usize>,
    pub(crate) token: Option<HeaderValue>,
    pub(super) dialer: Dialer,
    /// Connections that are yet to be opened, or are being opened, before there is a request.
    pub(super) preparing: AtomicUsize,
    /// Sessions of each thread.
    width: AtomicUsize,
    pub(super) threads: usize,
    /// Whether a single file is copied.
    pub(super) is_one: bool,
    /// Whether there are more sessions where more files are.
    tunes: bool,
    /// Copies of what was named, of which each needs a name of its own.
    claimed: Mutex<HashSet<PathBuf>>,
}

/// What is known when all sessions have ended.
pub(crate) struct Ended {
    /// Whether any server has answered.
    pub(crate) answered: bool,
    /// Whether the same command would put another copy into what this one has made at a server.
    pub(crate) nests: bool,
}

/// Carries out what there is to do, to its end. Failures of single files are told.
///
/// # Errors
/// If a token or a certificate that is named cannot be used.
pub(crate) fn carry_out(
    order: &Order,
    stop: &Stop,
    report: &Report,
    totals: &Totals,
    begins: Vec<begin::Begin>,
) -> Result<Ended, Error> {
    process::raise_open_files();
    let servers: HashSet<Server> = begins.iter().flat_map(begin::Begin::servers).collect();
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
    let many = order.recursive || begins.len() > 1;
    let streams = order.network.streams.map(usize::from);
    let asked = order.concurrency.map(|count| count as usize);
    let asked = asked.or(streams.filter(|_| !many));
    let (sessions, why) = match asked {
        Some(count) => (count, "as asked for"),
        None if order.fixed => (1, "--fixed without --concurrency"),
        None if many => (
            if order.sync { SYNCING_THREADS } else { THREADS },
            "one file is under way on a connection; more while that pays",
        ),
        None => (
            STREAMS,
            "one file: one connection, and more if it is slow and they bring more",
        ),
    };
    let tcp = Tcp {
        window_bytes: order.network.window_bytes,
        congestion: order.network.congestion.clone(),
        pacing_bytes_per_s: order.network.pacing_bytes_per_s,
    };
    pacing::tell(&tcp, report);
    let begun = begins.len() as u64;
    let cx = &Context {
        order,
        stop,
        totals,
        report,
        collections: Collections::of(order, &begins),
        trees: Trees::default(),
        nests: AtomicBool::new(false),
        pool: Pool::new(begins.into_iter().rev().map(Task::Begin).collect()),
        streams: streams
            .or(asked)
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
        tunes: many && asked.is_none() && !order.fixed,
        claimed: Mutex::default(),
    };
    if !through.is_empty() {
        let count = through.len() as u64;
        cx.decided("proxies", count, Vec::from_iter(through).join(", "));
    }
    cx.decided("sessions", sessions as u64, why.into());
    cx.expect(begun);
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        // As many as there are threads for.
        let started = (0..sessions).try_for_each(|_| {
            workers.push(threads::start(scope, || work(cx))?);
            Ok(())
        });
        if started.is_ok() && cx.tunes {
            tune(cx);
        }
        if let (Err(error), []) = (&started, &workers[..]) {
            return Err(threads::refusal(error, threads::OF_COPY));
        }
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
        if totals.failed.load(Ordering::Relaxed) == 0 && !stop.asked() {
            cx.trees.close(cx);
        }
        Ok(Ended {
            answered: !cx.dialer.is_unreached(),
            nests: cx.nests.load(Ordering::Relaxed),
        })
    })
}

/// Adds sessions while that pays.
fn tune(cx: &Context<'_>) {
    let done = || cx.totals.files.load(Ordering::Relaxed) + cx.totals.kept.load(Ordering::Relaxed);
    waited(cx, || done() > 0);
    let (mut sessions, mut least) = (cx.threads * cx.width.load(Ordering::Relaxed), 0.0);
    while sessions < MOST_SESSIONS {
        let clock = Instant::now();
        // Those that are still at their handshakes say nothing of what they bring.
        let late = || clock.elapsed() > LONGEST_BEGIN;
        let begun = waited(cx, || late() || cx.dialer.opened() >= sessions);
        let (begin, clock) = (done(), Instant::now());
        let files = TRIAL_FILES * sessions as u64;
        let judged = waited(cx, || clock.elapsed() >= TRIAL && done() - begin >= files);
        if !(begun && judged) {
            return;
        }
        #[allow(clippy::cast_precision_loss, reason = "a count of files")]
        let rate = (done() - begin) as f64 / clock.elapsed().as_secs_f64();
        let more = (sessions * GROWTH).min(MOST_SESSIONS);
        if rate < least || cx.pool.waiting() < more {
            let why = format!("{rate:.0} files/s, {least:.0} would be worth more: no more");
            return cx.decided("sessions", sessions as u64, why);
        }
        #[allow(clippy::cast_precision_loss, reason = "small counts")]
        let doublings = (more as f64 / sessions as f64).log2();
        let why = format!("{rate:.0} files/s with {sessions}: more");
        sessions = cx.widen(more, why);
        least = rate * WORTH_DOUBLING.powf(doublings);
    }
}

/// Waits for something; false if all was done before.
fn waited(cx: &Context<'_>, is_there: impl Fn() -> bool) -> bool {
    while !is_there() {
        if cx.stop.asked() || cx.pool.is_over() {
            return false;
        }
        std::thread::sleep(TICK);
    }
    true
}

fn work(cx: &Context<'_>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let found = crate::error::said(&error);
            cx.tell(&Failure::found(
                "a session".into(),
                "a runtime",
                found,
                "close some files and run the same command again",
            ));
            return;
        }
    };
    let secrets = cx.token.iter().map(|token| (AUTHORIZATION, token.clone()));
    let exchange = Exchange::new(cx.dialer.clone(), secrets.collect());
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let mut lanes = FuturesUnordered::new();
        loop {
            while lanes.len() < cx.width.load(Ordering::Relaxed) {
                let next = match lanes.is_empty() {
                    true => cx.pool.take(),
                    false => cx.pool.try_take(),
                };
                let Some((task, taken)) = next else { break };
                let exchange = &exchange;
                lanes.push(async move {
                    // Nothing waits for a connection that is prepared.
                    let taken = (!matches!(task, Task::Prepare(..))).then_some(taken);
                    carry_out_one(cx, exchange, task).await;
                    drop(taken);
                });
            }
            if lanes.is_empty() || cx.pool.is_over() {
                return;
            }
            // What others find meanwhile is seen to, too.
            let _ = timeout(LOOK_AROUND, lanes.next()).await;
        }
    });
}

async fn carry_out_one(cx: &Context<'_>, exchange: &Rc<Exchange>, task: Task) {
    let going_on = !cx.stop.asked();
    match task {
        // Whoever is the last to let it go finishes it.
        Task::Help(large) => large.help(cx, exchange).await,
        _ if !going_on => {}
        Task::Begin(begin) => begin::begin(cx, exchange, begin).await,
        Task::FetchTree {
            from,
            folder,
            name,
            origin,
        } => {
            tree::fetch(cx, exchange, &from, (&folder, &name), origin).await;
            Folder::release(cx, folder);
        }
        Task::StoreTree { folder, name, to } => {
            tree::store(cx, exchange, &folder, &name, &to).await
        }
        Task::PassTree { from, to } => tree::pass(cx, exchange, &from, &to).await,
        Task::Fetch(job) => get::fetch(cx, exchange, *job).await,
        Task::Store(job) => put::store(cx, exchange, *job).await,
        Task::Pass(job) => third::pass(cx, exchange, *job).await,
        Task::Prepare(server, wanted) => {
            if wanted.strong_count() > 0 {
                exchange.prepare(&server).await;
            }
            cx.preparing.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Context<'_> {
    /// Tells a failure.
    pub(crate) fn tell(&self, failure: &Failure) {
        self.report.failure(failure, self.totals, self.stop);
    }

    /// Sees that no other source has this copy.
    ///
    /// # Errors
    /// If one has.
    pub(super) fn claim(&self, copy: PathBuf) -> Result<(), Failure> {
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        match claimed.insert(copy.clone()) {
            true => Ok(()),
            false => {
                let (expected, found, advice) = roots::TWO_OF_ONE_NAME;
                Err(Failure::found(copy, expected, found, advice))
            }
        }
    }

    pub(crate) fn copied(&self, path: &Path, bytes: u64, outcome: &str, how: Option<&str>) {
        self.totals.count(&self.totals.files);
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.report.file(path, bytes, outcome, how);
    }

    pub(crate) fn kept(&self, path: &Path, bytes: u64) {
        self.totals.count(&self.totals.kept);
        self.report.file(path, bytes, "kept", None);
    }

    pub(crate) fn left_out(&self, path: &Path, reason: &str) {
        self.totals.count(&self.totals.left_out);
        self.report.skipped(path, reason);
    }

    /// Tells that a large file goes on.
    pub(crate) fn resumed(&self, path: &Path, there: u64, size: u64) {
        self.report.bytes_kept(path, there, size);
    }

    /// Has as many sessions as so many files are worth without having seen what they bring; how many there are.
    pub(crate) fn expect(&self, files: u64) -> usize {
        let worth = usize::try_from(files).unwrap_or(usize::MAX) / FILES_A_SESSION;
        let worth = worth.min(UNJUDGED_SESSIONS);
        if self.tunes && worth > self.threads * self.width.load(Ordering::Relaxed) {
            return self.widen(worth, format!("{FILES_A_SESSION} files for each, or more"));
        }
        worth.min(self.threads)
    }

    /// Has so many sessions, or a few more; how many.
    fn widen(&self, sessions: usize, why: String) -> usize {
        let width = sessions.div_ceil(self.threads);
        self.width.store(width, Ordering::Relaxed);
        self.decided("sessions", (width * self.threads) as u64, why);
        width * self.threads
    }

    pub(crate) fn decided(&self, what: &'static str, value: u64, reason: String) {
        self.report.decision(&Decision {
            what,
            value,
            reason,
        });
    }
}
