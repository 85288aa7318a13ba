//! The emulated network of a lab: one process that holds a TUN device for each interface and moves packets over a
//! graph of links, each with a rate, a delay, jitter, a drop-tail queue and loss.
//!
//! Left out on purpose: addresses, routes and tuning inside the hosts (the lab's), IPv6 (dropped and counted), and
//! anything that a link does not do: no shaping by flow, no active queue management.
//!
//! Three layers, of which only the last sees the world: [`model`] decides what happens to every segment and when;
//! [`packet`] and [`pcap`] know the bytes; `driver` has devices, clocks and threads. Read [`model::World`] first,
//! then [`serve`].

#![deny(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("the wire needs Linux: TUN devices, network namespaces, epoll");

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
pub use error::Error;
