//! State that all threads of an FTP copy share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use venturi_gridftp::{Features, FtpReply, Path as RemotePath};

use super::failures;
use super::queue::WorkQueue;
use super::session_stats::SessionStats;
use super::work::{FtpDirection, Item};
use crate::decision::Decision;
use crate::error::Failure;
use crate::net::grid::Grid;
use crate::net::rtt::RttMonitor;
use crate::net::url::{Scheme, Url};
use crate::options::CopyOptions;
use crate::report::Report;
use crate::stop::CancelToken;
use crate::totals::CopyTotals;

/// State that all threads of a copy share.
pub(crate) struct Shared<'o> {
    pub(crate) options: &'o CopyOptions,
    pub(crate) stop: &'o CancelToken,
    pub(crate) totals: &'o CopyTotals,
    pub(crate) report: &'o Report,
    pub(crate) queue: WorkQueue,
    /// Server for sessions and messages.
    pub(crate) server: Url,
    /// Credential, if a server needs one.
    pub(crate) grid: Option<Grid>,
    /// Failures of data connections and sessions; more connections make them more likely.
    pub(crate) troubles: AtomicU64,
    /// Number of open and opening sessions.
    pub(crate) sessions: AtomicUsize,
    /// Connection time of the first control connection.
    pub(crate) round_trip: OnceLock<Duration>,
    /// Round-trip times.
    pub(crate) round_trips: RttMonitor,
    /// Progress of the sessions.
    pub(crate) stats: SessionStats,
    /// Deepest pipeline that was reported.
    pub(crate) pipelining: AtomicUsize,
    /// True after the warning about unauthenticated data connections.
    pub(crate) warned: AtomicBool,
    /// Files whose mode was not set because the session was lost.
    modes: Mutex<Vec<(RemotePath, u32)>>,
    /// True after the warning that the server does not set modes.
    modeless: AtomicBool,
    /// Reported number of data nodes.
    nodes: OnceLock<u16>,
}

/// Interval of checks for cancellation.
const GLANCE: Duration = Duration::from_millis(100);

impl<'o> Shared<'o> {
    pub(crate) fn new(
        options: &'o CopyOptions,
        stop: &'o CancelToken,
        totals: &'o CopyTotals,
        report: &'o Report,
        server: Url,
        grid: Option<Grid>,
    ) -> Self {
        Self {
            options,
            stop,
            totals,
            report,
            queue: WorkQueue::new(),
            server,
            grid,
            troubles: AtomicU64::new(0),
            sessions: AtomicUsize::new(0),
            round_trip: OnceLock::new(),
            round_trips: RttMonitor::new(),
            stats: SessionStats::default(),
            pipelining: AtomicUsize::new(0),
            warned: AtomicBool::new(false),
            modes: Mutex::default(),
            modeless: AtomicBool::new(false),
            nodes: OnceLock::new(),
        }
    }

    /// Closes the queue and waits for its end or for cancellation. Returns true if no file failed.
    pub(crate) fn wait(&self) -> bool {
        self.queue.close();
        while !self.queue.wait(GLANCE) && !self.stop.is_cancelled() {}
        self.totals.failed.load(Ordering::Relaxed) == 0 && !self.stop.is_cancelled()
    }

    /// Ends the queue and discards waiting items.
    pub(crate) fn end(&self) {
        self.queue.close();
        drop(self.queue.abandon());
    }

    /// Reports a failure.
    pub(crate) fn report_failure(&self, failure: &Failure) {
        self.report.failure(failure, self.totals, self.stop);
    }

    /// Reports a session that is lost for good: its missing replies make the copy incomplete.
    pub(crate) fn session_lost(&self) {
        let path = PathBuf::from(self.server.with_path(b"/".to_vec()).to_string());
        let found = "several lost sessions in a row";
        let advice = "check the server, then run the same command again";
        self.report_failure(&Failure::found(path, "replies", found, advice));
    }

    /// True if the server truncates names with bytes above 127: Globus servers drop these bytes on an unencrypted control connection.
    pub(crate) fn cuts_names(server: &Url, features: &Features) -> bool {
        features.cuts_names() && server.scheme != Scheme::Gsiftp
    }

