//! Links that packets cross, from the tables of a plan: hosts choose a device, routers a link, and
//! gateways hide addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use venturi_plan::{ANY_DESTINATION, Header, Interface, Link, Name, Network};

use super::WorldError;

/// Maximum number of links of a route; a route in a loop is longer.
const MAX_HOPS: usize = 64;

/// Number of a link, in the order of names.
pub(crate) type LinkNumber = usize;

/// Tables of a plan's network, by name.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    interfaces: BTreeMap<Name, Port>,
    links: Vec<NetworkLink>,
    /// Destination interface → link, at each router; [`ANY_DESTINATION`] for all others.
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
struct NetworkLink {
    to: Name,
    delay_s: f64,
}

/// Choice of a device by a host.
#[derive(Debug, Default)]
struct Choice {
    by_address: BTreeMap<Ipv4Addr, Name>,
    otherwise: Option<Name>,
    hides: BTreeSet<Name>,
}

/// Route of packets in one direction.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PacketRoute {
    pub links: Vec<LinkNumber>,
    pub delay_s: f64,
    /// Interfaces whose addresses the packets have: the sender's interface, then gateways that hide
    /// it.
    seen_as: Vec<Name>,
}

/// Routes in both directions between two interfaces.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RoundTrip {
    pub forward: Vec<LinkNumber>,
    pub back: Vec<LinkNumber>,
    pub rtt_s: f64,
}

impl Tables {
    /// Read the tables of a header; empty if the plan has no network.
    pub(crate) fn new(header: &Header) -> Result<Self, WorldError> {
        let Some(network) = &header.network else {
            return Ok(Self::default());
        };
        let mut tables = Self {
            interfaces: ports(network),
            links: network_links(network),
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

    /// Return the interface of a host with this device.
    pub(crate) fn interface(&self, host: &str, device: &str) -> Option<&Name> {
        let mut all = self.interfaces.iter();
        all.find(|(_, port)| &*port.host == host && port.device == device)
            .map(|(name, _)| name)
    }

    /// Return the interfaces of a host, with their devices.
    pub(crate) fn interfaces_of(&self, host: &str) -> impl Iterator<Item = (&Name, &str)> {
        let own = self
            .interfaces
            .iter()
            .filter(move |(_, port)| &*port.host == host);
        own.map(|(name, port)| (name, port.device.as_str()))
    }

    /// Return the host of an interface.
    pub(crate) fn host_of(&self, interface: &str) -> Option<&Name> {
        self.interfaces.get(interface).map(|port| &port.host)
    }

    /// Return the route of packets from one interface to another (to any address that gateways give
    /// the sender), and of the replies.
    pub(crate) fn round_trip(&self, from: &Name, to: &Name) -> Result<RoundTrip, WorldError> {
        let forward = self.route(from, to)?;
        // A reply goes to the last visible address; each gateway forwards it to the previous one.
        let mut back = PacketRoute::default();
        let mut leave = to.clone();
        for (index, target) in forward.seen_as.iter().enumerate().rev() {
            let leg = self.route(&leave, target)?;
            back.links.extend(leg.links);
            back.delay_s += leg.delay_s;
            if let Some(next) = index.checked_sub(1).map(|before| &forward.seen_as[before]) {
                let gateway = self.interfaces[target].host.clone();
                leave = self.leaves_by(&gateway, next)?;
            }
        }
        Ok(RoundTrip {
            rtt_s: forward.delay_s + back.delay_s,
            forward: forward.links,
            back: back.links,
        })
    }

    /// Return the interface that a host uses to reach another one.
    pub(crate) fn leaves_by(&self, host: &str, to: &Name) -> Result<Name, WorldError> {
        let target = self.port(to)?;
        let choice = self.hosts.get(host);
        let device = choice.and_then(|choice| {
            choice
                .by_address
                .get(&target.address)
                .or(choice.otherwise.as_ref())
        });
        device.cloned().ok_or_else(|| WorldError::NoRoute {
            from: host.into(),
            to: to.as_ref().into(),
            found: format!("`{host}` has no route to {}", target.address),
        })
    }

    fn route(&self, from: &Name, to: &Name) -> Result<PacketRoute, WorldError> {
        let mut route = PacketRoute {
            seen_as: vec![from.clone()],
            ..PacketRoute::default()
        };
        self.port(from)?;
        let target = self.port(to)?.host.clone();
        let mut leave = from.clone();
        // Bounded by the links of a route: each leg adds at least one.
        loop {
            let arrived =
                self.leg(&mut route, &leave, to)
                    .map_err(|found| WorldError::NoRoute {
                        from: from.as_ref().into(),
                        to: to.as_ref().into(),
                        found,
                    })?;
            let host = self.interfaces[&arrived].host.clone();
            if host == target {
                return Ok(route);
            }
            leave = self.leaves_by(&host, to)?;
            let hides = self
                .hosts
                .get(&host)
                .is_some_and(|choice| choice.hides.contains(&leave));
            if hides {
                route.seen_as.push(leave.clone());
            }
        }
    }

    /// Follow routers to the next host. Return the interface of arrival, or the position of a dead
    /// end.
    fn leg(&self, route: &mut PacketRoute, leave: &Name, to: &Name) -> Result<Name, String> {
        let out = self.interfaces.get(leave).and_then(|port| port.out);
        let mut number = out.ok_or_else(|| format!("there is no link out of `{leave}`"))?;
        // Bounded by the maximum number of links.
        loop {
            if route.links.len() == MAX_HOPS {
                return Err(format!(
                    "it has more than {MAX_HOPS} links, so the routes form a loop"
                ));
            }
            let network_link = &self.links[number];
            route.links.push(number);
            route.delay_s += network_link.delay_s;
            if self.interfaces.contains_key(&network_link.to) {
                return Ok(network_link.to.clone());
            }
            let table = self.routes.get(&network_link.to);
            let next = table.and_then(|table| table.get(to).or_else(|| table.get(ANY_DESTINATION)));
            number = *next
                .ok_or_else(|| format!("the router `{}` has no route to it", network_link.to))?;
        }
    }

    fn port(&self, interface: &Name) -> Result<&Port, WorldError> {
        self.interfaces
            .get(interface)
            .ok_or_else(|| WorldError::Unknown {
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

fn network_links(network: &Network) -> Vec<NetworkLink> {
    let network_link = |link: &Link| NetworkLink {
        to: link.to.clone(),
        delay_s: link.delay_s.get(),
    };
    network.links.values().map(network_link).collect()
}

/// Return destination interface → number of a link, for each router.
fn routes(network: &Network) -> Result<BTreeMap<Name, BTreeMap<Name, LinkNumber>>, WorldError> {
    let numbers: BTreeMap<&Name, LinkNumber> = network.links.keys().zip(0..).collect();
    let number_of = |router: &Name, link: &Name| {
        numbers
            .get(link)
            .copied()
            .ok_or_else(|| WorldError::Unknown {
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
            .collect::<Result<_, WorldError>>()?;
        routes.insert(router.clone(), table);
    }
    Ok(routes)
}
