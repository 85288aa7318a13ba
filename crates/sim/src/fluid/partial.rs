//! The fast solver: only what an event can have changed is filled again, and no flow is touched but the one that starts or ends.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | level | rate / weight of a class | bytes/s |
//! | clock | integral of the level of a resource over time | bytes |
//! | tag | bytes that each flow of a class has been served when this one ends | bytes |
//!
//! Classes follow the clock of the resource that limits them, or their own at a cap. A resource with one class only is a cap of that class, and one
//! that can never be full is left out of all ways (`network::lead`).
//! An event is solved by the first of these that fits:
//! 1. *alone*: the class meets no shared resource; it has its cap;
//! 2. *slack*: it has its cap before and after, and no resource on its way is full before or after;
//! 3. *isolated* (`isolated`): the classes of the one shared resource meet no other; one level, shifted without looking at the others;
//! 4. *kept* (`keep`): levels move, and all classes stay with what limits them;
//! 5. *region* (`region`): what the change can reach is filled again.

mod heap;
mod isolated;
mod keep;
mod lane;
mod link;
mod region;
mod settle;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::flows::{Flow, Flows, started_before};
use super::network::Network;
use super::{Bound, End, FlowId, ResourceId, same_instant};
use heap::{Heap, OUTSIDE};
use isolated::Entry;
use keep::Keep;
use lane::{CAP, IDLE, Lane, OWN};
use link::Link;
use region::Region;

/// How much more than its capacity a resource may carry before it counts as full: sums of rates are rounded.
const FULL: f64 = 1.0 + 1e-13;

/// What is left of a sum when it was so many times larger is rounding in part, and made anew: before the rounding of a few such sums counts
/// beside [`FULL`].
const MOSTLY_GONE: f64 = 1.0 / 64.0;

/// What was done, to be held against the number of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Changes of a class or a capacity that were solved.
    pub changes: u64,
    /// Of these, by filling a region.
    pub regions: u64,
    /// Classes looked at, all told.
    pub classes: u64,
}

/// A class whose flows have changed, as it was before.
#[derive(Debug, Clone, Copy)]
struct Change {
    class: u32,
    /// Rate / weight; infinite if it had no flows.
    level: f64,
    /// What it followed.
    clock: u32,
}

/// Fills what has changed.
#[derive(Debug, Default)]
pub(super) struct Partial {
    lanes: Vec<Lane>,
    links: Vec<Link>,
    /// Of each resource on the way of each class: where the class stands in its list.
    seats: Vec<u32>,
    /// Where each clock stands in its heap: classes at even numbers, resources at odd ones.
    places: Vec<u32>,
    /// Clocks by their next end.
    queue: Heap,
    dirty: Vec<u32>,
    dirty_links: Vec<u32>,
    /// Changes that reach others, and resources whose capacity has changed: the seeds of a region.
    changes: Vec<Change>,
    pressed: Vec<u32>,
    /// How many of [`Network::restored`] have been taken in, and whether everything they reach is to be filled for it.
    restored: usize,
    whole: bool,
    /// Resources whose place in `queue` is out of date.
    stale: Vec<u32>,
    due: Vec<FlowId>,
    /// Token of the flow behind those that ended last.
    pub coming: Option<u64>,
    /// Scratch of solutions.
    entries: Vec<Entry>,
    keep: Keep,
    region: Region,
    now: f64,
    pub work: Work,
}

fn of_class(class: u32) -> u32 {
    2 * class
}

fn of_link(link: u32) -> u32 {
    2 * link + 1
}

impl Partial {
    /// A flow begins.
    pub fn join(&mut self, network: &Network, flows: &mut Flows, flow: FlowId, bytes: f64) {
        let class = flows.at(flow.slot).class;
        self.grow(network);
        self.catch_up(class);
        self.lanes[class as usize].push(flows, flow.slot, bytes);
        self.soil(class);
    }

    /// A flow is taken away. The bytes that remained.
    pub fn leave(&mut self, _network: &Network, flows: &mut Flows, flow: FlowId) -> f64 {
        let Flow { class, mark, .. } = *flows.at(flow.slot);
        self.catch_up(class);
        let lane = &mut self.lanes[class as usize];
        lane.live -= 1;
        let remaining = (mark - lane.served).max(0.0);
        self.soil(class);
        remaining
    }

