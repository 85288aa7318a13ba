//! The simulated world: flows of bytes over shared resources, in virtual time.
//!
//! Resources (links, disks, processors) are shared by flows max-min fairly, under weights and caps of each flow; the [`fluid`] solver
//! tells when each flow ends. Left out on purpose: packets, clocks, files, threads, and every random draw: the same calls give the
//! same bits on every machine with IEEE 754 arithmetic. `clippy.toml` keeps them out.
//!
//! Read [`Fluid`] first.

#![deny(missing_docs)]

pub mod cost;
pub mod driver;
pub mod flows;
pub mod fluid;
pub mod world;

pub use fluid::{Bound, Capacity, ClassId, End, FlowId, Fluid, ResourceId};
