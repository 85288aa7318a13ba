//! Properties of a transfer that determine its cost, and its phases.

use venturi_plan::{Amount, HostCost, MoverCost, ServiceCost};

use super::checks::put_checks;
use super::files::{CallFiles, CallSessions, FileCost};
use super::phase::{EndpointRole, TransferLimit, TransferPhase, Why};
use super::{
    BeforeLoss, CongestionControl, Dealing, SlowStart, alternating_rate, core_rate, sharing_weight,
    window_rate,
};

/// Initial window of a connection in segments (RFC 6928).
const INITIAL_WINDOW_SEGMENTS: f64 = 10.0;
/// Growth of the window in slow start: Linux counts acknowledged bytes (RFC 3465 with L unlimited).
const GROWTH: f64 = 2.0;

/// One call of a mover. The driver fills it from the plan, its world and the cost parameters.
#[derive(Debug, Clone, Copy)]
pub struct TransferSpec<'a> {
    /// Sizes of the files.
    pub files: &'a CallFiles,
    /// Costs of the tool.
    pub mover: &'a MoverCost,
    /// Costs of the source server; `None` if the source is a file of the client.
    pub source: Option<&'a ServiceCost>,
    /// Costs of the destination server, likewise.
    pub destination: Option<&'a ServiceCost>,
    /// Costs of the client host.
    pub client: &'a HostCost,
    /// Round-trip time of commands, to the farther server if there are two; 0 without a remote
    /// server.
    pub control_rtt_s: f64,
    /// Part of `control_rtt_s` that the nearer of two servers adds.
    pub nearer_rtt_s: f64,
    /// Path of the bytes.
    pub path: DataPath,
    /// Connections that carry one file.
    pub streams: u32,
    /// Parallel sessions, which divide the files; `None`: the default of the tool.
    pub concurrency: Option<u32>,
    /// Files whose commands are in flight together in a session; `None`: the default of the tool.
    pub pipelining: Option<u32>,
    /// Maximum number of files of a session: for a job that calls a tool with this number at a time. `None`: no limit.
    pub files_per_session: Option<u32>,
}

/// Path of the bytes, as seen by the sender.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DataPath {
    /// Round-trip time from sender to receiver; 0 within one machine.
    pub rtt_s: f64,
    /// Maximum window of one connection.
    pub window_bytes: f64,
    /// Payload of a full segment.
    pub mss_bytes: f64,
    /// Bytes of a file that the sender puts on one of several connections at a time; 0: each
    /// connection carries an equal part.
    pub block_bytes: f64,
    /// Probability that a segment is lost, independent of other traffic on the path.
    pub loss: f64,
    /// Pacing rate of the sender per connection; infinite without pacing.
    pub pacing_bytes_per_s: f64,
    /// Reaction of the sender to loss.
    pub congestion_control: CongestionControl,
    /// Rate of the slowest link without other traffic.
    pub bytes_per_s: f64,
}

/// Phases of a transfer, and unknown parameters of its cost.
#[derive(Debug, Clone, PartialEq)]
pub struct PhasePlan {
    /// Consecutive phases.
    pub phases: Vec<TransferPhase>,
    /// Unknown parameters: they count as 0 here, and must be reported (`cost-unknown`).
    pub unknown: Vec<&'static str>,
}