    /// A capacity has changed.
    pub fn resource_changed(&mut self, network: &Network, resource: u32) {
        self.grow(network);
        self.dirty_links.push(resource);
    }

    /// When the next flow ends.
    pub fn next_end(&mut self, network: &Network, flows: &Flows) -> Option<f64> {
        self.solve(network, flows);
        self.queue.first().map(|(at_s, _)| at_s)
    }

    /// Take out the flows that end at `at_s`, the next end.
    pub fn end_at(&mut self, flows: &mut Flows, at_s: f64, ended: &mut VecDeque<End>) {
        self.now = at_s;
        while let Some((next, item)) = self.queue.first() {
            if !same_instant(next, at_s) {
                break;
            }
            if item % 2 == 0 {
                self.queue.remove(item, &mut self.places);
                self.end_of_class(item / 2, flows, |end| same_instant(end, at_s));
            } else {
                self.end_of_link(item / 2, flows, at_s);
            }
        }
        if self.due.len() > 1 {
            self.due.sort_unstable_by(|one, other| {
                started_before(other.serial, one.serial)
                    .cmp(&started_before(one.serial, other.serial))
            });
        }
        for flow in self.due.drain(..) {
            let token = flows.at(flow.slot).token;
            flows.remove(flow.slot);
            ended.push_back(End { flow, token, at_s });
        }
    }

    /// Nothing ends before `now`.
    pub fn move_to(&mut self, now: f64) {
        self.now = now;
    }

    /// The rate of each flow of a class that has some.
    pub fn rate(&mut self, network: &Network, flows: &Flows, class: u32) -> f64 {
        self.solve(network, flows);
        self.rate_of(class)
    }

    /// What limits the flows of a class that has some.
    pub fn bound(&mut self, network: &Network, flows: &Flows, class: u32) -> Bound {
        self.solve(network, flows);
        match self.lanes[class as usize].bound {
            CAP => Bound::Cap,
            resource => Bound::Resource(ResourceId(resource)),
        }
    }

    /// What all flows on a resource move together.
    pub fn load(&mut self, network: &Network, flows: &Flows, resource: u32) -> f64 {
        self.solve(network, flows);
        if let Some(classes) = network.followers_on(resource) {
            let known = classes
                .iter()
                .filter(|&&class| (class as usize) < self.lanes.len());
            return known.map(|&class| self.flow_of(class)).sum();
        }
        let Some(link) = self.links.get(resource as usize) else {
            return 0.0;
        };
        link.on.iter().map(|&(class, _)| self.flow_of(class)).sum()
    }

    /// Classes and resources that were added since.
    fn grow(&mut self, network: &Network) {
        for class in self.lanes.len()..network.classes.len() {
            let facts = &network.classes[class];
            let way = network.limits(class as u32);
            let twice = (1..way.len()).any(|at| way[..at].contains(&way[at]));
            let limits = (facts.way.0, facts.end);
            self.lanes
                .push(Lane::new(facts.weight, facts.cap, limits, twice));
            self.seats.resize(facts.way.1 as usize, OUTSIDE);
        }
        for resource in self.links.len()..network.resources.len() {
            let facts = &network.resources[resource];
            self.links
                .push(Link::new(facts.capacity(0), facts.depends_on_users()));
        }
        let places = 2 * self.lanes.len().max(self.links.len());
        if self.places.len() < places {
            self.places.resize(places, OUTSIDE);
        }
    }

