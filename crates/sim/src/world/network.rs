//! Which links packets take, as the tables of a plan say it: hosts choose a device, routers a link, gateways hide addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use venturi_plan::{ANY_DESTINATION, Header, Name};

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
        let numbers: BTreeMap<&Name, LinkNumber> = network
            .links
            .keys()
            .enumerate()
            .map(|(number, name)| (name, number))
            .collect();
        let number_of = |router: &Name, link: &Name| {
            numbers.get(link).copied().ok_or_else(|| Error::Unknown {
                where_: format!("network.routes.{router}"),
                expected: "a link of the network",
                found: link.as_ref().into(),
            })
        };
        let mut tables = Self {
            links: network
                .links
                .values()
                .map(|link| Wire {
                    to: link.to.clone(),
                    delay_s: link.delay_s.get(),
                })
                .collect(),
            ..Self::default()
        };
        for (name, interface) in &network.interfaces {
            let out = network.links.values().position(|link| link.from == *name);
            let port = Port {
                host: interface.host.clone(),
                device: interface.device.clone(),
                address: interface.address,
                out,
            };
            tables.interfaces.insert(name.clone(), port);
        }
        for (router, table) in &network.routes {
            let table = table
                .iter()
                .map(|(to, link)| Ok((to.clone(), number_of(router, link)?)))
                .collect::<Result<_, Error>>()?;
            tables.routes.insert(router.clone(), table);
        }
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
        let stuck = |found: String| Error::NoWay {
            from: from.as_ref().into(),
            to: to.as_ref().into(),
            found,
        };
        let target = self.port(to)?.host.clone();
        let mut leave = from.clone();
        loop {
            let mut next = self.port(&leave)?.out;
            let arrived = loop {
                let Some(number) = next else {
                    return Err(stuck(format!("there is no link out of `{leave}`")));
                };
                if way.links.len() == MOST_HOPS {
                    return Err(stuck(format!(
                        "it is longer than {MOST_HOPS} links, so the routes go in circles"
                    )));
                }
                let wire = &self.links[number];
                way.links.push(number);
                way.delay_s += wire.delay_s;
                if self.interfaces.contains_key(&wire.to) {
                    break wire.to.clone();
                }
                let table = self.routes.get(&wire.to);
                next = table.and_then(|table| {
                    table
                        .get(to)
                        .or_else(|| table.get(ANY_DESTINATION))
                        .copied()
                });
                if next.is_none() {
                    return Err(stuck(format!(
                        "the router `{}` has no route to it",
                        wire.to
                    )));
                }
            };
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
