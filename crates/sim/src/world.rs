//! A plan's testbed as resources of the solver, and what each kind of transfer crosses.
//!
//! The capacity of a link is that of its payload: its rate times the share of a full packet that is not headers. What a network does
//! to single packets (queues, reordering, acknowledgements that share the way back) is left out.
//!
//! Read [`World`] first, then `course.rs`: how a transfer finds its resources, and `sketch.rs`: what it does on them.

mod assumptions;
mod blocks;
mod checks;
mod course;
mod doors;
mod error;
mod memory;
mod network;
mod passage;
mod proxies;
mod servers;
mod sketch;
mod stage;
mod stores;
mod uniform;
mod ways;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use assumptions::Assumptions;
pub(crate) use course::{Ask, Courses, Passage};
use doors::Doors;
pub use error::Error;
use memory::Memories;
pub(crate) use network::LinkNumber;
use network::Tables;
use proxies::Proxies;
use servers::Servers;
pub(crate) use stage::{Amounts, Stage, Stages};
use stores::Stores;
pub(crate) use uniform::{LOAD, changes_caches};

use venturi_plan::{Amount, Header, Host, Link, Loss, Name, Transfer, Via};

use crate::fluid::{Capacity, Fluid, ResourceId};

/// Bytes of a packet that carry no payload: IPv4 (RFC 791) 20, TCP (RFC 9293) 20, its timestamps (RFC 7323) 12.
const HEADER_BYTES: f64 = 52.0;
const BITS_PER_BYTE: f64 = 8.0;

/// A link in one direction.
#[derive(Debug)]
pub(crate) struct LinkInfo {
    pub name: Name,
    pub from: Name,
    pub to: Name,
    pub resource: ResourceId,
    /// Bytes that pass for a byte of payload, at the network layer, and with what the link adds.
    pub packet_ratio: f64,
    pub wire_ratio: f64,
    /// As the plan begins.
    pub payload_bytes_per_s: f64,
    /// Payload of a full segment.
    pub segment_bytes: f64,
    state: Link,
}

impl LinkInfo {
    /// Whether it carries anything.
    pub fn is_up(&self) -> bool {
        self.state.up
    }

