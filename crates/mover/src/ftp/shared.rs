//! What all threads of a copy over FTP share: the order, the queue, and who is told of what.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use venturi_gridftp::{Features, Path as There, Reply};

use super::failures;
use super::field::Field;
use super::queue::Queue;
use super::work::{Item, Job};
use crate::decision::Decision;
use crate::error::Failure;
use crate::net::grid::Grid;
use crate::net::trips::Trips;
use crate::net::url::{Scheme, Url};
use crate::order::Order;
use crate::report::Report;
use crate::stop::Stop;
use crate::totals::Totals;

/// What all threads of a copy share.
pub(crate) struct Shared<'o> {
    pub(crate) order: &'o Order,
    pub(crate) stop: &'o Stop,
    pub(crate) totals: &'o Totals,
    pub(crate) report: &'o Report,
    pub(crate) queue: Queue,
    /// The server, for messages and for sessions.
    pub(crate) server: Url,
    /// Certificates, where the server asks for them.
    pub(crate) grid: Option<Grid>,
    /// Failures of data connections and sessions, which more of them make more likely.
    pub(crate) troubles: AtomicU64,
    /// Sessions that are open, or being opened.
    pub(crate) sessions: AtomicUsize,
    /// What the first control connection took to open.
    pub(crate) round_trip: OnceLock<Duration>,
    /// How long round trips take.
    pub(crate) trips: Trips,
    /// How sessions do.
    pub(crate) field: Field,
    /// The deepest pipeline that was told of, where one grew.
    pub(crate) pipelining: AtomicUsize,
    /// Whether it was told that data connections are open.
    pub(crate) warned: AtomicBool,
    /// Files whose mode no session could set before it was lost.
    modes: Mutex<Vec<(There, u32)>>,
    /// Whether it was told that the server does not set modes.
    modeless: AtomicBool,
    /// How many data nodes were told.
    nodes: OnceLock<u16>,
}

/// How often whoever waits for the end sees whether to stop.
const GLANCE: Duration = Duration::from_millis(100);

impl<'o> Shared<'o> {
    pub(crate) fn new(
        order: &'o Order,
        stop: &'o Stop,
        totals: &'o Totals,
        report: &'o Report,
        server: Url,
        grid: Option<Grid>,
    ) -> Self {
        Self {
            order,
            stop,
            totals,
            report,
            queue: Queue::new(),
            server,
            grid,
            troubles: AtomicU64::new(0),
            sessions: AtomicUsize::new(0),
            round_trip: OnceLock::new(),
            trips: Trips::new(),
            field: Field::default(),
            pipelining: AtomicUsize::new(0),
            warned: AtomicBool::new(false),
            modes: Mutex::default(),
            modeless: AtomicBool::new(false),
            nodes: OnceLock::new(),
        }
    }

    /// Nothing more is added. Waits until all is settled, or we are to stop; whether all went well.
    pub(crate) fn wait(&self) -> bool {
        self.queue.close();
        while !self.queue.wait(GLANCE) && !self.stop.asked() {}
        self.totals.failed.load(Ordering::Relaxed) == 0 && !self.stop.asked()
    }

    /// Nothing more is to be done, whatever waits.
    pub(crate) fn end(&self) {
        self.queue.close();
        drop(self.queue.abandon());
    }

    /// Tells a failure.
    pub(crate) fn tell(&self, failure: &Failure) {
        self.report.failure(failure, self.totals, self.stop);
    }

    /// The session that was asked is lost for good: what it did not tell is not known, so that not all can be there.
    pub(crate) fn gone(&self) {
        let path = PathBuf::from(self.server.with_path(b"/".to_vec()).to_string());
        let found = "sessions that were lost one after the other";
        let advice = "see whether the server is well, then run the same command again";
        self.tell(&Failure::found(path, "answers", found, advice));
    }

    /// Whether names with bytes above 127 would be cut by a server: one of the Globus toolkit drops them on an open control connection.
    pub(crate) fn cuts_names(server: &Url, features: &Features) -> bool {
        features.cuts_names() && server.scheme != Scheme::Gsiftp
    }

    /// Whether the server would understand a path; told, if not.
    pub(crate) fn is_carried(&self, path: &There, cuts_names: bool) -> bool {
        let carried = !cuts_names || path.is_ascii();
        if !carried {
            self.tell(&failures::not_carried(self.place(path)));
        }
        carried
    }

    /// A file is to get its mode at the end, when another session is there.
    pub(crate) fn set_later(&self, path: There, mode: u32) {
        let modes = self.modes.lock();
        modes
            .unwrap_or_else(PoisonError::into_inner)
            .push((path, mode));
    }

    /// What is to be set at the end.
    pub(crate) fn modes(&self) -> Vec<(There, u32)> {
        let modes = self.modes.lock();
        std::mem::take(&mut *modes.unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells, once, how many data nodes of the server move each file.
    pub(crate) fn tell_nodes(&self, nodes: u16) {
        if self.nodes.set(nodes).is_ok() {
            self.report.decision(&Decision {
                what: "stripe",
                value: nodes.into(),
                reason: "data nodes that the server names; all move each file, as asked for".into(),
            });
        }
    }

    /// Tells people, once, that the server does not set a mode.
    pub(crate) fn see_mode(&self, path: &There, reply: &Reply) {
        if reply.is_success() || self.modeless.swap(true, Ordering::Relaxed) {
            return;
        }
        let place = self.place(path);
        self.report.warning(&Decision {
            what: "mode",
            value: 0,
            reason: format!(
                "{}: the server does not set its mode ({reply}); who may read it there is as the server has it, and so for all that it refuses this; --preserve times asks for no modes",
                place.display()
            ),
        });
    }

    /// A path at the server, for messages: as a URL.
    pub(crate) fn place(&self, path: &There) -> PathBuf {
        let url = self.server.with_path(path.as_bytes().to_vec());
        PathBuf::from(url.to_string())
    }

    pub(crate) fn copied(&self, copy: impl FnOnce() -> PathBuf, bytes: u64, how: &str) {
        self.totals.count(&self.totals.files);
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.report.tells_files() {
            self.report.file(&copy(), bytes, "copied", Some(how));
        }
    }

    pub(crate) fn kept(&self, copy: impl FnOnce() -> PathBuf, bytes: u64) {
        self.totals.count(&self.totals.kept);
        if self.report.tells_files() {
            self.report.file(&copy(), bytes, "kept", None);
        }
    }

    pub(crate) fn would_copy(&self, copy: impl FnOnce() -> PathBuf, bytes: u64) {
        self.totals.count(&self.totals.files);
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.report.tells_files() {
            self.report.file(&copy(), bytes, "would copy", None);
        }
    }

    pub(crate) fn left_out(&self, path: &Path, reason: &str) {
        self.totals.count(&self.totals.left_out);
        self.report.skipped(path, reason);
    }

    /// An item has failed for good.
    pub(crate) fn failed(&self, item: &Item, found: &str, advice: &'static str) {
        // Said once for a file, not for each of its chunks.
        let failure = item.job.fail().then(|| match &item.job {
            Job::Chunk(large, _) | Job::Rest(large) => (self.place(&large.fetch.from), "its bytes"),
            Job::Fetch(fetch) | Job::Again(fetch, _) => (self.place(&fetch.from), "its bytes"),
            Job::Store(store) => (self.place(&store.to), "a copy there"),
            Job::Part(parts, _) | Job::Name(parts) => (self.place(&parts.store.to), "a copy there"),
        });
        if let Some((path, expected)) = failure {
            self.tell(&Failure::found(path, expected, found, advice));
        }
        self.queue.settle();
    }
}
