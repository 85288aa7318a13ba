//! Which links packets take, as the tables of a plan say it: hosts choose a device, routers a link, gateways hide addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use venturi_plan::{ANY_DESTINATION, Header, Interface, Link, Name, Network};

use super::Error;

/// Links on one way at most: a route that goes in circles is longer.
const MOST_HOPS: usize = 64;

/// The number of a link, in the order of their names.
pub(crate) type LinkNumber = usize;

/// The tables of a plan's network, by name.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    interfaces: BTreeMap<Name, Port>,
    links: Vec<Wire>,
    /// At each router: destination interface → link; [`ANY_DESTINATION`] for all others.
    routes: BTreeMap<Name, BTreeMap<Name, LinkNumber>>,
    hosts: BTreeMap<Name, Choice>,
}

#[derive(Debug)]
struct Port {
    host: Name,
    device: String,
    address: Ipv4Addr,
    out: Option<LinkNumber>,
}

#[derive(Debug)]
struct Wire {
    to: Name,
    delay_s: f64,
}

/// How a host chooses a device.
#[derive(Debug, Default)]
struct Choice {
    by_address: BTreeMap<Ipv4Addr, Name>,
    otherwise: Option<Name>,
    hides: BTreeSet<Name>,
}

/// A way for packets in one direction.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Way {
    pub links: Vec<LinkNumber>,
    pub delay_s: f64,
    /// Interfaces under whose addresses the packets have travelled: the sender's own, then those of gateways that hide it.
    seen_as: Vec<Name>,
}

/// Ways there and back between two interfaces.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RoundTrip {
    pub there: Vec<LinkNumber>,
    pub back: Vec<LinkNumber>,
    pub rtt_s: f64,
}

impl Tables {
    /// Read the tables of a header; empty if the plan has no network of its own.
    pub(crate) fn new(header: &Header) -> Result<Self, Error> {
        let Some(network) = &header.network else {
            return Ok(Self::default());
        };
        let mut tables = Self {
            interfaces: ports(network),
            links: wires(network),
            routes: routes(network)?,
            hosts: BTreeMap::new(),
        };
        for (name, host) in &header.hosts {
            tables
                .hosts
                .insert(name.clone(), tables.choice_of(name, host));
        }
        Ok(tables)
    }

    /// The interface of a host with this device.
    pub(crate) fn interface(&self, host: &str, device: &str) -> Option<&Name> {
        let mut all = self.interfaces.iter();
        all.find(|(_, port)| &*port.host == host && port.device == device)
            .map(|(name, _)| name)
    }

    /// The interfaces of a host, with their devices.
    pub(crate) fn interfaces_of(&self, host: &str) -> impl Iterator<Item = (&Name, &str)> {
        let own = self
            .interfaces
            .iter()
            .filter(move |(_, port)| &*port.host == host);
        own.map(|(name, port)| (name, port.device.as_str()))
    }

    /// The host of an interface.
    pub(crate) fn host_of(&self, interface: &str) -> Option<&Name> {
        self.interfaces.get(interface).map(|port| &port.host)
    }

    /// Packets from one interface to another (to whatever address gateways give the sender), and the answers.
    pub(crate) fn round_trip(&self, from: &Name, to: &Name) -> Result<RoundTrip, Error> {
        let there = self.way(from, to)?;
        // An answer goes to the address that was seen last; each gateway passes it on to the one before.
        let mut back = Way::default();
        let mut leave = to.clone();
        for (place, target) in there.seen_as.iter().enumerate().rev() {
            let leg = self.way(&leave, target)?;
            back.links.extend(leg.links);
            back.delay_s += leg.delay_s;
            if let Some(next) = place.checked_sub(1).map(|before| &there.seen_as[before]) {
                let gateway = self.interfaces[target].host.clone();
                leave = self.leaves_by(&gateway, next)?;
            }
        }
        Ok(RoundTrip {
            rtt_s: there.delay_s + back.delay_s,
            there: there.links,
            back: back.links,
        })
    }

    /// The interface by which a host sends to another one.
    pub(crate) fn leaves_by(&self, host: &str, to: &Name) -> Result<Name, Error> {
        let target = self.port(to)?;
        let choice = self.hosts.get(host);
        let device = choice.and_then(|choice| {
            choice
                .by_address
                .get(&target.address)
                .or(choice.otherwise.as_ref())
        });
        device.cloned().ok_or_else(|| Error::NoWay {
            from: host.into(),
            to: to.as_ref().into(),
            found: format!("`{host}` has no route to {}", target.address),
        })
    }

