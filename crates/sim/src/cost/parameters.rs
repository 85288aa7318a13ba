//! Cost parameters of a testbed: defaults of movers and services, overridden by the scenario.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use venturi_plan::{HostCost, MoverCost, Name, ServiceCost, StorageCost};

/// Costs of all parts of a plan, from the line `world`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// Costs of each call of the plan's header, by source and destination.
    pub calls: BTreeMap<Name, Vec<CallCost>>,
    /// Costs of services by name.
    pub services: BTreeMap<Name, ServiceCost>,
    /// Costs of storages by name.
    pub storages: BTreeMap<Name, StorageCost>,
    /// Costs of hosts by name.
    pub hosts: BTreeMap<Name, HostCost>,
}

/// Costs of a call between two kinds of endpoints.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallCost {
    /// Protocol of the source, by the name of its service port, or `file`.
    pub source: String,
    /// Protocol of the destination, or `file`.
    pub destination: String,
    /// Costs of the call.
    pub cost: MoverCost,
}

impl Costs {
    /// Return the costs of a call between these endpoints; `None` if they are unknown, which must be reported.
    ///
    /// `source` and `destination` are protocols of service ports, or `file`; `null` and `zero`
    /// count as `file`.
    #[must_use]
    pub fn mover(&self, call: &str, source: &str, destination: &str) -> Option<&MoverCost> {
        let costs = self.calls.get(call)?;
        let fits = |it: &&CallCost| it.source == source && it.destination == destination;
        costs.iter().find(fits).map(|it| &it.cost)
    }
}
