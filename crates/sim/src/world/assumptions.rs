//! What the caller says of a testbed beside the plan: costs of calls and servers, and what holds where the plan is silent.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use venturi_plan::{Name, TrialId};

use super::Error;
use crate::cost::Costs;

/// The content of the line `{"world": …}`. Every key may be absent; the defaults are those of [`Assumptions::default`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Assumptions {
    /// What calls, services, places and hosts of the plan cost besides bytes on links; of what is not here, nothing is counted.
    pub costs: Costs,
    /// Names of hosts in URLs, such as `a-eth1.lab.test` → the interface `a.eth1`.
    pub names: BTreeMap<String, Name>,
    /// Tools that are on no host: transfers that require one are recorded as missing.
    pub missing_tools: BTreeSet<String>,
    /// What a place holds that the plan gives no size; null: anything.
    pub storage_bytes: Option<u64>,
    /// How fast a place is read that the plan gives no rate, all readers together.
    pub storage_read_bytes_per_s: f64,
    /// How fast it is written.
    pub storage_write_bytes_per_s: f64,
    /// What a host moves to itself over its loopback interface.
    pub loopback_bytes_per_s: f64,
    /// Cores of a host that the plan gives no limit; null: as many as are asked for.
    pub cores: Option<f64>,
    /// Cores that all hosts share besides, as those of a lab on one machine do; null: each has its own.
    pub machine_cores: Option<f64>,
    /// The largest send buffer of a TCP connection, of hosts for which the plan says none.
    pub send_buffer_bytes: f64,
    /// The largest receive buffer.
    pub receive_buffer_bytes: f64,
    /// From the addition to a counter until the other hosts know of it.
    pub counter_latency_s: f64,
    /// Where in the time of the plan it begins: of a run that is carried on with.
    pub start_s: f64,
    /// Trials that are done and passed over, as by an agent.
    pub skip: BTreeSet<TrialId>,
    /// Note what bounds each transfer. Costs time for each class of transfers that moves at once.
    pub explain: bool,
}

impl Default for Assumptions {
    /// Rates: one core that copies through the kernel of a current machine, rounded (an assumption: say what holds for your testbed).
    /// Buffers: the third numbers of `net.ipv4.tcp_wmem` and `tcp_rmem` as Linux sets them on machines with enough memory (`tcp(7)`).
    /// Latency: two pipes and a controller in between.
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
    /// Whether all numbers are such as can be.
    ///
    /// # Errors
    /// [`Error::Value`]: the first that cannot.
    pub fn check(&self) -> Result<(), Error> {
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
            Some((name, _)) => Err(Error::Value {
                where_: format!("world.costs.services.{name}.sessions"),
                expected: "at least one session",
                found: "0".into(),
            }),
        }
    }
}

pub(super) fn positive(where_: &str, value: f64) -> Result<f64, Error> {
    if value > 0.0 && value.is_finite() {
        return Ok(value);
    }
    Err(Error::Value {
        where_: where_.into(),
        expected: "a finite number above 0",
        found: value.to_string(),
    })
}

pub(super) fn not_negative(where_: &str, value: f64) -> Result<(), Error> {
    if value >= 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(Error::Value {
        where_: where_.into(),
        expected: "a finite number of at least 0",
        found: value.to_string(),
    })
}
