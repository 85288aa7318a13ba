//! Many files over few connections: what is to be done, who does it, and how many do.
//!
//! A session is a thread with a runtime and connections of its own, so that a slow disk holds back its own connection and no other; what they are to do is
//! in one pool. HTTP has one request under way on a connection, so that files in flight are connections: there are more while that pays.

use std::ffi::CString;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::HeaderValue;
use http::header::AUTHORIZATION;

use super::connect::Dialer;
use super::exchange::Exchange;
use super::get::{self, Fetch};
use super::landing::Folder;
use super::pieces::Large;
use super::put::{self, Store};
use super::target::Target;
use super::third::{self, Pass};
use super::{begin, tree};
use crate::error::{Error, Failure};
use crate::net::sockets::Tcp;
use crate::order::Order;
use crate::pool::Pool;
use crate::report::Report;
use crate::stop::Stop;
use crate::totals::Totals;
use crate::tune::Decision;

/// What is fetched of a file at a time by one session.
const PIECE: u64 = 64 << 20;
/// Sessions for one large file: more do not help a path that loses little, and are unfair to others on one that does.
const STREAMS: usize = 4;
/// Sessions that are begun with where there are many files.
const FIRST_SESSIONS: usize = 8;
/// The most sessions without being asked for.
const MOST_SESSIONS: usize = 64;
/// How many times as many come next.
const GROWTH: usize = 4;
/// A number of sessions is judged after so long, and so many files of each.
const TRIAL: Duration = Duration::from_millis(50);
const TRIAL_FILES: u64 = 2;
/// How long new sessions are waited for that have not done anything yet: they have their handshakes, or a large file.
const LONGEST_BEGIN: Duration = Duration::from_secs(1);
/// How often is looked whether a trial is over.
const TICK: Duration = Duration::from_millis(5);
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
}

/// What all sessions share.
pub(crate) struct Context<'o> {
    pub(crate) order: &'o Order,
    pub(crate) stop: &'o Stop,
    pub(crate) totals: &'o Totals,
    pub(crate) report: &'o Report,
    pub(crate) pool: Pool<Task>,
    pub(crate) piece_bytes: u64,
    /// Sessions for one file.
    pub(crate) streams: usize,
    pub(crate) token: Option<HeaderValue>,
    dialer: Dialer,
    /// Sessions that have done something.
    begun: AtomicUsize,
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
) -> Result<(), Error> {
    let secure = begins.iter().any(begin::Begin::is_secure);
    let tls = if secure {
        Some(super::tls::client()?)
    } else {
        None
    };
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
            FIRST_SESSIONS,
            "one file is under way on a connection; more while that pays",
        ),
        None => (STREAMS, "pieces of one file, if it has several"),
    };
    let tcp = Tcp {
        window_bytes: order.network.window_bytes,
        congestion: order.network.congestion.clone(),
    };
    let cx = Context {
        order,
        stop,
        totals,
        report,
        pool: Pool::new(begins.into_iter().rev().map(Task::Begin).collect()),
        piece_bytes: PIECE,
        streams: streams
            .unwrap_or(asked.unwrap_or(STREAMS))
            .min(sessions.max(1)),
        token,
        dialer: Dialer::new(tls, tcp, stop.clone()),
        begun: AtomicUsize::new(0),
    };
    cx.decided("sessions", sessions as u64, why.into());
    std::thread::scope(|scope| {
        let mut workers: Vec<_> = (0..sessions).map(|_| scope.spawn(|| work(&cx))).collect();
        if many && asked.is_none() && !order.fixed {
            tune(&cx, sessions, |count| {
                workers.extend((0..count).map(|_| scope.spawn(|| work(&cx))))
            });
        }
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    Ok(())
}

/// Adds sessions while that pays.
fn tune(cx: &Context<'_>, first: usize, mut add: impl FnMut(usize)) {
    let done = || cx.totals.files.load(Ordering::Relaxed) + cx.totals.kept.load(Ordering::Relaxed);
    let (mut sessions, mut least) = (first, 0.0);
    while sessions < MOST_SESSIONS {
        let clock = Instant::now();
        // Those that are still at their handshakes say nothing of what they bring.
        let late = || clock.elapsed() > LONGEST_BEGIN;
        let begun = waited(cx, || {
            late() || cx.begun.load(Ordering::Relaxed) >= sessions
        });
        let (begin, clock) = (done(), Instant::now());
        let files = TRIAL_FILES * sessions as u64;
        let judged = waited(cx, || clock.elapsed() >= TRIAL && done() - begin >= files);
        if !(begun && judged) {
            return;
        }
        #[allow(clippy::cast_precision_loss, reason = "a count of files")]
        let rate = (done() - begin) as f64 / clock.elapsed().as_secs_f64();
        if cx.pool.hungry() || rate < least {
            let why = format!("{rate:.0} files/s, {least:.0} would be worth more: no more");
            return cx.decided("sessions", sessions as u64, why);
        }
        let more = (sessions * GROWTH).min(MOST_SESSIONS);
        #[allow(clippy::cast_precision_loss, reason = "small counts")]
        let doublings = (more as f64 / sessions as f64).log2();
        let why = format!("{rate:.0} files/s with {sessions}: more");
        cx.decided("sessions", more as u64, why);
        add(more - sessions);
        (sessions, least) = (more, rate * WORTH_DOUBLING.powf(doublings));
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
    let local = tokio::task::LocalSet::new();
    let secrets = cx.token.iter().map(|token| (AUTHORIZATION, token.clone()));
    let exchange = Exchange::new(cx.dialer.clone(), secrets.collect());
    let mut begun = false;
    while let Some((task, taken)) = cx.pool.take() {
        local.block_on(&runtime, carry_out_one(cx, &exchange, task));
        drop(taken);
        if !std::mem::replace(&mut begun, true) {
            cx.begun.fetch_add(1, Ordering::Relaxed);
        }
        if cx.report.deaf() {
            cx.stop.stop();
        }
    }
}

async fn carry_out_one(cx: &Context<'_>, exchange: &Rc<Exchange>, task: Task) {
    let going_on = !cx.stop.asked();
    match task {
        // Whoever is the last to let it go finishes it.
        Task::Help(large) => large.help(cx, exchange, None).await,
        _ if !going_on => {}
        Task::Begin(begin) => begin::begin(cx, exchange, begin).await,
        Task::FetchTree { from, folder, name } => {
            tree::fetch(cx, exchange, &from, &folder, &name).await
        }
        Task::StoreTree { folder, name, to } => {
            tree::store(cx, exchange, &folder, &name, &to).await
        }
        Task::PassTree { from, to } => tree::pass(cx, exchange, &from, &to).await,
        Task::Fetch(job) => get::fetch(cx, exchange, *job).await,
        Task::Store(job) => put::store(cx, exchange, *job).await,
        Task::Pass(job) => third::pass(cx, exchange, *job).await,
    }
}

impl Context<'_> {
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
        let reason = format!(
            "{}: an earlier copy was stopped after {there} of {size} bytes",
            path.display()
        );
        self.decided("bytes_kept", there, reason);
    }

    pub(crate) fn decided(&self, what: &'static str, value: u64, reason: String) {
        self.report.decision(&Decision {
            what,
            value,
            reason,
        });
    }
}
