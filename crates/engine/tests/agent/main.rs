//! The agent from outside: a real process that starts real processes.

mod bare;
mod doors;
mod folders;
mod life;
mod lists;
mod scratch;
mod sockets;
mod testkit;
mod transfers;
