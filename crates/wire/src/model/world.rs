//! The whole network as one state machine.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use venturi_plan::{LinkSet, Name, Network, Seconds};

use super::chunk::{Chunk, Destination, PacketId, Shape};
use super::earliest::{Earliest, NEVER};
use super::extremes::Extremes;
use super::link::{Fate, LinkCounters, LinkState, Sent, nanoseconds};
use super::routing::{End, Routing, check_set};
use crate::Error;

/// An interface, numbered in the order of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceId(pub u16);

/// A link, numbered in the order of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u16);

/// What comes out of the network.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Segments that an interface is to hand to its host.
    Deliver {
        /// The interface.
        interface: InterfaceId,
        /// When they should have been handed over.
        due_ns: u64,
        /// The segments.
        chunk: Chunk,
    },
    /// Segments that nobody will see again.
    Drop(Chunk),
    /// Segments that pass the capture point of a link; they come out again later.
    Capture {
        /// The link.
        link: LinkId,
        /// The segments and their times.
        sent: Sent,
    },
    /// A planned change was made.
    Changed {
        /// When.
        time_ns: u64,
        /// The link.
        link: LinkId,
        /// What became different.
        set: LinkSet,
    },
}

/// What happened outside of any link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments that a router had no route for.
    pub unrouted: u64,
}

/// The network: packets go in at interfaces, segments come out at interfaces, later, or not at all.
///
/// Every segment that goes in comes out exactly once, in an [`Output::Deliver`] or an [`Output::Drop`]. Times are
/// nanoseconds from any origin below 213 days ago, and must not decrease from call to call.
///
/// ```
/// use venturi_wire::model::{InterfaceId, Output, PacketId, Shape, World};
/// let network = serde_json::from_str(r#"{
///     "interfaces": {"a.eth0": {"host": "a", "device": "eth0", "address": "10.77.0.1"},
///                    "b.eth0": {"host": "b", "device": "eth0", "address": "10.77.0.2"}},
///     "links": {"there": {"from": "a.eth0", "to": "b.eth0", "rate_bit_per_s": 1e9, "delay_s": 0.005, "queue_bytes": 0},
///               "back": {"from": "b.eth0", "to": "a.eth0", "rate_bit_per_s": 1e9, "delay_s": 0.005, "queue_bytes": 0}}
/// }"#)?;
/// let mut world = World::new(&network, 1)?;
/// let to = world.destination("10.77.0.2".parse()?);
/// world.handle_packet(0, InterfaceId(0), PacketId(7), Shape::single(1500), to);
/// // 1500 bytes at 1 Gb/s are 12 µs; then 5 ms on the way.
/// assert_eq!(world.poll_timeout(), 5_012_000);
/// assert_eq!(world.poll(5_011_999), None);
/// let output = world.poll(5_012_000);
/// assert!(matches!(output, Some(Output::Deliver { interface: InterfaceId(1), due_ns: 5_012_000, .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct World {
    routing: Routing,
    links: Vec<LinkState>,
    names: Vec<Name>,
    /// Whether an interface takes several segments as one.
    joins: Vec<bool>,
    earliest: Earliest,
    outputs: Outputs,
    /// Planned changes that are not yet made, with their times; the next is the last.
    changes: Vec<(u64, LinkId, LinkSet)>,
    /// Planned changes before the clock of the plan is started.
    planned: Vec<(u64, LinkId, LinkSet)>,
    counts: Counts,
    extremes: Extremes,
}

/// What waits for `poll`, with the link at work so that captures know theirs.
#[derive(Debug, Default)]
struct Outputs {
    waiting: VecDeque<Output>,
    link: u16,
}

impl Extend<Fate> for Outputs {
    fn extend<T: IntoIterator<Item = Fate>>(&mut self, fates: T) {
        let link = LinkId(self.link);
        self.waiting
            .extend(fates.into_iter().map(|fate| match fate {
                Fate::Dropped(chunk) => Output::Drop(chunk),
                Fate::Sent(sent) => Output::Capture { link, sent },
            }));
    }
}

