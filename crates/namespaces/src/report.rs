//! Messages from PID 1 to the supervisor, and records from the supervisor to the controller.

use std::collections::BTreeMap;
use std::io::Write;

use serde::{Deserialize, Serialize};

/// Process ids of the hosts, as numbered inside the sandbox.
pub type Pids = BTreeMap<String, i32>;

/// Output line for the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum SandboxRecord {
    /// The sandbox is ready.
    Ready {
        /// PID 1 of the sandbox, as numbered by the controller.
        pid: i32,
        /// Process of each host, as numbered inside the sandbox.
        pids: Pids,
        /// Whether the sandbox has its own user namespace, with the calling user as root.
        user_namespace: bool,
    },
    /// The sandbox failed to start, or has ended.
    Fatal {
        /// Location, reason and next step.
        message: String,
    },
}

impl SandboxRecord {
    /// Writes one line. Returns `false` if standard output is closed.
    pub(crate) fn emit(&self) -> bool {
        let mut out = std::io::stdout().lock();
        let mut line = serde_json::to_vec(self).expect("a record is text and numbers");
        line.push(b'\n');
        out.write_all(&line).and_then(|()| out.flush()).is_ok()
    }
}

/// Message of PID 1 to the supervisor, one line each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InitMessage {
    /// All hosts are ready.
    Ready(Pids),
    /// Failure with its reason.
    Failed(String),
}
