//! Graph of the network: the outgoing link of each interface, the end of each link, and the routes
//! of each router. Names are checked once and then replaced by numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use venturi_plan::{ANY_DESTINATION, Change, Interface, Link, LinkSet, Loss, Name, Network};

use super::chunk::ChunkDestination;
use crate::EmulatorError;

/// Maximum number of interfaces, routers or links, because their numbers have 16 bits. This is far
/// above the capacity of one thread.
const MAX_COUNT: usize = 4096;
/// Minimum rate; below it, queues of usual sizes last for months.
const SLOWEST_BIT_PER_S: f64 = 1000.0;
/// Maximum delay and jitter.
const MAX_DELAY_S: f64 = 3600.0;
/// Maximum length of a device name: `IFNAMSIZ` of the kernel minus the terminating NUL.
const DEVICE_NAME_BYTES: usize = 15;
/// Minimum and maximum MTU of an interface: RFC 791.
const MTUS: std::ops::RangeInclusive<u32> = 68..=65535;

/// End of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkEnd {
    Interface(u16),
    Router(u16),
}

/// The graph in numbers. Interfaces, routers and links are numbered in the order of their names.
#[derive(Debug)]
pub(crate) struct Routing {
    addresses: Vec<(Ipv4Addr, u16)>,
    /// Outgoing link of each interface.
    outgoing: Vec<u16>,
    /// End of each link.
    ends: Vec<LinkEnd>,
    /// For each router, the link for each destination; the last entry is for all other
    /// destinations.
    next: Vec<Vec<Option<u16>>>,
}

impl Routing {
    /// # Errors
    /// [`EmulatorError::Network`] for the first invalid value.
    pub(crate) fn new(network: &Network) -> Result<Self, EmulatorError> {
        check_sizes(network)?;
        check_interfaces(network)?;
        for (name, link) in &network.links {
            check_link(&format!("links.{name}"), link)?;
        }
        let routers = number_routers(network)?;
        let interfaces = numbers(network.interfaces.keys());
        let links = numbers(network.links.keys());
        let end = |location: String, name: &Name| match (interfaces.get(name), routers.get(name)) {
            (Some(interface), _) => Ok(LinkEnd::Interface(*interface)),
            (None, Some(router)) => Ok(LinkEnd::Router(*router)),
            (None, None) => Err(EmulatorError::network(
                location,
                "the name of an interface or a router",
                format!("`{name}`"),
            )),
        };
        let mut ends = Vec::new();
        let mut starts = Vec::new();
        for (name, link) in &network.links {
            starts.push(end(format!("links.{name}.from"), &link.from)?);
            ends.push(end(format!("links.{name}.to"), &link.to)?);
        }
        let routing = Self {
            addresses: addresses(network, &interfaces)?,
            outgoing: outgoing(network, &starts, &ends)?,
            next: next_hops(network, &routers, &interfaces, &links)?,
            ends,
        };
        routing.check_loops(network)?;
        check_changes(&network.changes, network)?;
        Ok(routing)
    }

    pub(crate) fn interfaces(&self) -> u16 {
        u16::try_from(self.outgoing.len()).expect("checked")
    }

    #[inline]
    pub(crate) fn outgoing(&self, interface: u16) -> u16 {
        self.outgoing[usize::from(interface)]
    }

    #[inline]
    pub(crate) fn end(&self, link: usize) -> LinkEnd {
        self.ends[link]
    }

    #[inline]
    pub(crate) fn next(&self, router: u16, destination: ChunkDestination) -> Option<u16> {
        self.next[usize::from(router)][usize::from(destination.0)]
    }

    /// Return the destination of an address, as routers see it.
    #[inline]
    pub(crate) fn destination(&self, address: Ipv4Addr) -> ChunkDestination {
        let found = self
            .addresses
            .binary_search_by_key(&address, |(known, _)| *known);
        ChunkDestination(found.map_or(self.interfaces(), |index| self.addresses[index].1))
    }

    /// Return the links from an interface to the interface at which packets to a destination
    /// arrive, and this interface; none without a route.
    pub(crate) fn path(&self, from: u16, destination: ChunkDestination) -> Option<(Vec<u16>, u16)> {
        let mut links = vec![self.outgoing(from)];
        while links.len() <= self.next.len() + 1 {
            match self.end(usize::from(*links.last()?)) {
                LinkEnd::Interface(interface) => return Some((links, interface)),
                LinkEnd::Router(router) => links.push(self.next(router, destination)?),
            }
        }
        None
    }

