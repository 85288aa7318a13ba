//! Server programs as resources: their processes, and limits of their rates.

use std::collections::BTreeMap;

use venturi_plan::{Header, Name, Scalar, Service};

use super::assumptions::positive;
use super::{Maker, WorldError};
use crate::cost::{Costs, service_rates};
use crate::fluid::ResourceId;

/// Option of a service that limits each of its processes.
const PROCESS_RATE: &str = "process_rate_bytes_per_s";
/// Kind of services whose processes cache sent files.
const CACHING: &str = "squid";
/// Options of a service with the number of its processes.
const PROCESSES: [&str; 2] = ["instances", "workers"];
/// Maximum number of processes of one service, to limit memory.
const MAX_PROCESSES: f64 = 65_536.0;

/// Services with several processes, or with limited processes.
#[derive(Debug, Default)]
pub(crate) struct SimServers {
    counts: BTreeMap<Name, u32>,
    limited: BTreeMap<Name, Vec<ResourceId>>,
    /// Services whose sessions slow each other down: their common resource.
    crowded: BTreeMap<Name, ResourceId>,
}

impl SimServers {
    pub(super) fn new(
        header: &Header,
        costs: &Costs,
        maker: &mut Maker<'_>,
    ) -> Result<Self, WorldError> {
        let (mut counts, mut limited) = (BTreeMap::new(), BTreeMap::new());
        for (name, service) in &header.services {
            let count = processes_of(service);
            let Some(rate) = number(service, PROCESS_RATE) else {
                // The processes of other services do not differ.
                if service.kind == CACHING && count > 1 {
                    counts.insert(name.clone(), count);
                }
                continue;
            };
            let rate = positive(&format!("services.{name}.options.{PROCESS_RATE}"), rate)?;
            let made =
                (0..count).map(|number| maker.resource(&format!("process:{name}#{number}"), rate));
            limited.insert(name.clone(), made.collect::<Result<_, _>>()?);
            counts.insert(name.clone(), count);
        }
        Ok(Self {
            counts,
            limited,
            crowded: crowded(header, costs, maker)?,
        })
    }

    /// Return the process of a service for a connection, by a hash like the kernel's for sockets of
    /// one port (`SO_REUSEPORT`). None if the processes do not differ.
    pub fn process_of(&self, service: &str, seed: u64, connection: u64) -> Option<u32> {
        let count = *self.counts.get(service)?;
        Some((mixed(seed ^ mixed(connection)) % u64::from(count)) as u32)
    }

    /// Return whether the processes of a service differ.
    pub fn are_distinguished(&self, service: &str) -> bool {
        self.counts.contains_key(service)
    }

    /// Return the common resource of all sessions of a service, if they slow each other down.
    pub fn sessions(&self, service: &str) -> Option<ResourceId> {
        self.crowded.get(service).copied()
    }

    /// Return the resource of that process.
    pub fn process(&self, service: &str, number: u32) -> Option<ResourceId> {
        self.limited.get(service)?.get(number as usize).copied()
    }
}

fn crowded(
    header: &Header,
    costs: &Costs,
    maker: &mut Maker<'_>,
) -> Result<BTreeMap<Name, ResourceId>, WorldError> {
    let mut found = BTreeMap::new();
    for name in header.services.keys() {
        let cost = costs.services.get(name);
        let rates = cost.map_or(Ok(None), service_rates);
        let rates = rates.map_err(|_| WorldError::Value {
            where_: format!("world.costs.services.{name}"),
            expected: "process_bytes_per_s together with contention and coherency",
            found: "none".into(),
        })?;
        if let Some(rates) = rates {
            found.insert(
                name.clone(),
                maker.shared(&format!("sessions:{name}"), rates)?,
            );
        }
    }
    Ok(found)
}

/// Return the number of processes of a service.
pub(super) fn processes_of(service: &Service) -> u32 {
    let counts = PROCESSES.iter().filter_map(|key| number(service, key));
    let count = counts.fold(1.0, |all, one| all * one.max(1.0));
    count.min(MAX_PROCESSES) as u32
}

/// Return a number from the options of a service.
pub(super) fn number(service: &Service, key: &str) -> Option<f64> {
    service.options.get(key).and_then(Scalar::as_number)
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): spreads neighbouring numbers.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
