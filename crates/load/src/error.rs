//! Why nothing could be measured ([`Error`]), and what can go wrong with one fetch ([`Failure`]).

use std::io;

/// Why the load could not be carried out at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that makes no sense.
    #[error("--{option}: expected {expected}, found {found}")]
    Order {
        /// Without dashes.
        option: &'static str,
        /// In words.
        expected: &'static str,
        /// As it was written.
        found: String,
    },
    /// A name without an address.
    #[error(
        "expected an address for {name}, found none: {reason}; see /etc/hosts, or give a number"
    )]
    Resolve {
        /// Host and port.
        name: String,
        /// As the system says.
        reason: String,
    },
    /// Fewer descriptors than clients.
    #[error(
        "expected {needed} open files for so many clients, found a limit of {limit}; raise it with `ulimit -Hn`, or ask for fewer \
         clients"
    )]
    Descriptors {
        /// Sockets and the process's own.
        needed: u64,
        /// The hard limit.
        limit: u64,
    },
    /// The local end cannot be had.
    #[error("expected {address} to be an address of this host to bind to: {reason}")]
    Bind {
        /// Of an interface.
        address: String,
        /// As the kernel says.
        reason: String,
    },
    /// The kernel refuses something that does not depend on the server.
    #[error("{what}: {source}")]
    System {
        /// The call.
        what: &'static str,
        /// As the kernel says.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(nix::errno::Errno) -> Self {
        move |errno| Self::System {
            what,
            source: errno.into(),
        }
    }
}

/// What went wrong with one fetch: the fetch counts for nothing, its client goes on after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Failure {
    /// Nobody listens there.
    Refused,
    /// No connection for another reason: no route, no port left.
    Connect,
    /// The other end broke the connection off.
    Reset,
    /// The connection ended before the response did.
    Closed,
    /// It took longer than it may.
    Timeout,
    /// Another status than 200 to 299.
    Status(u16),
    /// The body was not as long as asked for.
    Length,
    /// Not HTTP, or more of a head than is read.
    Malformed,
}

impl Failure {
    /// Its name in records.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Refused => "refused".into(),
            Self::Connect => "connect".into(),
            Self::Reset => "reset".into(),
            Self::Closed => "closed".into(),
            Self::Timeout => "timeout".into(),
            Self::Status(code) => format!("status_{code}"),
            Self::Length => "length".into(),
            Self::Malformed => "malformed".into(),
        }
    }
}
