//! Holds the namespaces that a lab stands on: mounts and processes for all of it, a network and a name for each host.
//! They live as long as this process, and nothing of them is ever on the disk, so that there is nothing to clean up.
//!
//! Left out on purpose: what goes on in them. Addresses, servers and agents come from the controller, by `nsenter`.
//! Read [`serve`] first: it is the process outside; `init.rs` is PID 1 inside, `host.rs` one host.

#![deny(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("the lab needs Linux: namespaces, signal descriptors, /proc");

mod advice;
mod error;
mod grounds;
mod host;
mod init;
mod mounts;
mod order;
mod outer;
mod report;
mod signals;

pub use error::Error;
pub use order::Order;
pub use outer::serve;
pub use report::{Pids, Record};
