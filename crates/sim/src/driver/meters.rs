//! What passed over links, and what kept flows from being faster: integrals over virtual time.
//!
//! Between two instants rates do not change, and all flows of a class have the same. So the integrals are exact, at the price of a look
//! at each class that moves, at each instant.

use std::collections::BTreeMap;

use crate::fluid::{Bound, ClassId, Error, FlowId, Fluid};
use crate::world::{LinkNumber, World};

/// For how long each thing was what bound.
pub(super) type Times = Vec<(Bound, f64)>;

/// A class of which flows move.
#[derive(Debug)]
struct Moving {
    flows: BTreeMap<u64, FlowId>,
    links: Vec<LinkNumber>,
    loopback: Option<usize>,
    bound_s: Times,
}

/// Integrals since the start.
#[derive(Debug)]
pub(super) struct Meters {
    moving: BTreeMap<ClassId, Moving>,
    /// Of each link: bytes of payload that left it.
    pub payload: Vec<f64>,
    /// Of each link: seconds of full load.
    pub busy_s: Vec<f64>,
    /// Of each host: bytes over its loopback.
    pub loopback: Vec<f64>,
    /// What each link carries while it is up, as of now.
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

    /// Whether anything moves.
    pub fn is_idle(&self) -> bool {
        self.moving.is_empty()
    }

    /// A flow has begun; what had bound its class until then.
    pub fn begin(
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
            bound_s: Times::new(),
        });
        moving.flows.insert(token, flow);
        moving.bound_s.clone()
    }

    /// A flow has ended; what has bound it since `before`.
    pub fn end(&mut self, token: u64, class: ClassId, before: &Times) -> Times {
        let Some(moving) = self.moving.get_mut(&class) else {
            return Times::new();
        };
        moving.flows.remove(&token);
        let since = |(bound, s): &(Bound, f64)| {
            let earlier = before
                .iter()
                .find(|(other, _)| other == bound)
                .map_or(0.0, |(_, s)| *s);
            (*bound, s - earlier)
        };
        let times = moving
            .bound_s
            .iter()
            .map(since)
            .filter(|(_, s)| *s > 0.0)
            .collect();
        if moving.flows.is_empty() {
            self.moving.remove(&class);
        }
        times
    }

    /// Time passes: to be called before anything changes at its end.
    pub fn pass(&mut self, fluid: &mut Fluid, dt_s: f64) -> Result<(), Error> {
        for moving in self.moving.values_mut() {
            let Some((_, &flow)) = moving.flows.first_key_value() else {
                continue;
            };
            if self.explains {
                let bound = fluid.bound(flow)?;
                match moving.bound_s.iter_mut().find(|(other, _)| *other == bound) {
                    Some((_, s)) => *s += dt_s,
                    None => moving.bound_s.push((bound, dt_s)),
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
