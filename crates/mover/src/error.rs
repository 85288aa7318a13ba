//! Why nothing can be copied ([`Error`]), and what went wrong with one file ([`Failure`]) while the rest goes on.

use std::borrow::Cow;
use std::path::PathBuf;

use rustix::io::Errno;

/// Why an order cannot be carried out at all.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that makes no sense, alone or beside another.
    #[error("{option}: expected {expected}, found {found}")]
    Order {
        /// As it is typed.
        option: &'static str,
        /// In words, with what to do.
        expected: &'static str,
        /// As it was written.
        found: String,
    },
    /// A place in a protocol that is not spoken yet.
    #[error(
        "{place}: expected a path, or a URL of file, ftp, gsiftp, sshftp, http, https, dav or davs, found a place of `{scheme}:`; other protocols have other movers (`venturi transfer`)"
    )]
    Scheme {
        /// As it was written.
        place: String,
        /// Without the colon.
        scheme: String,
    },
    /// A place that cannot be used.
    #[error("{}: expected {expected}, found {found}; {advice}", place.display())]
    Place {
        /// Its path.
        place: PathBuf,
        /// In words.
        expected: &'static str,
        /// In words, or as the kernel says.
        found: String,
        /// What to do next.
        advice: &'static str,
    },
    /// A list that cannot be read.
    #[error("{}, line {line}: expected {expected}, found {found}", list.display())]
    List {
        /// The file of the list.
        list: PathBuf,
        /// From 1 on.
        line: usize,
        /// In words.
        expected: &'static str,
        /// As it was written.
        found: String,
    },
    /// The kernel refuses something that no file is to blame for.
    #[error("{what}: {reason}")]
    System {
        /// What was tried.
        what: &'static str,
        /// As the kernel says.
        reason: String,
    },
}

/// What went wrong with one file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Where: at the source or at the destination.
    pub path: PathBuf,
    /// What should have been possible.
    pub expected: Cow<'static, str>,
    /// What was found instead.
    pub found: String,
    /// What to do next.
    pub advice: &'static str,
    /// Whether no other file can fare better, so that all ends here: a full disk.
    pub(crate) ends_all: bool,
}

impl Failure {
    /// A failure that the kernel told.
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

    /// Something that a copy is to have besides its bytes could not be set.
    pub(crate) fn unset(path: PathBuf, (expected, errno): (&'static str, Errno)) -> Self {
        let mut failure = Self::kernel(path, expected, errno);
        if is_not_taken(errno) {
            failure.advice = "get the right to it, or leave out what the file system there does not take \
                              (`--preserve none`, `mode` or `times`), and run the same command again";
        }
        failure
    }

    /// A failure that we found.
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

/// What the kernel says, in its words and without its number.
pub(crate) fn reason(errno: Errno) -> String {
    nix::errno::Errno::from_raw(errno.raw_os_error())
        .desc()
        .to_owned()
}

/// The same of an error of the standard library.
pub(crate) fn said(error: &std::io::Error) -> String {
    Errno::from_io_error(error).map_or_else(|| error.to_string(), reason)
}

/// Whether a file system says that it has no such thing as what was to be set, a mode or a time; or that it is not ours to set.
pub(crate) fn is_not_taken(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL
    )
}

fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::NOSPC | Errno::DQUOT => {
            "free some space, then run the same command again: what is whole stays"
        }
        Errno::ROFS => "copy to a file system that may be written to",
        Errno::ACCESS | Errno::PERM => {
            "get the right to it, or leave it out, and run the same command again"
        }
        Errno::NOENT => "it went away meanwhile; run the same command again",
        Errno::MFILE | Errno::NFILE => {
            "raise the number of open files (`ulimit -n`) and run the same command again"
        }
        Errno::NAMETOOLONG => "the file system there has no room for the name; shorten it",
        Errno::IO => "see what the kernel says of the device (`dmesg`)",
        _ => "mend that and run the same command again",
    }
}
