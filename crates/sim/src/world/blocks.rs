//! What a transfer waits for at places that have blocks: see [`block_wait_s`].

use venturi_plan::{Amount, Call, MoverCost, Transfer};

use super::World;
use super::passage::option;
use crate::cost::block_wait_s;

impl World {
    /// Time that a byte of one session waits for blocks, at both ends; 0 where no place has any.
    ///
    /// What the tool asks for at a time is its option `block`, else what its cost says, else a block of the place.
    pub(super) fn block_wait_s(&self, transfer: &Transfer, call: &Call, mover: &MoverCost) -> f64 {
        let asked = option(call, "block_bytes").or(mover.block_bytes.map(Amount::get));
        [&transfer.source, &transfer.destination]
            .into_iter()
            .filter_map(|end| self.assumptions.costs.places.get(end.place()))
            .filter_map(|place| Some((place.block_bytes?.get(), place.block_s?.get())))
            .map(|(block, block_s)| block_wait_s(asked.unwrap_or(block), block, block_s))
            .sum()
    }
}
