//! Errors of the whole load ([`LoadError`]) and of one fetch ([`FetchFailure`]).

use std::io;

/// Error that prevents the whole load.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Invalid option value.
    #[error("--{option}: expected {expected}, found {found}")]
    Option {
        /// Name without dashes.
        option: &'static str,
        /// Description of the valid values.
        expected: &'static str,
        /// Value as entered.
        found: String,
    },
    /// A name without an address.
    #[error(
        "{name}: expected an address, found none: {reason}. Add the name to /etc/hosts, or use an IP address."
    )]
    Resolve {
        /// Host and port.
        name: String,
        /// Reason from the system.
        reason: String,
    },
    /// Too few file descriptors.
    #[error(
        "--clients: expected a limit of at least {needed} open files, found {limit}. Raise it with `ulimit -Hn`, or use fewer \
         clients."
    )]
    Descriptors {
        /// Descriptors of sockets and of the process itself.
        needed: u64,
        /// The hard limit.
        limit: u64,
    },
    /// The local address is not usable.
    #[error("--bind {address}: cannot bind: {reason}. Use an address of this host.")]
    Bind {
        /// Address of an interface.
        address: String,
        /// Reason from the kernel.
        reason: String,
    },
    /// A system call failed for a reason that does not depend on the server.
    #[error("cannot complete the system call {call}: {source}")]
    System {
        /// The call.
        call: &'static str,
        /// Reason from the kernel.
        source: io::Error,
    },
}

impl LoadError {
    pub(crate) fn system(call: &'static str) -> impl FnOnce(nix::errno::Errno) -> Self {
        move |errno| Self::System {
            call,
            source: errno.into(),
        }
    }
}

/// Failure of one fetch. The fetch does not count; its client continues after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FetchFailure {
    /// Connection refused.
    ConnectionRefused,
    /// No connection for another reason: no route, no port left.
    Connect,
    /// The peer reset the connection.
    Reset,
    /// The connection ended before the response did.
    Closed,
    /// The timeout expired.
    Timeout,
    /// A status other than 200 to 299.
    Status(u16),
    /// The body does not have the expected length.
    Length,
    /// Not HTTP, or a head that is too large.
    Malformed,
}

impl FetchFailure {
    /// Return its name in records.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::ConnectionRefused => "refused".into(),
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
