//! Files on servers (`venturi-engine file`): created, inspected, checked and removed through the protocol of the server.
//!
//! Every protocol implements [`server::FileServer`] with a few plain operations. `execute.rs` has the common rules: no file is
//! overwritten, parents are created, and an incomplete file is removed. It reads a file if the server has no checksum. FTP, HTTP
//! and S3 use the clients of this crate, SFTP the subsystem of `ssh`, XRootD and SRM their own programs.
//!
//! `stream.rs` transfers files only to measure a path. Not supported by design: recursive removal, and copies for users.
//!
//! Read [`server::FileServer`] first, then `execute.rs`.

mod access;
mod arguments;
mod batch;
mod content;
mod credentials;
mod error;
mod execute;
mod ftp;
mod ftp_session;

mod http;
mod http_client;
mod local;
mod location;
mod program;
mod s3;
mod s3_listing;
mod s3_multipart;
mod s3_signature;
mod server;
mod servers;
mod sftp;
mod sftp_channel;
mod srm;
mod stream;
mod xrootd;

pub use arguments::FileArgs;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use arguments::FileSubcommand;
use error::FileError;
use execute::FileResult;
use servers::FileServers;

/// Exit code: the operation failed.
const FAILED: u8 = 1;

/// Error as a JSON object.
#[derive(Serialize)]
struct Rejected<'a> {
    error: &'a FileError,
}

/// Return a value as a line of JSON.
fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("keys are strings, and values are finite")
}

/// Runs `venturi-engine file`: prints JSON Lines to standard output.
///
/// Exit codes: 0 done, 1 the operation failed, 2 wrong usage.
pub fn file(arguments: FileArgs) -> ExitCode {
    let timeout = Duration::from_secs(arguments.timeout);
    let command = match arguments.action {
        FileSubcommand::Batch(batch) => return batch::execute(&batch, timeout),
        FileSubcommand::Stream(stream) => return stream::execute(&stream, timeout),
        FileSubcommand::One(command) => command,
    };
    let result = FileServers::new(timeout).and_then(|mut servers| servers.execute(&command));
    let mut out = io::stdout().lock();
    let (printed, code) = match &result {
        Ok(FileResult::Listed { entries }) => {
            let mut lines = entries.iter().map(|entry| writeln!(out, "{}", line(entry)));
            (lines.try_for_each(|line| line), ExitCode::SUCCESS)
        }
        Ok(result) => (writeln!(out, "{}", line(result)), ExitCode::SUCCESS),
        Err(error) => (
            writeln!(out, "{}", line(&Rejected { error })),
            FAILED.into(),
        ),
    };
    match printed.and_then(|()| out.flush()) {
        // The reader closed the pipe, as `head` does.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            crate::stderr::print("file", format!("cannot write to standard output: {error}"));
            FAILED.into()
        }
        _ => code,
    }
}
