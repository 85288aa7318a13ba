//! What was told of resources and classes, and how many flows each has: what every solver reads and none changes.

mod lead;

use std::collections::BTreeMap;

use super::{Capacity, ClassId, Error, ResourceId};
use lead::Leads;

/// A resource.
#[derive(Debug)]
pub(super) struct Resource {
    capacity: Capacity,
    /// Flows on it, each as often as its class names the resource.
    users: u32,
}

impl Resource {
    /// What it gives to so many flows, in bytes/s.
    pub fn capacity(&self, users: u32) -> f64 {
        match &self.capacity {
            Capacity::Constant(capacity) => *capacity,
            Capacity::OfUsers(of_users) => {
                let place = (users.max(1) as usize).min(of_users.len());
                of_users[place - 1]
            }
        }
    }

    /// Whether its capacity moves with the number of flows.
    pub fn depends_on_users(&self) -> bool {
        matches!(self.capacity, Capacity::OfUsers(_))
    }
}

/// A class.
#[derive(Debug)]
pub(super) struct Class {
    /// First and one past the last of its resources in [`Network::ways`].
    pub way: (u32, u32),
    /// One past the last that could ever limit it: those behind follow others (`lead`).
    pub end: u32,
    /// Its share at a full resource, per flow.
    pub weight: f64,
    /// Bytes/s of a flow at most.
    pub cap: f64,
    /// Live flows.
    pub flows: u32,
}

type ClassKey = (Box<[ResourceId]>, u64, u64);

/// Resources and classes.
#[derive(Debug, Default)]
pub(super) struct Network {
    pub resources: Vec<Resource>,
    pub classes: Vec<Class>,
    ways: Vec<u32>,
    leads: Leads,
    interned: BTreeMap<ClassKey, ClassId>,
}

impl Network {
    /// Add a resource.
    pub fn add_resource(&mut self, capacity: Capacity) -> Result<ResourceId, Error> {
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
    ) -> Result<ClassId, Error> {
        for &resource in resources {
            self.check_resource(resource)?;
        }
        check_class(resources, weight, cap)?;
        let key = (resources.into(), weight.to_bits(), cap.to_bits());
        if let Some(&id) = self.interned.get(&key) {
            return Ok(id);
        }
        let id = ClassId(next_id("classes", self.classes.len())?);
        let begin = next_id("resources in all classes", self.ways.len())?;
        let end = next_id(
            "resources in all classes",
            self.ways.len() + resources.len(),
        )?;
        self.ways
            .extend(resources.iter().map(|resource| resource.0));
        self.classes.push(Class {
            way: (begin, end),
            end,
            weight,
            cap,
            flows: 0,
        });
        self.interned.insert(key, id);
        self.lead_class(id.0);
        Ok(id)
    }

    /// Refuse an id of another solver.
    pub fn check_resource(&self, id: ResourceId) -> Result<(), Error> {
        known("a resource", id.0, self.resources.len())
    }

    /// Refuse an id of another solver.
    pub fn check_class(&self, id: ClassId) -> Result<(), Error> {
        known("a class", id.0, self.classes.len())
    }

    /// All resources of a class.
    pub fn way(&self, class: u32) -> &[u32] {
        let (begin, end) = self.classes[class as usize].way;
        &self.ways[begin as usize..end as usize]
    }

    /// The resources from one place to another.
    pub fn stretch(&self, begin: u32, end: u32) -> &[u32] {
        &self.ways[begin as usize..end as usize]
    }

    /// What a resource gives now, in bytes/s.
    pub fn capacity(&self, resource: u32) -> f64 {
        let facts = &self.resources[resource as usize];
        facts.capacity(facts.users)
    }

    /// Change what a resource gives.
    pub fn set_capacity(&mut self, resource: u32, capacity: Capacity) {
        self.resources[resource as usize].capacity = capacity;
        self.lead_again(resource);
    }

    /// One more flow of a class.
    pub fn join(&mut self, class: u32) {
        let (begin, end) = self.classes[class as usize].way;
        self.classes[class as usize].flows += 1;
        for &resource in &self.ways[begin as usize..end as usize] {
            self.resources[resource as usize].users += 1;
        }
    }

    /// One flow of a class less.
    pub fn leave(&mut self, class: u32) {
        let (begin, end) = self.classes[class as usize].way;
        self.classes[class as usize].flows -= 1;
        for &resource in &self.ways[begin as usize..end as usize] {
            self.resources[resource as usize].users -= 1;
        }
    }
}

/// Refuse capacities that are none.
pub(super) fn check_capacity(capacity: &Capacity) -> Result<(), Error> {
    const WHAT: &str = "a capacity in bytes/s";
    match capacity {
        Capacity::Constant(value) => Error::unless_rate(WHAT, *value),
        Capacity::OfUsers(values) if values.is_empty() => Err(Error::Value {
            what: "the number of capacities",
            expected: "at least 1, that of a resource with one flow",
            found: 0.0,
        }),
        Capacity::OfUsers(values) => values
            .iter()
            .try_for_each(|value| Error::unless_rate(WHAT, *value)),
    }
}

fn check_class(resources: &[ResourceId], weight: f64, cap: f64) -> Result<(), Error> {
    if !(1e-30..=1e30).contains(&weight) {
        return Err(Error::Value {
            what: "a weight",
            expected: "above 0, from 1e-30 to 1e30",
            found: weight,
        });
    }
    if cap.is_nan() || cap < 0.0 {
        return Err(Error::Value {
            what: "a cap in bytes/s",
            expected: "at least 0",
            found: cap,
        });
    }
    if resources.is_empty() && cap == f64::INFINITY {
        let expected = "finite for a class without resources, or a flow would take no time";
        return Err(Error::Value {
            what: "a cap in bytes/s",
            expected,
            found: cap,
        });
    }
    Ok(())
}

fn known(expected: &'static str, found: u32, count: usize) -> Result<(), Error> {
    if (found as usize) < count {
        return Ok(());
    }
    Err(Error::Unknown { expected, found })
}

/// The next id; the last one of the type stands for none inside solvers.
fn next_id(what: &'static str, count: usize) -> Result<u32, Error> {
    match u32::try_from(count) {
        Ok(id) if id < u32::MAX => Ok(id),
        _ => Err(Error::TooMany {
            what,
            limit: u32::MAX - 1,
        }),
    }
}
