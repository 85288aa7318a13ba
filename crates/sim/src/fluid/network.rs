//! Resources and classes, with the number of flows of each: input that the solvers only read.

mod lead;

use std::collections::BTreeMap;

use super::{Capacity, ClassId, FluidError, ResourceId};
use lead::Leads;

/// Resource of the network.
#[derive(Debug)]
pub(super) struct Resource {
    capacity: Capacity,
    /// Number of flows on it; a flow counts once for each time that its class lists the resource.
    users: u32,
}

impl Resource {
    /// Return the capacity for a number of flows, in bytes/s.
    pub fn capacity(&self, users: u32) -> f64 {
        match &self.capacity {
            Capacity::Constant(capacity) => *capacity,
            Capacity::OfUsers(of_users) => {
                let position = (users.max(1) as usize).min(of_users.len());
                of_users[position - 1]
            }
        }
    }

    /// Return whether its capacity depends on the number of flows.
    pub fn depends_on_users(&self) -> bool {
        matches!(self.capacity, Capacity::OfUsers(_))
    }
}

/// Class of the network.
#[derive(Debug)]
pub(super) struct Class {
    /// First of its resources in the routes of the [`SolverNetwork`], and one past the last.
    pub route: (u32, u32),
    /// One past the last resource that can limit it; the others follow leaders (`lead`).
    pub end: u32,
    /// Weight of a flow at a full resource.
    pub weight: f64,
    /// Maximum rate of a flow, in bytes/s.
    pub cap: f64,
    /// Number of live flows.
    pub flows: u32,
}

type ClassKey = (Box<[ResourceId]>, u64, u64);

/// Resources and classes.
#[derive(Debug, Default)]
pub(super) struct SolverNetwork {
    pub resources: Vec<Resource>,
    pub classes: Vec<Class>,
    routes: Vec<u32>,
    leads: Leads,
    interned: BTreeMap<ClassKey, ClassId>,
}

impl SolverNetwork {
    /// Add a resource.
    pub fn add_resource(&mut self, capacity: Capacity) -> Result<ResourceId, FluidError> {
        check_capacity(&capacity)?;
        let id = ResourceId(next_id("resources", self.resources.len())?);
        self.resources.push(Resource { capacity, users: 0 });
        Ok(id)
    }

    /// Find or add a class.
    pub fn class(
        &mut self,
        resources: &[ResourceId],
        weight: f64,
        cap: f64,
    ) -> Result<ClassId, FluidError> {
        for &resource in resources {
            self.check_resource(resource)?;
        }
        check_class(resources, weight, cap)?;
        let key = (resources.into(), weight.to_bits(), cap.to_bits());
        if let Some(&id) = self.interned.get(&key) {
            return Ok(id);
        }
        let id = ClassId(next_id("classes", self.classes.len())?);
        let start = next_id("resources in all classes", self.routes.len())?;
        let end = next_id(
            "resources in all classes",
            self.routes.len() + resources.len(),
        )?;
        self.routes
            .extend(resources.iter().map(|resource| resource.0));
        self.classes.push(Class {
            route: (start, end),
            end,
            weight,
            cap,
            flows: 0,
        });
        self.interned.insert(key, id);
        self.lead_class(id.0);
        Ok(id)
    }

    /// Check that an identifier belongs to this solver.
    pub fn check_resource(&self, id: ResourceId) -> Result<(), FluidError> {
        known("a resource", id.0, self.resources.len())
    }

    /// Check that an identifier belongs to this solver.
    pub fn check_class(&self, id: ClassId) -> Result<(), FluidError> {
        known("a class", id.0, self.classes.len())
    }

    /// Return all resources of a class.
    pub fn route(&self, class: u32) -> &[u32] {
        let (start, end) = self.classes[class as usize].route;
        &self.routes[start as usize..end as usize]
    }

    /// Return the resources between two positions of the routes.
    pub fn route_slice(&self, start: u32, end: u32) -> &[u32] {
        &self.routes[start as usize..end as usize]
    }

    /// Return the current capacity of a resource, in bytes/s.
    pub fn capacity(&self, resource: u32) -> f64 {
        let info = &self.resources[resource as usize];
        info.capacity(info.users)
    }

    /// Change the capacity of a resource.
    pub fn set_capacity(&mut self, resource: u32, capacity: Capacity) {
        self.resources[resource as usize].capacity = capacity;
        self.lead_again(resource);
    }

    /// Count one more flow of a class.
    pub fn join(&mut self, class: u32) {
        let (start, end) = self.classes[class as usize].route;
        self.classes[class as usize].flows += 1;
        for &resource in &self.routes[start as usize..end as usize] {
            self.resources[resource as usize].users += 1;
        }
    }

    /// Count one flow of a class less.
    pub fn leave(&mut self, class: u32) {
        let (start, end) = self.classes[class as usize].route;
        self.classes[class as usize].flows -= 1;
        for &resource in &self.routes[start as usize..end as usize] {
            self.resources[resource as usize].users -= 1;
        }
    }
}

/// Check that a capacity is valid.
pub(super) fn check_capacity(capacity: &Capacity) -> Result<(), FluidError> {
    const NAME: &str = "a capacity in bytes/s";
    match capacity {
        Capacity::Constant(value) => FluidError::unless_rate(NAME, *value),
        Capacity::OfUsers(values) if values.is_empty() => Err(FluidError::Value {
            what: "the number of capacities",
            expected: "at least 1, that of a resource with one flow",
            found: 0.0,
        }),
        Capacity::OfUsers(values) => values
            .iter()
            .try_for_each(|value| FluidError::unless_rate(NAME, *value)),
    }
}

fn check_class(resources: &[ResourceId], weight: f64, cap: f64) -> Result<(), FluidError> {
    if !(1e-30..=1e30).contains(&weight) {
        return Err(FluidError::Value {
            what: "a weight",
            expected: "above 0, from 1e-30 to 1e30",
            found: weight,
        });
    }
    if cap.is_nan() || cap < 0.0 {
        return Err(FluidError::Value {
            what: "a cap in bytes/s",
            expected: "at least 0",
            found: cap,
        });
    }
    if resources.is_empty() && cap == f64::INFINITY {
        let expected = "finite for a class without resources, because a flow would take no time";
        return Err(FluidError::Value {
            what: "a cap in bytes/s",
            expected,
            found: cap,
        });
    }
    Ok(())
}

fn known(expected: &'static str, found: u32, count: usize) -> Result<(), FluidError> {
    if (found as usize) < count {
        return Ok(());
    }
    Err(FluidError::Unknown { expected, found })
}

/// Return the next identifier. The last value of the type is reserved: solvers use it as "none".
fn next_id(what: &'static str, count: usize) -> Result<u32, FluidError> {
    match u32::try_from(count) {
        Ok(id) if id < u32::MAX => Ok(id),
        _ => Err(FluidError::TooMany {
            what,
            limit: u32::MAX - 1,
        }),
    }
}
