//! Whether to go on: asked between blocks by all workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use nix::sys::signal::{SigSet, Signal};

use crate::error::Error;
use crate::threads;

const GO: u8 = 0;
const SIGNAL: u8 = 1;
const HOPELESS: u8 = 2;
/// Nothing was begun that a signal might leave half done.
const EARLY: u8 = 3;

/// Whether to go on. Clones ask the same.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicU8>);

impl Stop {
    /// One that SIGINT, SIGTERM and SIGHUP set, but those that are ignored; the second signal ends the process where it stands, and so does
    /// the first until [`begin`](Self::begin).
    ///
    /// They are blocked for this thread and those that it starts, and waited for in one of their own: no handler, nothing unsafe.
    ///
    /// # Errors
    /// If the kernel refuses a mask or a thread.
    pub fn on_signals() -> Result<Self, Error> {
        let system = |reason: String| Error::System {
            what: "cannot wait for signals",
            reason,
        };
        let stop = Self(Arc::new(AtomicU8::new(EARLY)));
        let signals = ending();
        signals
            .thread_block()
            .map_err(|errno| system(errno.to_string()))?;
        let shared = stop.clone();
        let wait = move || {
            while signals.wait().is_ok() {
                if matches!(shared.0.swap(SIGNAL, Ordering::SeqCst), SIGNAL | EARLY) {
                    std::process::exit(130);
                }
            }
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(wait)
            .map_err(|error| threads::refusal(&error, threads::OF_COPY))?;
        Ok(stop)
    }

    /// Says that from here on there is something to be ended well; before it is read what to do, which may be waited for.
    pub(crate) fn begin(&self) {
        // Else it has begun, or a signal came.
        let _ = self
            .0
            .compare_exchange(EARLY, GO, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Stops as a signal does.
    pub fn stop(&self) {
        self.0.store(SIGNAL, Ordering::SeqCst);
    }

    /// Stops because no file can fare better: the disk is full. Whether nobody else has before.
    pub(crate) fn give_up(&self) -> bool {
        self.0
            .compare_exchange(GO, HOPELESS, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Whether a signal came.
    pub(crate) fn signalled(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SIGNAL
    }

    /// Whether to end.
    pub(crate) fn asked(&self) -> bool {
        !matches!(self.0.load(Ordering::Relaxed), GO | EARLY)
    }
}

/// The signals that end a process, without those that whoever started it has it ignore, as `nohup` and a shell in the background do: one that
/// is waited for would come all the same.
pub(crate) fn ending() -> SigSet {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status);
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
        .into_iter()
        .filter(|signal| ignored >> (*signal as u32 - 1) & 1 == 0)
        .collect()
}

/// The signals that a process ignores, a bit each, from what `/proc` tells of it: none where it does not.
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_are_ignored_are_those_that_the_kernel_tells() {
        let told = "Name:\tcp\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001003\nSigCgt:\t0000000000000000\n";
        assert_eq!(ignored(told), 0x1003);
        assert_eq!(ignored("Name:\tcp\n"), 0);
        // Tests are not run by `nohup`.
        assert!(ending().contains(Signal::SIGTERM));
    }
}