    /// Check for routing loops: a packet in a loop crosses more routers than exist.
    fn check_loops(&self, network: &Network) -> Result<(), EmulatorError> {
        let names: Vec<_> = network.interfaces.keys().collect();
        for from in 0..self.interfaces() {
            for to in 0..=self.interfaces() {
                let destination = ChunkDestination(to);
                let mut link = self.outgoing(from);
                let mut hops = 0;
                while let LinkEnd::Router(router) = self.end(usize::from(link)) {
                    hops += 1;
                    if hops > self.next.len() {
                        let name = names
                            .get(usize::from(to))
                            .map_or(ANY_DESTINATION, |name| name);
                        return Err(EmulatorError::network(
                            "routes",
                            format!(
                                "a route from `{}` to `{name}` without a loop",
                                names[usize::from(from)]
                            ),
                            "a loop of routers",
                        ));
                    }
                    let Some(next) = self.next(router, destination) else {
                        break;
                    };
                    link = next;
                }
            }
        }
        Ok(())
    }
}

fn numbers<'a>(names: impl Iterator<Item = &'a Name>) -> BTreeMap<&'a Name, u16> {
    names.zip(0..).collect()
}

fn check_sizes(network: &Network) -> Result<(), EmulatorError> {
    for (location, count) in [
        ("interfaces", network.interfaces.len()),
        ("links", network.links.len()),
        ("routers", network.routers.len()),
    ] {
        if count > MAX_COUNT {
            return Err(EmulatorError::network(
                location,
                format!("at most {MAX_COUNT}"),
                count,
            ));
        }
    }
    if network.interfaces.is_empty() {
        return Err(EmulatorError::network("interfaces", "at least one", "none"));
    }
    Ok(())
}

fn number_routers(network: &Network) -> Result<BTreeMap<&Name, u16>, EmulatorError> {
    let mut sorted: Vec<_> = network.routers.iter().collect();
    sorted.sort();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        let found = format!("`{}` twice", twice[0]);
        return Err(EmulatorError::network("routers", "different names", found));
    }
    let shared = sorted
        .iter()
        .find(|name| network.interfaces.contains_key(&***name));
    if let Some(name) = shared {
        let found = format!("`{name}`");
        return Err(EmulatorError::network(
            "routers",
            "names different from the interfaces",
            found,
        ));
    }
    Ok(sorted.into_iter().zip(0..).collect())
}

fn check_interfaces(network: &Network) -> Result<(), EmulatorError> {
    let mut devices = BTreeSet::new();
    for (name, interface) in &network.interfaces {
        let Interface {
            host, device, mtu, ..
        } = interface;
        let proper = (1..=DEVICE_NAME_BYTES).contains(&device.len())
            && !device.contains(|c: char| c == '/' || c == '%' || c == ':' || c.is_whitespace());
        if !proper {
            return Err(EmulatorError::network(
                format!("interfaces.{name}.device"),
                format!(
                    "a device name of 1 to {DEVICE_NAME_BYTES} bytes without space, `/`, `:` and `%`"
                ),
                format!("`{device}`"),
            ));
        }
        if !MTUS.contains(mtu) {
            return Err(EmulatorError::network(
                format!("interfaces.{name}.mtu"),
                format!("{} to {} bytes", MTUS.start(), MTUS.end()),
                mtu,
            ));
        }
        if !devices.insert((host, device)) {
            return Err(EmulatorError::network(
                format!("interfaces.{name}.device"),
                format!("a device that host `{host}` does not have yet"),
                format!("`{device}` again"),
            ));
        }
    }
    Ok(())
}

fn addresses(
    network: &Network,
    interfaces: &BTreeMap<&Name, u16>,
) -> Result<Vec<(Ipv4Addr, u16)>, EmulatorError> {
    let mut addresses: Vec<_> = network
        .interfaces
        .iter()
        .map(|(name, interface)| (interface.address, interfaces[name]))
        .collect();
    addresses.sort_unstable();
    match addresses.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(twice) => Err(EmulatorError::network(
            "interfaces",
            "a different address for each",
            format!("{} twice", twice[0].0),
        )),
        None => Ok(addresses),
    }
}

fn outgoing(
    network: &Network,
    starts: &[LinkEnd],
    ends: &[LinkEnd],
) -> Result<Vec<u16>, EmulatorError> {
    let mut outgoing = Vec::new();
    for (name, interface) in network.interfaces.keys().zip(0..) {
        let this = LinkEnd::Interface(interface);
        let count = |side: &[LinkEnd]| side.iter().filter(|end| **end == this).count();
        for (route, found) in [("from", count(starts)), ("to", count(ends))] {
            if found != 1 {
                return Err(EmulatorError::network(
                    "links",
                    format!("exactly one link {route} interface `{name}`"),
                    found,
                ));
            }
        }
        let link = starts
            .iter()
            .position(|start| *start == this)
            .expect("counted just now");
        outgoing.push(u16::try_from(link).expect("checked"));
    }
    Ok(outgoing)
}

