//! `venturi-engine wire` as its users have it: real namespaces, sockets of the kernel, counters of the kernel.

mod awake;
mod capture;
mod changes;
mod counters;
mod life;
mod traffic;

mod testkit;
