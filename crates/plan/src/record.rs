//! Records from an agent: one JSON object per line.

mod trial;

use std::collections::BTreeMap;
use std::io::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use trial::{CacheState, OpenTrial, Trial, TrialOutcome};

use crate::{
    Bytes, Endpoint, Error, FileOperation, Name, Scalar, Seconds, Sockets, Transfer, TrialId, Via,
};

/// The version of the protocol between agent and controller.
pub const PROTOCOL: u32 = 1;

/// One line from the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The agent is running; sent immediately, before `start`.
    Hello(Hello),
    /// The agent can execute the plan.
    Ready(Ready),
    /// A trial has begun.
    TrialStart(TrialStart),
    /// A trial has ended.
    Trial(Box<Trial>),
    /// A trial was skipped, because the trials at a service have ended.
    TrialSkipped(TrialSkipped),
    /// The trials at a service end here.
    ServiceEnded(ServiceEnded),
    /// A transfer outside any trial.
    Transfer(Box<TransferRecord>),
    /// Counters at one time.
    Sample(Sample),
    /// TCP sockets at one time.
    Sockets(Sockets),
    /// Something worth knowing when.
    Event(AgentEvent),
    /// An addition to a counter, for the other hosts.
    Signal(Signal),
    /// A doubt about a measurement.
    Finding(Finding),
    /// An operation on files of another host, for its shell.
    Request(Request),
    /// The end of this host's part of the plan, if the agent must stay.
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
    /// [`Error::Message`] if it is not a record of this protocol.
    pub fn parse(line: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(line).map_err(|source| Error::Message {
            what: "record",
            source,
        })
    }

    /// Write one line with its newline.
    ///
    /// # Errors
    /// [`Error::Write`] if `out` cannot be written.
    pub fn emit(&self, out: impl Write) -> Result<(), Error> {
        crate::plan::emit_line(out, self)
    }
}

/// Identity of the agent and its host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hello {
    /// Version of the protocol.
    pub protocol: u32,
    /// Version and build of the engine, as text.
    pub engine: String,
    /// The agent's process.
    pub pid: u32,
    /// Both clocks at one time, to convert the agent's times.
    pub clock: Clock,
    /// Properties of the host.
    pub properties: BTreeMap<String, serde_json::Value>,
}

/// Two clocks read at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clock {
    /// The monotonic clock.
    pub monotonic_ns: u64,
    /// Time since 1970.
    pub unix_ns: u64,
}

/// Survey of the host before the plan starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ready {
    /// Free space of each storage of this host.
    pub free_bytes: BTreeMap<Name, Bytes>,
    /// Tools that are not found, by call.
    pub missing: BTreeMap<Name, Vec<String>>,
    /// Method that stops children at the barrier.
    pub release: ReleaseMethod,
    /// Memory of the machine; null if the machine does not report it.
    pub memory_bytes: Option<Bytes>,
    /// The first line of the output of `TOOL --version`, by tool, for tools that respond in time.
    pub tools: BTreeMap<String, String>,
    /// Properties of each storage of this host: `path`, `type`, `device`, `mount`, `options`,
    /// `free_bytes`.
    pub storages: BTreeMap<Name, BTreeMap<String, String>>,
}

/// Method that stops children at the barrier.
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

/// A trial was skipped, because the trials at a service have ended. It does not count as finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrialSkipped {
    /// Which.
    pub trial: TrialId,
    /// The service.
    pub service: Name,
}

/// The trials at a service end, because it rejects or fails transfers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceEnded {
    /// When.
    pub time_s: Seconds,
    /// The service.
    pub service: Name,
    /// Why.
    pub reason: EndReason,
    /// The last error.
    pub error: String,
}

/// Reason why the trials at a service end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// An HTTP server replied with this status: it is overloaded.
    Status(u16),
    /// Number of transfers that failed in a row.
    Failures(u32),
}

