//! What an agent says: one JSON object a line.

mod trial;

use std::collections::BTreeMap;
use std::io::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use trial::{CacheState, OpenTrial, Trial, TrialOutcome};

use crate::{Bytes, Endpoint, Error, Name, Scalar, Seconds, Sockets, Transfer, TrialId, Via};

/// The version of the protocol between agent and controller.
pub const PROTOCOL: u32 = 1;

/// One line from the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The agent is there; sent at once, before `start`.
    Hello(Hello),
    /// The agent can carry out the plan.
    Ready(Ready),
    /// A trial has begun.
    TrialStart(TrialStart),
    /// A trial has ended.
    Trial(Box<Trial>),
    /// A transfer outside any trial.
    Transfer(Box<TransferRecord>),
    /// Counters at one moment.
    Sample(Sample),
    /// TCP sockets at one moment.
    Sockets(Sockets),
    /// Something worth knowing when.
    Event(Event),
    /// An addition to a counter, for the other hosts.
    Signal(Signal),
    /// A doubt about a measurement.
    Finding(Finding),
    /// The end of this host's part of the plan, where the agent was asked to stay.
    Idle(Idle),
    /// The end of the plan.
    Done(Done),
    /// The end of the agent.
    Fatal(Fatal),
}

impl Record {
    /// Parse one line.
    ///
    /// # Errors
    /// [`Error::Message`] if it is no record of this protocol.
    pub fn parse(line: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(line).map_err(|source| Error::Message {
            what: "record",
            source,
        })
    }

    /// Write one line, with its end.
    ///
    /// # Errors
    /// [`Error::Write`] if `out` takes no bytes.
    pub fn emit(&self, out: impl Write) -> Result<(), Error> {
        crate::plan::emit_line(out, self)
    }
}

/// Who the agent is and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hello {
    /// Version of the protocol.
    pub protocol: u32,
    /// Version and build of the engine, as text.
    pub engine: String,
    /// The agent's process.
    pub pid: u32,
    /// Both clocks at one moment, to place the agent's times.
    pub clock: Clock,
    /// The environment.
    pub facts: BTreeMap<String, serde_json::Value>,
}

/// Two clocks read at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clock {
    /// The monotonic clock.
    pub monotonic_ns: u64,
    /// Time since 1970.
    pub unix_ns: u64,
}

/// What the agent found before the plan begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ready {
    /// Free space of each place of this host.
    pub free_bytes: BTreeMap<Name, Bytes>,
    /// Tools that are not found, by call.
    pub missing: BTreeMap<Name, Vec<String>>,
    /// How children are held at the barrier.
    pub release: ReleaseMethod,
    /// Memory of the machine; null if it does not tell.
    pub memory_bytes: Option<Bytes>,
    /// The first line that `TOOL --version` prints, by tool, for those that answer at once.
    pub tools: BTreeMap<String, String>,
    /// Facts of each place of this host: `path`, `type`, `device`, `mount`, `options`, `free_bytes`.
    pub places: BTreeMap<Name, BTreeMap<String, String>>,
}

/// How children are held at the barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseMethod {
    /// Stopped at their `exec`, before the tool's first instruction.
    ExecStop,
    /// Blocked on a pipe before their `exec`.
    Pipe,
}

/// A trial has begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialStart {
    /// Which.
    pub trial: TrialId,
    /// When.
    pub time_s: Seconds,
}

