//! Waits for signals and descriptors.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Termination signals.
const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Signals read from a descriptor.
#[derive(Debug)]
pub(crate) struct Signals {
    descriptor: SignalFd,
}

/// Pending signals.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PendingSignals {
    /// Number of a pending termination signal.
    pub(crate) ending: Option<i32>,
}

impl Signals {
    /// Watches SIGCHLD and termination signals.
    pub(crate) fn watch() -> Result<Self, Errno> {
        let mut watched = SigSet::empty();
        watched.add(Signal::SIGCHLD);
        ENDING.into_iter().for_each(|signal| watched.add(signal));
        watched.thread_block()?;
        let descriptor =
            SignalFd::with_flags(&watched, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { descriptor })
    }

    /// Waits until a signal has arrived, one of `descriptors` is readable, or `timeout` is over.
    /// Returns which `descriptors` are readable.
    pub(crate) fn wait<const N: usize>(
        &self,
        descriptors: [BorrowedFd<'_>; N],
        timeout: PollTimeout,
    ) -> Result<(PendingSignals, [bool; N]), Errno> {
        let watch = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut watched: Vec<PollFd<'_>> = descriptors.into_iter().map(watch).collect();
        watched.push(watch(self.descriptor.as_fd()));
        match nix::poll::poll(&mut watched, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
        // A closed pipe causes a hang-up; the next read returns the end of file.
        let any = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        Ok((self.read(), std::array::from_fn(|at| any(&watched[at]))))
    }

    fn read(&self) -> PendingSignals {
        let mut pending = PendingSignals::default();
        while let Ok(Some(info)) = self.descriptor.read_signal() {
            let number = i32::try_from(info.ssi_signo).unwrap_or(0);
            if number != libc::SIGCHLD {
                pending.ending = pending.ending.or(Some(number));
            }
        }
        pending
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// Unblocks all signals in a child.
pub(crate) fn obey_all() {
    // An error is harmless: the child ends with PID 1 in any case.
    let _ = SigSet::all().thread_unblock();
}
