//! Tests of `venturi-engine emulator` with real namespaces, kernel sockets and kernel counters.

mod awake;
mod capture;
mod changes;
mod counters;
mod life;
mod traffic;

mod testkit;
