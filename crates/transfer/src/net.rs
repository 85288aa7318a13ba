//! Network modules that all protocols share: URLs, sockets with their options, and buffers between network and disk.

pub(crate) mod buffers;
pub(crate) mod disk_speed;
pub(crate) mod grid;
pub(crate) mod pacing;
pub(crate) mod rate_limit;
pub(crate) mod receive_tuning;
pub(crate) mod rtt;
pub(crate) mod sockets;
pub(crate) mod splice;
pub(crate) mod ssh;
pub(crate) mod tcp_info;
pub(crate) mod unsent;
pub(crate) mod url;
