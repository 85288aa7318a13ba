//! Fast solver: recomputes only the rates that an event can change. It touches only the flow that
//! starts or ends.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | level | rate / weight of a class | bytes/s |
//! | clock | integral of the level of a resource over time | bytes |
//! | tag | bytes that each flow of a class has been served when this one ends | bytes |
//!
//! Classes follow the clock of the resource that limits them, or their own at a cap. A resource
//! with only one class is a cap of that class. A resource that can never be full is omitted from
//! all routes (`network::lead`). An event is solved by the first of these methods that applies:
//! 1. *alone*: the class has no shared resource, so its rate is its cap;
//! 2. *slack*: the class has its cap before and after, and no resource on its route is full before
//!    or after;
//! 3. *isolated* (`isolated`): the classes of the one shared resource share no other; their level
//!    shifts without a scan of the classes;
//! 4. *local update* (`local_update`): levels change, and all classes keep their limits;
//! 5. *region* (`region`): all classes and resources that the change can reach are recomputed.

mod heap;
mod isolated;
mod lane;
mod link;
mod local_update;
mod region;
mod resolve;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::flows::{Flow, Flows, started_before};
use super::network::SolverNetwork;
use super::{Bottleneck, FlowEnd, FlowId, ResourceId, same_instant};
use heap::{Heap, OUTSIDE};
use isolated::IsolatedEntry;
use lane::{CAP, IDLE, Lane, OWN};
use link::SolverLink;
use local_update::LocalUpdate;
use region::Region;

/// Maximum ratio of load to capacity of a resource that is not overloaded; above 1 because sums of
/// rates are rounded.
const FULL: f64 = 1.0 + 1e-13;

/// Fraction of its former value below which a sum is recomputed. The remainder of a much larger sum
/// is partly rounding error, and the errors of a few sums must stay small compared with [`FULL`].
const MOSTLY_GONE: f64 = 1.0 / 64.0;

/// Work counters, for comparison with the number of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of solved changes of a class or a capacity.
    pub changes: u64,
    /// Number of regions that were filled for them.
    pub regions: u64,
    /// Number of examined classes in total.
    pub classes: u64,
}

/// State of a class before a change of its flows.
#[derive(Debug, Clone, Copy)]
struct Change {
    class: u32,
    /// Rate / weight; infinite if it had no flows.
    level: f64,
    /// Clock that it followed.
    clock: u32,
}

/// Solver that recomputes only the rates affected by a change.
#[derive(Debug, Default)]
pub(super) struct IncrementalSolver {
    lanes: Vec<Lane>,
    links: Vec<SolverLink>,
    /// For each resource on the route of each class: position of the class in the list of the
    /// resource.
    seats: Vec<u32>,
    /// Position of each clock in its heap: classes at even numbers, resources at odd ones.
    positions: Vec<u32>,
    /// Clocks by their next end.
    queue: Heap,
    dirty: Vec<u32>,
    dirty_links: Vec<u32>,
    /// Changes that affect other classes, and resources whose capacity has changed: the seeds of a
    /// region.
    changes: Vec<Change>,
    pressed: Vec<u32>,
    /// Number of processed entries of [`SolverNetwork::restored`], and whether everything reached
    /// from them must be filled again.
    restored: usize,
    whole: bool,
    /// Resources whose position in `queue` is out of date.
    stale: Vec<u32>,
    due: Vec<FlowId>,
    /// Token of the next flow of the class whose flows ended last.
    pub coming: Option<u64>,
    /// Scratch space of solutions.
    entries: Vec<IsolatedEntry>,
    local_update: LocalUpdate,
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

impl IncrementalSolver {
    /// Add a flow that starts.
    pub fn join(&mut self, network: &SolverNetwork, flows: &mut Flows, flow: FlowId, bytes: f64) {
        let class = flows.at(flow.slot).class;
        self.grow(network);
        self.catch_up(class);
        self.lanes[class as usize].push(flows, flow.slot, bytes);
        self.soil(class);
    }

    /// Remove a flow and return its remaining bytes.
    pub fn leave(&mut self, _network: &SolverNetwork, flows: &mut Flows, flow: FlowId) -> f64 {
        let Flow { class, mark, .. } = *flows.at(flow.slot);
        self.catch_up(class);
        let lane = &mut self.lanes[class as usize];
        lane.live -= 1;
        let remaining = (mark - lane.served).max(0.0);
        self.soil(class);
        remaining
    }

    /// Record that a capacity has changed.
    pub fn resource_changed(&mut self, network: &SolverNetwork, resource: u32) {
        self.grow(network);
        self.dirty_links.push(resource);
    }

    /// Return the time of the next end.
    pub fn next_end(&mut self, network: &SolverNetwork, flows: &Flows) -> Option<f64> {
        self.solve(network, flows);
        self.queue.first().map(|(at_s, _)| at_s)
    }

