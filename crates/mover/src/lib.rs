//! Moves bytes from place to place: `venturi copy`, and serves them: `venturi serve`.
//!
//! Between places of this host, at the limit of its storage and memory: extents are cloned where the file system can, else the kernel
//! copies, else buffers do; large files go in parallel chunks, trees by several workers, holes stay holes. From and to servers of FTP and
//! GridFTP (`ftp`) and of HTTP and WebDAV (`http`), and between two servers: commands are pipelined, then streams added, then sessions.
//! Every file is a transaction: it is written under a temporary name beside its place and renamed when it is whole, so that whatever
//! ends a copy, the same command goes on where it was.
//!
//! Left out on purpose: deltas, and deleting what the source does not have. No unsafe code.
//!
//! Read [`Order`] first, then `local.rs`, `ftp.rs` and `http.rs`; of the servers, [`serve`].

#![deny(missing_docs)]
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("the mover needs Linux: copy_file_range, O_DIRECT, openat and statx with its flags");

mod arguments;
mod attributes;
mod bytes;
mod checksum;
mod copy;
mod decision;
mod error;
mod ftp;
#[cfg(feature = "fuzz")]
pub mod fuzzed;
mod given;
mod glob;
mod http;
mod journal;
mod list;
mod local;
mod net;
mod order;
mod outcome;
mod place;
mod pool;
mod process;
mod report;
mod roots;
pub mod serve;
mod stop;
mod talk;
mod temporary;
mod threads;
mod totals;

pub use arguments::Arguments;
pub use copy::carry_out;
pub use error::{Error, Failure};
pub use http::proxy::{Proxy, Through};
pub use order::{Existing, Method, Network, Order, Output, Preserve};
pub use outcome::Outcome;
pub use stop::Stop;
pub use totals::Totals;

use std::ffi::OsString;
use std::process::ExitCode;

/// Nothing was copied: the order cannot be carried out as it stands.
const REFUSED: u8 = 1;
/// Carried out to the end, but some files failed.
const FAILED: u8 = 3;
/// Stopped by a signal.
const STOPPED: u8 = 130;

/// Tells programs that a command line was not understood, if it is one of `copy` that asks for events.
pub fn misused(words: impl IntoIterator<Item = OsString>, wrong: &clap::Error) {
    let mut words = words.into_iter().take_while(|word| word != "--").skip(1);
    let is_copy = words.next().is_some_and(|word| word == "copy");
    // What asks for help is no mistake.
    if is_copy && wrong.use_stderr() && words.any(|word| word == "--json") {
        let told = wrong.to_string();
        // What is behind a line without words is how it is used.
        let reason = told.lines().take_while(|line| !line.is_empty());
        let words: Vec<&str> = reason.flat_map(str::split_whitespace).collect();
        report::refused(words.join(" ").trim_start_matches("error: "));
    }
}

/// Carries out what a command line asks for: events or nothing to standard output, talk to standard error.
///
/// Exit codes: 0 all is there, 1 the order cannot be carried out, 2 wrong usage, 3 some files failed, 130 stopped by a signal.
pub fn copy(arguments: Arguments) -> ExitCode {
    // Before any other thread is there, so that all inherit the mask.
    let json = arguments.json;
    let result = Stop::on_signals().and_then(|stop| carry_out(&Order::try_from(arguments)?, &stop));
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => FAILED.into(),
        Ok(Outcome::Unreached) => REFUSED.into(),
        Ok(Outcome::Stopped) => STOPPED.into(),
        Err(error) => {
            if json {
                report::refused(&error);
            }
            talk::say("copy", error);
            REFUSED.into()
        }
    }
}
