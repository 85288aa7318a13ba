//! Cancellation of a copy, checked by all workers between blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use nix::sys::signal::{SigSet, Signal};

use crate::error::CopyError;
use crate::threads;

const RUNNING: u8 = 0;
const SIGNAL: u8 = 1;
const ABORTED: u8 = 2;
/// A signal ends the process immediately, because no file is in progress.
const NOT_STARTED: u8 = 3;

/// Cancellation flag; clones share its state.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicU8>);

impl CancelToken {
    /// Returns a token that SIGINT, SIGTERM and SIGHUP set, except ignored signals. The second signal ends the process immediately, and so does
    /// the first one before `start`.
    ///
    /// The signals are blocked for this thread and its children, and a thread waits for them: no handler, no unsafe code.
    ///
    /// # Errors
    /// The kernel rejects a mask or a thread.
    pub fn on_signals() -> Result<Self, CopyError> {
        let system = |reason: String| CopyError::System {
            what: "cannot wait for signals",
            reason,
        };
        let stop = Self(Arc::new(AtomicU8::new(NOT_STARTED)));
        let signals = ending();
        signals
            .thread_block()
            .map_err(|errno| system(errno.to_string()))?;
        let shared = stop.clone();
        let wait = move || {
            while signals.wait().is_ok() {
                if matches!(
                    shared.0.swap(SIGNAL, Ordering::SeqCst),
                    SIGNAL | NOT_STARTED
                ) {
                    std::process::exit(130);
                }
            }
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(wait)
            .map_err(|error| threads::start_error(&error, threads::COPY_OPTION))?;
        Ok(stop)
    }

    /// Starts graceful handling of signals. Before, the process only reads its inputs, which can block.
    pub(crate) fn start(&self) {
        // Otherwise it has started, or a signal arrived.
        let _ = self
            .0
            .compare_exchange(NOT_STARTED, RUNNING, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Cancels the copy as a signal does.
    pub fn stop(&self) {
        self.0.store(SIGNAL, Ordering::SeqCst);
    }

    /// Cancels the copy because all other files would fail too. Returns true for the first caller.
    pub(crate) fn abort(&self) -> bool {
        self.0
            .compare_exchange(RUNNING, ABORTED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// True if a signal arrived.
    pub(crate) fn signalled(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SIGNAL
    }

    /// True if the copy must end.
    pub(crate) fn is_cancelled(&self) -> bool {
        !matches!(self.0.load(Ordering::Relaxed), RUNNING | NOT_STARTED)
    }
}

/// Returns the signals that end a process, without signals that it ignores since its start (`nohup`, background jobs): a blocked signal
/// would otherwise arrive.
pub(crate) fn ending() -> SigSet {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status);
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
        .into_iter()
        .filter(|signal| ignored >> (*signal as u32 - 1) & 1 == 0)
        .collect()
}

/// Returns the bit mask of ignored signals in `/proc/self/status`; 0 if it has none.
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_those_that_the_kernel_reports() {
        let status = "Name:\tcp\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001003\nSigCgt:\t0000000000000000\n";
        assert_eq!(ignored(status), 0x1003);
        assert_eq!(ignored("Name:\tcp\n"), 0);
        // Tests are not run by `nohup`.
        assert!(ending().contains(Signal::SIGTERM));
    }
}