/// One call of a mover, as it was carried out. Null is: not measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TransferRecord {
    /// The trial it is part of, if any.
    pub trial: Option<TrialId>,
    /// The actor.
    pub actor: Name,
    /// Number of the concurrent transfer, from 0.
    pub slot: u32,
    /// Which call of the header.
    pub call: Name,
    /// Where the bytes came from.
    pub source: Endpoint,
    /// The service and door through which they were read; null: none.
    #[serde(default)]
    pub source_via: Option<Via>,
    /// Where they went to; `null:` for a `read`.
    pub destination: Endpoint,
    /// The service and door through which they were written; null: none.
    #[serde(default)]
    pub destination_via: Option<Via>,
    /// Number of files.
    pub files: u64,
    /// Bytes the plan asked for.
    pub asked_bytes: Bytes,
    /// Bytes the receiver holds afterwards; null for a sink.
    pub received_bytes: Option<Bytes>,
    /// When it should have started; null in a closed loop.
    pub intended_s: Option<Seconds>,
    /// When it was released; null if it never was.
    pub start_s: Option<Seconds>,
    /// When it was reaped; null if it never was released.
    pub end_s: Option<Seconds>,
    /// From release to end; null if it never was released.
    pub duration_s: Option<Seconds>,
    /// What became of it.
    pub outcome: Outcome,
    /// Exit code, if it ended by itself.
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// What went wrong, in words.
    pub error: Option<String>,
    /// CPU time in the tool.
    pub user_s: Option<Seconds>,
    /// CPU time in the kernel.
    pub system_s: Option<Seconds>,
    /// Peak resident memory.
    pub max_rss_bytes: Option<Bytes>,
    /// Page faults without a disk.
    pub minor_faults: Option<u64>,
    /// Page faults with a disk.
    pub major_faults: Option<u64>,
    /// Times it gave up the CPU.
    pub voluntary_switches: Option<u64>,
    /// Times the CPU was taken from it.
    pub involuntary_switches: Option<u64>,
    /// Bytes it read by system calls (`rchar`).
    pub read_call_bytes: Option<Bytes>,
    /// Bytes it wrote by system calls (`wchar`).
    pub write_call_bytes: Option<Bytes>,
    /// Bytes that came from a disk for it.
    pub read_disk_bytes: Option<Bytes>,
    /// Bytes that it caused to go to a disk.
    pub write_disk_bytes: Option<Bytes>,
    /// Its output, if kept.
    pub stdout: Option<String>,
    /// Its error output, if kept.
    pub stderr: Option<String>,
    /// The plan's labels.
    pub labels: BTreeMap<Name, Scalar>,
}

impl TransferRecord {
    /// What the plan says of a transfer, and of nothing else yet: it has not gone well, and nothing was measured.
    #[must_use]
    pub fn of(
        transfer: &Transfer,
        trial: Option<TrialId>,
        actor: Name,
        intended_s: Option<Seconds>,
    ) -> Self {
        Self {
            trial,
            actor,
            slot: transfer.slot,
            call: transfer.call.clone(),
            source: transfer.source.clone(),
            source_via: transfer.source_via.clone(),
            destination: transfer.destination.clone(),
            destination_via: transfer.destination_via.clone(),
            files: transfer.files,
            asked_bytes: transfer.bytes,
            received_bytes: None,
            intended_s,
            start_s: None,
            end_s: None,
            duration_s: None,
            outcome: Outcome::Failed,
            exit_code: None,
            signal: None,
            error: None,
            user_s: None,
            system_s: None,
            max_rss_bytes: None,
            minor_faults: None,
            major_faults: None,
            voluntary_switches: None,
            involuntary_switches: None,
            read_call_bytes: None,
            write_call_bytes: None,
            read_disk_bytes: None,
            write_disk_bytes: None,
            stdout: None,
            stderr: None,
            labels: transfer.labels.clone(),
        }
    }
}

/// What became of a transfer.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Exit code 0, and the receiver holds the bytes where that is expected.
    Ok,
    /// Exit code not 0.
    Failed,
    /// Ended by a signal that was not ours.
    Killed,
    /// Ended by us after the call's timeout.
    Timeout,
    /// The tool is not there.
    Missing,
    /// Exit code 0, but the receiver does not hold the bytes asked for.
    Short,
    /// The run was stopped.
    Stopped,
}

/// Counters at one moment, cumulative, as the kernel counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// When.
    pub time_s: Seconds,
    /// Value by name, for example `nic.lo.rx_bytes`.
    pub counters: BTreeMap<Name, f64>,
}

/// Something worth knowing when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// When.
    pub time_s: Seconds,
    /// What: data set made, caches dropped, progress.
    pub kind: String,
    /// Its particulars.
    pub detail: BTreeMap<String, serde_json::Value>,
}

/// An addition to a counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Signal {
    /// Name of the counter.
    pub counter: Name,
    /// What was added.
    pub add: u64,
}

/// A doubt about a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// What kind of doubt.
    pub code: String,
    /// About what.
    pub subject: String,
    /// What was seen.
    pub evidence: String,
    /// What to do.
    pub advice: String,
}

/// The end of this host's part of the plan; samples go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Idle {
    /// When.
    pub time_s: Seconds,
}

/// The end of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// When.
    pub time_s: Seconds,
    /// Number of trials carried out.
    pub trials: u64,
}

/// The end of the agent; exit code 2 follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fatal {
    /// Expected, found, where, what to do.
    pub message: String,
}
