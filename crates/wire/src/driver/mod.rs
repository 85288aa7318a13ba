//! The world outside of the model: devices, clocks, threads.
//!
//! The first thread does everything that has to do with time (`run.rs`). When that is too much for it, a second one
//! writes packets (`writer.rs`). One reads commands, one writes records, each capture has one, so that neither a long
//! line nor a slow reader nor a slow disk ever delays a packet. And pollers keep processors from halting (`awake.rs`).

mod awake;
mod buffers;
mod capture;
mod clock;
mod input;
mod interface;
mod machine;
mod output;
mod patience;
mod report;
mod run;
mod serve;
mod tun;
mod writer;

pub use serve::serve;
