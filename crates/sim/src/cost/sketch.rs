//! A transfer as far as its cost goes, and the phases that it comes to.

use venturi_plan::{Amount, HostCost, MoverCost, ServiceCost};

use super::checks::put_checks;
use super::files::{FileCost, Files, Session};
use super::phase::{Bound, End, Phase, Why};
use super::{
    BeforeLoss, CongestionControl, Dealing, SlowStart, alternating_rate, processor_rate,
    sharing_weight, window_rate,
};

/// Segments that a connection begins with (RFC 6928).
const INITIAL_WINDOW_SEGMENTS: f64 = 10.0;
/// Growth of the window in slow start: Linux counts acknowledged bytes (RFC 3465 with L unlimited).
const GROWTH: f64 = 2.0;

/// One call of a mover. The driver fills it from the plan, its world and the cost parameters.
#[derive(Debug, Clone, Copy)]
pub struct TransferSketch<'a> {
    /// What it moves.
    pub files: &'a Files,
    /// What its tool costs.
    pub mover: &'a MoverCost,
    /// What the server that it reads from costs; `None` where the source is a file of the client.
    pub source: Option<&'a ServiceCost>,
    /// The same of the destination.
    pub destination: Option<&'a ServiceCost>,
    /// The machine of the client.
    pub client: &'a HostCost,
    /// Round trip of commands: of the farther server, if there are two; 0 where there is none.
    pub control_rtt_s: f64,
    /// What of it the nearer of two servers adds.
    pub nearer_rtt_s: f64,
    /// The way that bytes take.
    pub path: DataPath,
    /// Connections that carry one file.
    pub streams: u32,
    /// Sessions side by side, which share the files; `None`: as many as the tool opens by itself.
    pub concurrency: Option<u32>,
    /// Files whose commands are under way together in a session; `None`: what the tool does by itself.
    pub pipelining: Option<u32>,
    /// Files that a session ends after: of a job that calls a tool for so many at a time. `None`: it takes all of its share.
    pub files_per_session: Option<u32>,
}

/// The way that bytes take, as its sender sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DataPath {
    /// Round trip from sender to receiver; 0 within one machine.
    pub rtt_s: f64,
    /// Window of one connection at most.
    pub window_bytes: f64,
    /// Payload of a full segment.
    pub mss_bytes: f64,
    /// Bytes of a file that its sender puts on one connection at a time, where several carry it; 0: each has the same share.
    pub block_bytes: f64,
    /// Probability that a segment is lost, whatever else is on the path.
    pub loss: f64,
    /// What its sender lets one connection have; infinite where it does not pace.
    pub pacing_bytes_per_s: f64,
    /// How its sender reacts to loss.
    pub congestion_control: CongestionControl,
    /// The slowest link of it, empty.
    pub bytes_per_s: f64,
}

/// The phases of a transfer, and what is not known of its cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    /// One after the other.
    pub phases: Vec<Phase>,
    /// Parameters that nobody has measured or given: they count nothing here, and are to be told (`cost-unknown`).
    pub unknown: Vec<&'static str>,
}

