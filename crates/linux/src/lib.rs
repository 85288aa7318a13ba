//! Interfaces of the Linux kernel that several crates use: the state of TCP connections, the page cache, and memory for
//! `O_DIRECT`.
//!
//! Out of scope: policy. The crates decide which values they need and when a file counts as cached. An interface that
//! only one crate uses stays in that crate. Read [`TcpInfo`] first.

#![deny(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("these interfaces need Linux: TCP_INFO, mincore, O_DIRECT");

mod aligned;
mod page_cache;
mod tcp_info;

pub use aligned::{ALIGNMENT, AlignedBuffer};
pub use page_cache::{Residency, discard};
pub use tcp_info::{TcpInfo, socket_option};
