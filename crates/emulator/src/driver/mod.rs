//! Side effects outside of the model: devices, clocks, threads.
//!
//! The first thread does all time-critical work (`run.rs`). Under high load, a second thread writes
//! packets (`writer.rs`). Separate threads read commands, write records and write each capture, so
//! that a long line, a slow reader or a slow disk cannot delay a packet. Pollers keep CPUs from
//! halting (`idle_pollers.rs`).

mod buffers;
mod capture;
mod clock;
mod idle_pollers;
mod input;
mod interface;
mod machine;
mod output;
mod report;
mod run;
mod serve;
mod tun;
mod wait_strategy;
mod writer;

pub use serve::serve;
