//! Thousands of closed-loop HTTP clients in one process: each fetches, waits for the last byte,
//! pauses, and fetches again.
//!
//! One thread, one `epoll`, one buffer for all received data. A client is a socket and a few words
//! of state. The response reader, the histogram and the counters use neither clock nor socket; only
//! `driver.rs` does.
//!
//! Deliberately omitted: TLS, uploads, redirections, open-loop arrivals, and storage of received
//! bytes. Read [`LoadConfig`] first.

#![deny(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("the load generator needs Linux: epoll, IP_BIND_ADDRESS_NO_PORT");

mod client;
mod config;
mod connection;
mod counters;
mod driver;
mod error;
mod histogram;
mod report;
mod response;
mod target;

pub use config::{HttpVersion, LoadArguments, LoadConfig, StopCondition};
pub use counters::{LoadCounters, PhaseCounters};
pub use driver::run_load;
pub use error::{FetchFailure, LoadError};
pub use histogram::LatencyHistogram;
pub use report::{IntervalCounts, LatencySummary, LoadRecord, LoadTotals, SteadyCounts};
pub use response::{ResponseProgress, ResponseReader};
pub use target::LoadTarget;

use std::io::{self, Write};
use std::process::ExitCode;

/// Runs a load from the command line: prints JSON Lines to standard output, or one error to standard error.
///
/// Exit codes: 0 if a fetch succeeded, 1 if none did, 2 for a wrong option or a failed system call.
pub fn serve(arguments: LoadArguments) -> ExitCode {
    let result = LoadConfig::try_from(arguments).and_then(|config| run_load(&config, &mut print));
    match result {
        Ok(total) if total.fetches > 0 => ExitCode::SUCCESS,
        Ok(_) => {
            eprintln!(
                "venturi-engine http-load: no fetch succeeded. See `errors` in the last output line."
            );
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("venturi-engine http-load: {error}");
            ExitCode::from(2)
        }
    }
}

fn print(record: &LoadRecord) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, record)?;
    out.write_all(b"\n")?;
    out.flush()
}
