//! Bytes over links, and bottlenecks of flows: integrals over virtual time.
//!
//! Rates are constant between two instants, and all flows of a class have the same rate. So the
//! integrals are exact, but every instant examines each class with active flows.

use std::collections::BTreeMap;

use crate::fluid::{Bottleneck, ClassId, FlowId, Fluid, FluidError};
use crate::world::{LinkNumber, World};

/// Time of each bottleneck.
pub(super) type Times = Vec<(Bottleneck, f64)>;

/// A class with active flows.
#[derive(Debug)]
struct Moving {
    flows: BTreeMap<u64, FlowId>,
    links: Vec<LinkNumber>,
    loopback: Option<usize>,
    bottleneck_s: Times,
}

/// Integrals since the start.
#[derive(Debug)]
pub(super) struct Meters {
    moving: BTreeMap<ClassId, Moving>,
    /// Bytes of payload that left each link.
    pub payload: Vec<f64>,
    /// Seconds of full load of each link.
    pub busy_s: Vec<f64>,
    /// Bytes over the loopback of each host.
    pub loopback: Vec<f64>,
    /// Current rate of each link that is up.
    pub capacity: Vec<f64>,
    counts: bool,
    explains: bool,
}

impl Meters {
    pub fn new(world: &World, hosts: usize, counts: bool) -> Self {
        Self {
            moving: BTreeMap::new(),
            payload: vec![0.0; world.links.len()],
            busy_s: vec![0.0; world.links.len()],
            loopback: vec![0.0; hosts],
            capacity: world
                .links
                .iter()
                .map(|link| link.payload_bytes_per_s)
                .collect(),
            counts,
            explains: world.assumptions.explain,
        }
    }

    /// Return whether any flow is active.
    pub fn is_idle(&self) -> bool {
        self.moving.is_empty()
    }

    /// Record a started flow and return the bottleneck times of its class until then.
    pub fn start_entry(
        &mut self,
        token: u64,
        flow: FlowId,
        class: ClassId,
        links: &[LinkNumber],
        loopback: Option<usize>,
    ) -> Times {
        if !self.counts && !self.explains {
            return Times::new();
        }
        let moving = self.moving.entry(class).or_insert_with(|| Moving {
            flows: BTreeMap::new(),
            links: links.to_vec(),
            loopback,
            bottleneck_s: Times::new(),
        });
        moving.flows.insert(token, flow);
        moving.bottleneck_s.clone()
    }

    /// Record an ended flow and return its bottleneck times since `before`.
    pub fn end(&mut self, token: u64, class: ClassId, before: &Times) -> Times {
        let Some(moving) = self.moving.get_mut(&class) else {
            return Times::new();
        };
        moving.flows.remove(&token);
        let since = |(bottleneck, s): &(Bottleneck, f64)| {
            let earlier = before
                .iter()
                .find(|(other, _)| other == bottleneck)
                .map_or(0.0, |(_, s)| *s);
            (*bottleneck, s - earlier)
        };
        let times = moving
            .bottleneck_s
            .iter()
            .map(since)
            .filter(|(_, s)| *s > 0.0)
            .collect();
        if moving.flows.is_empty() {
            self.moving.remove(&class);
        }
        times
    }

    /// Advance the time. Call this before anything changes at its end.
    pub fn pass(&mut self, fluid: &mut Fluid, dt_s: f64) -> Result<(), FluidError> {
        for moving in self.moving.values_mut() {
            let Some((_, &flow)) = moving.flows.first_key_value() else {
                continue;
            };
            if self.explains {
                let bottleneck = fluid.bottleneck(flow)?;
                match moving
                    .bottleneck_s
                    .iter_mut()
                    .find(|(other, _)| *other == bottleneck)
                {
                    Some((_, s)) => *s += dt_s,
                    None => moving.bottleneck_s.push((bottleneck, dt_s)),
                }
            }
            if self.counts {
                let bytes = fluid.rate(flow)? * moving.flows.len() as f64 * dt_s;
                for &link in &moving.links {
                    self.payload[link] += bytes;
                    if self.capacity[link] > 0.0 {
                        self.busy_s[link] += bytes / self.capacity[link];
                    }
                }
                if let Some(host) = moving.loopback {
                    self.loopback[host] += bytes;
                }
            }
        }
        Ok(())
    }
}
