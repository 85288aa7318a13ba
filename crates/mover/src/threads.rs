//! Threads that may not be there to be had: where processes are limited (`ulimit -u`, `pids.max` of a container) fewer of them do the work.

use std::io;
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::error::{Error, said};

/// What to do where there are none.
const ADVICE: &str = "let the user have more processes (`ulimit -u`; in a container `--pids-limit`), or ask for less with --concurrency";

/// Starts a thread of a scope.
///
/// # Errors
/// If there is none to be had: what can be done without it has to be.
pub(crate) fn start<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    work: impl FnOnce() -> T + Send + 's,
) -> io::Result<ScopedJoinHandle<'s, T>> {
    Builder::new().spawn_scoped(scope, work)
}

/// Sees whether there is one more: what the runtime starts by itself ends in a panic where there is not.
///
/// # Errors
/// If there is none.
pub(crate) fn spare() -> io::Result<()> {
    let ended = Builder::new().spawn(|| ())?.join();
    ended.map_err(|_| io::ErrorKind::Other.into())
}

/// That there is none, in a sentence.
pub(crate) fn none(error: &io::Error) -> String {
    format!("no thread for it ({}): {ADVICE}", said(error))
}

/// That nothing can be done without one.
pub(crate) fn refusal(error: &io::Error) -> Error {
    Error::System {
        what: "cannot start a thread",
        reason: format!("{}; {ADVICE}", said(error)),
    }
}
