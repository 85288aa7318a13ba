//! Number of sessions: starts with a closed-form estimate, doubles while throughput increases, and
//! stops at the limit or after failures. Each decision is reported with its reason.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use venturi_gridftp::Mode;

use super::interval::{Mark, Rate, compare};
use super::session_config::{ServerCapabilities, SessionConfig};
use super::session_handle::SessionHandle;
use super::session_pool;
use super::shared::Shared;
use super::size_estimate::{Expected, breadth};
use crate::decision::{Decision, MIN_GAIN};

/// Maximum sessions: more look like an attack to a server, and most of its cores are in use.
const MAX_SESSIONS: usize = 16;
/// Minimum waiting items per session for a trial with twice as many sessions.
const MIN_WAITING_FOR_TRIAL: usize = 4;
/// Minimum remaining time for a trial, in intervals. A trial takes two or three intervals, because
/// new connections slow down the old ones, and stopped sessions end late.
const MIN_INTERVALS: u32 = 8;
/// Measurement interval between two decisions: sufficient for TCP windows to open.
const SHORTEST: Duration = Duration::from_millis(400);
const ROUND_TRIPS: u32 = 6;
/// CPU load above which more sessions would only wait for CPUs.
const BUSY: f64 = 0.85;

/// Decides the number of sessions.
pub(crate) struct ConcurrencyController<'s, 'o, 'e> {
    scope: &'s std::thread::Scope<'s, 'e>,
    shared: &'o Shared<'o>,
    config: SessionConfig,
    sessions: usize,
    interval: Duration,
    opening: Vec<Receiver<Result<ServerCapabilities, String>>>,
    /// Start of the current interval.
    mark: Mark,
    /// Throughput before the last doubling.
    before: Option<Rate>,
    /// Last throughput with the current number of sessions.
    last: Option<Rate>,
    /// Sessions of the last doubling.
    added: Vec<SessionHandle>,
    troubles: u64,
    ended: bool,
}

