//! Waits of a transfer for blocks of its storages: see [`block_wait_s`].

use venturi_plan::{Amount, Call, MoverCost, Transfer};

use super::World;
use super::route_builder::option;
use crate::cost::block_wait_s;

impl World {
    /// Return the wait per byte of one session for blocks, at both ends; 0 if no storage has
    /// blocks.
    ///
    /// Request size of the tool: its option `block`, otherwise the cost of the mover, otherwise a block of the
    /// storage.
    pub(super) fn block_wait_s(&self, transfer: &Transfer, call: &Call, mover: &MoverCost) -> f64 {
        let query = option(call, "block_bytes").or(mover.block_bytes.map(Amount::get));
        [&transfer.source, &transfer.destination]
            .into_iter()
            .filter_map(|end| self.assumptions.costs.storages.get(end.storage()))
            .filter_map(|storage| Some((storage.block_bytes?.get(), storage.block_s?.get())))
            .map(|(block, block_s)| block_wait_s(query.unwrap_or(block), block, block_s))
            .sum()
    }
}
