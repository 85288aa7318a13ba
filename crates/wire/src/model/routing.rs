//! The graph: which link an interface sends on, where a link ends, which link a router chooses. Checked once, numbers
//! after that.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use venturi_plan::{ANY_DESTINATION, Change, Interface, Link, LinkSet, Loss, Name, Network};

use super::chunk::Destination;
use crate::Error;

/// Most interfaces, routers and links: numbers of them are kept in 16 bits. Far above what one thread can carry.
const MOST: usize = 4096;
/// Slowest rate: below it, queues of usual sizes last for months.
const SLOWEST_BIT_PER_S: f64 = 1000.0;
/// Longest delay and jitter.
const LONGEST_S: f64 = 3600.0;
/// Longest device name: the kernel's `IFNAMSIZ` less the end of the text.
const DEVICE_NAME_BYTES: usize = 15;
/// Smallest and largest IP packet that an interface may have to carry: RFC 791.
const MTUS: std::ops::RangeInclusive<u32> = 68..=65535;

/// Where a link ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Interface(u16),
    Router(u16),
}

/// The graph in numbers. Interfaces, routers and links are numbered in the order of their names.
#[derive(Debug)]
pub(crate) struct Routing {
    addresses: Vec<(Ipv4Addr, u16)>,
    /// The link that an interface sends on.
    outgoing: Vec<u16>,
    /// Where each link ends.
    ends: Vec<End>,
    /// At each router: the link for each destination; the last entry is for all others.
    next: Vec<Vec<Option<u16>>>,
}

