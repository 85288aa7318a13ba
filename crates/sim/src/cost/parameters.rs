//! The cost parameters of a world: defaults of movers and services, and above them what the scenario says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use venturi_plan::{HostCost, MoverCost, Name, ServiceCost, StorageCost};

/// What everything in a plan costs, as it comes in with the line `world`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// Of each call of the plan's header: what it costs between which ends.
    pub calls: BTreeMap<Name, Vec<CallCost>>,
    /// Of services by name.
    pub services: BTreeMap<Name, ServiceCost>,
    /// Of places by name.
    pub places: BTreeMap<Name, StorageCost>,
    /// Of hosts by name.
    pub hosts: BTreeMap<Name, HostCost>,
}

/// What a call costs between two kinds of ends.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallCost {
    /// The protocol that it reads by, as its door is called, or `file`.
    pub source: String,
    /// The protocol that it writes by, or `file`.
    pub destination: String,
    /// What it costs.
    pub cost: MoverCost,
}

impl Costs {
    /// What a call costs between these ends; `None` if nobody has measured it or said so, which is to be told.
    ///
    /// `source` and `destination` are protocols of doors, or `file`; `null` and `zero` count as `file`.
    #[must_use]
    pub fn mover(&self, call: &str, source: &str, destination: &str) -> Option<&MoverCost> {
        let costs = self.calls.get(call)?;
        let fits = |it: &&CallCost| it.source == source && it.destination == destination;
        costs.iter().find(fits).map(|it| &it.cost)
    }
}
