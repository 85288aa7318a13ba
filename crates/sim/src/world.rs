//! Testbed of a plan as resources of the solver, and the resources that each kind of transfer
//! crosses.
//!
//! The capacity of a link is its payload rate: its rate times the payload fraction of a full
//! packet. Effects on single packets are not modelled (queues, reordering, acknowledgements that
//! share the return path).
//!
//! Read `World` first, then `route_builder.rs` for the resources of a transfer, and
//! `stage_builder.rs` for its stages.

mod assumptions;
mod blocks;
mod checks;
mod endpoint_routes;
mod error;
mod memory;
mod network;
mod placement;
mod proxies;
mod route_builder;
mod route_cache;
mod servers;
mod service_ports;
mod stage;
mod stage_builder;
mod stores;
mod uniform;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use assumptions::Assumptions;
pub use error::WorldError;
use memory::Memories;
pub(crate) use network::LinkNumber;
use network::Tables;
use proxies::Proxies;
pub(crate) use route_cache::{RouteCache, RouteQuery, TransferRoute};
use servers::SimServers;
use service_ports::ServicePorts;
pub(crate) use stage::{Amounts, Stage, Stages};
use stores::Stores;
pub(crate) use uniform::{LOAD, changes_caches};

use venturi_plan::{Amount, Header, Host, Link, Loss, Name, Transfer, Via};

use crate::cost::{Costs, core_rate};
use crate::fluid::{Capacity, Fluid, ResourceId};

/// Bytes of a packet that carry no payload: IPv4 (RFC 791) 20, TCP (RFC 9293) 20, its timestamps (RFC 7323) 12.
const HEADER_BYTES: f64 = 52.0;
const BITS_PER_BYTE: f64 = 8.0;

/// Link in one direction.
#[derive(Debug)]
pub(crate) struct LinkInfo {
    pub name: Name,
    pub from: Name,
    pub to: Name,
    pub resource: ResourceId,
    /// Bytes at the network layer per byte of payload; `wire_ratio` includes the overhead of the
    /// link.
    pub packet_ratio: f64,
    pub wire_ratio: f64,
    /// Payload rate at the start of the plan.
    pub payload_bytes_per_s: f64,
    /// Payload of a full segment.
    pub segment_bytes: f64,
    state: Link,
}

impl LinkInfo {
    /// Return whether the link is up.
    pub fn is_up(&self) -> bool {
        self.state.up
    }

    /// Return the probability that a packet is lost at random; for bursts, their mean.
    fn loss(&self) -> f64 {
        match self.state.loss {
            None => 0.0,
            Some(Loss::Independent { probability }) => probability,
            Some(Loss::Bursty {
                enter,
                leave,
                probability,
            }) if enter + leave > 0.0 => probability * enter / (enter + leave),
            Some(Loss::Bursty { .. }) => 0.0,
        }
    }
}

/// Resources of a testbed.
#[derive(Debug)]
pub(crate) struct World {
    pub header: Arc<Header>,
    pub assumptions: Assumptions,
    pub links: Vec<LinkInfo>,
    pub stores: Stores,
    pub memories: Memories,
    tables: Tables,
    servers: SimServers,
    service_ports: ServicePorts,
    hosts: BTreeMap<Name, HostParts>,
    pub proxies: Proxies,
    /// Names of resources for [`crate::fluid::Bottleneck`], by the number of the resource.
    names: BTreeMap<ResourceId, Arc<str>>,
    /// Capacity of a resource for a single user at the start of the plan.
    single: BTreeMap<ResourceId, f64>,
}

#[derive(Debug)]
struct HostParts {
    loopback: ResourceId,
    /// Cores of the host, and of the machine that it shares with others.
    cpus: Vec<ResourceId>,
    /// Cores for bytes that use CPU time, in bytes/s: one resource per CPU time of a byte, by its
    /// bits.
    byte_cpus: BTreeMap<u64, ResourceId>,
}

impl HostParts {
    fn new(
        name: &Name,
        host: &Host,
        machine: Option<ResourceId>,
        assumptions: &Assumptions,
        maker: &mut Maker<'_>,
    ) -> Result<Self, WorldError> {
        let loopback = maker.resource(
            &format!("loopback:{name}"),
            assumptions.loopback_bytes_per_s,
        )?;
        let lab = host.lab.as_ref();
        let pinned = lab.and_then(|lab| lab.cpus.as_ref());
        let cost = assumptions.costs.hosts.get(name);
        let cost_value = cost.and_then(|cost| cost.cores).map(Amount::get);
        let limits = [
            lab.and_then(|lab| lab.cpu_limit_cores),
            pinned.map(|cpus| cpus.len() as f64),
            cost_value.or(assumptions.cores),
        ];
        let mut cpus = Vec::with_capacity(2);
        let mut byte_cpus = BTreeMap::new();
        if let Some(cores) = limits.into_iter().flatten().reduce(f64::min) {
            assumptions::positive(&format!("hosts.{name}, its cores"), cores)?;
            let label = format!("cpu:{name}");
            cpus.push(maker.resource(&label, cores)?);
            for core_s in byte_costs(&assumptions.costs) {
                let speed = cost.and_then(|cost| cost.core_speed);
                let rate = core_rate(cores, core_s, speed.map_or(1.0, Amount::get));
                byte_cpus.insert(core_s.to_bits(), maker.resource(&label, rate)?);
            }
        }
        cpus.extend(machine);
        Ok(Self {
            loopback,
            cpus,
            byte_cpus,
        })
    }
}

