//! Signals as something to wait for.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Signals that ask a process to end.
const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Signals that are read instead of obeyed.
#[derive(Debug)]
pub(crate) struct Signals {
    descriptor: SignalFd,
}

/// What has come.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Came {
    /// The number of a signal that asks for the end.
    pub(crate) ending: Option<i32>,
}

impl Signals {
    /// Watches SIGCHLD and the signals that ask for the end.
    pub(crate) fn watch() -> Result<Self, Errno> {
        let mut watched = SigSet::empty();
        watched.add(Signal::SIGCHLD);
        ENDING.into_iter().for_each(|signal| watched.add(signal));
        watched.thread_block()?;
        let descriptor =
            SignalFd::with_flags(&watched, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { descriptor })
    }

    /// Waits until a signal has come, one of `others` can be read, or `timeout` is over. Tells which of `others`.
    pub(crate) fn wait<const N: usize>(
        &self,
        others: [BorrowedFd<'_>; N],
        timeout: PollTimeout,
    ) -> Result<(Came, [bool; N]), Errno> {
        let watch = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut watched: Vec<PollFd<'_>> = others.into_iter().map(watch).collect();
        watched.push(watch(self.descriptor.as_fd()));
        match nix::poll::poll(&mut watched, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
        // A closed pipe shows as a hang-up, which a reading then tells as the end.
        let any = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        Ok((self.read(), std::array::from_fn(|at| any(&watched[at]))))
    }

    fn read(&self) -> Came {
        let mut came = Came::default();
        while let Ok(Some(told)) = self.descriptor.read_signal() {
            let number = i32::try_from(told.ssi_signo).unwrap_or(0);
            if number != libc::SIGCHLD {
                came.ending = came.ending.or(Some(number));
            }
        }
        came
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// Lets a child be ended by signals as usual.
pub(crate) fn obey_all() {
    // A mask that cannot be set is no mask of ours; the child ends with PID 1 in any case.
    let _ = SigSet::all().thread_unblock();
}
