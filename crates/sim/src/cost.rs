//! Costs of transfers in addition to bytes on links: formulas, each with source and range, and their phases.
//!
//! This module has no state and no clock: functions of numbers. For the basis of the formulas, with
//! a table of symbols each, see `docs/concepts/transfer-costs.md`.
//!
//! Read [`TransferSpec`] first: it becomes a [`PhasePlan`] of [`TransferPhase`]s, which a driver puts on resources.

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
mod slow_start;
mod stages;
mod storage;
#[cfg(test)]
pub(crate) mod tests;
mod transfer_spec;
mod window;

pub use blocks::block_wait_s;
pub use cache::Lru;
pub use congestion::{CongestionControl, bbr_rate, cubic_rate, mathis_rate, pftk_rate};
pub use dealing::Dealing;
pub use error::CostError;
pub use files::{CallFiles, MAX_GROUPS};
pub use first_loss::{BeforeLoss, segments_after};
pub use outage::{connects_after_s, resumes_after_s, stall_timeout_s, stops_connecting_after_s};
pub use parameters::{CallCost, Costs};
pub use phase::{Direction, EndpointRole, TransferLimit, TransferPhase, Why};
pub use scatter::scatter_factor;
pub use slow_start::SlowStart;
pub use stages::{alternating_rate, core_rate};
pub use storage::{MAX_USERS, array_rate, head_rate, service_rates, storage_rates, usl_speedup};
pub use transfer_spec::{DataPath, PhasePlan, TransferSpec};
pub use venturi_plan::{Amount, HostCost, MoverCost, ServiceCost, StorageCost};
pub use window::{SHORTEST_RTT_S, sharing_weight, window_of_buffers, window_rate};
