//! A transfer as far as its cost goes, and the phases that it comes to.

use venturi_plan::{Amount, HostCost, MoverCost, ServiceCost};

use super::files::{FileCost, Files, Session};
use super::phase::{Bound, End, Phase, Why};
use super::{
    CongestionControl, SlowStart, alternating_rate, processor_rate, sharing_weight, window_rate,
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
    /// The way that bytes take.
    pub path: DataPath,
    /// Connections that carry one file.
    pub streams: u32,
    /// Sessions side by side, which share the files.
    pub concurrency: u32,
    /// Files whose commands are under way together in a session; `None`: what the tool does by itself.
    pub pipelining: Option<u32>,
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
    /// Probability that a segment is lost, whatever else is on the path.
    pub loss: f64,
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
    /// The phases of this transfer: start, session, files, in that order; the farewell is in the session's round trips.
    ///
    /// At most about 300, however many files there are: see [`Files`].
    #[must_use]
    pub fn course(&self) -> Course {
        let mut unknown = Vec::new();
        let mut phases = self.beginning(&mut unknown);
        let session = self.session(&mut unknown);
        session.put(self.files, &mut phases);
        phases.retain(|phase| !is_empty(phase));
        Course { phases, unknown }
    }

    /// The fastest that one session is, in bytes a second, and what bounds it; links and storage come besides.
    #[must_use]
    pub fn cap(&self) -> (f64, Bound) {
        let (path, mover, streams) = (&self.path, self.mover, f64::from(self.streams));
        let speed = self.client.core_speed.map_or(1.0, Amount::get);
        let mut bounds = vec![
            (
                window_rate(path.window_bytes, streams, path.rtt_s),
                Bound::Window,
            ),
            (self.loss_rate(), Bound::Loss),
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
        let (mut rate, mut bound) = (f64::INFINITY, Bound::None);
        for (other, name) in bounds {
            if other < rate {
                (rate, bound) = (other, name);
            }
        }
        match (mover.block_bytes, mover.block_s) {
            (Some(block), Some(block_s)) => {
                let path = rate.min(path.bytes_per_s);
                (
                    alternating_rate(&[path], block.get(), block_s.get()),
                    Bound::Block,
                )
            }
            _ => (rate, bound),
        }
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
        let sessions = f64::from(self.sessions());
        let start_s = known(self.mover.start_s, "start_s of the mover", unknown);
        let start_core_s = known(
            self.mover.start_core_s,
            "start_core_s of the mover",
            unknown,
        );
        let mut phases = vec![
            Phase::ClientCpu {
                core_s: start_core_s,
                width: 1.0,
                why: Why::Start,
            },
            Phase::Delay {
                seconds: start_s,
                why: Why::Start,
            },
        ];
        if self.control_rtt_s > 0.0 {
            let trips = known(
                self.mover.session_round_trips,
                "session_round_trips of the mover",
                unknown,
            );
            phases.push(Phase::Delay {
                seconds: trips * self.control_rtt_s,
                why: Why::Session,
            });
        }
        for (end, server) in self.servers() {
            let trips = or_none(server.redirect_round_trips);
            phases.push(Phase::Delay {
                seconds: trips * self.control_rtt_s,
                why: Why::Redirect,
            });
            for (core_s, why) in [
                (server.session_core_s, Why::Session),
                (server.auth_core_s, Why::Authentication),
            ] {
                let core_s = sessions * or_none(core_s);
                phases.push(Phase::ServerCpu {
                    end,
                    core_s,
                    width: sessions,
                    why,
                });
            }
        }
        phases
    }

    fn session(&self, unknown: &mut Vec<&'static str>) -> Session {
        let (cap, bound) = self.cap();
        let (mover, path, streams) = (self.mover, &self.path, f64::from(self.streams));
        let trips = if self.control_rtt_s > 0.0 {
            known(
                mover.file_round_trips,
                "file_round_trips of the mover",
                unknown,
            )
        } else {
            0.0
        };
        let initial = self
            .client
            .initial_window_segments
            .map_or(INITIAL_WINDOW_SEGMENTS, Amount::get);
        let exponent = self
            .client
            .rtt_exponent
            .unwrap_or(path.congestion_control.rtt_exponent());
        Session {
            lanes: u64::from(self.sessions()),
            pipelining: u64::from(self.pipelining.or(mover.pipelining).unwrap_or(1)).max(1),
            trips_s: trips * self.control_rtt_s,
            file: FileCost {
                delay_s: or_none(mover.file_s),
                client_core_s: or_none(mover.file_core_s),
                server_core_s: self
                    .servers()
                    .map(|(end, it)| (end, or_none(it.file_core_s)))
                    .collect(),
            },
            slow_start: (path.rtt_s > 0.0).then_some(SlowStart {
                initial_window_bytes: initial * path.mss_bytes * streams,
                growth: GROWTH,
                rtt_s: path.rtt_s,
            }),
            keeps_connection: mover.keeps_connection.unwrap_or(false),
            cap,
            bound,
            weight: sharing_weight(streams, path.rtt_s, exponent),
            path_bytes_per_s: path.bytes_per_s,
        }
    }

    fn servers(&self) -> impl Iterator<Item = (End, &ServiceCost)> {
        let both = [
            (End::Source, self.source),
            (End::Destination, self.destination),
        ];
        both.into_iter()
            .filter_map(|(end, server)| Some((end, server?)))
    }

    /// More sessions than files are not opened.
    fn sessions(&self) -> u32 {
        let files = u32::try_from(self.files.count()).unwrap_or(u32::MAX);
        self.concurrency.min(files).max(1)
    }
}

fn known(amount: Option<Amount>, what: &'static str, unknown: &mut Vec<&'static str>) -> f64 {
    if amount.is_none() {
        unknown.push(what);
    }
    or_none(amount)
}

fn or_none(amount: Option<Amount>) -> f64 {
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