    /// Remove the flows that end at `at_s`, the next end.
    pub fn end_at(&mut self, flows: &mut Flows, at_s: f64, ended: &mut VecDeque<FlowEnd>) {
        self.now = at_s;
        while let Some((next, item)) = self.queue.first() {
            if !same_instant(next, at_s) {
                break;
            }
            if item % 2 == 0 {
                self.queue.remove(item, &mut self.positions);
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
            ended.push_back(FlowEnd { flow, token, at_s });
        }
    }

    /// Advance to `now`. No flow ends before.
    pub fn move_to(&mut self, now: f64) {
        self.now = now;
    }

    /// Return the rate of each flow of a class with flows.
    pub fn rate(&mut self, network: &SolverNetwork, flows: &Flows, class: u32) -> f64 {
        self.solve(network, flows);
        self.rate_of(class)
    }

    /// Return the limit of the flows of a class with flows.
    pub fn bottleneck(&mut self, network: &SolverNetwork, flows: &Flows, class: u32) -> Bottleneck {
        self.solve(network, flows);
        match self.lanes[class as usize].bottleneck {
            CAP => Bottleneck::Cap,
            resource => Bottleneck::Resource(ResourceId(resource)),
        }
    }

    /// Return the rate of all flows on a resource.
    pub fn load(&mut self, network: &SolverNetwork, flows: &Flows, resource: u32) -> f64 {
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

    /// Add state for the new classes and resources of the network.
    fn grow(&mut self, network: &SolverNetwork) {
        for class in self.lanes.len()..network.classes.len() {
            let info = &network.classes[class];
            let route = network.limits(class as u32);
            let twice = (1..route.len()).any(|at| route[..at].contains(&route[at]));
            let limits = (info.route.0, info.end);
            self.lanes
                .push(Lane::new(info.weight, info.cap, limits, twice));
            self.seats.resize(info.route.1 as usize, OUTSIDE);
        }
        for resource in self.links.len()..network.resources.len() {
            let info = &network.resources[resource];
            self.links
                .push(SolverLink::new(info.capacity(0), info.depends_on_users()));
        }
        let positions = 2 * self.lanes.len().max(self.links.len());
        if self.positions.len() < positions {
            self.positions.resize(positions, OUTSIDE);
        }
    }

    /// Return the resources that can limit a class, as of its last update.
    fn route<'network>(&self, network: &'network SolverNetwork, class: u32) -> &'network [u32] {
        let lane = &self.lanes[class as usize];
        network.route_slice(lane.start, lane.end)
    }

    fn soil(&mut self, class: u32) {
        let lane = &mut self.lanes[class as usize];
        if !lane.dirty {
            lane.dirty = true;
            self.dirty.push(class);
        }
    }

    /// Mark the position of a resource in the queue as out of date.
    fn spoil(&mut self, resource: u32) {
        let link = &mut self.links[resource as usize];
        if !link.stale {
            link.stale = true;
            self.stale.push(resource);
        }
    }

    /// Advance a class to the current time on the clock that it follows.
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

    /// Return rate / weight; infinite without flows.
    fn level_of(&self, class: u32) -> f64 {
        let lane = &self.lanes[class as usize];
        match lane.clock {
            IDLE => f64::INFINITY,
            OWN => lane.rate / lane.weight,
            link => self.links[link as usize].level,
        }
    }

    /// Return the total rate of the flows of a class, in bytes/s.
    fn flow_of(&self, class: u32) -> f64 {
        f64::from(self.lanes[class as usize].solved) * self.rate_of(class)
    }

    /// Return the maximum rate of a flow under the limits that its class shares with no other
    /// class, and the limit that applies.
    fn cap_of(&self, network: &SolverNetwork, class: u32) -> (f64, u32) {
        let lane = &self.lanes[class as usize];
        let (mut cap, mut bottleneck) = (lane.cap, CAP);
        if lane.shared < lane.end - lane.start {
            for &resource in network.route_slice(lane.start, lane.end) {
                let link = &self.links[resource as usize];
                if !link.is_shared() {
                    let fair_rate = link.capacity / f64::from(lane.solved);
                    if fair_rate < cap {
                        (cap, bottleneck) = (fair_rate, resource);
                    }
                }
            }
        }
        (cap, bottleneck)
    }

    /// Return the same values and store the level. Call this after a change of the flows or of the
    /// shared resources.
    fn learn_top(&mut self, network: &SolverNetwork, class: u32) -> (f64, u32) {
        let (cap, bottleneck) = self.cap_of(network, class);
        let lane = &mut self.lanes[class as usize];
        lane.top = cap / lane.weight;
        (cap, bottleneck)
    }

    /// Assert that each shared resource counts the route positions of classes that follow its
    /// clock, and that every class that it limits follows it.
    #[cfg(test)]
    pub fn assert_counts(&self) {
        for (resource, link) in (0..).zip(&self.links).filter(|(_, link)| link.is_shared()) {
            let follows = |&&(class, _): &&(u32, u32)| self.lanes[class as usize].clock == resource;
            let found = link.on.iter().filter(follows).count();
            assert_eq!(
                found, link.bottleneck as usize,
                "followers of resource {resource}"
            );
        }
        for (class, lane) in self.lanes.iter().enumerate() {
            let limit = self.links.get(lane.bottleneck as usize);
            assert!(
                lane.clock != OWN || !limit.is_some_and(SolverLink::is_shared),
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
                .remove(item, &mut self.positions);
            self.end_of_class(item / 2, flows, |reading| {
                same_instant(pace.time_of(reading), at_s)
            });
        }
        self.queue.remove(of_link(resource), &mut self.positions);
        self.spoil(resource);
    }
}
