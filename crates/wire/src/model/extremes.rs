//! What a network asks of whoever carries it: how exact, how finely, and how much memory.

use std::collections::BTreeMap;

use venturi_plan::{Link, Network};

use super::chunk::Destination;
use super::link::nanoseconds;
use super::routing::Routing;
use crate::Error;

/// Part of a round trip that a run of segments may take to be sent: the grain of the model is then invisible to TCP
/// (goodput at 25 ms is the same from one packet up to 200 µs).
const GRAIN_SHARE: u64 = 100;
/// Bounds of the grain, in µs. Network cards gather as long before they interrupt. Finer costs a write for every packet
/// or two, and as many acknowledgements; coarser gains little.
const GRAIN_US: std::ops::RangeInclusive<u8> = 40..=200;
/// Where the round trip is not known: to what is behind a gateway.
const USUAL_GRAIN_US: u8 = 60;

/// Figures of a network as it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Extremes {
    /// The shortest way there and back between two hosts, propagation only; none if no two hosts can talk.
    pub smallest_rtt_ns: Option<u64>,
    /// What the network holds when every bottleneck is full: rate × round trip and the queue of each.
    pub held_bytes: f64,
    /// For each interface and destination, in rows of one interface: how long a run of segments may take to be sent, in µs.
    /// It goes by the round trip of that way, not by the shortest that a link is part of: beside a neighbour in the same rack
    /// a transfer over an ocean need not be cut into single packets.
    pub(crate) grains_us: Vec<u8>,
    /// Number of destinations, the length of a row of `grains_us`.
    pub(crate) destinations: usize,
}

impl Extremes {
    /// # Errors
    /// [`Error::Network`] if this is no network that can be built.
    pub fn new(network: &Network) -> Result<Self, Error> {
        Ok(Self::of(network, &Routing::new(network)?))
    }

    pub(crate) fn of(network: &Network, routing: &Routing) -> Self {
        let links: Vec<&Link> = network.links.values().collect();
        let trips = round_trips(network, routing, &links);
        let destinations = usize::from(routing.interfaces()) + 1;
        let mut grains_us = vec![USUAL_GRAIN_US; usize::from(routing.interfaces()) * destinations];
        let mut uses = vec![0_u32; links.len()];
        for trip in &trips {
            grains_us[usize::from(trip.from) * destinations + usize::from(trip.to)] =
                grain_us(trip.rtt_ns);
            for link in &trip.there {
                uses[usize::from(*link)] += 1;
            }
        }
        Self {
            smallest_rtt_ns: trips.iter().map(|trip| trip.rtt_ns).min(),
            held_bytes: held_bytes(&trips, &links, &uses),
            grains_us,
            destinations,
        }
    }

    /// The grain of what goes in at an interface and is for a destination, in µs.
    #[inline]
    pub(crate) fn grain_us(&self, from: u16, to: Destination) -> u8 {
        self.grains_us[usize::from(from) * self.destinations + to.index()]
    }
}

fn grain_us(rtt_ns: u64) -> u8 {
    u8::try_from(rtt_ns / 1_000 / GRAIN_SHARE)
        .unwrap_or(u8::MAX)
        .clamp(*GRAIN_US.start(), *GRAIN_US.end())
}

/// The way from one interface to another, and how long there and back takes.
struct Trip {
    from: u16,
    to: u16,
    there: Vec<u16>,
    rtt_ns: u64,
}

fn round_trips(network: &Network, routing: &Routing, links: &[&Link]) -> Vec<Trip> {
    let hosts: Vec<_> = network.interfaces.values().map(|one| &one.host).collect();
    let delay_ns = |way: &[u16]| -> u64 {
        way.iter()
            .map(|link| nanoseconds(links[usize::from(*link)].delay_s.get()))
            .sum()
    };
    let way = |from: u16, to: u16| {
        routing
            .path(from, Destination(to))
            .filter(|(_, exit)| *exit == to)
            .map(|(way, _)| way)
    };
    let mut trips = Vec::new();
    for from in 0..routing.interfaces() {
        for to in 0..routing.interfaces() {
            if hosts[usize::from(from)] == hosts[usize::from(to)] {
                continue;
            }
            if let (Some(there), Some(back)) = (way(from, to), way(to, from)) {
                trips.push(Trip {
                    from,
                    to,
                    rtt_ns: delay_ns(&there) + delay_ns(&back),
                    there,
                });
            }
        }
    }
    trips
}

/// Every link that is the narrowest of some way counts once, with the longest round trip that it limits. Of equal
/// ones it is the link that most ways share.
#[expect(clippy::cast_precision_loss, reason = "an estimate of memory")]
fn held_bytes(trips: &[Trip], links: &[&Link], uses: &[u32]) -> f64 {
    let mut narrow: BTreeMap<u16, u64> = BTreeMap::new();
    for trip in trips {
        let narrowest = trip.there.iter().min_by(|a, b| {
            let (a, b) = (usize::from(**a), usize::from(**b));
            let rates = links[a].rate_bit_per_s.total_cmp(&links[b].rate_bit_per_s);
            rates.then(uses[b].cmp(&uses[a]))
        });
        if let Some(link) = narrowest {
            let longest = narrow.entry(*link).or_default();
            *longest = trip.rtt_ns.max(*longest);
        }
    }
    narrow
        .into_iter()
        .map(|(link, rtt_ns)| {
            let link = links[usize::from(link)];
            link.rate_bit_per_s / 8.0 * rtt_ns as f64 * 1e-9 + link.queue_bytes.get() as f64
        })
        .sum()
}
