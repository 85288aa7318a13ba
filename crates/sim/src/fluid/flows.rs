//! The live flows, in a slab: places of ended flows are used again.

use super::ahead::fetch;
use super::{Error, FlowId};

/// Class of a place that holds no flow.
const FREE: u32 = u32::MAX;

/// A live flow, or a free place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    /// What the caller calls it.
    pub token: u64,
    /// The solver's own number: bytes that remain, or the class's work at which the flow ends.
    pub mark: f64,
    /// Its class, or [`FREE`].
    pub class: u32,
    /// In which order it was started: ends of one instant are told in this order.
    pub serial: u32,
}

/// All live flows.
#[derive(Debug, Default)]
pub(super) struct Flows {
    places: Vec<Flow>,
    free: Vec<u32>,
    serial: u32,
}

impl Flows {
    /// Take a place.
    pub fn add(&mut self, class: u32, token: u64) -> Result<FlowId, Error> {
        let serial = self.serial;
        let flow = Flow {
            token,
            mark: 0.0,
            class,
            serial,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.places[slot as usize] = flow;
                slot
            }
            None => {
                let slot = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
                if slot == u32::MAX {
                    return Err(Error::TooMany {
                        what: "flows at once",
                        limit: u32::MAX,
                    });
                }
                self.places.push(flow);
                slot
            }
        };
        self.serial = serial.wrapping_add(1);
        Ok(FlowId { slot, serial })
    }

    /// Give a place back.
    pub fn remove(&mut self, slot: u32) {
        self.places[slot as usize].class = FREE;
        self.free.push(slot);
    }

    /// The class of a flow that lives.
    pub fn class_of(&self, id: FlowId) -> Result<u32, Error> {
        match self.places.get(id.slot as usize) {
            Some(flow) if flow.class != FREE && flow.serial == id.serial => Ok(flow.class),
            _ => Err(Error::Unknown {
                expected: "a flow that has not ended",
                found: id.serial,
            }),
        }
    }

    /// The flow in a place.
    pub fn at(&self, slot: u32) -> &Flow {
        &self.places[slot as usize]
    }

    /// The flow in a place.
    pub fn at_mut(&mut self, slot: u32) -> &mut Flow {
        &mut self.places[slot as usize]
    }

    /// A place will be read soon.
    pub fn fetch(&self, slot: u32) {
        fetch(&self.places, slot as usize);
    }

    /// Whether a place holds the flow that was started as number `serial`.
    pub fn holds(&self, slot: u32, serial: u32) -> bool {
        let flow = &self.places[slot as usize];
        flow.class != FREE && flow.serial == serial
    }

    /// All live flows with their places.
    pub fn live(&self) -> impl Iterator<Item = (u32, &Flow)> {
        (0..)
            .zip(&self.places)
            .filter(|(_, flow)| flow.class != FREE)
    }

    /// All live flows, to be changed.
    pub fn live_mut(&mut self) -> impl Iterator<Item = &mut Flow> {
        self.places.iter_mut().filter(|flow| flow.class != FREE)
    }
}

/// Of two flows, which was started first. Serial numbers begin again after 2³² flows, so it is the distance that counts.
pub(super) fn started_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}
