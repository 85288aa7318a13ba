//! Commands from a controller to an agent: one JSON object per line.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ActorLine, Error, Header, Name, OperationResult, Seconds, ServiceAddress, TrialId};

/// One line to the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Start data; sent once, as the first command.
    Start(Box<Start>),
    /// A line of the plan; as often as needed, before `go`.
    Actor(ActorCommand),
    /// Start the plan.
    Go,
    /// The value of a counter over all hosts.
    Counter(CounterCommand),
    /// The trials at a service have ended at another host.
    EndService(EndServiceCommand),
    /// The outcome of a requested operation.
    Response(Response),
    /// The controller is alive.
    Heartbeat,
    /// Kill the children, send `done`, exit.
    Stop,
}

impl Command {
    /// Parse one line.
    ///
    /// # Errors
    /// [`Error::Message`] if it is not a command of this protocol, or its header has a newer
    /// version.
    pub fn parse(line: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(line).map_err(|source| Error::Message {
            what: "command",
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

/// Start data of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Host of this agent in the plan.
    pub host: Name,
    /// Base directory of relative storages.
    pub scratch: String,
    /// Time zero of the run, in nanoseconds since 1970.
    pub epoch_unix_ns: u64,
    /// The plan's header.
    pub header: Header,
    /// Finished trials.
    pub skip: BTreeSet<TrialId>,
    /// Directories to search for tools before `PATH`.
    pub search: Vec<String>,
    /// Other hosts of the plan that support operations, by this agent or by a request to the
    /// controller.
    #[serde(default)]
    pub hosts: BTreeMap<Name, OtherHost>,
    /// Addresses and ports of services that have started; all others: by the plan.
    #[serde(default)]
    pub services: BTreeMap<Name, ServiceAddress>,
    /// Maximum time without a command; the agent then exits, because the controller is unreachable.
    /// Null: it waits forever.
    #[serde(default)]
    pub silence_s: Option<Seconds>,
    /// Number of consecutive failed transfers at a service that ends its trials; HTTP 429 and 503
    /// end them immediately. Null: they never end.
    #[serde(default)]
    pub server_failures: Option<u32>,
    /// Services whose trials have ended already.
    #[serde(default)]
    pub ended_services: BTreeSet<Name>,
    /// Control groups whose counters are sampled too, by controller: `cpu` → `/sys/fs/cgroup/cpuacct/…`.
    #[serde(default)]
    pub cgroups: Option<BTreeMap<String, String>>,
    /// Directories of control groups with the limits of a lab host. Transfers and CPU phases join
    /// them, but the agent does not.
    #[serde(default)]
    pub work_groups: Vec<String>,
    /// After the end of its part, send `idle` and continue to sample until `stop`, because actions
    /// of other hosts can affect this host, too.
    #[serde(default)]
    pub stay: bool,
    /// Name of the directory of this run in storages with a URL; null: the plan has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_directory: Option<String>,
}

/// Another host of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OtherHost {
    /// The scratch directory of its agent.
    pub scratch: String,
    /// Whether all its files are on this machine, too, at the same paths.
    pub seen: bool,
    /// Its storages whose files are on this machine, too, at the same paths, because of a shared
    /// file system.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub storages: Vec<Name>,
}

/// The outcome of a requested operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Response {
    /// The number of the request.
    pub number: u64,
    /// The outcome, or the reason of a failure.
    #[serde(flatten)]
    pub result: OperationResult,
}

/// A line of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActorCommand {
    /// The line.
    pub line: ActorLine,
}

/// The value of a counter over all hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CounterCommand {
    /// Name of the counter.
    pub counter: Name,
    /// Its value.
    pub value: u64,
}

/// The trials at a service end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndServiceCommand {
    /// Name of the service.
    pub service: Name,
}
