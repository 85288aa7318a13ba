//! Runs one host's part of a plan in real time: starts processes together, measures their times, reads kernel
//! counters, creates datasets, and writes records.
//!
//! Out of scope: the choice of the next step, which is the task of [`venturi_plan::Interpreter`],
//! and the analysis of the numbers. Read [`serve`] first, then `run.rs`.

#![deny(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("the agent needs Linux: memory files, signal descriptors, /proc, stops at exec");

mod activity;
mod agent;
mod barrier;
mod cache;
mod capture;
mod cleared;
mod clock;
mod compute;
mod dataset;
mod directories;
mod ends;
mod error_tail;
mod findings;
mod input;
mod launch;
mod list;
mod operations;
mod output;
mod partial_files;
mod prepare;
mod processes;
mod program;
mod properties;
mod reap;
mod receiver;
mod requests;
mod run;
mod sampler;
mod scratch;
mod server_failures;
mod servers;
mod shell;
mod sockets;
mod storages;
mod survey;
#[cfg(test)]
mod testing;
mod tools;
mod transfer;
mod trial;
mod watchdog;
mod work_groups;
mod worker;

pub use agent::serve;
pub use clock::monotonic_ns;
pub use shell::{ShellOptions, serve_shell};
