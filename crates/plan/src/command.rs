//! What a controller says to an agent: one JSON object a line.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ActorLine, Error, Header, Name, TrialId};

/// One line to the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// What and where; once, first.
    Start(Box<Start>),
    /// A line of the plan; as often as needed, before `go`.
    Actor(ActorCommand),
    /// Begin.
    Go,
    /// The value of a counter over all hosts.
    Counter(CounterCommand),
    /// Kill the children, say `done`, exit.
    Stop,
}

impl Command {
    /// Parse one line.
    ///
    /// # Errors
    /// [`Error::Message`] if it is no command of this protocol, or its header is of a newer version.
    pub fn parse(line: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(line).map_err(|source| Error::Message {
            what: "command",
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

/// What and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Which host of the plan this agent is.
    pub host: Name,
    /// The directory that relative places are below.
    pub scratch: String,
    /// Time zero of the run, since 1970.
    pub epoch_unix_ns: u64,
    /// The plan's header.
    pub header: Header,
    /// Trials that are done.
    pub skip: BTreeSet<TrialId>,
    /// Folders to search for tools before those of `PATH`.
    pub search: Vec<String>,
    /// Other hosts of the plan whose files are on this machine too, each with its scratch directory: their places can be read,
    /// checked, prepared and cleaned from here.
    #[serde(default)]
    pub sees: BTreeMap<Name, String>,
    /// Control groups whose counters are sampled too, by controller: `cpu` → `/sys/fs/cgroup/cpuacct/…`.
    #[serde(default)]
    pub cgroups: Option<BTreeMap<String, String>>,
    /// When its part is over, say `idle` and go on sampling until `stop`: what other hosts do is seen on this one, too.
    #[serde(default)]
    pub stay: bool,
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
