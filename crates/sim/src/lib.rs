//! Simulator: flows of bytes over shared resources, in virtual time.
//!
//! Flows share resources (links, disks, CPUs) max-min fairly, with a weight and a cap per flow. The
//! [`fluid`] solver reports the end of each flow. The crate deliberately has no packets, clocks,
//! files, threads or random draws, so the same calls give the same bits on every machine with IEEE
//! 754 arithmetic. `clippy.toml` enforces this.
//!
//! Read [`Fluid`] first.

#![deny(missing_docs)]

pub mod cost;
pub mod driver;
pub mod flows;
pub mod fluid;
pub mod world;

pub use fluid::{Bottleneck, Capacity, ClassId, FlowEnd, FlowId, Fluid, ResourceId};
