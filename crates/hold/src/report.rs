//! What is said: by the process inside to the one outside, and by that to the controller.

use std::collections::BTreeMap;
use std::io::Write;

use serde::{Deserialize, Serialize};

/// Process ids of the hosts, as PID 1 of the ground numbers them.
pub type Pids = BTreeMap<String, i32>;

/// A line to the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The ground is there.
    Ready {
        /// PID 1 of the ground, as the controller numbers it.
        pid: i32,
        /// The process that stands for each host, as the ground numbers it.
        pids: Pids,
        /// Whether it is in a user namespace of its own, whose root is the caller.
        user_namespace: bool,
    },
    /// There is no ground, or no longer.
    Fatal {
        /// What was expected and found, where, and what to do.
        message: String,
    },
}

impl Record {
    /// Writes one line. `false`: nobody reads it.
    pub(crate) fn emit(&self) -> bool {
        let mut out = std::io::stdout().lock();
        let mut line = serde_json::to_vec(self).expect("a record is text and numbers");
        line.push(b'\n');
        out.write_all(&line).and_then(|()| out.flush()).is_ok()
    }
}

/// What PID 1 tells the process outside, one line each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
    /// All hosts are there.
    Ready(Pids),
    /// It ends, for this reason.
    Failed(String),
}
