//! Copies files (`venturi copy`) and serves them (`venturi serve`).
//!
//! Local copies run at the limit of storage and memory: the file system clones extents if it can; otherwise the kernel copies, or buffers
//! do. Workers copy large files in parallel chunks and trees in parallel, and preserve holes. Copies from, to and between servers use FTP and
//! GridFTP (`ftp`) or HTTP and WebDAV (`http`), with pipelined commands, several streams and several sessions.
//! Each file has a temporary name next to its destination until it is complete. Uploads to HTTP servers are the exception: they use the
//! final name. After any interrupt, the same command resumes the copy.
//!
//! Not supported by design: deltas, and deletion of files that the source does not have. No unsafe code.
//!
//! Read [`CopyOptions`] first, then `local.rs`, `ftp.rs` and `http.rs`; for the server, [`serve`].

#![deny(missing_docs)]
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "venturi copy requires Linux: copy_file_range, O_DIRECT, openat and statx with its flags"
);

mod arguments;
mod attributes;
mod bytes;
mod checksum;
mod copy;
mod decision;
mod error;
mod file;
mod ftp;
#[cfg(feature = "fuzz")]
pub mod fuzzed;
mod glob;
mod http;
mod inputs;
mod journal;
mod list;
mod local;
mod local_path;
mod net;
mod options;
mod outcome;
mod pool;
mod process;
mod report;
mod roots;
pub mod serve;
mod stderr;
mod stop;
mod temporary;
mod threads;
mod totals;

pub use arguments::CopyArgs;
pub use copy::execute;
pub use error::{CopyError, Failure};
pub use file::{FileArgs, file};
pub use http::proxy::{Proxy, Through};
pub use options::{CopyOptions, Existing, Method, NetworkOptions, OutputMode, Preserve};
pub use outcome::CopyExit;
pub use stop::CancelToken;
pub use totals::CopyTotals;

use std::ffi::OsString;
use std::process::ExitCode;

/// Exit code: the copy was not possible, and nothing was copied.
const REJECTED: u8 = 1;
/// Exit code: the copy ended, but some files failed.
const FAILED: u8 = 3;
/// Exit code: interrupted by a signal.
const STOPPED: u8 = 130;

/// Reports a wrong command line as a JSON event, if it is `copy` with `--json`.
pub fn report_usage_error(words: impl IntoIterator<Item = OsString>, wrong: &clap::Error) {
    let mut words = words.into_iter().take_while(|word| word != "--").skip(1);
    let is_copy = words.next().is_some_and(|word| word == "copy");
    // A request for help is no error.
    if is_copy && wrong.use_stderr() && words.any(|word| word == "--json") {
        let message = wrong.to_string();
        // The usage follows after the first empty line.
        let reason = message.lines().take_while(|line| !line.is_empty());
        let words: Vec<&str> = reason.flat_map(str::split_whitespace).collect();
        report::print_rejection(words.join(" ").trim_start_matches("error: "));
    }
}

/// Runs `venturi copy`: prints events to standard output, and messages to standard error.
///
/// Exit codes: 0 all files complete, 1 copy not possible, 2 wrong usage, 3 some files failed, 130 interrupted by a signal.
pub fn copy(arguments: CopyArgs) -> ExitCode {
    // Before any other thread starts, so that all threads inherit the mask.
    let json = arguments.json;
    let result = CancelToken::on_signals()
        .and_then(|stop| execute(&CopyOptions::try_from(arguments)?, &stop));
    match result {
        Ok(CopyExit::Done) => ExitCode::SUCCESS,
        Ok(CopyExit::Failed) => FAILED.into(),
        Ok(CopyExit::Unreached) => REJECTED.into(),
        Ok(CopyExit::Stopped) => STOPPED.into(),
        Err(error) => {
            if json {
                report::print_rejection(&error);
            }
            stderr::print("copy", error);
            REJECTED.into()
        }
    }
}
