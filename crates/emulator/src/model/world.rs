//! The whole network as one state machine.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use venturi_plan::{LinkSet, Name, Network, Seconds};

use super::chunk::{Chunk, ChunkDestination, PacketId, PacketShape};
use super::limits::TopologyLimits;
use super::link::{Fate, LinkCounters, LinkState, SentRun, nanoseconds};
use super::next_event::{Earliest, NEVER};
use super::routing::{LinkEnd, Routing, check_set};
use crate::EmulatorError;

/// An interface, numbered in the order of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceId(pub u16);

/// A link, numbered in the order of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u16);

/// Output of the network.
#[derive(Debug, Clone, PartialEq)]
pub enum NetworkOutput {
    /// Segments that an interface must deliver to its host.
    Deliver {
        /// The interface.
        interface: InterfaceId,
        /// Time at which they are due.
        due_ns: u64,
        /// The segments.
        chunk: Chunk,
    },
    /// Segments that leave the network without a delivery.
    Drop(Chunk),
    /// Segments that pass the capture point of a link; their final output follows later.
    Capture {
        /// The link.
        link: LinkId,
        /// The segments and their times.
        sent: SentRun,
    },
    /// A planned change was applied.
    Changed {
        /// When.
        time_ns: u64,
        /// The link.
        link: LinkId,
        /// New values.
        set: LinkSet,
    },
}

/// Events outside of any link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// Segments without a route at a router.
    pub unrouted: u64,
}

/// The network: packets enter at interfaces, and their segments leave at interfaces later, or are
/// dropped.
///
/// Every segment that enters leaves exactly once, in a [`NetworkOutput::Deliver`] or a
/// [`NetworkOutput::Drop`]. Times are nanoseconds from any origin less than 213 days ago, and must
/// not decrease between calls.
///
/// ```
/// use venturi_emulator::model::{InterfaceId, NetworkOutput, PacketId, PacketShape, EmulatorWorld};
/// let network = serde_json::from_str(r#"{
///     "interfaces": {"a.eth0": {"host": "a", "device": "eth0", "address": "10.77.0.1"},
///                    "b.eth0": {"host": "b", "device": "eth0", "address": "10.77.0.2"}},
///     "links": {"there": {"from": "a.eth0", "to": "b.eth0", "rate_bit_per_s": 1e9, "delay_s": 0.005, "queue_bytes": 0},
///               "back": {"from": "b.eth0", "to": "a.eth0", "rate_bit_per_s": 1e9, "delay_s": 0.005, "queue_bytes": 0}}
/// }"#)?;
/// let mut world = EmulatorWorld::new(&network, 1)?;
/// let to = world.destination("10.77.0.2".parse()?);
/// world.handle_packet(0, InterfaceId(0), PacketId(7), PacketShape::single(1500), to);
/// // 1500 bytes at 1 Gb/s are 12 µs; then 5 ms on the way.
/// assert_eq!(world.poll_timeout(), 5_012_000);
/// assert_eq!(world.poll(5_011_999), None);
/// let output = world.poll(5_012_000);
/// assert!(matches!(output, Some(NetworkOutput::Deliver { interface: InterfaceId(1), due_ns: 5_012_000, .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct EmulatorWorld {
    routing: Routing,
    links: Vec<LinkState>,
    names: Vec<Name>,
    /// Whether an interface accepts several segments as one.
    joins: Vec<bool>,
    earliest: Earliest,
    outputs: Outputs,
    /// Pending planned changes with their times; the next one is the last element.
    changes: Vec<(u64, LinkId, LinkSet)>,
    /// Planned changes before the start of the clock of the plan.
    planned: Vec<(u64, LinkId, LinkSet)>,
    counts: NetworkCounts,
    extremes: TopologyLimits,
}

/// Outputs that wait for `poll`, with the current link for captures.
#[derive(Debug, Default)]
struct Outputs {
    waiting: VecDeque<NetworkOutput>,
    link: u16,
}

impl Extend<Fate> for Outputs {
    fn extend<T: IntoIterator<Item = Fate>>(&mut self, fates: T) {
        let link = LinkId(self.link);
        self.waiting
            .extend(fates.into_iter().map(|fate| match fate {
                Fate::Dropped(chunk) => NetworkOutput::Drop(chunk),
                Fate::Sent(sent) => NetworkOutput::Capture { link, sent },
            }));
    }
}