impl Routing {
    /// # Errors
    /// [`Error::Network`] for the first thing that is not as it must be.
    pub(crate) fn new(network: &Network) -> Result<Self, Error> {
        check_sizes(network)?;
        check_interfaces(network)?;
        for (name, link) in &network.links {
            check_link(&format!("links.{name}"), link)?;
        }
        let routers = number_routers(network)?;
        let interfaces = numbers(network.interfaces.keys());
        let links = numbers(network.links.keys());
        let end = |place: String, name: &Name| match (interfaces.get(name), routers.get(name)) {
            (Some(interface), _) => Ok(End::Interface(*interface)),
            (None, Some(router)) => Ok(End::Router(*router)),
            (None, None) => Err(Error::network(
                place,
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
    pub(crate) fn end(&self, link: usize) -> End {
        self.ends[link]
    }

    #[inline]
    pub(crate) fn next(&self, router: u16, destination: Destination) -> Option<u16> {
        self.next[usize::from(router)][usize::from(destination.0)]
    }

    /// What routers know an address as.
    #[inline]
    pub(crate) fn destination(&self, address: Ipv4Addr) -> Destination {
        let found = self
            .addresses
            .binary_search_by_key(&address, |(known, _)| *known);
        Destination(found.map_or(self.interfaces(), |index| self.addresses[index].1))
    }

    /// The links from an interface to where a destination's packets come out, and that interface; none if they do not.
    pub(crate) fn path(&self, from: u16, destination: Destination) -> Option<(Vec<u16>, u16)> {
        let mut links = vec![self.outgoing(from)];
        while links.len() <= self.next.len() + 1 {
            match self.end(usize::from(*links.last()?)) {
                End::Interface(interface) => return Some((links, interface)),
                End::Router(router) => links.push(self.next(router, destination)?),
            }
        }
        None
    }

    /// A packet that comes to more routers than there are goes round for ever.
    fn check_loops(&self, network: &Network) -> Result<(), Error> {
        let names: Vec<_> = network.interfaces.keys().collect();
        for from in 0..self.interfaces() {
            for to in 0..=self.interfaces() {
                let destination = Destination(to);
                let mut link = self.outgoing(from);
                let mut hops = 0;
                while let End::Router(router) = self.end(usize::from(link)) {
                    hops += 1;
                    if hops > self.next.len() {
                        let name = names
                            .get(usize::from(to))
                            .map_or(ANY_DESTINATION, |name| name);
                        return Err(Error::network(
                            "routes",
                            format!(
                                "an end of the way from `{}` to `{name}`",
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

fn check_sizes(network: &Network) -> Result<(), Error> {
    for (place, count) in [
        ("interfaces", network.interfaces.len()),
        ("links", network.links.len()),
        ("routers", network.routers.len()),
    ] {
        if count > MOST {
            return Err(Error::network(place, format!("at most {MOST}"), count));
        }
    }
    if network.interfaces.is_empty() {
        return Err(Error::network("interfaces", "at least one", "none"));
    }
    Ok(())
}

fn number_routers(network: &Network) -> Result<BTreeMap<&Name, u16>, Error> {
    let mut sorted: Vec<_> = network.routers.iter().collect();
    sorted.sort();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        let found = format!("`{}` twice", twice[0]);
        return Err(Error::network("routers", "different names", found));
    }
    let shared = sorted
        .iter()
        .find(|name| network.interfaces.contains_key(&***name));
    if let Some(name) = shared {
        let found = format!("`{name}`");
        return Err(Error::network(
            "routers",
            "names that no interface has",
            found,
        ));
    }
    Ok(sorted.into_iter().zip(0..).collect())
}

fn check_interfaces(network: &Network) -> Result<(), Error> {
    let mut devices = BTreeSet::new();
    for (name, interface) in &network.interfaces {
        let Interface {
            host, device, mtu, ..
        } = interface;
        let proper = (1..=DEVICE_NAME_BYTES).contains(&device.len())
            && !device.contains(|c: char| c == '/' || c == '%' || c == ':' || c.is_whitespace());
        if !proper {
            return Err(Error::network(
                format!("interfaces.{name}.device"),
                format!(
                    "a device name of 1 to {DEVICE_NAME_BYTES} bytes without space, `/`, `:` and `%`"
                ),
                format!("`{device}`"),
            ));
        }
        if !MTUS.contains(mtu) {
            return Err(Error::network(
                format!("interfaces.{name}.mtu"),
                format!("{} to {} bytes", MTUS.start(), MTUS.end()),
                mtu,
            ));
        }
        if !devices.insert((host, device)) {
            return Err(Error::network(
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
) -> Result<Vec<(Ipv4Addr, u16)>, Error> {
    let mut addresses: Vec<_> = network
        .interfaces
        .iter()
        .map(|(name, interface)| (interface.address, interfaces[name]))
        .collect();
    addresses.sort_unstable();
    match addresses.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(twice) => Err(Error::network(
            "interfaces",
            "an address of its own for each",
            format!("{} twice", twice[0].0),
        )),
        None => Ok(addresses),
    }
}

fn outgoing(network: &Network, starts: &[End], ends: &[End]) -> Result<Vec<u16>, Error> {
    let mut outgoing = Vec::new();
    for (name, interface) in network.interfaces.keys().zip(0..) {
        let this = End::Interface(interface);
        let count = |side: &[End]| side.iter().filter(|end| **end == this).count();
        for (way, found) in [("from", count(starts)), ("to", count(ends))] {
            if found != 1 {
                return Err(Error::network(
                    "links",
                    format!("exactly one link {way} interface `{name}`"),
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
) -> Result<Vec<Vec<Option<u16>>>, Error> {
    let mut next = vec![vec![None; interfaces.len() + 1]; routers.len()];
    for (router, routes) in &network.routes {
        let place = format!("routes.{router}");
        let row = routers.get(router).ok_or_else(|| {
            Error::network(&*place, "the name of a router", format!("`{router}`"))
        })?;
        let row = &mut next[usize::from(*row)];
        let mut any = None;
        for (destination, link) in routes {
            let known = network
                .links
                .get(link)
                .filter(|known| known.from == *router);
            let (Some(_), Some(number)) = (known, links.get(link)) else {
                return Err(Error::network(
                    format!("{place}.{destination}"),
                    format!("a link from `{router}`"),
                    format!("`{link}`"),
                ));
            };
            if &**destination == ANY_DESTINATION {
                any = Some(*number);
            } else if let Some(interface) = interfaces.get(destination) {
                row[usize::from(*interface)] = Some(*number);
            } else {
                return Err(Error::network(
                    place,
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

fn check_changes(changes: &[Change], network: &Network) -> Result<(), Error> {
    for (index, change) in changes.iter().enumerate() {
        let place = format!("changes[{index}]");
        if !(0.0..=1e9).contains(&change.time_s.get()) {
            return Err(Error::network(
                format!("{place}.time_s"),
                "seconds from `go` on, not negative",
                change.time_s,
            ));
        }
        if !network.links.contains_key(&change.link) {
            return Err(Error::network(
                format!("{place}.link"),
                "the name of a link",
                format!("`{}`", change.link),
            ));
        }
        check_set(&format!("{place}.set"), &change.set)?;
    }
    Ok(())
}

fn check_link(place: &str, link: &Link) -> Result<(), Error> {
    check_set(
        place,
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

/// Whether the values are ones that a link can have.
pub(crate) fn check_set(place: &str, set: &LinkSet) -> Result<(), Error> {
    let within = |key: &str, value: f64, low: f64, high: f64| {
        if (low..=high).contains(&value) {
            return Ok(());
        }
        Err(Error::network(
            format!("{place}.{key}"),
            format!("{low} to {high}"),
            value,
        ))
    };
    if let Some(rate) = set.rate_bit_per_s {
        within("rate_bit_per_s", rate, SLOWEST_BIT_PER_S, 1e13)?;
    }
    for (key, time) in [("delay_s", set.delay_s), ("jitter_s", set.jitter_s)] {
        if let Some(time) = time {
            within(key, time.get(), 0.0, LONGEST_S)?;
        }
    }
    if let Some(probability) = set.reorder_probability {
        within("reorder_probability", probability, 0.0, 1.0)?;
    }
    match set.loss.flatten() {
        None => Ok(()),
        Some(Loss::Independent { probability }) => {
            within("loss.probability", probability, 0.0, 1.0)
        }
        Some(Loss::Bursty {
            enter,
            leave,
            probability,
        }) => {
            within("loss.enter", enter, 0.0, 1.0)?;
            within("loss.leave", leave, 0.0, 1.0)?;
            within("loss.probability", probability, 0.0, 1.0)
        }
    }
}
