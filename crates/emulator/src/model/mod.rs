//! Model of the network: time and result of every segment of every packet. It uses no clock, device
//! or thread: times are arguments, and packets are identifiers and sizes.
//!
//! The equations are in `docs/concepts/emulator.md`. This is the data path: where speed and ease of
//! change conflict, speed wins here.

mod chunk;
mod jitter;
mod limits;
mod link;
mod loss;
mod next_event;
mod random;
mod routing;
#[cfg(test)]
mod tests;
mod world;

pub use chunk::{Chunk, ChunkDestination, PacketId, PacketShape};
pub use limits::TopologyLimits;
pub use link::{LinkCounters, SentRun};
pub use world::{EmulatorWorld, InterfaceId, LinkId, NetworkCounts, NetworkOutput};
