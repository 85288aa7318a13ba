//! Threads under process limits (`ulimit -u`, `pids.max` of a container): if the kernel permits fewer threads, fewer do the work.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use tokio::runtime::Runtime;

use crate::decision::Decision;
use crate::error::{CopyError, describe};

/// Option that sets the number of threads of a copy.
pub(crate) const COPY_OPTION: &str = "--concurrency";
/// Option that sets the number of threads of a server.
pub(crate) const SERVE_OPTION: &str = "--threads";

/// Returns the reason for a missing thread, with the next step.
fn lack(error: &io::Error, option: &str) -> String {
    format!(
        "{}; raise the process limit of the user (`ulimit -u`; in a container `--pids-limit`), or reduce {option}",
        describe(error)
    )
}

/// Starts a thread of a scope.
///
/// # Errors
/// The kernel permits no further thread; continue without it if possible.
pub(crate) fn start<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    work: impl FnOnce() -> T + Send + 's,
) -> io::Result<ScopedJoinHandle<'s, T>> {
    Builder::new().spawn_scoped(scope, work)
}

/// Checks that one more thread can start, because a runtime panics if its own thread cannot.
///
/// # Errors
/// The kernel permits no further thread.
pub(crate) fn spare() -> io::Result<()> {
    let ended = Builder::new().spawn(|| ())?.join();
    ended.map_err(|_| io::ErrorKind::Other.into())
}

/// Starts the first blocking thread of a runtime. The runtime can do without later ones, but panics without the first one;
/// the message of the panic is hidden.
///
/// # Errors
/// The kernel permits no further thread.
pub(crate) fn first(runtime: &Runtime) -> io::Result<()> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    let started = panic::catch_unwind(AssertUnwindSafe(|| drop(runtime.spawn_blocking(|| ()))));
    panic::set_hook(hook);
    started.map_err(|_| rustix::io::Errno::AGAIN.into())
}

/// Returns the error message for a missing thread.
pub(crate) fn none(error: &io::Error) -> String {
    format!("cannot start a thread for it: {}", lack(error, COPY_OPTION))
}

/// Returns the decision to continue with fewer threads.
pub(crate) fn fewer(name: &'static str, count: usize, error: &io::Error) -> Decision {
    Decision {
        setting: name,
        value: count as u64,
        reason: format!("cannot start another thread: {}", lack(error, COPY_OPTION)),
    }
}

/// Returns the error if no thread can start.
pub(crate) fn start_error(error: &io::Error, option: &str) -> CopyError {
    CopyError::System {
        what: "cannot start a thread",
        reason: lack(error, option),
    }
}
