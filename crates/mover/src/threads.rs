//! Threads that may not be there to be had: where processes are limited (`ulimit -u`, `pids.max` of a container) fewer of them do the work.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use tokio::runtime::Runtime;

use crate::decision::Decision;
use crate::error::{Error, said};

/// Copies ask for so many by this option.
pub(crate) const OF_COPY: &str = "--concurrency";
/// Servers by this one.
pub(crate) const OF_SERVE: &str = "--threads";

/// That there is none, and what to do.
fn lack(error: &io::Error, option: &str) -> String {
    format!(
        "{}; let the user have more processes (`ulimit -u`; in a container `--pids-limit`), or ask for less with {option}",
        said(error)
    )
}

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

/// Has a runtime start the first of its threads for what may wait. Later ones it can do without; where there is not one, it knows no other
/// answer than a panic, which is not to be seen.
///
/// # Errors
/// If there is none.
pub(crate) fn first(runtime: &Runtime) -> io::Result<()> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    let started = panic::catch_unwind(AssertUnwindSafe(|| drop(runtime.spawn_blocking(|| ()))));
    panic::set_hook(hook);
    started.map_err(|_| rustix::io::Errno::AGAIN.into())
}

/// That there is none, in a sentence.
pub(crate) fn none(error: &io::Error) -> String {
    format!("no thread for it: {}", lack(error, OF_COPY))
}

/// That so many of what has a thread each are all that there are.
pub(crate) fn fewer(what: &'static str, count: usize, error: &io::Error) -> Decision {
    Decision {
        what,
        value: count as u64,
        reason: format!("no thread for another: {}", lack(error, OF_COPY)),
    }
}

/// That nothing can be done without one.
pub(crate) fn refusal(error: &io::Error, option: &str) -> Error {
    Error::System {
        what: "cannot start a thread",
        reason: lack(error, option),
    }
}
