//! Network emulator of a lab. One process has a TUN device for each interface and moves packets
//! over a graph of links. Each link has a rate, a delay, jitter, a drop-tail queue and loss.
//!
//! Out of scope: addresses, routes and tuning inside the hosts, which the lab configures; IPv6,
//! which is dropped and counted; shaping by flow and active queue management.
//!
//! It has three layers, and only the last one has side effects: [`model`] computes the time and
//! result of every segment, [`packet`] and [`pcap`] handle the bytes, and `driver` handles devices,
//! clocks and threads. Read [`model::EmulatorWorld`] first, then [`serve`].

#![deny(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("the emulator needs Linux: TUN devices, network namespaces, epoll");

#[expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the driver is where clocks, files and threads belong"
)]
mod driver;
mod error;
pub mod lateness;
pub mod model;
pub mod packet;
pub mod pcap;
pub mod protocol;

pub use driver::serve;
pub use error::EmulatorError;