    /// The resources that can limit a class, as far as that is taken in.
    fn way<'network>(&self, network: &'network Network, class: u32) -> &'network [u32] {
        let lane = &self.lanes[class as usize];
        network.stretch(lane.begin, lane.end)
    }

    fn soil(&mut self, class: u32) {
        let lane = &mut self.lanes[class as usize];
        if !lane.dirty {
            lane.dirty = true;
            self.dirty.push(class);
        }
    }

    /// The place of a resource in the queue is out of date.
    fn spoil(&mut self, resource: u32) {
        let link = &mut self.links[resource as usize];
        if !link.stale {
            link.stale = true;
            self.stale.push(resource);
        }
    }

    /// Bring a class up to now on the clock that it follows.
    fn catch_up(&mut self, class: u32) {
        let lane = &mut self.lanes[class as usize];
        let reading = match lane.clock {
            IDLE => return,
            OWN => self.now,
            link => {
                let link = &mut self.links[link as usize];
                link.catch_up(self.now);
                link.clock
            }
        };
        lane.catch_up(reading);
    }

    fn rate_of(&self, class: u32) -> f64 {
        let lane = &self.lanes[class as usize];
        match lane.clock {
            IDLE => 0.0,
            OWN => lane.rate,
            link => lane.weight * self.links[link as usize].level,
        }
    }

    /// Rate / weight; infinite without flows.
    fn level_of(&self, class: u32) -> f64 {
        let lane = &self.lanes[class as usize];
        match lane.clock {
            IDLE => f64::INFINITY,
            OWN => lane.rate / lane.weight,
            link => self.links[link as usize].level,
        }
    }

    /// Bytes/s of all flows of a class.
    fn flow_of(&self, class: u32) -> f64 {
        f64::from(self.lanes[class as usize].solved) * self.rate_of(class)
    }

    /// The most that a flow of a class can get from what it shares with no other class, and what says so.
    fn cap_of(&self, network: &Network, class: u32) -> (f64, u32) {
        let lane = &self.lanes[class as usize];
        let (mut cap, mut bound) = (lane.cap, CAP);
        if lane.shared < lane.end - lane.begin {
            for &resource in network.stretch(lane.begin, lane.end) {
                let link = &self.links[resource as usize];
                if !link.is_shared() {
                    let share = link.capacity / f64::from(lane.solved);
                    if share < cap {
                        (cap, bound) = (share, resource);
                    }
                }
            }
        }
        (cap, bound)
    }

    /// The same, and keep in mind at which level that is: flows have changed, or what is shared with others.
    fn learn_top(&mut self, network: &Network, class: u32) -> (f64, u32) {
        let (cap, bound) = self.cap_of(network, class);
        let lane = &mut self.lanes[class as usize];
        lane.top = cap / lane.weight;
        (cap, bound)
    }

    /// Whether each shared resource counts the places of classes that follow its clock, and all that it limits do.
    #[cfg(test)]
    pub fn assert_counts(&self) {
        for (resource, link) in (0..).zip(&self.links).filter(|(_, link)| link.is_shared()) {
            let follows = |&&(class, _): &&(u32, u32)| self.lanes[class as usize].clock == resource;
            let found = link.on.iter().filter(follows).count();
            assert_eq!(
                found, link.bound as usize,
                "followers of resource {resource}"
            );
        }
        for (class, lane) in self.lanes.iter().enumerate() {
            let limit = self.links.get(lane.bound as usize);
            assert!(
                lane.clock != OWN || !limit.is_some_and(Link::is_shared),
                "class {class} is limited by a resource whose clock it does not follow"
            );
        }
    }

    fn end_of_class(&mut self, class: u32, flows: &Flows, due: impl Fn(f64) -> bool) {
        let lane = &mut self.lanes[class as usize];
        while let Some((tag, flow)) = lane.first(flows) {
            if !due(lane.end_of(tag)) {
                break;
            }
            lane.pop();
            self.due.push(flow);
        }
        self.coming = lane.coming(flows);
        self.soil(class);
    }

    fn end_of_link(&mut self, resource: u32, flows: &Flows, at_s: f64) {
        let pace = self.links[resource as usize].pace();
        while let Some((reading, item)) = self.links[resource as usize].heap.first() {
            if !same_instant(pace.time_of(reading), at_s) {
                break;
            }
            self.links[resource as usize]
                .heap
                .remove(item, &mut self.places);
            self.end_of_class(item / 2, flows, |reading| {
                same_instant(pace.time_of(reading), at_s)
            });
        }
        self.queue.remove(of_link(resource), &mut self.places);
        self.spoil(resource);
    }
}