impl World {
    /// The network at rest. All random draws come from `seed` and the names of the links.
    ///
    /// # Errors
    /// [`Error::Network`] for the first thing in the description that is not as it must be.
    pub fn new(network: &Network, seed: u64) -> Result<Self, Error> {
        let routing = Routing::new(network)?;
        let extremes = Extremes::of(network, &routing);
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
        // Of changes at one time the first that is written is made first, and so must be the last here.
        planned.reverse();
        planned.sort_by_key(|(time_ns, ..)| std::cmp::Reverse(*time_ns));
        Ok(Self {
            earliest: Earliest::new(names.len()),
            joins: network.interfaces.values().map(|one| one.offload).collect(),
            outputs: Outputs::default(),
            changes: Vec::new(),
            planned,
            counts: Counts::default(),
            routing,
            links,
            names,
            extremes,
        })
    }

    /// Figures of the network as it began.
    #[must_use]
    pub fn extremes(&self) -> &Extremes {
        &self.extremes
    }

    /// The names of the links, in the order of their numbers.
    #[must_use]
    pub fn link_names(&self) -> &[Name] {
        &self.names
    }

    /// The link of this name.
    #[must_use]
    pub fn link(&self, name: &str) -> Option<LinkId> {
        link_named(&self.names, name)
    }

    /// What routers know an address as.
    #[inline]
    #[must_use]
    pub fn destination(&self, address: Ipv4Addr) -> Destination {
        self.routing.destination(address)
    }

    /// The interface at which packets for a destination come out that go in at `from`; none if a router has no route.
    #[must_use]
    pub fn exit(&self, from: InterfaceId, destination: Destination) -> Option<InterfaceId> {
        let (_, exit) = self.routing.path(from.0, destination)?;
        Some(InterfaceId(exit))
    }

    /// The number of things that a [`Destination`] can be: all interfaces, and "none of them".
    pub fn destinations(&self) -> impl Iterator<Item = Destination> {
        (0..=self.routing.interfaces()).map(Destination)
    }

    /// Starts the clock of the planned changes at `elapsed`. What was planned for before that is made now, as one
    /// change a link: an outage that is over has not been.
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

    /// A packet comes from the host of an interface.
    #[inline]
    pub fn handle_packet(
        &mut self,
        now_ns: u64,
        interface: InterfaceId,
        packet: PacketId,
        shape: Shape,
        destination: Destination,
    ) {
        if self.next_change_ns() <= now_ns {
            self.catch_up(now_ns);
        }
        let grain_us = self.extremes.grain_us(interface.0, destination);
        let chunk = Chunk::whole(packet, shape, destination, grain_us);
        // Only this interface feeds its link, so nothing that is due elsewhere can belong before this packet.
        self.enqueue(self.routing.outgoing(interface.0), now_ns, 0, chunk);
    }

    /// Changes a link now.
    ///
    /// # Errors
    /// [`Error::Network`] if a value is none that a link can have.
    pub fn handle_change(&mut self, now_ns: u64, link: LinkId, set: &LinkSet) -> Result<(), Error> {
        check_set(&self.names[usize::from(link.0)], set)?;
        self.catch_up(now_ns);
        self.change(now_ns, link, set);
        Ok(())
    }

    /// Whether segments that pass a link shall come out as [`Output::Capture`], too.
    pub fn capture(&mut self, now_ns: u64, link: LinkId, on: bool) {
        self.catch_up(now_ns);
        self.settle(now_ns, link.0);
        self.links[usize::from(link.0)].captured = on;
    }

