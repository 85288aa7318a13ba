//! How many sessions: begins with what a closed form says, doubles while it pays, and stops where it does not, or where something breaks. Every
//! decision is told with its reason.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use venturi_gridftp::Mode;

use super::crew;
use super::desk::Desk;
use super::forecast::{Expected, breadth};
use super::interval::{Mark, Rate, compare};
use super::manner::{Manner, Welcome};
use super::shared::Shared;
use crate::decision::{Decision, WORTH};

/// Beyond this a server takes it for an attack, and most of its cores are taken.
const MOST_SESSIONS: usize = 16;
/// Items that wait for each session, at least, when twice as many are tried.
const WORTH_A_TRIAL: usize = 4;
/// Intervals that the rest takes at least when twice as many are tried: a trial takes two or three, in which new connections take from the old
/// ones what they have to give back, and sessions that are taken back leave late.
const WORTH_INTERVALS: u32 = 8;
/// What is measured between two decisions: long enough for connections to open their windows.
const SHORTEST: Duration = Duration::from_millis(400);
const ROUND_TRIPS: u32 = 6;
/// Part of the processors beyond which more sessions only wait for them.
const BUSY: f64 = 0.85;

/// Decides how many sessions there are.
pub(crate) struct Pilot<'s, 'o, 'e> {
    scope: &'s std::thread::Scope<'s, 'e>,
    shared: &'o Shared<'o>,
    manner: Manner,
    sessions: usize,
    interval: Duration,
    opening: Vec<Receiver<Result<Welcome, String>>>,
    /// Where the interval began that is being measured.
    mark: Mark,
    /// What the sessions before the last doubling did in a second.
    before: Option<Rate>,
    /// What was measured last with as many sessions as there are.
    last: Option<Rate>,
    /// The sessions of the last doubling.
    added: Vec<Desk>,
    troubles: u64,
    ended: bool,
}

