//! Assumptions about a testbed in addition to the plan: costs of calls and servers, and defaults for values that the
//! plan does not set.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use venturi_plan::{Name, TrialId};

use super::WorldError;
use crate::cost::Costs;

/// Content of the line `{"world": …}`. Every key is optional, with the default of
/// [`Assumptions::default`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Assumptions {
    /// Costs of calls, services, storages and hosts of the plan in addition to bytes on links; missing costs count as
    /// 0.
    pub costs: Costs,
    /// Names of hosts in URLs, such as `a-eth1.lab.test` → the interface `a.eth1`.
    pub names: BTreeMap<String, Name>,
    /// Tools that no host has: transfers that require one are recorded as missing.
    pub missing_tools: BTreeSet<String>,
    /// Capacity of a storage without a size in the plan; null: unlimited.
    pub storage_bytes: Option<u64>,
    /// Read rate of a storage without a rate in the plan, for all readers together.
    pub storage_read_bytes_per_s: f64,
    /// Write rate, likewise, for all writers together.
    pub storage_write_bytes_per_s: f64,
    /// Rate of a host's loopback interface.
    pub loopback_bytes_per_s: f64,
    /// Cores of a host without a limit in the plan; null: no limit.
    pub cores: Option<f64>,
    /// Cores that all hosts share in addition, like the hosts of a lab on one machine; null: no
    /// shared limit.
    pub machine_cores: Option<f64>,
    /// Maximum send buffer of a TCP connection, for hosts without one in the plan.
    pub send_buffer_bytes: f64,
    /// Maximum receive buffer, likewise.
    pub receive_buffer_bytes: f64,
    /// Time from the addition to a counter until the other hosts receive the value.
    pub counter_latency_s: f64,
    /// Start time within the plan, for a resumed run.
    pub start_s: f64,
    /// Completed trials that are skipped, as by an agent.
    pub skip: BTreeSet<TrialId>,
    /// Record the bottleneck of each transfer. This costs time for each class of concurrent
    /// transfers.
    pub explain: bool,
}

impl Default for Assumptions {
    /// Rates: one core that copies through the kernel of a current machine, rounded (an assumption;
    /// set the values of your testbed). Buffers: the third numbers of `net.ipv4.tcp_wmem` and
    /// `tcp_rmem` as set by Linux on machines with enough memory (`tcp(7)`). Latency: two pipes
    /// with a controller between them.
    fn default() -> Self {
        Self {
            costs: Costs::default(),
            names: BTreeMap::new(),
            missing_tools: BTreeSet::new(),
            storage_bytes: None,
            storage_read_bytes_per_s: 2e9,
            storage_write_bytes_per_s: 1e9,
            loopback_bytes_per_s: 2e9,
            cores: None,
            machine_cores: None,
            send_buffer_bytes: 4_194_304.0,
            receive_buffer_bytes: 6_291_456.0,
            counter_latency_s: 0.001,
            start_s: 0.0,
            skip: BTreeSet::new(),
            explain: true,
        }
    }
}

impl Assumptions {
    /// Check that all numbers are valid.
    ///
    /// # Errors
    /// [`WorldError::Value`]: the first invalid number.
    pub fn check(&self) -> Result<(), WorldError> {
        for (name, rate) in [
            ("storage_read_bytes_per_s", self.storage_read_bytes_per_s),
            ("storage_write_bytes_per_s", self.storage_write_bytes_per_s),
            ("loopback_bytes_per_s", self.loopback_bytes_per_s),
            ("send_buffer_bytes", self.send_buffer_bytes),
            ("receive_buffer_bytes", self.receive_buffer_bytes),
            ("cores", self.cores.unwrap_or(1.0)),
            ("machine_cores", self.machine_cores.unwrap_or(1.0)),
        ] {
            positive(&format!("world.{name}"), rate)?;
        }
        not_negative("world.counter_latency_s", self.counter_latency_s)?;
        not_negative("world.start_s", self.start_s)?;
        match self
            .costs
            .services
            .iter()
            .find(|(_, cost)| cost.sessions == Some(0))
        {
            None => Ok(()),
            Some((name, _)) => Err(WorldError::Value {
                where_: format!("world.costs.services.{name}.sessions"),
                expected: "at least one session",
                found: "0".into(),
            }),
        }
    }
}

pub(super) fn positive(where_: &str, value: f64) -> Result<f64, WorldError> {
    if value > 0.0 && value.is_finite() {
        return Ok(value);
    }
    Err(WorldError::Value {
        where_: where_.into(),
        expected: "a finite number above 0",
        found: value.to_string(),
    })
}

pub(super) fn not_negative(where_: &str, value: f64) -> Result<(), WorldError> {
    if value >= 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(WorldError::Value {
        where_: where_.into(),
        expected: "a finite number of at least 0",
        found: value.to_string(),
    })
}