impl EmulatorWorld {
    /// Create an idle network. All random draws depend on `seed` and the names of the links.
    ///
    /// # Errors
    /// [`EmulatorError::Network`] for the first invalid value in the description.
    pub fn new(network: &Network, seed: u64) -> Result<Self, EmulatorError> {
        let routing = Routing::new(network)?;
        let extremes = TopologyLimits::of(network, &routing);
        let links = network
            .links
            .iter()
            .map(|(name, link)| LinkState::new(name, link, seed))
            .collect();
        let names: Vec<Name> = network.links.keys().cloned().collect();
        let mut planned: Vec<_> = network
            .changes
            .iter()
            .map(|change| {
                let link = link_named(&names, &change.link).expect("the routing has checked it");
                (nanoseconds(change.time_s.get()), link, change.set.clone())
            })
            .collect();
        // Changes at the same time apply in their written order, so the first must be the last
        // here.
        planned.reverse();
        planned.sort_by_key(|(time_ns, ..)| std::cmp::Reverse(*time_ns));
        Ok(Self {
            earliest: Earliest::new(names.len()),
            joins: network.interfaces.values().map(|one| one.offload).collect(),
            outputs: Outputs::default(),
            changes: Vec::new(),
            planned,
            counts: NetworkCounts::default(),
            routing,
            links,
            names,
            extremes,
        })
    }

    /// Return the figures of the network at its start.
    #[must_use]
    pub fn extremes(&self) -> &TopologyLimits {
        &self.extremes
    }

    /// Return the names of the links, in the order of their numbers.
    #[must_use]
    pub fn link_names(&self) -> &[Name] {
        &self.names
    }

    /// Return the link of this name.
    #[must_use]
    pub fn link(&self, name: &str) -> Option<LinkId> {
        link_named(&self.names, name)
    }

    /// Return the destination of an address, as routers see it.
    #[inline]
    #[must_use]
    pub fn destination(&self, address: Ipv4Addr) -> ChunkDestination {
        self.routing.destination(address)
    }

    /// Return the interface at which packets from `from` to a destination leave; none if a router has no route.
    #[must_use]
    pub fn exit(&self, from: InterfaceId, destination: ChunkDestination) -> Option<InterfaceId> {
        let (_, exit) = self.routing.path(from.0, destination)?;
        Some(InterfaceId(exit))
    }

    /// Return the number of values of a [`ChunkDestination`]: all interfaces, and other destinations.
    pub fn destinations(&self) -> impl Iterator<Item = ChunkDestination> {
        (0..=self.routing.interfaces()).map(ChunkDestination)
    }

    /// Start the clock of the planned changes at `elapsed`. Earlier planned changes apply now, as
    /// one change per link, so a past outage has no effect.
    pub fn go(&mut self, now_ns: u64, elapsed: Seconds) {
        let elapsed_ns = nanoseconds(elapsed.get());
        let mut changes = std::mem::take(&mut self.planned);
        let first_past = changes.partition_point(|(time_ns, ..)| *time_ns >= elapsed_ns);
        let mut past: BTreeMap<LinkId, LinkSet> = BTreeMap::new();
        for (_, link, set) in changes.drain(first_past..).rev() {
            past.entry(link).or_default().update(&set);
        }
        for (time_ns, ..) in &mut changes {
            *time_ns = now_ns + (*time_ns - elapsed_ns);
        }
        changes.extend(
            past.into_iter()
                .rev()
                .map(|(link, set)| (now_ns, link, set)),
        );
        self.changes = changes;
    }

    /// Process a packet from the host of an interface.
    #[inline]
    pub fn handle_packet(
        &mut self,
        now_ns: u64,
        interface: InterfaceId,
        packet: PacketId,
        shape: PacketShape,
        destination: ChunkDestination,
    ) {
        if self.next_change_ns() <= now_ns {
            self.catch_up(now_ns);
        }
        let grain_us = self.extremes.grain_us(interface.0, destination);
        let chunk = Chunk::whole(packet, shape, destination, grain_us);
        // Only this interface feeds its link, so no other event can precede this packet.
        self.enqueue(self.routing.outgoing(interface.0), now_ns, 0, chunk);
    }

    /// Change a link now.
    ///
    /// # Errors
    /// [`EmulatorError::Network`] if a value is not valid for a link.
    pub fn handle_change(
        &mut self,
        now_ns: u64,
        link: LinkId,
        set: &LinkSet,
    ) -> Result<(), EmulatorError> {
        check_set(&self.names[usize::from(link.0)], set)?;
        self.catch_up(now_ns);
        self.change(now_ns, link, set);
        Ok(())
    }

    /// Start or stop output of the segments of a link as [`NetworkOutput::Capture`].
    pub fn capture(&mut self, now_ns: u64, link: LinkId, on: bool) {
        self.catch_up(now_ns);
        self.advance(now_ns, link.0);
        self.links[usize::from(link.0)].captured = on;
    }