impl TransferSketch<'_> {
    /// The phases of this transfer: start, sessions, files, checks, in that order; the farewell is in the session's round trips.
    ///
    /// Sessions one after the other begin together here, before the files of all: their times add up in any order.
    ///
    /// At most about 400, however many files there are: see [`Files`].
    #[must_use]
    pub fn course(&self) -> Course {
        let mut unknown = Vec::new();
        let mut phases = self.beginning(&mut unknown);
        let session = self.session(&mut unknown);
        session.put(self.files, &mut phases);
        put_checks(self, &mut phases);
        phases.retain(|phase| !is_empty(phase));
        Course { phases, unknown }
    }

    /// The fastest that one session is in the long run, in bytes a second, and what bounds it; links and storage come besides.
    #[must_use]
    pub fn cap(&self) -> (f64, Bound) {
        self.cap_under(self.loss_rate())
    }

    /// What holds until congestion control has a loss to react to; `None` if that is slower by itself, or goes by other things.
    fn before_loss(&self) -> Option<BeforeLoss> {
        let path = &self.path;
        let beta = path.congestion_control.beta().filter(|_| path.loss > 0.0)?;
        let (cap, bound) = self.cap_under(f64::INFINITY);
        let (first_rate, last_rate) = (cap.min(path.bytes_per_s), self.cap().0);
        (first_rate > last_rate && first_rate.is_finite()).then_some(BeforeLoss {
            cap,
            bound,
            loss: path.loss,
            segment_bytes: path.mss_bytes,
            connections: f64::from(self.streams),
            beta,
            first_rate,
            last_rate,
            initial_window_bytes: self.initial_window_bytes() * f64::from(self.streams),
            rtt_s: path.rtt_s,
        })
    }

    /// Of one connection.
    fn initial_window_bytes(&self) -> f64 {
        let segments = self.client.initial_window_segments;
        let segments = segments.map_or(INITIAL_WINDOW_SEGMENTS, Amount::get);
        segments * self.path.mss_bytes
    }

    fn cap_under(&self, loss_rate: f64) -> (f64, Bound) {
        let (mover, path) = (self.mover, &self.path);
        let mut least = (f64::INFINITY, Bound::None);
        for bound in self.bounds(loss_rate) {
            if bound.0 < least.0 {
                least = bound;
            }
        }
        match (mover.block_bytes, mover.block_s) {
            (Some(block), Some(block_s)) => {
                let path = least.0.min(path.bytes_per_s);
                let rate = alternating_rate(&[path], block.get(), block_s.get());
                (rate, Bound::Block)
            }
            _ => least,
        }
    }

    /// All that may hold a session back: windows, the tool, servers.
    fn bounds(&self, loss_rate: f64) -> Vec<(f64, Bound)> {
        let (path, mover, streams) = (&self.path, self.mover, f64::from(self.streams));
        let speed = self.client.core_speed.map_or(1.0, Amount::get);
        let windows = window_rate(path.window_bytes, streams, path.rtt_s);
        let paced = path.pacing_bytes_per_s * streams;
        let mut bounds = vec![
            (windows, Bound::Window),
            (loss_rate, Bound::Loss),
            (paced, Bound::Pacing),
        ];
        if let Some(ahead) = mover.in_flight_bytes {
            bounds.push((window_rate(ahead.get(), 1.0, path.rtt_s), Bound::Ahead));
        }
        if let Some(core_s) = mover.byte_core_s {
            bounds.push((processor_rate(1.0, core_s.get(), speed), Bound::ClientCpu));
        }
        for server in [self.source, self.destination].into_iter().flatten() {
            if let Some(core_s) = server.byte_core_s {
                bounds.push((processor_rate(1.0, core_s.get(), 1.0), Bound::ServerCpu));
            }
            if let Some(rate) = server.process_bytes_per_s {
                bounds.push((rate.get(), Bound::ServerProcess));
            }
        }
        bounds
    }

    /// What congestion control lets all streams of one file have; no bound where there is no loss to react to.
    fn loss_rate(&self) -> f64 {
        let path = &self.path;
        if path.loss <= 0.0 || path.rtt_s <= 0.0 {
            return f64::INFINITY;
        }
        let one =
            path.congestion_control
                .rate(path.mss_bytes, path.rtt_s, path.loss, path.bytes_per_s);
        one * f64::from(self.streams)
    }

    fn beginning(&self, unknown: &mut Vec<&'static str>) -> Vec<Phase> {
        let mut phases = self.start(unknown);
        phases.extend(self.session_trips(unknown));
        for (end, server) in self.servers() {
            phases.extend(self.login(end, server));
        }
        phases
    }

    /// The tool, and the calls of a job: start and end.
    fn start(&self, unknown: &mut Vec<&'static str>) -> Vec<Phase> {
        let mover = self.mover;
        let start_s = known(mover.start_s, "start_s of the mover", unknown);
        let start_core_s = known(mover.start_core_s, "start_core_s of the mover", unknown);
        let sessions_core_s = self.calls() as f64 * or_none(mover.session_core_s);
        let sessions_s = self.calls_in_row() as f64 * or_none(mover.session_s);
        let why = Why::Start;
        let work = |core_s, width| Phase::ClientCpu { core_s, width, why };
        let wait = |seconds| Phase::Delay { seconds, why };
        vec![
            work(start_core_s, 1.0),
            wait(start_s),
            work(sessions_core_s, f64::from(self.sessions())),
            wait(sessions_s),
        ]
    }

    /// What sessions wait for answers; nothing where there is no server elsewhere.
    fn session_trips(&self, unknown: &mut Vec<&'static str>) -> Option<Phase> {
        if self.control_rtt_s <= 0.0 {
            return None;
        }
        let what = "session_round_trips of the mover";
        let trips = known(self.mover.session_round_trips, what, unknown);
        Some(Phase::Delay {
            seconds: self.calls_in_row() as f64 * trips * self.control_rtt_s,
            why: Why::Session,
        })
    }

    /// What all sessions are at one server: sent elsewhere, begun, known.
    fn login(&self, end: End, server: &ServiceCost) -> [Phase; 3] {
        let (sessions, width) = (self.calls() as f64, f64::from(self.sessions()));
        let trips = or_none(server.redirect_round_trips);
        let logins = self.mover.logins.map_or(1.0, Amount::get);
        let work = |core_s, why| Phase::ServerCpu {
            end,
            core_s: sessions * core_s,
            width,
            why,
        };
        [
            Phase::Delay {
                seconds: self.calls_in_row() as f64 * trips * self.control_rtt_s,
                why: Why::Redirect,
            },
            work(or_none(server.session_core_s), Why::Session),
            work(logins * or_none(server.auth_core_s), Why::Authentication),
        ]
    }

    fn session(&self, unknown: &mut Vec<&'static str>) -> Session {
        let (cap, bound) = self.cap();
        let (mover, path, streams) = (self.mover, &self.path, f64::from(self.streams));
        let exponent = self
            .client
            .rtt_exponent
            .unwrap_or(path.congestion_control.rtt_exponent());
        Session {
            lanes: u64::from(self.sessions()),
            pipelining: u64::from(self.pipelining.or(mover.pipelining).unwrap_or(1)).max(1),
            trips_s: self.file_trips_s(unknown),
            file: self.file_cost(),
            dealing: self.dealing(),
            // What a call has kept ends with it.
            keeps_connection: mover.keeps_connection.unwrap_or(false)
                && self.files_per_session != Some(1),
            cap,
            bound,
            before_loss: self.before_loss(),
            weight: sharing_weight(streams, path.rtt_s, exponent),
            path_bytes_per_s: path.bytes_per_s,
        }
    }

    fn file_trips_s(&self, unknown: &mut Vec<&'static str>) -> f64 {
        if self.control_rtt_s <= 0.0 {
            return 0.0;
        }
        let what = "file_round_trips of the mover";
        known(self.mover.file_round_trips, what, unknown) * self.control_rtt_s
    }

    fn file_cost(&self) -> FileCost {
        let servers = self.servers();
        FileCost {
            delay_s: or_none(self.mover.file_s),
            client_core_s: or_none(self.mover.file_core_s),
            server_core_s: servers
                .map(|(end, it)| (end, or_none(it.file_core_s)))
                .collect(),
        }
    }

    fn dealing(&self) -> Option<Dealing> {
        (self.path.rtt_s > 0.0).then_some(Dealing {
            start: SlowStart {
                initial_window_bytes: self.initial_window_bytes(),
                growth: GROWTH,
                rtt_s: self.path.rtt_s,
            },
            connections: self.streams,
            block_bytes: self.path.block_bytes,
        })
    }

    pub(super) fn servers(&self) -> impl Iterator<Item = (End, &ServiceCost)> {
        let both = [
            (End::Source, self.source),
            (End::Destination, self.destination),
        ];
        both.into_iter()
            .filter_map(|(end, server)| Some((end, server?)))
    }

    /// Sessions side by side; more than files, or than calls of a job, are not opened.
    fn sessions(&self) -> u32 {
        let each = u64::from(self.files_per_session.unwrap_or(1)).max(1);
        let most = u32::try_from(self.files.count().div_ceil(each)).unwrap_or(u32::MAX);
        let asked = self.concurrency.unwrap_or_else(|| self.own_sessions());
        asked.min(most).max(1)
    }

    /// Sessions that the tool opens by itself: as many as files or bytes are worth one, between its least and its most.
    fn own_sessions(&self) -> u32 {
        let most = self.mover.sessions.unwrap_or(1);
        let least = self.mover.sessions_least.unwrap_or(1);
        let by_files = self.files.count() / u64::from(self.mover.session_files.unwrap_or(1)).max(1);
        let bytes = self.mover.session_bytes.map_or(f64::INFINITY, Amount::get);
        let by_bytes = self.files.bytes() / bytes.max(1.0);
        u32::try_from(by_files.max(by_bytes as u64))
            .unwrap_or(u32::MAX)
            .max(least)
            .min(most)
    }

    /// Sessions in all.
    fn calls(&self) -> u64 {
        let side_by_side = u64::from(self.sessions());
        self.files_per_session.map_or(side_by_side, |each| {
            let calls = self.files.count().div_ceil(u64::from(each).max(1));
            calls.max(side_by_side)
        })
    }

    /// Sessions one after the other.
    fn calls_in_row(&self) -> u64 {
        self.calls().div_ceil(u64::from(self.sessions()))
    }
}

fn known(amount: Option<Amount>, what: &'static str, unknown: &mut Vec<&'static str>) -> f64 {
    if amount.is_none() {
        unknown.push(what);
    }
    or_none(amount)
}

pub(super) fn or_none(amount: Option<Amount>) -> f64 {
    amount.map_or(0.0, Amount::get)
}

fn is_empty(phase: &Phase) -> bool {
    match *phase {
        Phase::Delay { seconds, .. } => seconds == 0.0,
        Phase::ClientCpu { core_s, .. } | Phase::ServerCpu { core_s, .. } => core_s == 0.0,
        Phase::Bytes { bytes, .. } => bytes == 0.0,
        Phase::Mark | Phase::NotBefore { .. } => false,
    }
}
