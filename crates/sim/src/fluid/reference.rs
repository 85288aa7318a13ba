//! Reference solver: fills all classes again at every event, and advances every flow at its own
//! rate.
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
use super::network::SolverNetwork;
use super::{Bottleneck, FlowEnd, FlowId, ResourceId, same_instant};

/// Rate of a class, with its limit.
#[derive(Debug, Clone, Copy)]
struct FairShare {
    rate: f64,
    bottleneck: Bottleneck,
}

/// Solver that fills all classes at every event.
#[derive(Debug, Default)]
pub(super) struct ReferenceSolver {
    /// Rate and limit of each class with flows; empty when out of date.
    fair_shares: Vec<Option<FairShare>>,
    moved_to: f64,
}

impl ReferenceSolver {
    /// Add a flow that starts.
    pub fn join(
        &mut self,
        network: &mut SolverNetwork,
        flows: &mut Flows,
        flow: FlowId,
        bytes: f64,
    ) {
        let entry = flows.at_mut(flow.slot);
        entry.mark = bytes;
        network.join(entry.class);
        self.fair_shares.clear();
    }

    /// Remove a flow and return its remaining bytes.
    pub fn leave(&mut self, network: &mut SolverNetwork, flows: &mut Flows, flow: FlowId) -> f64 {
        self.fair_shares.clear();
        let Flow { class, mark, .. } = *flows.at(flow.slot);
        network.leave(class);
        mark
    }

    /// Record that a capacity has changed.
    pub fn resource_changed(&mut self, _network: &SolverNetwork, _resource: u32) {
        self.fair_shares.clear();
    }

    /// Return the time of the next end.
    pub fn next_end(&mut self, network: &SolverNetwork, flows: &Flows) -> Option<f64> {
        self.solve(network);
        let ends = flows.live().map(|(_, flow)| self.end_of(flow));
        ends.min_by(f64::total_cmp).filter(|end| end.is_finite())
    }

    /// Remove the flows that end at `at_s`, the next end.
    pub fn end_at(
        &mut self,
        network: &mut SolverNetwork,
        flows: &mut Flows,
        at_s: f64,
        ended: &mut VecDeque<FlowEnd>,
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
            ended.push_back(FlowEnd { flow, token, at_s });
        }
        self.fair_shares.clear();
    }

    /// Advance every flow to `now`. No flow ends before.
    pub fn move_to(&mut self, network: &SolverNetwork, flows: &mut Flows, now: f64) {
        let passed_s = now - self.moved_to;
        if passed_s > 0.0 {
            self.solve(network);
            for flow in flows.live_mut() {
                flow.mark = (flow.mark - self.rate_of(flow.class) * passed_s).max(0.0);
            }
        }
        self.moved_to = now;
    }

    /// Return the rate of each flow of a class with flows.
    pub fn rate(&mut self, network: &SolverNetwork, class: u32) -> f64 {
        self.solve(network);
        self.rate_of(class)
    }

    /// Return the limit of the flows of a class with flows.
    pub fn bottleneck(&mut self, network: &SolverNetwork, class: u32) -> Bottleneck {
        self.solve(network);
        self.fair_shares[class as usize].map_or(Bottleneck::Cap, |fair_rate| fair_rate.bottleneck)
    }

    /// Return the rate of all flows on a resource.
    pub fn load(&mut self, network: &SolverNetwork, resource: u32) -> f64 {
        self.solve(network);
        let on_it = (0..).zip(&network.classes).map(|(class, info)| {
            let times = network
                .route(class)
                .iter()
                .filter(|&&other| other == resource)
                .count();
            (times as f64) * f64::from(info.flows) * self.rate_of(class)
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
        self.fair_shares
            .get(class as usize)
            .copied()
            .flatten()
            .map_or(0.0, |fair_rate| fair_rate.rate)
    }

    fn solve(&mut self, network: &SolverNetwork) {
        if self.fair_shares.is_empty() {
            self.fair_shares = fill(network);
        }
    }
}

/// Return the max-min fair rates of all classes with flows.
fn fill(network: &SolverNetwork) -> Vec<Option<FairShare>> {
    let mut fair_shares: Vec<Option<FairShare>> = vec![None; network.classes.len()];
    let mut rising: Vec<u32> = (0..)
        .zip(&network.classes)
        .filter(|(_, class)| class.flows > 0)
        .map(|(id, _)| id)
        .collect();
    // Rate of the stopped classes on each resource, in bytes/s.
    let mut allocated = vec![0.0; network.resources.len()];
    // Every round stops at least one class.
    while !rising.is_empty() {
        let (level, bottleneck) = next_stop(network, &rising, &allocated);
        rising.retain(|&class| {
            let info = &network.classes[class as usize];
            let rate = match bottleneck {
                Bottleneck::Cap if info.cap / info.weight <= level => info.cap,
                Bottleneck::Resource(full) if network.route(class).contains(&full.0) => {
                    info.weight * level
                }
                _ => return true,
            };
            fair_shares[class as usize] = Some(FairShare { rate, bottleneck });
            for &resource in network.route(class) {
                allocated[resource as usize] += f64::from(info.flows) * rate;
            }
            false
        });
    }
    fair_shares
}

/// Return the lowest level of a cap or a full resource, and this limit.
fn next_stop(network: &SolverNetwork, rising: &[u32], allocated: &[f64]) -> (f64, Bottleneck) {
    // Summed in every round: the remainder of a much larger sum would be rounding error.
    let mut weights = vec![0.0; allocated.len()];
    for &class in rising {
        let info = &network.classes[class as usize];
        for &resource in network.route(class) {
            weights[resource as usize] += f64::from(info.flows) * info.weight;
        }
    }
    let caps = rising.iter().map(|&class| {
        let info = &network.classes[class as usize];
        (info.cap / info.weight, Bottleneck::Cap)
    });
    let full = (0..)
        .zip(weights.iter().zip(allocated))
        .filter(|(_, (weight, _))| **weight > 0.0)
        .map(|(resource, (weight, allocated))| {
            let left = (network.capacity(resource) - allocated).max(0.0);
            (left / weight, Bottleneck::Resource(ResourceId(resource)))
        });
    caps.chain(full)
        .min_by(|one, other| one.0.total_cmp(&other.0))
        .expect("a class that rises has a cap or a resource")
}