fn next_hops(
    network: &Network,
    routers: &BTreeMap<&Name, u16>,
    interfaces: &BTreeMap<&Name, u16>,
    links: &BTreeMap<&Name, u16>,
) -> Result<Vec<Vec<Option<u16>>>, EmulatorError> {
    let mut next = vec![vec![None; interfaces.len() + 1]; routers.len()];
    for (router, routes) in &network.routes {
        let location = format!("routes.{router}");
        let row = routers.get(router).ok_or_else(|| {
            EmulatorError::network(&*location, "the name of a router", format!("`{router}`"))
        })?;
        let row = &mut next[usize::from(*row)];
        let mut any = None;
        for (destination, link) in routes {
            let known = network
                .links
                .get(link)
                .filter(|known| known.from == *router);
            let (Some(_), Some(number)) = (known, links.get(link)) else {
                return Err(EmulatorError::network(
                    format!("{location}.{destination}"),
                    format!("a link from `{router}`"),
                    format!("`{link}`"),
                ));
            };
            if &**destination == ANY_DESTINATION {
                any = Some(*number);
            } else if let Some(interface) = interfaces.get(destination) {
                row[usize::from(*interface)] = Some(*number);
            } else {
                return Err(EmulatorError::network(
                    location,
                    format!("the names of interfaces and `{ANY_DESTINATION}`"),
                    format!("`{destination}`"),
                ));
            }
        }
        for entry in row.iter_mut().filter(|entry| entry.is_none()) {
            *entry = any;
        }
    }
    Ok(next)
}

fn check_changes(changes: &[Change], network: &Network) -> Result<(), EmulatorError> {
    for (index, change) in changes.iter().enumerate() {
        let location = format!("changes[{index}]");
        if !(0.0..=1e9).contains(&change.time_s.get()) {
            return Err(EmulatorError::network(
                format!("{location}.time_s"),
                "seconds after `go`, at least 0",
                change.time_s,
            ));
        }
        if !network.links.contains_key(&change.link) {
            return Err(EmulatorError::network(
                format!("{location}.link"),
                "the name of a link",
                format!("`{}`", change.link),
            ));
        }
        check_set(&format!("{location}.set"), &change.set)?;
    }
    Ok(())
}

fn check_link(location: &str, link: &Link) -> Result<(), EmulatorError> {
    check_set(
        location,
        &LinkSet {
            rate_bit_per_s: Some(link.rate_bit_per_s),
            delay_s: Some(link.delay_s),
            jitter_s: Some(link.jitter_s),
            queue_bytes: Some(link.queue_bytes),
            loss: Some(link.loss),
            reorder_probability: Some(link.reorder_probability),
            up: Some(link.up),
        },
    )
}

/// Check that the values are valid for a link.
pub(crate) fn check_set(location: &str, set: &LinkSet) -> Result<(), EmulatorError> {
    let check_range = |key: &str, value: f64, low: f64, high: f64| {
        if (low..=high).contains(&value) {
            return Ok(());
        }
        Err(EmulatorError::network(
            format!("{location}.{key}"),
            format!("{low} to {high}"),
            value,
        ))
    };
    if let Some(rate) = set.rate_bit_per_s {
        check_range("rate_bit_per_s", rate, SLOWEST_BIT_PER_S, 1e13)?;
    }
    for (key, time) in [("delay_s", set.delay_s), ("jitter_s", set.jitter_s)] {
        if let Some(time) = time {
            check_range(key, time.get(), 0.0, MAX_DELAY_S)?;
        }
    }
    if let Some(probability) = set.reorder_probability {
        check_range("reorder_probability", probability, 0.0, 1.0)?;
    }
    match set.loss.flatten() {
        None => Ok(()),
        Some(Loss::Independent { probability }) => {
            check_range("loss.probability", probability, 0.0, 1.0)
        }
        Some(Loss::Bursty {
            enter,
            leave,
            probability,
        }) => {
            check_range("loss.enter", enter, 0.0, 1.0)?;
            check_range("loss.leave", leave, 0.0, 1.0)?;
            check_range("loss.probability", probability, 0.0, 1.0)
        }
    }
}
