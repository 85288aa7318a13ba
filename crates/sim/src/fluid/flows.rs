//! Slab of the live flows: slots of ended flows are reused.

use super::ahead::fetch;
use super::{FlowId, FluidError};

/// Class of a slot without a flow.
const FREE: u32 = u32::MAX;

/// Live flow or free slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    /// Token of the caller.
    pub token: u64,
    /// Value of the solver: remaining bytes, or the tag of the flow's end.
    pub mark: f64,
    /// Its class, or [`FREE`].
    pub class: u32,
    /// Start order. Ends at one instant are reported in this order.
    pub serial: u32,
}

/// All live flows.
#[derive(Debug, Default)]
pub(super) struct Flows {
    positions: Vec<Flow>,
    free: Vec<u32>,
    serial: u32,
}

impl Flows {
    /// Add a flow.
    pub fn add(&mut self, class: u32, token: u64) -> Result<FlowId, FluidError> {
        let serial = self.serial;
        let flow = Flow {
            token,
            mark: 0.0,
            class,
            serial,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.positions[slot as usize] = flow;
                slot
            }
            None => {
                let slot = u32::try_from(self.positions.len()).unwrap_or(u32::MAX);
                if slot == u32::MAX {
                    return Err(FluidError::TooMany {
                        what: "flows at once",
                        limit: u32::MAX,
                    });
                }
                self.positions.push(flow);
                slot
            }
        };
        self.serial = serial.wrapping_add(1);
        Ok(FlowId { slot, serial })
    }

    /// Free a slot.
    pub fn remove(&mut self, slot: u32) {
        self.positions[slot as usize].class = FREE;
        self.free.push(slot);
    }

    /// Return the class of a live flow.
    pub fn class_of(&self, id: FlowId) -> Result<u32, FluidError> {
        match self.positions.get(id.slot as usize) {
            Some(flow) if flow.class != FREE && flow.serial == id.serial => Ok(flow.class),
            _ => Err(FluidError::Unknown {
                expected: "a flow that has not ended",
                found: id.serial,
            }),
        }
    }

    /// Return the flow in a slot.
    pub fn at(&self, slot: u32) -> &Flow {
        &self.positions[slot as usize]
    }

    /// Return the flow in a slot, mutably.
    pub fn at_mut(&mut self, slot: u32) -> &mut Flow {
        &mut self.positions[slot as usize]
    }

    /// Prefetch a slot that will be read soon.
    pub fn fetch(&self, slot: u32) {
        fetch(&self.positions, slot as usize);
    }

    /// Return whether a slot has the flow that was started as number `serial`.
    pub fn holds(&self, slot: u32, serial: u32) -> bool {
        let flow = &self.positions[slot as usize];
        flow.class != FREE && flow.serial == serial
    }

    /// Iterate over the live flows with their slots.
    pub fn live(&self) -> impl Iterator<Item = (u32, &Flow)> {
        (0..)
            .zip(&self.positions)
            .filter(|(_, flow)| flow.class != FREE)
    }

    /// Iterate over the live flows, mutably.
    pub fn live_mut(&mut self) -> impl Iterator<Item = &mut Flow> {
        self.positions.iter_mut().filter(|flow| flow.class != FREE)
    }
}

/// Return whether flow `one` was started before flow `other`. Serial numbers wrap around after 2³²
/// flows, so the signed distance decides.
pub(super) fn started_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}
