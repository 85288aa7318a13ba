//! Commands to the emulator and records from it: one JSON object per line. For details, see
//! `docs/reference/emulator.md`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use venturi_plan::{AgentEvent, Fatal, Finding, LinkSet, Name, Network, Sample, Seconds};

use crate::lateness::Histogram;
use crate::model::LinkCounters;

/// One line to the emulator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum EmulatorCommand {
    /// The network and its location; sent once, first.
    Start(Box<EmulatorStart>),
    /// Start the clock of the planned changes.
    Go {
        /// Initial value of this clock: elapsed time of the plan.
        #[serde(default)]
        elapsed_s: Seconds,
    },
    /// Change a link now.
    Change {
        /// The link.
        link: Name,
        /// New values.
        set: LinkSet,
    },
    /// Capture the packets of a link in a file.
    Capture {
        /// The link.
        link: Name,
        /// The file; an existing file is overwritten.
        path: PathBuf,
        /// Captured bytes of each packet; null: all.
        #[serde(default)]
        snap_bytes: Option<u32>,
    },
    /// End the capture of a link.
    CaptureStop {
        /// The link.
        link: Name,
    },
    /// Send `done`, exit.
    Stop,
}

/// The network and its location.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmulatorStart {
    /// Time zero of the run, since 1970.
    pub epoch_unix_ns: u64,
    /// Seed of all random draws.
    pub seed: u64,
    /// The network.
    pub network: Network,
    /// The network namespace of each host, as a path.
    pub namespaces: BTreeMap<Name, PathBuf>,
    /// Interval between samples; null: no samples.
    #[serde(default)]
    pub interval_s: Option<Seconds>,
    /// Whether to wait for the next delivery without sleeping: accurate to a microsecond, but it
    /// uses a whole core.
    #[serde(default)]
    pub spin: bool,
    /// A control group (version 1) with `cpu.idle`, in which pollers prevent CPU idle states while packets are in
    /// flight.
    #[serde(default)]
    pub idle_group: Option<PathBuf>,
}

/// One line from the emulator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum EmulatorRecord {
    /// The devices exist and need addresses and routes.
    Ready(EmulatorReady),
    /// Counters at one time.
    Sample(Sample),
    /// An event with its time.
    Event(AgentEvent),
    /// A finding about the emulation.
    Finding(Finding),
    /// The end, after `stop`.
    Done(EmulatorDone),
    /// The end after an error; exit code 2 follows.
    Fatal(Fatal),
}

/// The devices exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmulatorReady {
    /// The device of each interface, in the namespace of its host.
    pub devices: BTreeMap<Name, String>,
    /// Number of threads that keep CPUs from halting.
    pub pollers: u32,
}

/// The end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmulatorDone {
    /// Time of the end.
    pub time_s: Seconds,
    /// Final counters of each link.
    pub links: BTreeMap<Name, LinkTotals>,
    /// Lateness of deliveries.
    pub lateness: Lateness,
}

/// Totals of a link for the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkTotals {
    /// IP bytes and overhead of sent packets that were not lost.
    pub bytes: u64,
    /// Packets that were sent and not lost.
    pub packets: u64,
    /// Packets that found the queue full.
    pub queue_drops: u64,
    /// Packets that were sent and lost.
    pub loss_drops: u64,
    /// Packets that an outage dropped.
    pub outage_drops: u64,
    /// Maximum number of bytes in the queue.
    pub queue_high_bytes: u64,
    /// Time of transmission.
    pub busy_s: Seconds,
}

impl LinkTotals {
    /// Return the totals of a link, with the high-water mark of the whole run.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "picoseconds of a run, written with eleven digits"
    )]
    pub fn new(counters: &LinkCounters, queue_high_bytes: u64) -> Self {
        Self {
            bytes: counters.bytes,
            packets: counters.packets,
            queue_drops: counters.queue_drops,
            loss_drops: counters.loss_drops,
            outage_drops: counters.outage_drops,
            queue_high_bytes,
            busy_s: Seconds::new(counters.busy_ps as f64 / 1e12),
        }
    }
}

/// Lateness of deliveries: time of the write minus due time. Null: there were none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Number of deliveries.
    pub deliveries: u64,
    /// Median.
    pub p50_s: Option<Seconds>,
    /// 90th percentile.
    pub p90_s: Option<Seconds>,
    /// 99th percentile.
    pub p99_s: Option<Seconds>,
    /// 99.9th percentile.
    pub p999_s: Option<Seconds>,
    /// Maximum.
    pub max_s: Option<Seconds>,
    /// Pairs of upper bound in seconds and count, without empty buckets.
    pub buckets: Vec<(Seconds, u64)>,
}

impl From<&Histogram> for Lateness {
    fn from(histogram: &Histogram) -> Self {
        let quantile = |fraction| histogram.quantile_ns(fraction).map(seconds);
        Self {
            deliveries: histogram.total(),
            p50_s: quantile(0.5),
            p90_s: quantile(0.9),
            p99_s: quantile(0.99),
            p999_s: quantile(0.999),
            max_s: histogram.largest_ns().map(seconds),
            buckets: histogram
                .buckets()
                .map(|(upper_ns, count)| (seconds(upper_ns), count))
                .collect(),
        }
    }
}

/// Convert nanoseconds to seconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "a duration is far below 2^53 ns"
)]
pub(crate) fn seconds(ns: u64) -> Seconds {
    Seconds::new(ns as f64 / 1e9)
}
