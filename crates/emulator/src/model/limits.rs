//! Requirements of a network for its emulator: precision, granularity, and memory.

use std::collections::BTreeMap;

use venturi_plan::{Link, Network};

use super::chunk::ChunkDestination;
use super::link::nanoseconds;
use super::routing::Routing;
use crate::EmulatorError;

/// Maximum transmission time of a run of segments, as a fraction of the round-trip time. Then TCP
/// does not notice the grain of the model (goodput at 25 ms is the same from one packet up to 200
/// µs).
const GRAIN_DIVISOR: u64 = 100;
/// Bounds of the grain, in µs. Network cards collect packets for about this time before an
/// interrupt. A finer grain costs a write for each one or two packets, and equally many
/// acknowledgements; a coarser grain saves little.
const GRAIN_US: std::ops::RangeInclusive<u8> = 40..=200;
/// Grain for an unknown round-trip time, to destinations behind a gateway.
const USUAL_GRAIN_US: u8 = 60;

/// Figures of a network at its start.
#[derive(Debug, Clone, PartialEq)]
pub struct TopologyLimits {
    /// Smallest round-trip propagation time between two hosts; none if no two hosts can
    /// communicate.
    pub smallest_rtt_ns: Option<u64>,
    /// Bytes in the network with all bottlenecks full: rate × round-trip time plus the queue of
    /// each.
    pub held_bytes: f64,
    /// Maximum transmission time of a run of segments for each interface and destination, in µs, in
    /// rows of one interface. It depends on the round-trip time of this route, and not on the
    /// shortest route over a link. So a transfer over an ocean is not cut into single packets
    /// because of a neighbour in the same rack.
    pub(crate) grains_us: Vec<u8>,
    /// Number of destinations, the length of a row of `grains_us`.
    pub(crate) destinations: usize,
}

impl TopologyLimits {
    /// # Errors
    /// [`EmulatorError::Network`] if the network is not valid.
    pub fn new(network: &Network) -> Result<Self, EmulatorError> {
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
            for link in &trip.forward {
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

    /// Return the grain of packets from an interface to a destination, in µs.
    #[inline]
    pub(crate) fn grain_us(&self, from: u16, to: ChunkDestination) -> u8 {
        self.grains_us[usize::from(from) * self.destinations + to.index()]
    }
}

fn grain_us(rtt_ns: u64) -> u8 {
    u8::try_from(rtt_ns / 1_000 / GRAIN_DIVISOR)
        .unwrap_or(u8::MAX)
        .clamp(*GRAIN_US.start(), *GRAIN_US.end())
}

/// Route from one interface to another, with its round-trip time.
struct Trip {
    from: u16,
    to: u16,
    forward: Vec<u16>,
    rtt_ns: u64,
}

fn round_trips(network: &Network, routing: &Routing, links: &[&Link]) -> Vec<Trip> {
    let hosts: Vec<_> = network.interfaces.values().map(|one| &one.host).collect();
    let delay_ns = |route: &[u16]| -> u64 {
        route
            .iter()
            .map(|link| nanoseconds(links[usize::from(*link)].delay_s.get()))
            .sum()
    };
    let route = |from: u16, to: u16| {
        routing
            .path(from, ChunkDestination(to))
            .filter(|(_, exit)| *exit == to)
            .map(|(route, _)| route)
    };
    let mut trips = Vec::new();
    for from in 0..routing.interfaces() {
        for to in 0..routing.interfaces() {
            if hosts[usize::from(from)] == hosts[usize::from(to)] {
                continue;
            }
            if let (Some(forward), Some(back)) = (route(from, to), route(to, from)) {
                trips.push(Trip {
                    from,
                    to,
                    rtt_ns: delay_ns(&forward) + delay_ns(&back),
                    forward,
                });
            }
        }
    }
    trips
}

/// Return the bytes in all bottlenecks. Each link that is the slowest of a route counts once, with
/// the longest round-trip time of these routes. Among equally slow links, the link with the most
/// routes counts.
#[expect(clippy::cast_precision_loss, reason = "an estimate of memory")]
fn held_bytes(trips: &[Trip], links: &[&Link], uses: &[u32]) -> f64 {
    let mut narrow: BTreeMap<u16, u64> = BTreeMap::new();
    for trip in trips {
        let narrowest = trip.forward.iter().min_by(|a, b| {
            let (a, b) = (usize::from(**a), usize::from(**b));
            let rates = links[a].rate_bit_per_s.total_cmp(&links[b].rate_bit_per_s);
            rates.then(uses[b].cmp(&uses[a]))
        });
        if let Some(link) = narrowest {
            let max = narrow.entry(*link).or_default();
            *max = trip.rtt_ns.max(*max);
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
