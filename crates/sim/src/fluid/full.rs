//! The oracle: rates by progressive filling of everything, at every event, and every flow moved on by its own rate.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | x | level: rate / weight of flows that no cap or resource has stopped | bytes/s |
//! | C | capacity of a resource | bytes/s |
//! | n, w, u | flows of a class, weight and cap of each | –, –, bytes/s |
//!
//! Source: Bertsekas and Gallager, Data Networks, 2nd ed., 6.5.2, with weights and caps.

use std::collections::VecDeque;

use super::flows::{Flow, Flows, started_before};
use super::network::Network;
use super::{Bound, End, FlowId, ResourceId, same_instant};

/// What a class has got.
#[derive(Debug, Clone, Copy)]
struct Share {
    rate: f64,
    bound: Bound,
}

/// Fills everything at every event.
#[derive(Debug, Default)]
pub(super) struct Full {
    /// Of each class, if it has flows; empty when out of date.
    shares: Vec<Option<Share>>,
    moved_to: f64,
}

impl Full {
    /// A flow begins.
    pub fn join(&mut self, network: &mut Network, flows: &mut Flows, flow: FlowId, bytes: f64) {
        let entry = flows.at_mut(flow.slot);
        entry.mark = bytes;
        network.join(entry.class);
        self.shares.clear();
    }

    /// A flow is taken away. The bytes that remained.
    pub fn leave(&mut self, network: &mut Network, flows: &mut Flows, flow: FlowId) -> f64 {
        self.shares.clear();
        let Flow { class, mark, .. } = *flows.at(flow.slot);
        network.leave(class);
        mark
    }

    /// A capacity has changed.
    pub fn resource_changed(&mut self, _network: &Network, _resource: u32) {
        self.shares.clear();
    }

    /// When the next flow ends.
    pub fn next_end(&mut self, network: &Network, flows: &Flows) -> Option<f64> {
        self.solve(network);
        let ends = flows.live().map(|(_, flow)| self.end_of(flow));
        ends.min_by(f64::total_cmp).filter(|end| end.is_finite())
    }

    /// Take out the flows that end at `at_s`, the next end.
    pub fn end_at(
        &mut self,
        network: &mut Network,
        flows: &mut Flows,
        at_s: f64,
        ended: &mut VecDeque<End>,
    ) {
        let mut now: Vec<FlowId> = flows
            .live()
            .filter(|(_, flow)| same_instant(self.end_of(flow), at_s))
            .map(|(slot, flow)| FlowId {
                slot,
                serial: flow.serial,
            })
            .collect();
        now.sort_by(|one, other| {
            started_before(one.serial, other.serial)
                .cmp(&true)
                .reverse()
        });
        self.move_to(network, flows, at_s);
        for flow in now {
            let Flow { token, class, .. } = *flows.at(flow.slot);
            flows.remove(flow.slot);
            network.leave(class);
            ended.push_back(End { flow, token, at_s });
        }
        self.shares.clear();
    }

    /// Move every flow on; nothing ends before `now`.
    pub fn move_to(&mut self, network: &Network, flows: &mut Flows, now: f64) {
        let passed_s = now - self.moved_to;
        if passed_s > 0.0 {
            self.solve(network);
            for flow in flows.live_mut() {
                flow.mark = (flow.mark - self.rate_of(flow.class) * passed_s).max(0.0);
            }
        }
        self.moved_to = now;
    }

    /// The rate of each flow of a class that has some.
    pub fn rate(&mut self, network: &Network, class: u32) -> f64 {
        self.solve(network);
        self.rate_of(class)
    }

    /// What limits the flows of a class that has some.
    pub fn bound(&mut self, network: &Network, class: u32) -> Bound {
        self.solve(network);
        self.shares[class as usize].map_or(Bound::Cap, |share| share.bound)
    }

    /// What all flows on a resource move together.
    pub fn load(&mut self, network: &Network, resource: u32) -> f64 {
        self.solve(network);
        let on_it = (0..).zip(&network.classes).map(|(class, facts)| {
            let times = network
                .way(class)
                .iter()
                .filter(|&&other| other == resource)
                .count();
            (times as f64) * f64::from(facts.flows) * self.rate_of(class)
        });
        on_it.sum()
    }

    fn end_of(&self, flow: &Flow) -> f64 {
        match self.rate_of(flow.class) {
            _ if flow.mark <= 0.0 => self.moved_to,
            rate if rate > 0.0 => self.moved_to + flow.mark / rate,
            _ => f64::INFINITY,
        }
    }

    fn rate_of(&self, class: u32) -> f64 {
        self.shares
            .get(class as usize)
            .copied()
            .flatten()
            .map_or(0.0, |share| share.rate)
    }

    fn solve(&mut self, network: &Network) {
        if self.shares.is_empty() {
            self.shares = fill(network);
        }
    }
}

/// The max-min fair rates of all classes that have flows.
fn fill(network: &Network) -> Vec<Option<Share>> {
    let mut shares: Vec<Option<Share>> = vec![None; network.classes.len()];
    let mut rising: Vec<u32> = (0..)
        .zip(&network.classes)
        .filter(|(_, class)| class.flows > 0)
        .map(|(id, _)| id)
        .collect();
    // Bytes/s of each resource that classes have which have been stopped.
    let mut given = vec![0.0; network.resources.len()];
    // Every round stops at least one class.
    while !rising.is_empty() {
        let (level, bound) = next_stop(network, &rising, &given);
        rising.retain(|&class| {
            let facts = &network.classes[class as usize];
            let rate = match bound {
                Bound::Cap if facts.cap / facts.weight <= level => facts.cap,
                Bound::Resource(full) if network.way(class).contains(&full.0) => {
                    facts.weight * level
                }
                _ => return true,
            };
            shares[class as usize] = Some(Share { rate, bound });
            for &resource in network.way(class) {
                given[resource as usize] += f64::from(facts.flows) * rate;
            }
            false
        });
    }
    shares
}

/// The lowest level at which a class meets its cap or a resource is full, and which it is.
fn next_stop(network: &Network, rising: &[u32], given: &[f64]) -> (f64, Bound) {
    // Summed anew each time: what differences leave of a sum that was much larger is rounding.
    let mut weights = vec![0.0; given.len()];
    for &class in rising {
        let facts = &network.classes[class as usize];
        for &resource in network.way(class) {
            weights[resource as usize] += f64::from(facts.flows) * facts.weight;
        }
    }
    let caps = rising.iter().map(|&class| {
        let facts = &network.classes[class as usize];
        (facts.cap / facts.weight, Bound::Cap)
    });
    let full = (0..)
        .zip(weights.iter().zip(given))
        .filter(|(_, (weight, _))| **weight > 0.0)
        .map(|(resource, (weight, given))| {
            let left = (network.capacity(resource) - given).max(0.0);
            (left / weight, Bound::Resource(ResourceId(resource)))
        });
    caps.chain(full)
        .min_by(|one, other| one.0.total_cmp(&other.0))
        .expect("a class that rises has a cap or a resource")
}
