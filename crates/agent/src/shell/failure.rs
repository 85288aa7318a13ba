//! Failures of commands.

use std::io;
use std::path::Path;

use nix::errno::Errno;
use serde::Serialize;

/// Kind and message of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ShellFailure {
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
}

/// Reasons that a controller distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FailureKind {
    NotFound,
    Permission,
    Exists,
    NoSpace,
    ReadOnly,
    Timeout,
    Refused,
    Unreachable,
    Unresolved,
    Stalled,
    Invalid,
    Other,
}

impl ShellFailure {
    /// Returns the failure of a command that cannot succeed.
    pub(crate) fn invalid(message: String) -> Self {
        Self {
            kind: FailureKind::Invalid,
            message,
        }
    }

    /// Returns an error of the system, after `action`, such as "/x: cannot read the file".
    pub(crate) fn system(action: &str, error: &io::Error) -> Self {
        Self {
            kind: kind_of(error),
            message: format!("{action}: {error}"),
        }
    }
}

/// Returns an error of the system about a path, after `verb`, such as "read".
pub(crate) fn at_path<'a>(
    verb: &'a str,
    path: &'a Path,
) -> impl Fn(io::Error) -> ShellFailure + 'a {
    move |error| ShellFailure::system(&format!("{}: cannot {verb}", path.display()), &error)
}

fn kind_of(error: &io::Error) -> FailureKind {
    let Some(number) = error.raw_os_error() else {
        return match error.kind() {
            io::ErrorKind::NotFound => FailureKind::NotFound,
            io::ErrorKind::TimedOut => FailureKind::Timeout,
            io::ErrorKind::InvalidInput => FailureKind::Invalid,
            _ => FailureKind::Other,
        };
    };
    match Errno::from_raw(number) {
        Errno::ENOENT => FailureKind::NotFound,
        Errno::EACCES | Errno::EPERM => FailureKind::Permission,
        Errno::EEXIST | Errno::ENOTEMPTY | Errno::EADDRINUSE => FailureKind::Exists,
        Errno::ENOSPC | Errno::EDQUOT => FailureKind::NoSpace,
        Errno::EROFS => FailureKind::ReadOnly,
        Errno::ETIMEDOUT | Errno::EAGAIN => FailureKind::Timeout,
        Errno::ECONNREFUSED => FailureKind::Refused,
        Errno::ENETUNREACH
        | Errno::EHOSTUNREACH
        | Errno::ENETDOWN
        | Errno::EHOSTDOWN
        | Errno::EADDRNOTAVAIL => FailureKind::Unreachable,
        Errno::EINVAL | Errno::EISDIR | Errno::ENOTDIR | Errno::ENAMETOOLONG | Errno::ELOOP => {
            FailureKind::Invalid
        }
        _ => FailureKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_are_classified_by_kind() {
        for (number, kind) in [
            (libc::ENOENT, FailureKind::NotFound),
            (libc::EDQUOT, FailureKind::NoSpace),
            (libc::EROFS, FailureKind::ReadOnly),
            (libc::EHOSTUNREACH, FailureKind::Unreachable),
            (libc::EIO, FailureKind::Other),
        ] {
            assert_eq!(kind_of(&io::Error::from_raw_os_error(number)), kind);
        }
    }
}