impl<'s, 'o: 's, 'e> ConcurrencyController<'s, 'o, 'e> {
    /// Starts with one session; decides more unless the number is fixed.
    pub(crate) fn new(
        scope: &'s std::thread::Scope<'s, 'e>,
        shared: &'o Shared<'o>,
        config: SessionConfig,
    ) -> Self {
        let mut controller = Self {
            scope,
            shared,
            config,
            sessions: 1,
            interval: SHORTEST,
            opening: Vec::new(),
            mark: Mark::now(shared),
            before: None,
            last: None,
            added: Vec::new(),
            troubles: 0,
            // Without transfers there is nothing to decide.
            ended: shared.options.dry_run,
        };
        let options = shared.options;
        if !options.dry_run && (options.fixed || options.concurrency.is_some()) {
            let target = options.concurrency.unwrap_or(1) as usize;
            let reason = match options.concurrency {
                Some(_) => "as requested".into(),
                None => "--fixed without --concurrency".into(),
            };
            controller.ended = true;
            controller.add_sessions(target, reason);
        }
        controller
    }

    /// Opens further sessions before the first one is ready.
    pub(crate) fn hasten(&mut self) {
        let Some(&round_trip) = self.shared.round_trip.get() else {
            return;
        };
        let target = self.config.expected.sessions(self.breadth(round_trip));
        if !self.ended && target > self.sessions {
            let time_ms = round_trip.as_secs_f64() * 1e3;
            let reason = match self.config.expected {
                Expected::Files(files, _) => {
                    format!("{files} files or more, and a round-trip time of {time_ms:.1} ms")
                }
                Expected::Tree => {
                    format!(
                        "a directory tree, and a round-trip time of {time_ms:.1} ms; a session needs three round trips to start"
                    )
                }
            };
            self.add_sessions(target, reason);
        }
    }

    /// True if round trips are so long that delays of the kernel are negligible.
    fn is_far(&self) -> bool {
        let round_trip = self.shared.round_trip.get();
        round_trip.is_some_and(|&round_trip| self.breadth(round_trip) > 1)
    }

    fn breadth(&self, round_trip: Duration) -> u16 {
        breadth(round_trip, self.config.server.scheme)
    }

    /// Records that the first session is ready.
    pub(crate) fn connected(&mut self, capabilities: &ServerCapabilities) {
        self.interval = SHORTEST.max(capabilities.round_trip * ROUND_TRIPS);
        self.mark = Mark::now(self.shared);
        self.report_config(capabilities);
    }

    fn report_config(&self, capabilities: &ServerCapabilities) {
        let network = &self.shared.options.network;
        let why = |requested: bool, otherwise: String| {
            if requested {
                "as requested".into()
            } else {
                otherwise
            }
        };
        let in_step = !capabilities.features.pipelines();
        let time_ms = capabilities.round_trip.as_secs_f64() * 1e3;
        let decisions = [
            (
                "streams",
                u64::from(capabilities.streams),
                match capabilities.mode {
                    Mode::Stream => "the server does not support parallel connections (PARALLEL, MODE E): one connection per file".into(),
                    Mode::Extended => why(
                        network.streams.is_some(),
                        if capabilities.streams > 1 {
                            format!(
                                "files of 1 MB or more, and a round-trip time of {time_ms:.1} ms: a lost packet slows only one of several connections"
                            )
                        } else {
                            "one connection fills a path without loss; more sessions add more throughput"
                                .into()
                        },
                    ),
                },
            ),
            (
                "pipelining",
                if in_step {
                    1
                } else {
                    capabilities.pipelining as u64
                },
                if in_step {
                    "servers other than Globus can lose commands that arrive during a transfer".into()
                } else {
                    why(
                        network.pipelining.is_some(),
                        format!(
                            "round-trip time {time_ms:.1} ms: the session's part of the files that a server can complete in a round trip"
                        ),
                    )
                },
            ),
        ];
        // The number of data nodes is known when connections to them open.
        let alone = self.config.striped && !capabilities.is_striped();
        let reason = "the server does not report its data nodes (SPAS)";
        let alone = alone.then(|| ("stripe", 0, reason.to_owned()));
        for (what, value, reason) in decisions.into_iter().chain(alone) {
            self.shared.report.decision(&Decision {
                setting: what,
                value,
                reason,
            });
        }
    }

    /// Call this regularly.
    pub(crate) fn tick(&mut self) {
        self.check_opening();
        if self.ended {
            return;
        }
        let (waiting, _) = self.shared.queue.depth();
        if waiting == 0 && self.shared.stats.has_idle() {
            // Idle sessions show nothing.
            self.mark = Mark::now(self.shared);
        }
        if self.opening.is_empty() {
            self.check_losses(waiting);
        }
        if !self.opening.is_empty() || self.mark.elapsed() < self.interval {
            if self.mark.elapsed() < self.interval / 2 {
                // Queues are measured in the second half of an interval, because TCP windows open in the first one.
                self.shared.round_trips.take_saturated();
            }
            if self.before.is_none() {
                self.start_trial();
            }
            return;
        }
        let troubles = self.shared.troubles.load(Ordering::Relaxed);
        if troubles > self.troubles {
            self.troubles = troubles;
            return self.stay("connections failed; more connections would fail more often".into());
        }
        let now = Mark::now(self.shared);
        // Without a complete file, the interval continues until there is one.
        if let Some(rate) = now.rate(self.mark, self.shared.queue.mean_bytes()) {
            let busy = now.busy(self.mark);
            self.mark = now;
            self.measured(rate, busy, waiting);
        }
    }

    /// Decides after an interval.
    fn measured(&mut self, rate: Rate, busy: f64, waiting: usize) {
        let full = self.shared.round_trips.take_saturated();
        // While TCP windows open, throughput still grows. It is stable if its growth is below the minimum gain. For files,
        // none may be left by then.
        let last = self.last.replace(rate).and_then(|last| rate.over(last));
        if !rate.counts() && last.is_none_or(|gain| gain > MIN_GAIN) {
            return;
        }
        if let Some(before) = self.before {
            match rate.over(before) {
                // The files differ from the earlier ones, so the gain is unknown.
                None => self.before = None,
                Some(gain) if gain < MIN_GAIN => return self.revert_trial(gain, rate, before),
                Some(_) => {}
            }
        }
        if busy > BUSY {
            let reason = format!("CPUs are {:.0} % busy", busy * 100.0);
            return self.stay(reason);
        }
        // Further sessions could only transfer waiting items; a small number ends before the gain is visible.
        let remaining_s = self.remaining_s(rate);
        if waiting < MIN_WAITING_FOR_TRIAL * self.sessions || remaining_s < self.trial_s() {
            return;
        }
        if self.sessions >= MAX_SESSIONS {
            return self.stay(format!("limit of {MAX_SESSIONS} sessions per server"));
        }
        if full && self.is_far() {
            // On a saturated path, further sessions only take throughput from the others and cause losses.
            let reason = "the path is saturated: most round-trip times exceed the minimum RTT";
            return self.stay(reason.into());
        }
        self.before = Some(rate);
        let reason =
            format!("{rate} so far, {remaining_s:.0} s remaining: trying twice as many sessions");
        self.add_sessions(self.sessions * 2, reason);
    }

    /// Stops the sessions of the last doubling because of their small gain.
    fn revert_trial(&mut self, gain: f64, rate: Rate, before: Rate) {
        self.added.drain(..).for_each(|handle| handle.retire());
        let many = self.sessions;
        self.sessions = many.div_ceil(2);
        let compared = compare(gain, (rate, many), (before, self.sessions));
        self.stay(format!("{compared}: reverted"));
    }

    /// Returns the remaining time at this rate, as far as known.
    fn remaining_s(&self, rate: Rate) -> f64 {
        let (waiting, assigned) = self.shared.queue.depth();
        let moved = self.shared.totals.moved_bytes.load(Ordering::Relaxed);
        let bytes = self.shared.queue.bytes().saturating_sub(moved);
        rate.time_s(waiting + assigned, bytes)
    }

    /// Returns the minimum remaining time for a trial.
    fn trial_s(&self) -> f64 {
        f64::from(MIN_INTERVALS) * self.interval.as_secs_f64()
    }

    /// Opens sessions by the closed form: small files need one core of the server per session, so several sessions use several; on long paths, windows open
    /// too slowly for one session.
    fn start_trial(&mut self) {
        let round_trip = self.shared.round_trip.get().copied().unwrap_or_default();
        let (items, bytes) = self.shared.queue.incomplete();
        let known = match self.config.expected {
            // All files were known before; chunks of files add no work. A session that starts late on a saturated path stays slow for long.
            Expected::Files(_, Some(_)) => self.config.expected,
            _ => Expected::Files(items, Some(bytes)),
        };
        let target = known.sessions(self.breadth(round_trip));
        if target > self.sessions {
            self.config.expected = known;
            let reason = format!("{items} known items; each session uses one core of the server");
            self.add_sessions(target, reason);
        }
    }

    /// If packets are lost and queues are empty, losses limit the window of each connection, independent of the capacity: each further connection
    /// adds the same throughput, without a trial.
    fn check_losses(&mut self, waiting: usize) {
        let round_trips = &self.shared.round_trips;
        let enough =
            waiting >= MIN_WAITING_FOR_TRIAL * self.sessions && self.sessions < MAX_SESSIONS;
        if enough
            && self.is_far()
            && !round_trips.is_saturated()
            && let Some(reason) = round_trips.losses()
            && Mark::now(self.shared).busy(self.mark) < BUSY
        {
            self.before = None;
            self.add_sessions(self.sessions * 2, reason);
        }
    }

    fn stay(&mut self, reason: String) {
        self.ended = true;
        self.report_decision(reason);
    }

    fn add_sessions(&mut self, target: usize, reason: String) {
        self.last = None;
        self.shared.round_trips.forget_losses();
        self.added.clear();
        for _ in self.sessions..target {
            let (handle, ready) =
                session_pool::open(self.scope, self.shared, self.config.clone(), false);
            self.opening.push(ready);
            self.added.push(handle);
        }
        self.sessions = self.sessions.max(target);
        self.report_decision(reason);
    }

    fn report_decision(&self, reason: String) {
        self.shared.report.decision(&Decision {
            setting: "sessions",
            value: self.sessions as u64,
            reason,
        });
    }

    /// Checks the sessions that are being opened.
    fn check_opening(&mut self) {
        let mut rejected = None;
        let before = self.opening.len();
        self.opening.retain(|ready| match ready.try_recv() {
            Ok(Ok(_)) | Err(TryRecvError::Disconnected) => false,
            Ok(Err(reason)) => {
                rejected = Some(reason);
                false
            }
            Err(TryRecvError::Empty) => true,
        });
        if before > 0 && self.opening.is_empty() {
            // The new interval starts here.
            self.mark = Mark::now(self.shared);
        }
        if let Some(reason) = rejected {
            self.sessions = self.shared.sessions.load(Ordering::SeqCst);
            self.stay(format!("the server accepts no more sessions: {reason}"));
        }
    }
}