/// Return the different CPU times of a byte among the movers and services.
fn byte_costs(costs: &Costs) -> Vec<f64> {
    let calls = costs.calls.values().flatten();
    let movers = calls.filter_map(|call| call.cost.byte_core_s);
    let servers = costs.services.values().filter_map(|cost| cost.byte_core_s);
    let mut found: Vec<f64> = movers.chain(servers).map(Amount::get).collect();
    found.retain(|core_s| *core_s > 0.0);
    found.sort_by(f64::total_cmp);
    found.dedup();
    found
}

impl World {
    /// Create the testbed of a plan.
    ///
    /// # Errors
    /// An invalid number of a resource, or an unknown name.
    pub fn new(
        header: Arc<Header>,
        assumptions: Assumptions,
        fluid: &mut Fluid,
    ) -> Result<Self, WorldError> {
        assumptions.check()?;
        checks::check_links(&header)?;
        checks::check_measure(&header)?;
        placement::check_hosts(&header)?;
        let mut maker = Maker {
            fluid,
            names: BTreeMap::new(),
            single: BTreeMap::new(),
        };
        let links = links(&header, &mut maker)?;
        let machine = assumptions
            .machine_cores
            .map(|cores| maker.resource("cpu:machine", cores))
            .transpose()?;
        let mut hosts = BTreeMap::new();
        for (name, host) in &header.hosts {
            let parts = HostParts::new(name, host, machine, &assumptions, &mut maker)?;
            hosts.insert(name.clone(), parts);
        }
        let tables = Tables::new(&header)?;
        let stores = Stores::new(&header, &assumptions, &mut maker)?;
        let servers = SimServers::new(&header, &assumptions.costs, &mut maker)?;
        let service_ports = ServicePorts::new(&header);
        let (names, single) = (maker.names, maker.single);
        let memories = Memories::new(&header, &assumptions);
        let proxies = Proxies::new(&header, &assumptions)?;
        Ok(Self {
            header,
            assumptions,
            links,
            stores,
            memories,
            tables,
            servers,
            service_ports,
            hosts,
            proxies,
            names,
            single,
        })
    }

    /// Return the cores of a host as resources, in core-seconds per second; none if the host has at
    /// least as many cores as requested.
    pub fn cpus(&self, host: &str) -> &[ResourceId] {
        self.hosts.get(host).map_or(&[], |host| &host.cpus)
    }

    /// Return the cores of a host as a resource in bytes/s, for bytes that use this CPU time; none
    /// without a limit.
    ///
    /// Transfers with the same CPU time per byte share the cores. Others do not, because a flow
    /// uses one unit of each resource per byte.
    pub fn byte_cpus(&self, host: &str, core_s: Option<Amount>) -> Option<ResourceId> {
        let parts = self.hosts.get(host)?;
        parts.byte_cpus.get(&core_s?.get().to_bits()).copied()
    }

    /// Return the process of the sending service that takes this connection, or the service port to
    /// which it is redirected; `None` if the processes do not differ.
    pub fn process_of(&self, transfer: &Transfer, connection: u64) -> Option<u32> {
        let sender = self.sender_of(transfer);
        let process =
            sender.and_then(|it| self.servers.process_of(it, self.header.seed, connection));
        let query = [sender, transfer.destination_via.as_ref().map(Via::service)];
        let turn = |it: &str| self.service_ports.turn(it, connection);
        process.or_else(|| query.into_iter().flatten().find_map(turn))
    }

    /// Return the name of a resource, such as `link:a>b`.
    pub fn name_of(&self, resource: ResourceId) -> Arc<str> {
        self.names[&resource].clone()
    }

    /// Return the rate of a flow over these resources without load, with this cap.
    pub fn alone(&self, resources: &[ResourceId], cap: f64) -> f64 {
        // A resource that is listed twice carries each byte twice.
        let capacity_per_flow = |resource: &ResourceId| {
            let times = resources.iter().filter(|other| *other == resource).count();
            self.single[resource] / times as f64
        };
        resources.iter().map(capacity_per_flow).fold(cap, f64::min)
    }

