//! What a transfer costs besides bytes on links: formulas, each with source and range, and the phases that they come to.
//!
//! No state of the simulation is here, and no time passes: numbers go in, numbers come out. What the formulas rest on, with a table of
//! symbols each, is in `docs/concepts/transfer-costs.md`.
//!
//! Read [`TransferSketch`] first: it becomes a [`Course`] of [`Phase`]s, which a driver puts on resources.

mod blocks;
mod cache;
mod checks;
mod congestion;
mod dealing;
mod error;
mod files;
mod first_loss;
mod outage;
mod parameters;
mod phase;
mod scatter;
mod sketch;
mod slow_start;
mod stages;
mod storage;
#[cfg(test)]
pub(crate) mod tests;
mod window;

pub use blocks::block_wait_s;
pub use cache::Lru;
pub use congestion::{CongestionControl, bbr_rate, cubic_rate, mathis_rate, pftk_rate};
pub use dealing::Dealing;
pub use error::Error;
pub use files::{Files, MOST_GROUPS};
pub use first_loss::{BeforeLoss, segments_after};
pub use outage::{connects_after_s, gives_up_after_s, resumes_after_s, stops_connecting_after_s};
pub use parameters::{CallCost, Costs};
pub use phase::{Bound, Direction, End, Phase, Why};
pub use scatter::scatter_factor;
pub use sketch::{Course, DataPath, TransferSketch};
pub use slow_start::SlowStart;
pub use stages::{alternating_rate, processor_rate};
pub use storage::{MOST_USERS, array_rate, head_rate, service_rates, storage_rates, usl_speedup};
pub use venturi_plan::{Amount, HostCost, MoverCost, ServiceCost, StorageCost};
pub use window::{SHORTEST_RTT_S, sharing_weight, window_of_buffers, window_rate};
