//! Measures the parts of a copy on one host: TCP from memory to memory, reads and writes of a disk, and the load of the
//! host. `venturi measure` runs these commands on both hosts and compares the results.
//!
//! Out of scope: the order of the measurements, statistics and the verdict, which are in Python (`venturi.measure`).
//! Read [`StreamCommand`] and [`DiskCommand`] first.

#![deny(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("the measurements need Linux: TCP_INFO, O_DIRECT, mincore, /proc");

mod counters;
mod disk;
mod error;
mod random;
mod stream;

pub use counters::CountersArgs;
pub use disk::DiskCommand;
pub use error::MeasureError;
pub use stream::{StreamCommand, TOKEN_VARIABLE};

use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

/// Serves or runs one test of the network; prints JSON Lines.
pub fn stream(command: &StreamCommand) -> ExitCode {
    finish("stream", stream::execute(command))
}

/// Reads or writes a disk; prints one JSON object.
pub fn disk(command: &DiskCommand) -> ExitCode {
    finish("disk", disk::execute(command))
}

/// Prints the counters of this host as one JSON object.
pub fn counters(arguments: &CountersArgs) -> ExitCode {
    finish("counters", counters::execute(arguments))
}

fn finish(command: &str, result: Result<(), MeasureError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("venturi-engine {command}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints one line of JSON.
fn print(record: &impl Serialize) -> Result<(), MeasureError> {
    let line = serde_json::to_string(record).expect("records have string keys and finite numbers");
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|source| MeasureError::io("write", "standard output", source))
}

/// Time that this thread waited for a CPU although it could run, in nanoseconds. It includes stops by a CPU quota.
/// 0 if the kernel does not count it (`CONFIG_SCHED_INFO`).
fn thread_wait_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let wait = text.split_whitespace().nth(1);
    wait.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// CPU time of this process, user and system, in seconds.
fn own_cpu_s() -> f64 {
    // SAFETY: `rusage` is plain data, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