    /// Return the time of the next work for [`EmulatorWorld::poll`], in ns; `u64::MAX` for never.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> u64 {
        if self.outputs.waiting.is_empty() {
            self.earliest.first().0.min(self.next_change_ns())
        } else {
            0
        }
    }

    /// Advance towards `now_ns` and return the next output. Call this until it returns none.
    #[inline]
    pub fn poll(&mut self, now_ns: u64) -> Option<NetworkOutput> {
        loop {
            if let Some(output) = self.outputs.waiting.pop_front() {
                return Some(output);
            }
            if !self.step(now_ns) {
                return None;
            }
        }
    }

    /// Return the counters of all links. All earlier outputs must have been polled.
    pub fn counters(&mut self, now_ns: u64) -> Vec<LinkCounters> {
        self.catch_up(now_ns);
        (0..self.links.len())
            .map(|link| {
                self.advance(now_ns, u16::try_from(link).expect("checked"));
                self.links[link].counters(now_ns)
            })
            .collect()
    }

    /// Restart the high-water marks of the queues.
    pub fn restart_high_water(&mut self, now_ns: u64) {
        for link in &mut self.links {
            link.restart_high_water(now_ns);
        }
    }

    /// Return the counts of events outside of any link.
    #[must_use]
    pub fn counts(&self) -> NetworkCounts {
        self.counts
    }

    #[inline]
    fn next_change_ns(&self) -> u64 {
        self.changes.last().map_or(NEVER, |(time_ns, ..)| *time_ns)
    }

    /// Process all due events, so that later ones happen after them.
    fn catch_up(&mut self, now_ns: u64) {
        while self.step(now_ns) {}
    }

    /// Process the next due event, if any.
    #[inline]
    fn step(&mut self, now_ns: u64) -> bool {
        let (due_ns, link) = self.earliest.first();
        let change_ns = self.next_change_ns();
        if due_ns.min(change_ns) > now_ns {
            return false;
        }
        if change_ns <= due_ns {
            let (time_ns, link, set) = self.changes.pop().expect("it has a time");
            self.change(time_ns, link, &set);
            self.outputs
                .waiting
                .push_back(NetworkOutput::Changed { time_ns, link, set });
        } else {
            self.serve(link, due_ns, now_ns.min(change_ns));
        }
        true
    }

    /// Take the first due run from a link. Nothing can change until `until_ns`, so later arrivals
    /// up to this time can be included.
    fn serve(&mut self, link: usize, due_ns: u64, until_ns: u64) {
        self.outputs.link = u16::try_from(link).expect("checked");
        let state = &mut self.links[link];
        state.advance(due_ns, &mut self.outputs);
        let arrived = state.arrive(due_ns);
        if let (Some(in_flight), LinkEnd::Interface(interface)) = (arrived, self.routing.end(link))
        {
            let mut chunk = in_flight.chunk;
            if self.joins[usize::from(interface)] {
                state.advance(until_ns, &mut self.outputs);
                state.join_arrived(until_ns, &mut chunk);
            }
            self.outputs.waiting.push_back(NetworkOutput::Deliver {
                interface: InterfaceId(interface),
                due_ns: in_flight.due_ns,
                chunk,
            });
        }
        self.earliest.set(link, state.due_ns());
        if let (Some(in_flight), LinkEnd::Router(router)) = (arrived, self.routing.end(link)) {
            match self.routing.next(router, in_flight.chunk.destination) {
                // The run enters at its due time, so that lateness does not accumulate over hops.
                Some(next) => {
                    self.enqueue(next, in_flight.due_ns, in_flight.span_ns, in_flight.chunk)
                }
                None => {
                    self.counts.unrouted += u64::from(in_flight.chunk.count);
                    self.outputs
                        .waiting
                        .push_back(NetworkOutput::Drop(in_flight.chunk));
                }
            }
        }
    }

    #[inline]
    fn enqueue(&mut self, link: u16, now_ns: u64, span_ns: u64, chunk: Chunk) {
        self.outputs.link = link;
        let state = &mut self.links[usize::from(link)];
        state.enqueue(now_ns, span_ns, chunk, &mut self.outputs);
        self.earliest.set(usize::from(link), state.due_ns());
    }

    fn advance(&mut self, now_ns: u64, link: u16) {
        self.outputs.link = link;
        let state = &mut self.links[usize::from(link)];
        state.advance(now_ns, &mut self.outputs);
        self.earliest.set(usize::from(link), state.due_ns());
    }

    fn change(&mut self, now_ns: u64, link: LinkId, set: &LinkSet) {
        self.outputs.link = link.0;
        let state = &mut self.links[usize::from(link.0)];
        state.change(now_ns, set, &mut self.outputs);
        self.earliest.set(usize::from(link.0), state.due_ns());
    }

    /// Return the number of segments in the network.
    #[cfg(test)]
    pub(crate) fn undelivered(&self) -> u64 {
        self.links.iter().map(LinkState::undelivered).sum()
    }

    /// Return the number of segments in outputs that were not polled.
    #[cfg(test)]
    pub(crate) fn unpolled(&self) -> u64 {
        let segments = |output: &NetworkOutput| match output {
            NetworkOutput::Deliver { chunk, .. } | NetworkOutput::Drop(chunk) => {
                u64::from(chunk.count)
            }
            NetworkOutput::Capture { .. } | NetworkOutput::Changed { .. } => 0,
        };
        self.outputs.waiting.iter().map(segments).sum()
    }
}

fn link_named(names: &[Name], name: &str) -> Option<LinkId> {
    let index = names.binary_search_by(|known| (**known).cmp(name)).ok()?;
    u16::try_from(index).ok().map(LinkId)
}
