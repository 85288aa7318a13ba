//! Server programs as resources: their processes, and those that send only so fast.

use std::collections::BTreeMap;

use venturi_plan::{Header, Name, Scalar, Service};

use super::assumptions::positive;
use super::{Error, Maker};
use crate::cost::{Costs, service_rates};
use crate::fluid::ResourceId;

/// The option of a service that limits each of its processes.
const PROCESS_RATE: &str = "process_rate_bytes_per_s";
/// The kind of services whose processes remember what they have sent.
const CACHING: &str = "squid";
/// Options of a service that say how many processes it has.
const PROCESSES: [&str; 2] = ["instances", "workers"];
/// Processes of one service at most: a bound on memory.
const MOST_PROCESSES: f64 = 65_536.0;

/// The services that consist of several processes, or of limited ones.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    counts: BTreeMap<Name, u32>,
    limited: BTreeMap<Name, Vec<ResourceId>>,
    /// Those whose sessions get in each other's way: what all of them have together.
    crowded: BTreeMap<Name, ResourceId>,
}

impl Servers {
    pub(super) fn new(
        header: &Header,
        costs: &Costs,
        maker: &mut Maker<'_>,
    ) -> Result<Self, Error> {
        let (mut counts, mut limited) = (BTreeMap::new(), BTreeMap::new());
        for (name, service) in &header.services {
            let count = processes_of(service);
            let Some(rate) = number(service, PROCESS_RATE) else {
                // Of others it makes no difference which process it is.
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

    /// Which process of a service takes a connection: by a hash of it, as the kernel does among sockets of one port
    /// (`SO_REUSEPORT`). None if they are all alike.
    pub fn process_of(&self, service: &str, seed: u64, connection: u64) -> Option<u32> {
        let count = *self.counts.get(service)?;
        Some((mixed(seed ^ mixed(connection)) % u64::from(count)) as u32)
    }

    /// Whether it makes a difference which process of a service it is.
    pub fn are_told_apart(&self, service: &str) -> bool {
        self.counts.contains_key(service)
    }

    /// What all sessions of a service have together, if they get in each other's way.
    pub fn sessions(&self, service: &str) -> Option<ResourceId> {
        self.crowded.get(service).copied()
    }

    /// That process.
    pub fn process(&self, service: &str, number: u32) -> Option<ResourceId> {
        self.limited.get(service)?.get(number as usize).copied()
    }
}

fn crowded(
    header: &Header,
    costs: &Costs,
    maker: &mut Maker<'_>,
) -> Result<BTreeMap<Name, ResourceId>, Error> {
    let mut found = BTreeMap::new();
    for name in header.services.keys() {
        let cost = costs.services.get(name);
        let rates = cost.map_or(Ok(None), service_rates);
        let rates = rates.map_err(|_| Error::Value {
            where_: format!("world.costs.services.{name}"),
            expected: "process_bytes_per_s beside contention and coherency",
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

/// How many processes a service has.
pub(super) fn processes_of(service: &Service) -> u32 {
    let counts = PROCESSES.iter().filter_map(|key| number(service, key));
    let count = counts.fold(1.0, |all, one| all * one.max(1.0));
    count.min(MOST_PROCESSES) as u32
}

/// A number among the options of a service.
pub(super) fn number(service: &Service, key: &str) -> Option<f64> {
    service.options.get(key).and_then(Scalar::as_number)
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): neighbouring numbers come to lie anywhere.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
