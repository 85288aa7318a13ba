//! Why there is no ground.

use std::path::PathBuf;

use nix::errno::Errno;

use crate::advice::advice;

/// What can go wrong. Each says what was expected, what was found, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The line on standard input.
    #[error(
        "expected one JSON line with `hosts`, `binds` and `tmpfs` on standard input, found: {0}"
    )]
    Order(String),
    /// A call that the kernel refused.
    #[error("expected to {what}, found: {errno}. {}", advice(*.errno, *.user_namespace))]
    Refused {
        /// What was tried.
        what: String,
        /// What the kernel answered.
        errno: Errno,
        /// Whether it was tried as root of a user namespace.
        user_namespace: bool,
    },
    /// A file that is to be mounted, or to be mounted over.
    #[error("expected to bind {} over {}, found no {}: make it first, or leave this pair out", .from.display(), .to.display(),
        .absent.display())]
    Absent {
        /// What lies over it.
        from: PathBuf,
        /// Where.
        to: PathBuf,
        /// Which of the two.
        absent: PathBuf,
    },
    /// A process of the ground ended while the ground was still wanted.
    #[error(
        "expected {who} to live as long as the lab, found: {how}. Everything in the lab has been ended; start it again"
    )]
    Ended {
        /// Which process.
        who: String,
        /// Its end.
        how: String,
    },
}
