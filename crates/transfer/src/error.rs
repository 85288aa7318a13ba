//! Errors that prevent a copy ([`CopyError`]), and failures of single files ([`Failure`]).

use std::borrow::Cow;
use std::path::PathBuf;

use rustix::io::Errno;

/// Reason why a copy cannot be executed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// An invalid value, or an invalid combination of options.
    #[error("{option}: expected {expected}, found {found}")]
    InvalidOption {
        /// Option as typed.
        option: &'static str,
        /// Expected value, with the next step.
        expected: &'static str,
        /// Value as written.
        found: String,
    },
    /// A URL of an unsupported protocol.
    #[error(
        "{location}: expected a path or a URL (file, ftp, gsiftp, sshftp, http, https, dav, davs), found a `{scheme}:` URL; use `venturi transfer` for other protocols"
    )]
    Scheme {
        /// URL as written.
        location: String,
        /// Scheme without the colon.
        scheme: String,
    },
    /// A path or URL that cannot be used.
    #[error("{}: expected {expected}, found {found}; {advice}", location.display())]
    Location {
        /// Path or URL.
        location: PathBuf,
        /// Expected state.
        expected: &'static str,
        /// Found state, or the message of the kernel.
        found: String,
        /// Next step.
        advice: &'static str,
    },
    /// An invalid list.
    #[error("{}, line {line}: expected {expected}, found {found}", list.display())]
    List {
        /// Path of the list.
        list: PathBuf,
        /// Line number, starting at 1.
        line: usize,
        /// Expected content.
        expected: &'static str,
        /// Content as written.
        found: String,
    },
    /// A system error that concerns no file.
    #[error("{what}: {reason}")]
    System {
        /// Failed operation.
        what: &'static str,
        /// Message of the kernel.
        reason: String,
    },
}

/// Failure of one file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Path at the source or at the destination.
    pub path: PathBuf,
    /// Expected operation or state.
    pub expected: Cow<'static, str>,
    /// Found state.
    pub found: String,
    /// Next step.
    pub advice: &'static str,
    /// True if all other files would fail too, so that the copy ends: for example, a full disk.
    pub(crate) ends_all: bool,
}

impl Failure {
    /// Returns the failure for an error of the kernel.
    pub(crate) fn kernel(
        path: PathBuf,
        expected: impl Into<Cow<'static, str>>,
        errno: Errno,
    ) -> Self {
        Self {
            path,
            expected: expected.into(),
            found: reason(errno),
            advice: advice(errno),
            ends_all: matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::ROFS),
        }
    }

    /// Returns the failure for an attribute that could not be set.
    pub(crate) fn unset(path: PathBuf, (expected, errno): (&'static str, Errno)) -> Self {
        let mut failure = Self::kernel(path, expected, errno);
        if is_unsupported(errno) {
            failure.advice = "grant access, or exclude attributes that the file system does not support \
                              (`--preserve none`, `mode` or `times`), then run the same command again";
        }
        failure
    }

    /// Returns a failure that Venturi detected.
    pub(crate) fn found(
        path: PathBuf,
        expected: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
        advice: &'static str,
    ) -> Self {
        Self {
            path,
            expected: expected.into(),
            found: found.into(),
            advice,
            ends_all: false,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            path,
            expected,
            found,
            advice,
            ..
        } = self;
        write!(
            formatter,
            "{}: expected {expected}, found {found}; {advice}",
            path.display()
        )
    }
}

/// Returns the message of the kernel, without the number.
pub(crate) fn reason(errno: Errno) -> String {
    nix::errno::Errno::from_raw(errno.raw_os_error())
        .desc()
        .to_owned()
}

/// Returns the message of an error of the standard library, without the number.
pub(crate) fn describe(error: &std::io::Error) -> String {
    Errno::from_io_error(error).map_or_else(|| error.to_string(), reason)
}

/// True if the file system does not support the attribute, or does not permit this user to set it.
pub(crate) fn is_unsupported(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL
    )
}

fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::NOSPC | Errno::DQUOT => {
            "free some space, then run the same command again; complete files are kept"
        }
        Errno::ROFS => "copy to a writable file system",
        Errno::ACCESS | Errno::PERM => {
            "grant access to the path or exclude it, then run the same command again"
        }
        Errno::NOENT => "the path was removed during the copy; run the same command again",
        Errno::MFILE | Errno::NFILE => {
            "raise the limit of open files (`ulimit -n`), then run the same command again"
        }
        Errno::NAMETOOLONG => "shorten the name; it exceeds the limit of the file system",
        Errno::IO => "check the device in the kernel log (`dmesg`)",
        _ => "fix the cause, then run the same command again",
    }
}
