//! Closed-loop HTTP clients by the thousand in one process: each fetches, waits for the last byte, thinks, and fetches again.
//!
//! One thread, one `epoll`, one buffer for all that arrives: a client is a socket and a few words of state. The response
//! reader, the histogram and the tally see neither clock nor socket; `driver.rs` alone does.
//!
//! Left out on purpose: TLS, uploads, redirections, open-loop arrivals, and anything that keeps the bytes it was sent.
//! Read [`Order`] first.

#![deny(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("the load generator needs Linux: epoll, IP_BIND_ADDRESS_NO_PORT");

mod client;
mod connection;
mod driver;
mod error;
mod histogram;
mod order;
mod report;
mod response;
mod tally;
mod target;

pub use driver::carry_out;
pub use error::{Error, Failure};
pub use histogram::Histogram;
pub use order::{Arguments, Order, Until, Version};
pub use report::{Interval, Latency, Record, Steady, Total};
pub use response::{Progress, Response};
pub use tally::{Phases, Tally};
pub use target::Target;

use std::io::{self, Write};
use std::process::ExitCode;

/// Carries out what a command line asks for: JSON Lines to standard output, one sentence to standard error if it cannot.
///
/// Exit codes: 0 some fetch was whole, 1 none was, 2 the order is wrong or this machine refuses.
pub fn serve(arguments: Arguments) -> ExitCode {
    let result = Order::try_from(arguments).and_then(|order| carry_out(&order, &mut print));
    match result {
        Ok(total) if total.fetches > 0 => ExitCode::SUCCESS,
        Ok(_) => {
            eprintln!(
                "venturi-engine load: no fetch was whole; `errors` in the last line tells why"
            );
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("venturi-engine load: {error}");
            ExitCode::from(2)
        }
    }
}

fn print(record: &Record) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, record)?;
    out.write_all(b"\n")?;
    out.flush()
}