impl TransferSpec<'_> {
    /// Return the phases of this transfer: start, sessions, files, checks, in this order. The
    /// logout is part of the round trips of a session.
    ///
    /// Consecutive sessions start together here, before all files, because the sum of their times
    /// does not depend on the order.
    ///
    /// There are at most about 400 phases for any number of files: see [`CallFiles`].
    #[must_use]
    pub fn phase_plan(&self) -> PhasePlan {
        let mut unknown = Vec::new();
        let mut phases = self.start_phases(&mut unknown);
        let session = self.session(&mut unknown);
        session.put(self.files, &mut phases);
        put_checks(self, &mut phases);
        phases.retain(|phase| !is_empty(phase));
        PhasePlan { phases, unknown }
    }

    /// Return the long-term maximum rate of one session, in bytes a second, and its limit; links and storage limit it
    /// further.
    #[must_use]
    pub fn cap(&self) -> (f64, TransferLimit) {
        self.cap_under(self.loss_rate())
    }

    /// Return the rates until congestion control reacts to a first loss; `None` if another limit is
    /// lower, or if congestion control does not react to single losses.
    fn before_loss(&self) -> Option<BeforeLoss> {
        let path = &self.path;
        let beta = path.congestion_control.beta().filter(|_| path.loss > 0.0)?;
        let (cap, bottleneck) = self.cap_under(f64::INFINITY);
        let (first_rate, last_rate) = (cap.min(path.bytes_per_s), self.cap().0);
        (first_rate > last_rate && first_rate.is_finite()).then_some(BeforeLoss {
            cap,
            bottleneck,
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

    /// Return the initial window of one connection.
    fn initial_window_bytes(&self) -> f64 {
        let segments = self.client.initial_window_segments;
        let segments = segments.map_or(INITIAL_WINDOW_SEGMENTS, Amount::get);
        segments * self.path.mss_bytes
    }

    fn cap_under(&self, loss_rate: f64) -> (f64, TransferLimit) {
        let (mover, path) = (self.mover, &self.path);
        let mut least = (f64::INFINITY, TransferLimit::None);
        for bottleneck in self.bounds(loss_rate) {
            if bottleneck.0 < least.0 {
                least = bottleneck;
            }
        }
        match (mover.block_bytes, mover.block_s) {
            (Some(block), Some(block_s)) => {
                let path = least.0.min(path.bytes_per_s);
                let rate = alternating_rate(&[path], block.get(), block_s.get());
                (rate, TransferLimit::Block)
            }
            _ => least,
        }
    }

    /// Return all limits of a session: windows, the tool, servers.
    fn bounds(&self, loss_rate: f64) -> Vec<(f64, TransferLimit)> {
        let (path, mover, streams) = (&self.path, self.mover, f64::from(self.streams));
        let speed = self.client.core_speed.map_or(1.0, Amount::get);
        let windows = window_rate(path.window_bytes, streams, path.rtt_s);
        let paced = path.pacing_bytes_per_s * streams;
        let mut bounds = vec![
            (windows, TransferLimit::Window),
            (loss_rate, TransferLimit::Loss),
            (paced, TransferLimit::Pacing),
        ];
        if let Some(ahead) = mover.in_flight_bytes {
            bounds.push((
                window_rate(ahead.get(), 1.0, path.rtt_s),
                TransferLimit::Ahead,
            ));
        }
        if let Some(core_s) = mover.byte_core_s {
            bounds.push((
                core_rate(1.0, core_s.get(), speed),
                TransferLimit::ClientCpu,
            ));
        }
        for server in [self.source, self.destination].into_iter().flatten() {
            if let Some(core_s) = server.byte_core_s {
                bounds.push((core_rate(1.0, core_s.get(), 1.0), TransferLimit::ServerCpu));
            }
            if let Some(rate) = server.process_bytes_per_s {
                bounds.push((rate.get(), TransferLimit::ServerProcess));
            }
        }
        bounds
    }

    /// Return the rate that congestion control allows for all streams of one file; no limit without loss.
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

    fn start_phases(&self, unknown: &mut Vec<&'static str>) -> Vec<TransferPhase> {
        let mut phases = self.start(unknown);
        phases.extend(self.session_trips(unknown));
        for (end, server) in self.servers() {
            phases.extend(self.login(end, server));
        }
        phases
    }

    /// Return the start and end of the tool, and of the calls of a job.
    fn start(&self, unknown: &mut Vec<&'static str>) -> Vec<TransferPhase> {
        let mover = self.mover;
        let start_s = known(mover.start_s, "start_s of the mover", unknown);
        let start_core_s = known(mover.start_core_s, "start_core_s of the mover", unknown);
        let sessions_core_s = self.calls() as f64 * or_none(mover.session_core_s);
        let sessions_s = self.calls_in_row() as f64 * or_none(mover.session_s);
        let why = Why::Start;
        let work = |core_s, width| TransferPhase::ClientCpu { core_s, width, why };
        let wait = |seconds| TransferPhase::Delay { seconds, why };
        vec![
            work(start_core_s, 1.0),
            wait(start_s),
            work(sessions_core_s, f64::from(self.sessions())),
            wait(sessions_s),
        ]
    }

    /// Return the waits of sessions for replies; none without a remote server.
    fn session_trips(&self, unknown: &mut Vec<&'static str>) -> Option<TransferPhase> {
        if self.control_rtt_s <= 0.0 {
            return None;
        }
        let what = "session_round_trips of the mover";
        let trips = known(self.mover.session_round_trips, what, unknown);
        Some(TransferPhase::Delay {
            seconds: self.calls_in_row() as f64 * trips * self.control_rtt_s,
            why: Why::Session,
        })
    }

    /// Return the phases of all sessions at one server: redirect, start, authentication.
    fn login(&self, end: EndpointRole, server: &ServiceCost) -> [TransferPhase; 3] {
        let (sessions, width) = (self.calls() as f64, f64::from(self.sessions()));
        let trips = or_none(server.redirect_round_trips);
        let logins = self.mover.logins.map_or(1.0, Amount::get);
        let work = |core_s, why| TransferPhase::ServerCpu {
            end,
            core_s: sessions * core_s,
            width,
            why,
        };
        [
            TransferPhase::Delay {
                seconds: self.calls_in_row() as f64 * trips * self.control_rtt_s,
                why: Why::Redirect,
            },
            work(or_none(server.session_core_s), Why::Session),
            work(logins * or_none(server.auth_core_s), Why::Authentication),
        ]
    }

    fn session(&self, unknown: &mut Vec<&'static str>) -> CallSessions {
        let (cap, bottleneck) = self.cap();
        let (mover, path, streams) = (self.mover, &self.path, f64::from(self.streams));
        let exponent = self
            .client
            .rtt_exponent
            .unwrap_or(path.congestion_control.rtt_exponent());
        CallSessions {
            lanes: u64::from(self.sessions()),
            pipelining: u64::from(self.pipelining.or(mover.pipelining).unwrap_or(1)).max(1),
            trips_s: self.file_trips_s(unknown),
            file: self.file_cost(),
            dealing: self.dealing(),
            // Open connections close at the end of a call.
            keeps_connection: mover.keeps_connection.unwrap_or(false)
                && self.files_per_session != Some(1),
            cap,
            bottleneck,
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

    pub(super) fn servers(&self) -> impl Iterator<Item = (EndpointRole, &ServiceCost)> {
        let both = [
            (EndpointRole::Source, self.source),
            (EndpointRole::Destination, self.destination),
        ];
        both.into_iter()
            .filter_map(|(end, server)| Some((end, server?)))
    }

    /// Return the number of parallel sessions: at most one per file, or per call of a job.
    fn sessions(&self) -> u32 {
        let each = u64::from(self.files_per_session.unwrap_or(1)).max(1);
        let most = u32::try_from(self.files.count().div_ceil(each)).unwrap_or(u32::MAX);
        let query = self.concurrency.unwrap_or_else(|| self.own_sessions());
        query.min(most).max(1)
    }

    /// Return the number of sessions that the tool opens by default: as justified by files or bytes, between its
    /// minimum and maximum.
    fn own_sessions(&self) -> u32 {
        let most = self.mover.sessions.unwrap_or(1);
        let least = self.mover.min_sessions.unwrap_or(1);
        let by_files = self.files.count() / u64::from(self.mover.session_files.unwrap_or(1)).max(1);
        let bytes = self.mover.session_bytes.map_or(f64::INFINITY, Amount::get);
        let by_bytes = self.files.bytes() / bytes.max(1.0);
        u32::try_from(by_files.max(by_bytes as u64))
            .unwrap_or(u32::MAX)
            .max(least)
            .min(most)
    }

    /// Return the total number of sessions.
    fn calls(&self) -> u64 {
        let side_by_side = u64::from(self.sessions());
        self.files_per_session.map_or(side_by_side, |each| {
            let calls = self.files.count().div_ceil(u64::from(each).max(1));
            calls.max(side_by_side)
        })
    }

    /// Return the number of consecutive sessions.
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

fn is_empty(phase: &TransferPhase) -> bool {
    match *phase {
        TransferPhase::Delay { seconds, .. } => seconds == 0.0,
        TransferPhase::ClientCpu { core_s, .. } | TransferPhase::ServerCpu { core_s, .. } => {
            core_s == 0.0
        }
        TransferPhase::Bytes { bytes, .. } => bytes == 0.0,
        TransferPhase::Mark | TransferPhase::NotBefore { .. } => false,
    }
}
