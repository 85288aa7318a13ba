//! Tests of the agent from outside: a real process that starts real processes.

mod bare;
mod directories;
mod life;
mod lists;
mod requests;
mod scratch;
mod service_ports;
mod sockets;
mod testkit;
mod transfers;