impl<'s, 'o: 's, 'e> Pilot<'s, 'o, 'e> {
    /// One session is being opened; more only where that is not fixed.
    pub(crate) fn new(
        scope: &'s std::thread::Scope<'s, 'e>,
        shared: &'o Shared<'o>,
        manner: Manner,
    ) -> Self {
        let mut pilot = Self {
            scope,
            shared,
            manner,
            sessions: 1,
            interval: SHORTEST,
            opening: Vec::new(),
            mark: Mark::now(shared),
            before: None,
            last: None,
            added: Vec::new(),
            troubles: 0,
            // Where nothing is moved there is nothing to be decided.
            ended: shared.order.dry_run,
        };
        let order = shared.order;
        if !order.dry_run && (order.fixed || order.concurrency.is_some()) {
            let wanted = order.concurrency.unwrap_or(1) as usize;
            let reason = match order.concurrency {
                Some(_) => "as asked for".into(),
                None => "--fixed without --concurrency".into(),
            };
            pilot.ended = true;
            pilot.become_many(wanted, reason);
        }
        pilot
    }

    /// To be called while the first session is not ready: others need not wait for it.
    pub(crate) fn hasten(&mut self) {
        let Some(&round_trip) = self.shared.round_trip.get() else {
            return;
        };
        let wanted = self.manner.expected.sessions(self.breadth(round_trip));
        if !self.ended && wanted > self.sessions {
            let time_ms = round_trip.as_secs_f64() * 1e3;
            let reason = match self.manner.expected {
                Expected::Files(files, _) => {
                    format!("{files} files or more, and a round trip of {time_ms:.1} ms")
                }
                Expected::Tree => {
                    format!(
                        "a tree, and a round trip of {time_ms:.1} ms, three of which a session takes to be ready"
                    )
                }
            };
            self.become_many(wanted, reason);
        }
    }

    /// Whether round trips are so long that a kernel's own delays do not show in them.
    fn is_far(&self) -> bool {
        let round_trip = self.shared.round_trip.get();
        round_trip.is_some_and(|&round_trip| self.breadth(round_trip) > 1)
    }

    fn breadth(&self, round_trip: Duration) -> u16 {
        breadth(round_trip, self.manner.server.scheme)
    }

    /// The first session is ready.
    pub(crate) fn welcomed(&mut self, welcome: &Welcome) {
        self.interval = SHORTEST.max(welcome.round_trip * ROUND_TRIPS);
        self.mark = Mark::now(self.shared);
        self.tell_manner(welcome);
    }

    fn tell_manner(&self, welcome: &Welcome) {
        let network = &self.shared.order.network;
        let why = |asked: bool, otherwise: String| {
            if asked {
                "as asked for".into()
            } else {
                otherwise
            }
        };
        let in_step = !welcome.features.pipelines();
        let time_ms = welcome.round_trip.as_secs_f64() * 1e3;
        let decisions = [
            (
                "streams",
                u64::from(welcome.streams),
                match welcome.mode {
                    Mode::Stream => "a server that does not tell of parallel connections (PARALLEL, of MODE E) has one for each file".into(),
                    Mode::Extended => why(
                        network.streams.is_some(),
                        if welcome.streams > 1 {
                            format!(
                                "files of a megabyte or more, and a round trip of {time_ms:.1} ms: of several connections one loses less"
                            )
                        } else {
                            "one connection fills a path that loses nothing; sessions bring more"
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
                    welcome.pipelining as u64
                },
                if in_step {
                    "a server that is not of the Globus toolkit may lose what it is told during a transfer".into()
                } else {
                    why(
                        network.pipelining.is_some(),
                        format!(
                            "a round trip takes {time_ms:.1} ms, and this is a session's part of what a server may end in it"
                        ),
                    )
                },
            ),
        ];
        // How many data nodes there are is known when connections are opened to them.
        let alone = self.manner.striped && !welcome.is_striped();
        let reason = "the server does not name its data nodes (SPAS)";
        let alone = alone.then(|| ("stripe", 0, reason.to_owned()));
        for (what, value, reason) in decisions.into_iter().chain(alone) {
            self.shared.report.decision(&Decision {
                what,
                value,
                reason,
            });
        }
    }

    /// To be called now and then.
    pub(crate) fn tick(&mut self) {
        self.see_opening();
        if self.ended {
            return;
        }
        let (waiting, _) = self.shared.queue.depth();
        if waiting == 0 && self.shared.field.has_idle() {
            // What sessions do that have nothing to take shows nothing.
            self.mark = Mark::now(self.shared);
        }
        if self.opening.is_empty() {
            self.see_losses(waiting);
        }
        if !self.opening.is_empty() || self.mark.elapsed() < self.interval {
            if self.mark.elapsed() < self.interval / 2 {
                // What queues are like is asked of the second half: in the first one windows still open.
                self.shared.trips.take_full();
            }
            if self.before.is_none() {
                self.begin();
            }
            return;
        }
        let troubles = self.shared.troubles.load(Ordering::Relaxed);
        if troubles > self.troubles {
            self.troubles = troubles;
            return self.stay("connections broke, and more of them would break more often".into());
        }
        let now = Mark::now(self.shared);
        // Where nobody has finished a file the interval goes on until somebody has.
        if let Some(rate) = now.rate(self.mark, self.shared.queue.mean_bytes()) {
            let busy = now.busy(self.mark);
            self.mark = now;
            self.measured(rate, busy, waiting);
        }
    }

    /// Decides by what was done in an interval.
    fn measured(&mut self, rate: Rate, busy: f64, waiting: usize) {
        let full = self.shared.trips.take_full();
        // Windows that still open are not yet what sessions can do: a rate has settled when it grows by less than would be worth it. Of files
        // there may be none left then.
        let last = self.last.replace(rate).and_then(|last| rate.over(last));
        if !rate.counts() && last.is_none_or(|gain| gain > WORTH) {
            return;
        }
        if let Some(before) = self.before {
            match rate.over(before) {
                // Files are of another kind now than they were: nobody knows what this brought.
                None => self.before = None,
                Some(gain) if gain < WORTH => return self.take_back(gain, rate, before),
                Some(_) => {}
            }
        }
        if busy > BUSY {
            let reason = format!("processors are busy to {:.0} %", busy * 100.0);
            return self.stay(reason);
        }
        // What waits is what more sessions could do; where it is little, all is done before they have shown it.
        let rest_s = self.rest_s(rate);
        if waiting < WORTH_A_TRIAL * self.sessions || rest_s < self.trial_s() {
            return;
        }
        if self.sessions >= MOST_SESSIONS {
            return self.stay(format!(
                "no more than {MOST_SESSIONS} sessions with one server"
            ));
        }
        if full && self.is_far() {
            // What more sessions would bring then they would take from those that there are, who lose on top of it.
            let reason = "the path is full: most round trips take longer than through empty queues";
            return self.stay(reason.into());
        }
        self.before = Some(rate);
        let reason =
            format!("{rate} so far, at which the rest takes {rest_s:.0} s: tries twice as many");
        self.become_many(self.sessions * 2, reason);
    }

    /// The sessions of the last doubling bring too little.
    fn take_back(&mut self, gain: f64, rate: Rate, before: Rate) {
        self.added.drain(..).for_each(|desk| desk.retire());
        let many = self.sessions;
        self.sessions = many.div_ceil(2);
        let compared = compare(gain, (rate, many), (before, self.sessions));
        self.stay(format!("{compared}: takes them back"));
    }

    /// How long what is left would take at this rate, as far as it is known.
    fn rest_s(&self, rate: Rate) -> f64 {
        let (waiting, taken) = self.shared.queue.depth();
        let moved = self.shared.totals.moved_bytes.load(Ordering::Relaxed);
        let bytes = self.shared.queue.bytes().saturating_sub(moved);
        rate.time_s(waiting + taken, bytes)
    }

    /// How long the rest has to take for a trial to be worth its cost.
    fn trial_s(&self) -> f64 {
        f64::from(WORTH_INTERVALS) * self.interval.as_secs_f64()
    }

    /// The closed form: small files are done at the pace of a core of the server, so that several of them take several; from afar windows open
    /// too slowly for one.
    fn begin(&mut self) {
        let round_trip = self.shared.round_trip.get().copied().unwrap_or_default();
        let (items, bytes) = self.shared.queue.unsettled();
        let known = match self.manner.expected {
            // All was known before; chunks of files make it no more. A session that comes late to a path that others fill is slow for long.
            Expected::Files(_, Some(_)) => self.manner.expected,
            _ => Expected::Files(items, Some(bytes)),
        };
        let wanted = known.sessions(self.breadth(round_trip));
        if wanted > self.sessions {
            self.manner.expected = known;
            let reason = format!(
                "{items} items are known, and a session with a server takes one of its cores"
            );
            self.become_many(wanted, reason);
        }
    }

    /// Where packets are lost and queues are empty, a connection brings what losses leave of its window, whatever the path carries: each one more
    /// brings as much, and that need not be tried.
    fn see_losses(&mut self, waiting: usize) {
        let trips = &self.shared.trips;
        let enough = waiting >= WORTH_A_TRIAL * self.sessions && self.sessions < MOST_SESSIONS;
        if enough
            && self.is_far()
            && !trips.is_full()
            && let Some(reason) = trips.losses()
            && Mark::now(self.shared).busy(self.mark) < BUSY
        {
            self.before = None;
            self.become_many(self.sessions * 2, reason);
        }
    }

    fn stay(&mut self, reason: String) {
        self.ended = true;
        self.tell(reason);
    }

    fn become_many(&mut self, wanted: usize, reason: String) {
        self.last = None;
        self.shared.trips.forget_losses();
        self.added.clear();
        for _ in self.sessions..wanted {
            let (desk, told) = crew::open(self.scope, self.shared, self.manner.clone(), false);
            self.opening.push(told);
            self.added.push(desk);
        }
        self.sessions = self.sessions.max(wanted);
        self.tell(reason);
    }

    fn tell(&self, reason: String) {
        self.shared.report.decision(&Decision {
            what: "sessions",
            value: self.sessions as u64,
            reason,
        });
    }

    /// Sees whether sessions that are being opened are open, or refused.
    fn see_opening(&mut self) {
        let mut refused = None;
        let before = self.opening.len();
        self.opening.retain(|told| match told.try_recv() {
            Ok(Ok(_)) | Err(TryRecvError::Disconnected) => false,
            Ok(Err(reason)) => {
                refused = Some(reason);
                false
            }
            Err(TryRecvError::Empty) => true,
        });
        if before > 0 && self.opening.is_empty() {
            // What they do is measured from here on.
            self.mark = Mark::now(self.shared);
        }
        if let Some(reason) = refused {
            self.sessions = self.shared.sessions.load(Ordering::SeqCst);
            self.stay(format!("the server takes no more: {reason}"));
        }
    }
}