    fn way(&self, from: &Name, to: &Name) -> Result<Way, Error> {
        let mut way = Way {
            seen_as: vec![from.clone()],
            ..Way::default()
        };
        self.port(from)?;
        let target = self.port(to)?.host.clone();
        let mut leave = from.clone();
        // Bounded by the links of a way: each leg adds one at least.
        loop {
            let arrived = self
                .leg(&mut way, &leave, to)
                .map_err(|found| Error::NoWay {
                    from: from.as_ref().into(),
                    to: to.as_ref().into(),
                    found,
                })?;
            let here = self.interfaces[&arrived].host.clone();
            if here == target {
                return Ok(way);
            }
            leave = self.leaves_by(&here, to)?;
            let hides = self
                .hosts
                .get(&here)
                .is_some_and(|choice| choice.hides.contains(&leave));
            if hides {
                way.seen_as.push(leave.clone());
            }
        }
    }

    /// Over routers to the next host: the interface that packets arrive at, or where they get stuck.
    fn leg(&self, way: &mut Way, leave: &Name, to: &Name) -> Result<Name, String> {
        let out = self.interfaces.get(leave).and_then(|port| port.out);
        let mut number = out.ok_or_else(|| format!("there is no link out of `{leave}`"))?;
        // As many rounds as a way may have links.
        loop {
            if way.links.len() == MOST_HOPS {
                return Err(format!(
                    "it is longer than {MOST_HOPS} links, so the routes go in circles"
                ));
            }
            let wire = &self.links[number];
            way.links.push(number);
            way.delay_s += wire.delay_s;
            if self.interfaces.contains_key(&wire.to) {
                return Ok(wire.to.clone());
            }
            let table = self.routes.get(&wire.to);
            let next = table.and_then(|table| table.get(to).or_else(|| table.get(ANY_DESTINATION)));
            number = *next.ok_or_else(|| format!("the router `{}` has no route to it", wire.to))?;
        }
    }

    fn port(&self, interface: &Name) -> Result<&Port, Error> {
        self.interfaces
            .get(interface)
            .ok_or_else(|| Error::Unknown {
                where_: "network.interfaces".into(),
                expected: "an interface of the network",
                found: interface.as_ref().into(),
            })
    }

    fn choice_of(&self, name: &str, host: &venturi_plan::Host) -> Choice {
        let named = |device: &str| self.interface(name, device).cloned();
        let Some(lab) = &host.lab else {
            return Choice::default();
        };
        let by_address = lab
            .routes
            .iter()
            .filter_map(|(address, device)| Some((address.parse().ok()?, named(device)?)));
        Choice {
            by_address: by_address.collect(),
            otherwise: lab.default_device.as_deref().and_then(named),
            hides: lab.nat.iter().filter_map(|device| named(device)).collect(),
        }
    }
}

fn ports(network: &Network) -> BTreeMap<Name, Port> {
    let port = |(name, interface): (&Name, &Interface)| {
        let out = network.links.values().position(|link| link.from == *name);
        let port = Port {
            host: interface.host.clone(),
            device: interface.device.clone(),
            address: interface.address,
            out,
        };
        (name.clone(), port)
    };
    network.interfaces.iter().map(port).collect()
}

fn wires(network: &Network) -> Vec<Wire> {
    let wire = |link: &Link| Wire {
        to: link.to.clone(),
        delay_s: link.delay_s.get(),
    };
    network.links.values().map(wire).collect()
}

/// At each router: destination interface → number of a link.
fn routes(network: &Network) -> Result<BTreeMap<Name, BTreeMap<Name, LinkNumber>>, Error> {
    let numbers: BTreeMap<&Name, LinkNumber> = network.links.keys().zip(0..).collect();
    let number_of = |router: &Name, link: &Name| {
        numbers.get(link).copied().ok_or_else(|| Error::Unknown {
            where_: format!("network.routes.{router}"),
            expected: "a link of the network",
            found: link.as_ref().into(),
        })
    };
    let mut routes = BTreeMap::new();
    for (router, table) in &network.routes {
        let table = table
            .iter()
            .map(|(to, link)| Ok((to.clone(), number_of(router, link)?)))
            .collect::<Result<_, Error>>()?;
        routes.insert(router.clone(), table);
    }
    Ok(routes)
}
