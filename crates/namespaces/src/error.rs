//! Errors of the namespace sandbox.

use std::path::PathBuf;

use nix::errno::Errno;

use crate::advice::advice;

/// Error of the sandbox, with location, reason and next step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// Invalid configuration line on standard input.
    #[error("standard input: expected one JSON line with `hosts`, `binds` and `tmpfs`, found: {0}")]
    Config(String),
    /// Failed system call.
    #[error("cannot {action}: {errno}. {}", advice(*.errno, *.user_namespace))]
    Kernel {
        /// Attempted action.
        action: String,
        /// Error number of the kernel.
        errno: Errno,
        /// Whether the process was root of a user namespace.
        user_namespace: bool,
    },
    /// Missing source or target of a bind mount.
    #[error("cannot bind {} over {}: {} does not exist. Create it, or remove this pair.", .from.display(), .to.display(),
        .absent.display())]
    Absent {
        /// Source.
        from: PathBuf,
        /// Target.
        to: PathBuf,
        /// The missing path.
        absent: PathBuf,
    },
    /// A process of the sandbox exited too early.
    #[error(
        "{process} exited during the lab: {exit}. All processes of the lab were stopped; start the lab again."
    )]
    Ended {
        /// Name of the process.
        process: String,
        /// Exit code or signal.
        exit: String,
    },
}