    /// Probability that a packet is lost at random; of bursts, their mean.
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

/// The resources of a testbed.
#[derive(Debug)]
pub(crate) struct World {
    pub header: Arc<Header>,
    pub assumptions: Assumptions,
    pub links: Vec<LinkInfo>,
    pub stores: Stores,
    pub memories: Memories,
    tables: Tables,
    servers: Servers,
    doors: Doors,
    hosts: BTreeMap<Name, HostParts>,
    pub proxies: Proxies,
    /// What [`crate::fluid::Bound`] names, by the number of the resource.
    names: BTreeMap<ResourceId, Arc<str>>,
    /// What a resource gives to a single user as the plan begins.
    single: BTreeMap<ResourceId, f64>,
}

#[derive(Debug)]
struct HostParts {
    loopback: ResourceId,
    /// Its own cores, and those of the machine that it shares with others.
    cpus: Vec<ResourceId>,
}

impl HostParts {
    fn new(
        name: &Name,
        host: &Host,
        machine: Option<ResourceId>,
        assumptions: &Assumptions,
        maker: &mut Maker<'_>,
    ) -> Result<Self, Error> {
        let loopback = maker.resource(
            &format!("loopback:{name}"),
            assumptions.loopback_bytes_per_s,
        )?;
        let lab = host.lab.as_ref();
        let pinned = lab.and_then(|lab| lab.cpus.as_ref());
        let cost = assumptions.costs.hosts.get(name);
        let said = cost.and_then(|cost| cost.cores).map(Amount::get);
        let limits = [
            lab.and_then(|lab| lab.cpu_limit_cores),
            pinned.map(|cpus| cpus.len() as f64),
            said.or(assumptions.cores),
        ];
        let mut cpus = Vec::with_capacity(2);
        if let Some(cores) = limits.into_iter().flatten().reduce(f64::min) {
            assumptions::positive(&format!("hosts.{name}, its cores"), cores)?;
            cpus.push(maker.resource(&format!("cpu:{name}"), cores)?);
        }
        cpus.extend(machine);
        Ok(Self { loopback, cpus })
    }
}

impl World {
    /// The testbed of a plan.
    ///
    /// # Errors
    /// Where a number is none that a resource can have, or a name is of nothing.
    pub fn new(
        header: Arc<Header>,
        assumptions: Assumptions,
        fluid: &mut Fluid,
    ) -> Result<Self, Error> {
        assumptions.check()?;
        checks::check_links(&header)?;
        checks::check_measure(&header)?;
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
        let servers = Servers::new(&header, &assumptions.costs, &mut maker)?;
        let doors = Doors::new(&header);
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
            doors,
            hosts,
            proxies,
            names,
            single,
        })
    }

    /// Cores of a host as resources, in core-seconds per second; none if it has as many as are asked for.
    pub fn cpus(&self, host: &str) -> &[ResourceId] {
        self.hosts.get(host).map_or(&[], |host| &host.cpus)
    }

    /// Which process of the service that sends the bytes takes this connection, or to which door it is sent, where that makes a
    /// difference.
    pub fn process_of(&self, transfer: &Transfer, connection: u64) -> Option<u32> {
        let sender = self.sender_of(transfer);
        let process =
            sender.and_then(|it| self.servers.process_of(it, self.header.seed, connection));
        let asked = [sender, transfer.destination_via.as_ref().map(Via::service)];
        let turn = |it: &str| self.doors.turn(it, connection);
        process.or_else(|| asked.into_iter().flatten().find_map(turn))
    }

    /// The name of a resource, such as `link:a>b`.
    pub fn name_of(&self, resource: ResourceId) -> Arc<str> {
        self.names[&resource].clone()
    }

    /// What a flow over these resources gets while it is alone, if its cap is this.
    pub fn alone(&self, resources: &[ResourceId], cap: f64) -> f64 {
        // A resource that is named twice carries each byte twice.
        let share = |resource: &ResourceId| {
            let times = resources.iter().filter(|other| *other == resource).count();
            self.single[resource] / times as f64
        };
        resources.iter().map(share).fold(cap, f64::min)
    }

    /// Devices of a host that are links of the network: device, link out, link in.
    pub fn devices_of(&self, host: &str) -> Vec<(String, Option<LinkNumber>, Option<LinkNumber>)> {
        let numbered = |wanted: &dyn Fn(&LinkInfo) -> bool| self.links.iter().position(wanted);
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

    /// A link by its name.
    pub fn link_named(&self, name: &Name) -> Result<LinkNumber, Error> {
        self.links
            .iter()
            .position(|link| link.name == *name)
            .ok_or_else(|| Error::Unknown {
                where_: "network.changes".into(),
                expected: "a link of the network",
                found: name.as_ref().into(),
            })
    }

    /// Changes a link as planned; its resource, and the payload in bytes/s that it carries from now on.
    pub fn change(
        &mut self,
        number: LinkNumber,
        set: &venturi_plan::LinkSet,
    ) -> Result<(ResourceId, f64), Error> {
        let link = &mut self.links[number];
        set.apply(&mut link.state);
        let capacity = payload_rate(&link.name, &link.state, link.wire_ratio)?;
        Ok((link.resource, capacity))
    }

    /// What a place holds; none if anything.
    pub fn room_of(&self, place: &str) -> Option<u64> {
        let storage = self
            .header
            .places
            .get(place)
            .and_then(|place| place.storage.as_ref());
        let size = storage
            .and_then(|storage| storage.size_bytes)
            .map(|size| size.get());
        size.or(self.assumptions.storage_bytes)
    }
}

/// Adds resources to the solver and remembers their names.
struct Maker<'a> {
    fluid: &'a mut Fluid,
    names: BTreeMap<ResourceId, Arc<str>>,
    single: BTreeMap<ResourceId, f64>,
}

impl Maker<'_> {
    fn resource(&mut self, name: &str, capacity: f64) -> Result<ResourceId, Error> {
        self.shared(name, vec![capacity])
    }

    /// Its capacity for 1, 2, … users.
    fn shared(&mut self, name: &str, capacity: Vec<f64>) -> Result<ResourceId, Error> {
        let found = format!("{capacity:?}");
        let single = capacity.first().copied();
        let capacity = match capacity[..] {
            [all] => Capacity::Constant(all),
            _ => Capacity::OfUsers(capacity.into()),
        };
        let made = self.fluid.resource(capacity).map_err(|_| Error::Value {
            where_: name.into(),
            expected: "a finite capacity of at least 0",
            found,
        })?;
        self.names.insert(made, name.into());
        self.single.extend(single.map(|single| (made, single)));
        Ok(made)
    }
}

fn links(header: &Header, maker: &mut Maker<'_>) -> Result<Vec<LinkInfo>, Error> {
    let Some(network) = &header.network else {
        return Ok(Vec::new());
    };
    // The hosts of both ends of a path may differ in what they send; most networks have one MTU.
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
            return Err(Error::Value {
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

/// Payload in bytes/s that a link carries; none while it is down.
fn payload_rate(name: &str, link: &Link, wire_ratio: f64) -> Result<f64, Error> {
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