    /// When [`World::poll`] will have something to do next, in ns; `u64::MAX` for never.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> u64 {
        if self.outputs.waiting.is_empty() {
            self.earliest.first().0.min(self.next_change_ns())
        } else {
            0
        }
    }

    /// Goes on towards `now_ns` until something comes out. To be called until nothing does.
    #[inline]
    pub fn poll(&mut self, now_ns: u64) -> Option<Output> {
        loop {
            if let Some(output) = self.outputs.waiting.pop_front() {
                return Some(output);
            }
            if !self.step(now_ns) {
                return None;
            }
        }
    }

    /// The counters of all links, at a time that everything before has been polled for.
    pub fn counters(&mut self, now_ns: u64) -> Vec<LinkCounters> {
        self.catch_up(now_ns);
        (0..self.links.len())
            .map(|link| {
                self.settle(now_ns, u16::try_from(link).expect("checked"));
                self.links[link].counters(now_ns)
            })
            .collect()
    }

    /// Starts the high-water marks of the queues anew.
    pub fn restart_high_water(&mut self, now_ns: u64) {
        for link in &mut self.links {
            link.restart_high_water(now_ns);
        }
    }

    /// What happened outside of any link.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    #[inline]
    fn next_change_ns(&self) -> u64 {
        self.changes.last().map_or(NEVER, |(time_ns, ..)| *time_ns)
    }

    /// Does all that is due, so that what follows happens after it.
    fn catch_up(&mut self, now_ns: u64) {
        while self.step(now_ns) {}
    }

    /// Does the next thing that is due, if there is one.
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
                .push_back(Output::Changed { time_ns, link, set });
        } else {
            self.serve(link, due_ns, now_ns.min(change_ns));
        }
        true
    }

    /// Takes from a link what is due first. Up to `until_ns` nothing can change, so what else has come may be taken
    /// along.
    fn serve(&mut self, link: usize, due_ns: u64, until_ns: u64) {
        self.outputs.link = u16::try_from(link).expect("checked");
        let state = &mut self.links[link];
        state.settle(due_ns, &mut self.outputs);
        let arrived = state.arrive(due_ns);
        if let (Some(flying), End::Interface(interface)) = (arrived, self.routing.end(link)) {
            let mut chunk = flying.chunk;
            if self.joins[usize::from(interface)] {
                state.settle(until_ns, &mut self.outputs);
                state.join_arrived(until_ns, &mut chunk);
            }
            self.outputs.waiting.push_back(Output::Deliver {
                interface: InterfaceId(interface),
                due_ns: flying.due_ns,
                chunk,
            });
        }
        self.earliest.set(link, state.due_ns());
        if let (Some(flying), End::Router(router)) = (arrived, self.routing.end(link)) {
            match self.routing.next(router, flying.chunk.destination) {
                // Entered at the time it was due: being late does not add up over hops.
                Some(next) => self.enqueue(next, flying.due_ns, flying.span_ns, flying.chunk),
                None => {
                    self.counts.unrouted += u64::from(flying.chunk.count);
                    self.outputs.waiting.push_back(Output::Drop(flying.chunk));
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

    fn settle(&mut self, now_ns: u64, link: u16) {
        self.outputs.link = link;
        let state = &mut self.links[usize::from(link)];
        state.settle(now_ns, &mut self.outputs);
        self.earliest.set(usize::from(link), state.due_ns());
    }

    fn change(&mut self, now_ns: u64, link: LinkId, set: &LinkSet) {
        self.outputs.link = link.0;
        let state = &mut self.links[usize::from(link.0)];
        state.change(now_ns, set, &mut self.outputs);
        self.earliest.set(usize::from(link.0), state.due_ns());
    }

    /// Segments that are in the network.
    #[cfg(test)]
    pub(crate) fn held(&self) -> u64 {
        self.links.iter().map(LinkState::held).sum()
    }

    /// Segments that have come out and were not polled.
    #[cfg(test)]
    pub(crate) fn unpolled(&self) -> u64 {
        let segments = |output: &Output| match output {
            Output::Deliver { chunk, .. } | Output::Drop(chunk) => u64::from(chunk.count),
            Output::Capture { .. } | Output::Changed { .. } => 0,
        };
        self.outputs.waiting.iter().map(segments).sum()
    }
}

fn link_named(names: &[Name], name: &str) -> Option<LinkId> {
    let index = names.binary_search_by(|known| (**known).cmp(name)).ok()?;
    u16::try_from(index).ok().map(LinkId)
}
