//! Errors of the measurements.

use std::io;

use thiserror::Error;

/// Reason why a measurement has no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// A system call failed.
    #[error(
        "{subject}: cannot {operation}: {}{}",
        reason(source),
        next_step(source)
    )]
    Io {
        /// Verb, such as `open`.
        operation: &'static str,
        /// Path or address.
        subject: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The file system has too little space.
    #[error(
        "{path}: expected at least {needed_bytes} B of free space, found {free_bytes} B. Free space, or name another directory"
    )]
    Space {
        /// Directory of the file.
        path: String,
        /// Free space of the file system.
        free_bytes: u64,
        /// Space for the shortest measurement.
        needed_bytes: u64,
    },
    /// The token of the session is missing.
    #[error(
        "expected at least {minimum} characters in the environment variable {variable}, found {found}"
    )]
    Token {
        /// Name of the variable.
        variable: &'static str,
        /// Shortest token.
        minimum: usize,
        /// Length of the value.
        found: usize,
    },
    /// An option has an invalid value.
    #[error("{option}: {problem}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// Problem, as "expected …, found …".
        problem: String,
    },
    /// The other side rejected the test or sent another message than expected.
    #[error("{peer}: {message}")]
    Peer {
        /// Address of the other side.
        peer: String,
        /// Its message, or the problem with it.
        message: String,
    },
    /// No byte arrived in the time of the test.
    #[error(
        "{peer}: no byte arrived within {time_s} s. Small packets pass and large ones do not: check the path MTU and the firewall"
    )]
    Silent {
        /// Address of the other side.
        peer: String,
        /// Time of the test.
        time_s: f64,
    },
}

impl MeasureError {
    /// Error of a system call.
    pub(crate) fn io(operation: &'static str, subject: impl ToString, source: io::Error) -> Self {
        Self::Io {
            operation,
            subject: subject.to_string(),
            source,
        }
    }
}

/// Text of the error without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_lowercase()
}

fn next_step(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ". Choose a path where you have permission",
        io::ErrorKind::NotFound => ". Check the path",
        io::ErrorKind::AddrInUse => ". Choose another port, or a range of ports",
        io::ErrorKind::ConnectionRefused => {
            ". Check that the server is running and the port is right"
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            ". Check the firewalls between the hosts"
        }
        io::ErrorKind::StorageFull => ". Free space, or name another directory",
        _ => "",
    }
}
