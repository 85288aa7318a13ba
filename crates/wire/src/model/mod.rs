//! What happens to every segment of every packet, and when. No clock, device or thread: time comes in as an argument,
//! packets as identifiers and sizes.
//!
//! The equations are in `docs/concepts/wire.md`. This is the data path: where speed and ease of change conflict,
//! speed wins here.

mod chunk;
mod earliest;
mod extremes;
mod jitter;
mod link;
mod loss;
mod random;
mod routing;
#[cfg(test)]
mod tests;
mod world;

pub use chunk::{Chunk, Destination, PacketId, Shape};
pub use extremes::Extremes;
pub use link::{LinkCounters, Sent};
pub use world::{Counts, InterfaceId, LinkId, Output, World};
