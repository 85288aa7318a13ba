//! Server programs as resources: processes that send only so fast, and the proxies that a URL names.

use std::collections::BTreeMap;

use venturi_plan::{Call, Header, Name, Scalar, Service, authority};

use super::assumptions::positive;
use super::{Assumptions, Error, Maker};
use crate::fluid::ResourceId;

/// The option of a service that limits each of its processes.
const PROCESS_RATE: &str = "process_rate_bytes_per_s";
/// Options of a service that say how many processes it has.
const PROCESSES: [&str; 2] = ["instances", "workers"];
/// Processes of one service at most: a bound on memory.
const MOST_PROCESSES: f64 = 65_536.0;

/// The services whose processes are limited.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    processes: BTreeMap<Name, Vec<ResourceId>>,
}

impl Servers {
    pub(super) fn new(header: &Header, maker: &mut Maker<'_>) -> Result<Self, Error> {
        let mut processes = BTreeMap::new();
        for (name, service) in &header.services {
            let Some(rate) = number(service, PROCESS_RATE) else {
                continue;
            };
            let rate = positive(&format!("services.{name}.options.{PROCESS_RATE}"), rate)?;
            let count = PROCESSES
                .iter()
                .filter_map(|key| number(service, key))
                .fold(1.0, |all, one| all * one.max(1.0));
            let numbered = 0..count.min(MOST_PROCESSES) as u32;
            let made =
                numbered.map(|number| maker.resource(&format!("process:{name}#{number}"), rate));
            processes.insert(name.clone(), made.collect::<Result<_, _>>()?);
        }
        Ok(Self { processes })
    }

    /// Which process of a service takes a connection: by a hash of it, as the kernel does among sockets of one port
    /// (`SO_REUSEPORT`). None if its processes are not limited.
    pub fn process_of(&self, service: &str, seed: u64, connection: u64) -> Option<u32> {
        let processes = self.processes.get(service)?;
        Some((mixed(seed ^ mixed(connection)) % processes.len() as u64) as u32)
    }

    /// That process.
    pub fn process(&self, service: &str, number: u32) -> Option<ResourceId> {
        self.processes.get(service)?.get(number as usize).copied()
    }
}

/// Call → the service that it names as its proxy.
pub(super) fn proxies(
    header: &Header,
    assumptions: &Assumptions,
) -> Result<BTreeMap<Name, Name>, Error> {
    let url = |call: &Call| call.options.get("proxy").and_then(Scalar::as_argument);
    let named = header
        .calls
        .iter()
        .filter_map(|(name, call)| Some((name, url(call)?)));
    named
        .map(|(name, url)| Ok((name.clone(), named_by(header, assumptions, &url)?.clone())))
        .collect()
}

/// The service that a URL names, `http://anl1.lab.test:3128`.
fn named_by<'a>(
    header: &'a Header,
    assumptions: &Assumptions,
    url: &str,
) -> Result<&'a Name, Error> {
    let unknown = || Error::Unknown {
        where_: "the option `proxy` of a call".into(),
        expected: "the URL of a service of the plan",
        found: url.into(),
    };
    let (host, port) = authority(url).ok_or_else(unknown)?;
    let interface = assumptions.names.get(host);
    let of_host = |service: &Service| match (interface, &header.network) {
        (Some(interface), Some(network)) => network
            .interfaces
            .get(interface)
            .is_some_and(|it| it.host == service.host),
        _ => host == &*service.host || host.split('.').next() == Some(&*service.host),
    };
    let listens = |service: &Service| port.is_none_or(|port| service.ports.contains(&port));
    let mut all = header.services.iter();
    all.find(|(_, service)| of_host(service) && listens(service))
        .map(|(name, _)| name)
        .ok_or_else(unknown)
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
