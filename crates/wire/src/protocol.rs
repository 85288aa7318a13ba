//! What is said to the wire and what it says: one JSON object a line. `docs/reference/wire.md` describes it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use venturi_plan::{Event, Fatal, Finding, LinkSet, Name, Network, Sample, Seconds};

use crate::lateness::Histogram;
use crate::model::LinkCounters;

/// One line to the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// The network and where it is; once, first.
    Start(Box<Start>),
    /// Starts the clock of the planned changes.
    Go {
        /// What this clock shows then: how long the plan has been carried out before.
        #[serde(default)]
        elapsed_s: Seconds,
    },
    /// Changes a link now.
    Change {
        /// The link.
        link: Name,
        /// What becomes different.
        set: LinkSet,
    },
    /// Writes what passes a link into a file.
    Capture {
        /// The link.
        link: Name,
        /// The file; it is made anew.
        path: PathBuf,
        /// How much is kept of each packet; null: all of it.
        #[serde(default)]
        snap_bytes: Option<u32>,
    },
    /// Ends the capture of a link.
    CaptureStop {
        /// The link.
        link: Name,
    },
    /// Say `done`, exit.
    Stop,
}

/// The network and where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Time zero of the run, since 1970.
    pub epoch_unix_ns: u64,
    /// Seed of all random draws.
    pub seed: u64,
    /// The network.
    pub network: Network,
    /// The network namespace of each host, as a path.
    pub namespaces: BTreeMap<Name, PathBuf>,
    /// Time from sample to sample; null: no samples.
    #[serde(default)]
    pub interval_s: Option<Seconds>,
    /// Whether to wait for the next delivery without ever sleeping: exact to a microsecond, and costs a core.
    #[serde(default)]
    pub spin: bool,
    /// A control group (version 1) with `cpu.idle`, in which processors are kept from halting while packets flow.
    #[serde(default)]
    pub idle_group: Option<PathBuf>,
}

/// One line from the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The devices are there: they want addresses and routes.
    Ready(Ready),
    /// Counters at one moment.
    Sample(Sample),
    /// Something worth knowing when.
    Event(Event),
    /// A doubt about the emulation.
    Finding(Finding),
    /// The end, after `stop`.
    Done(Done),
    /// The end for a reason; exit code 2 follows.
    Fatal(Fatal),
}

/// The devices are there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The device of each interface, in its host's namespace.
    pub devices: BTreeMap<Name, String>,
    /// Threads that keep processors from halting.
    pub pollers: u32,
}

/// The end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// When.
    pub time_s: Seconds,
    /// Final counters of each link.
    pub links: BTreeMap<Name, LinkTotals>,
    /// How late deliveries were.
    pub lateness: Lateness,
}

/// What passed a link, from beginning to end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkTotals {
    /// IP bytes and overhead of what was sent and not lost.
    pub bytes: u64,
    /// Packets that were sent and not lost.
    pub packets: u64,
    /// Packets that found the queue full.
    pub queue_drops: u64,
    /// Packets that were sent and lost.
    pub loss_drops: u64,
    /// Packets that an outage took.
    pub outage_drops: u64,
    /// Most bytes that the queue held.
    pub queue_high_bytes: u64,
    /// Time in which the transmitter was sending.
    pub busy_s: Seconds,
}

impl LinkTotals {
    /// The counters of a link, with the high-water mark of the whole run.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "picoseconds of a run, told to eleven digits"
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

/// How late deliveries were: time of the write less time it was due. Null: there were none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Number of deliveries.
    pub deliveries: u64,
    /// Median.
    pub p50_s: Option<Seconds>,
    /// 90 % were not later.
    pub p90_s: Option<Seconds>,
    /// 99 % were not later.
    pub p99_s: Option<Seconds>,
    /// 99.9 % were not later.
    pub p999_s: Option<Seconds>,
    /// The latest.
    pub max_s: Option<Seconds>,
    /// Pairs of upper bound in seconds and count, without empty ones.
    pub buckets: Vec<(Seconds, u64)>,
}

impl From<&Histogram> for Lateness {
    fn from(histogram: &Histogram) -> Self {
        let quantile = |share| histogram.quantile_ns(share).map(seconds);
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

/// Nanoseconds as seconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "a duration is far below 2^53 ns"
)]
pub(crate) fn seconds(ns: u64) -> Seconds {
    Seconds::new(ns as f64 / 1e9)
}
