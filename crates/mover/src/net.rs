//! What all protocols share: places in the network, sockets with their options, and memory between network and disk.

pub(crate) mod buffers;
pub(crate) mod grid;
pub(crate) mod intake;
pub(crate) mod pace;
pub(crate) mod pacing;
pub(crate) mod sockets;
pub(crate) mod ssh;
pub(crate) mod straight;
pub(crate) mod tcp_info;
pub(crate) mod trips;
pub(crate) mod unsent;
pub(crate) mod url;
