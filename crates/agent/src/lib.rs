//! Carries out one host's part of a plan in real time: starts processes together, times them, counts what the kernel
//! counts, makes data sets, and writes everything down as records.
//!
//! Left out on purpose: what to do next, which [`venturi_plan::Interpreter`] decides, and what the numbers mean, which the
//! analysis does. Read [`serve`] first, then `run.rs`.

#![deny(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("the agent needs Linux: memory files, signal descriptors, /proc, stops at exec");

mod agent;
mod barrier;
mod cache;
mod capture;
mod clock;
mod compute;
mod dataset;
mod ends;
mod facts;
mod findings;
mod folders;
mod guardian;
mod input;
mod last_words;
mod list;
mod order;
mod output;
mod places;
mod prepare;
mod program;
mod pulse;
mod reap;
mod receiver;
mod run;
mod sampler;
mod scratch;
mod sockets;
mod survey;
#[cfg(test)]
mod testing;
mod tools;
mod transfer;
mod trial;
mod worker;

pub use agent::serve;
pub use clock::monotonic_ns;
