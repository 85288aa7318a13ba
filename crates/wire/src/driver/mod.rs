//! The world outside of the model: devices, clocks, threads.
//!
//! Three threads, and pollers (`awake.rs`). The first does everything that has to do with time (`run.rs`); one reads commands, one writes
//! records, so that neither a long line nor a slow reader ever delays a packet. Captures have a fourth.

mod awake;
mod buffers;
mod capture;
mod clock;
mod input;
mod machine;
mod output;
mod patience;
mod report;
mod run;
mod serve;
mod tun;

pub use serve::serve;