    /// True if the server supports the name; otherwise reports a failure.
    pub(crate) fn is_supported_name(&self, path: &RemotePath, cuts_names: bool) -> bool {
        let supported = !cuts_names || path.is_ascii();
        if !supported {
            self.report_failure(&failures::unsupported_name(self.display_url(path)));
        }
        supported
    }

    /// Keeps a mode for the end of the copy, for another session.
    pub(crate) fn set_later(&self, path: RemotePath, mode: u32) {
        let modes = self.modes.lock();
        modes
            .unwrap_or_else(PoisonError::into_inner)
            .push((path, mode));
    }

    /// Takes the modes to set at the end.
    pub(crate) fn modes(&self) -> Vec<(RemotePath, u32)> {
        let modes = self.modes.lock();
        std::mem::take(&mut *modes.unwrap_or_else(PoisonError::into_inner))
    }

    /// Reports once how many data nodes transfer each file.
    pub(crate) fn report_nodes(&self, nodes: u16) {
        if self.nodes.set(nodes).is_ok() {
            self.report.decision(&Decision {
                setting: "stripe",
                value: nodes.into(),
                reason: "data nodes that the server reports; all transfer each file, as requested"
                    .into(),
            });
        }
    }

    /// Warns once that the server does not set modes.
    pub(crate) fn check_mode_reply(&self, path: &RemotePath, reply: &FtpReply) {
        if reply.is_success() || self.modeless.swap(true, Ordering::Relaxed) {
            return;
        }
        let display_url = self.display_url(path);
        self.report.warning(&Decision {
            setting: "mode",
            value: 0,
            reason: format!(
                "{}: the server does not set its mode ({reply}); for this and similar files, the server decides who can read them. Use --preserve times to copy without modes.",
                display_url.display()
            ),
        });
    }

    /// Returns the URL of a remote path, for messages.
    pub(crate) fn display_url(&self, path: &RemotePath) -> PathBuf {
        let url = self.server.with_path(path.as_bytes().to_vec());
        PathBuf::from(url.to_string())
    }

    pub(crate) fn copied(&self, copy: impl FnOnce() -> PathBuf, bytes: u64, how: &str) {
        self.totals.count(&self.totals.files);
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.report.logs_files() {
            self.report.file(&copy(), bytes, "copied", Some(how));
        }
    }

    pub(crate) fn kept(&self, copy: impl FnOnce() -> PathBuf, bytes: u64) {
        self.totals.count(&self.totals.kept);
        if self.report.logs_files() {
            self.report.file(&copy(), bytes, "kept", None);
        }
    }

    pub(crate) fn would_copy(&self, copy: impl FnOnce() -> PathBuf, bytes: u64) {
        self.totals.count(&self.totals.files);
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.report.logs_files() {
            self.report.file(&copy(), bytes, "would copy", None);
        }
    }

    pub(crate) fn left_out(&self, path: &Path, reason: &str) {
        self.totals.count(&self.totals.skipped);
        self.report.skipped(path, reason);
    }

    /// Reports an item that has failed for good.
    pub(crate) fn failed(&self, item: &Item, found: &str, advice: &'static str) {
        // Once per file, not per chunk.
        let failure = item.job.fail().then(|| match &item.job {
            FtpDirection::Chunk(large, _) | FtpDirection::Rest(large) => {
                (self.display_url(&large.fetch.from), "the data of the file")
            }
            FtpDirection::Fetch(fetch) | FtpDirection::Again(fetch, _) => {
                (self.display_url(&fetch.from), "the data of the file")
            }
            FtpDirection::Store(store) => (self.display_url(&store.to), "a copy at the server"),
            FtpDirection::Part(parts, _) | FtpDirection::Name(parts) => {
                (self.display_url(&parts.store.to), "a copy at the server")
            }
        });
        if let Some((path, expected)) = failure {
            self.report_failure(&Failure::found(path, expected, found, advice));
        }
        self.queue.complete();
    }
}