/// One executed call of a mover. Null: not measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TransferRecord {
    /// The trial it is part of, if any.
    pub trial: Option<TrialId>,
    /// The actor.
    pub actor: Name,
    /// Number of the concurrent transfer, from 0.
    pub slot: u32,
    /// Call of the header.
    pub call: Name,
    /// Source of the bytes.
    pub source: Endpoint,
    /// Service and service port for reading; null: none.
    #[serde(default)]
    pub source_via: Option<Via>,
    /// Destination of the bytes; `null:` for a `read`.
    pub destination: Endpoint,
    /// Service and service port for writing; null: none.
    #[serde(default)]
    pub destination_via: Option<Via>,
    /// Number of files.
    pub files: u64,
    /// Bytes that the plan requests.
    pub requested_bytes: Bytes,
    /// Bytes that the receiver has afterwards; null for a sink.
    pub received_bytes: Option<Bytes>,
    /// The program that reported `received_bytes`; null: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_by: Option<CheckedBy>,
    /// The checksum of source and destination, such as `adler32:03da0195`; null: not compared, or of several files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Intended start; null in a closed loop.
    pub intended_s: Option<Seconds>,
    /// Time of its release; null if it was not released.
    pub start_s: Option<Seconds>,
    /// Time at which it was reaped; null if it was not released.
    pub end_s: Option<Seconds>,
    /// Time from release to end; null if it was not released.
    pub duration_s: Option<Seconds>,
    /// Outcome of the transfer.
    pub outcome: Outcome,
    /// Exit code, if the process exited.
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// Description of the error.
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
    /// Create a record with the values of the plan, with a failure as outcome and without
    /// measurements.
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
            requested_bytes: transfer.bytes,
            received_bytes: None,
            checked_by: None,
            checksum: None,
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

/// The program that reported the received bytes of a transfer.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CheckedBy {
    /// An agent or shell that sees the files.
    Agent,
    /// The server, through its protocol.
    Server,
}

/// Outcome of a transfer.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Exit code 0, and the receiver has the bytes if they are expected.
    Ok,
    /// Exit code not 0.
    Failed,
    /// Ended by a signal that the agent did not send.
    Killed,
    /// Ended by the agent after the timeout of the call.
    Timeout,
    /// The tool does not exist.
    Missing,
    /// Exit code 0, but the receiver lacks requested bytes.
    Short,
    /// The run was stopped.
    Stopped,
}

/// Cumulative kernel counters at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// When.
    pub time_s: Seconds,
    /// Value by name, for example `nic.lo.rx_bytes`.
    pub counters: BTreeMap<Name, f64>,
}

/// Something worth knowing when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentEvent {
    /// When.
    pub time_s: Seconds,
    /// Kind of event: dataset created, caches dropped, progress.
    pub kind: String,
    /// Its details.
    pub detail: BTreeMap<String, serde_json::Value>,
}

/// An addition to a counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Signal {
    /// Name of the counter.
    pub counter: Name,
    /// Added number.
    pub add: u64,
}

/// An operation on files of another host; the controller replies with a
/// [`Response`](crate::Response).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Request {
    /// Number of the request, unique during the life of the agent.
    pub number: u64,
    /// The host.
    pub host: Name,
    /// The operation.
    pub operation: FileOperation,
}

/// A doubt about a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Code of the finding.
    pub code: String,
    /// Subject of the finding.
    pub subject: String,
    /// Evidence.
    pub evidence: String,
    /// Advice.
    pub advice: String,
}

/// The end of this host's part of the plan; samples continue.
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
    /// Number of executed trials.
    pub trials: u64,
}

/// The end of the agent; exit code 2 follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fatal {
    /// Kind of error, if a controller can solve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<FatalKind>,
    /// Location, expected and found value, next step.
    pub message: String,
}

/// Kind of an error that ends an agent and that a controller can solve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FatalKind {
    /// Another agent uses the scratch directory; try again after its end.
    ScratchInUse,
}