    /// Return the devices of a host that are links of the network: device, outgoing link, incoming
    /// link.
    pub fn devices_of(&self, host: &str) -> Vec<(String, Option<LinkNumber>, Option<LinkNumber>)> {
        let numbered = |matches: &dyn Fn(&LinkInfo) -> bool| self.links.iter().position(matches);
        let own = self.tables.interfaces_of(host);
        own.map(|(name, device)| {
            (
                device.to_owned(),
                numbered(&|link| link.from == *name),
                numbered(&|link| link.to == *name),
            )
        })
        .collect()
    }

    /// Return the link with this name.
    pub fn link_named(&self, name: &Name) -> Result<LinkNumber, WorldError> {
        self.links
            .iter()
            .position(|link| link.name == *name)
            .ok_or_else(|| WorldError::Unknown {
                where_: "network.changes".into(),
                expected: "a link of the network",
                found: name.as_ref().into(),
            })
    }

    /// Apply a planned change of a link. Return its resource, and its new payload rate in bytes/s.
    pub fn change(
        &mut self,
        number: LinkNumber,
        set: &venturi_plan::LinkSet,
    ) -> Result<(ResourceId, f64), WorldError> {
        let link = &mut self.links[number];
        set.apply(&mut link.state);
        let capacity = payload_rate(&link.name, &link.state, link.wire_ratio)?;
        Ok((link.resource, capacity))
    }

    /// Return the capacity of a storage; none if it is unlimited.
    pub fn slots_of_pool(&self, name: &str) -> Option<u64> {
        let spec = self
            .header
            .storages
            .get(name)
            .and_then(|storage| storage.spec.as_ref());
        let size = spec.and_then(|spec| spec.size_bytes).map(|size| size.get());
        size.or(self.assumptions.storage_bytes)
    }
}

/// Adds resources to the solver and stores their names.
struct Maker<'a> {
    fluid: &'a mut Fluid,
    names: BTreeMap<ResourceId, Arc<str>>,
    single: BTreeMap<ResourceId, f64>,
}

impl Maker<'_> {
    fn resource(&mut self, name: &str, capacity: f64) -> Result<ResourceId, WorldError> {
        self.shared(name, vec![capacity])
    }

    /// Add a resource with its capacity for 1, 2, … users.
    fn shared(&mut self, name: &str, capacity: Vec<f64>) -> Result<ResourceId, WorldError> {
        let found = format!("{capacity:?}");
        let single = capacity.first().copied();
        let capacity = match capacity[..] {
            [all] => Capacity::Constant(all),
            _ => Capacity::OfUsers(capacity.into()),
        };
        let made = self
            .fluid
            .resource(capacity)
            .map_err(|_| WorldError::Value {
                where_: name.into(),
                expected: "a finite capacity of at least 0",
                found,
            })?;
        self.names.insert(made, name.into());
        self.single.extend(single.map(|single| (made, single)));
        Ok(made)
    }
}

fn links(header: &Header, maker: &mut Maker<'_>) -> Result<Vec<LinkInfo>, WorldError> {
    let Some(network) = &header.network else {
        return Ok(Vec::new());
    };
    // Hosts at the two ends of a path may differ in MTU; most networks have one MTU.
    let mtu = network
        .interfaces
        .values()
        .map(|interface| interface.mtu)
        .min()
        .unwrap_or(1500);
    let mtu = f64::from(mtu);
    let mut made = Vec::with_capacity(network.links.len());
    for (name, link) in &network.links {
        let payload = mtu - HEADER_BYTES;
        if payload <= 0.0 {
            return Err(WorldError::Value {
                where_: "network.interfaces".into(),
                expected: "an MTU above 52 bytes, the headers of a packet",
                found: mtu.to_string(),
            });
        }
        let wire_ratio = (mtu + f64::from(link.overhead_bytes)) / payload;
        let capacity = payload_rate(name, link, wire_ratio)?;
        made.push(LinkInfo {
            name: name.clone(),
            from: link.from.clone(),
            to: link.to.clone(),
            resource: maker.resource(&format!("link:{name}"), capacity)?,
            packet_ratio: mtu / payload,
            wire_ratio,
            payload_bytes_per_s: capacity,
            segment_bytes: payload,
            state: link.clone(),
        });
    }
    Ok(made)
}

/// Return the payload rate of a link in bytes/s; none while it is down.
fn payload_rate(name: &str, link: &Link, wire_ratio: f64) -> Result<f64, WorldError> {
    let rate = assumptions::positive(
        &format!("network.links.{name}.rate_bit_per_s"),
        link.rate_bit_per_s,
    )?;
    Ok(if link.up {
        rate / BITS_PER_BYTE / wire_ratio
    } else {
        0.0
    })
}
