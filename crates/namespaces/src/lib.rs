//! Namespace sandbox of a lab: shared mounts and processes, and a network and a host name per host. The namespaces
//! live as long as this process and leave nothing on disk.
//!
//! Out of scope: addresses, servers and agents. The controller starts them with `nsenter`. Read [`serve`] first: it is
//! the supervisor outside of the sandbox; `init.rs` is PID 1 inside, `host.rs` one host.

#![deny(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("the lab needs Linux: namespaces, signal descriptors, /proc");

mod advice;
mod config;
mod detach;
mod error;
mod host;
mod init;
mod mounts;
mod report;
mod signals;
mod supervisor;

pub use config::SandboxConfig;
pub use error::SandboxError;
pub use report::{Pids, SandboxRecord};
pub use supervisor::serve;
