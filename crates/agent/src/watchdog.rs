//! A process that exits shortly after the agent, to kill the processes that the agent has started.
//!
//! `PR_SET_PDEATHSIG` reaches only direct children, and is lost if a child changes its credentials.
//! The watchdog has a list of process groups, and the end of a pipe reports any end of the agent.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::unistd::{ForkResult, Pid};

/// Above the number of descriptors that an agent has when it forks its watchdog; it inherits only a
/// few from the controller.
const MAX_DESCRIPTOR: u32 = 4096;

/// The agent's end of the pipe to the watchdog. Dropping it makes the watchdog kill all remaining
/// groups.
#[derive(Debug)]
pub(crate) struct Watchdog {
    pipe: OwnedFd,
    /// PID of the watchdog, a child of the agent.
    pub(crate) pid: Pid,
}

impl Watchdog {
    /// Forks the watchdog.
    ///
    /// Call it before the first thread starts: the watchdog continues in the copied memory, where a lock that another
    /// thread held would never be released.
    pub(crate) fn start() -> io::Result<Self> {
        let (read_end, write_end) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        // SAFETY: no other thread exists yet (see above), so the child can use the whole library.
        match unsafe { nix::unistd::fork() }? {
            ForkResult::Parent { child } => Ok(Self {
                pipe: write_end,
                pid: child,
            }),
            ForkResult::Child => {
                drop(write_end); // otherwise the watchdog would keep its own pipe open
                guard(&read_end)
            }
        }
    }

    /// Adds a group before its first instruction.
    pub(crate) fn add(&self, group: Pid) {
        self.send(group.as_raw());
    }

    /// Removes an empty group, because another group may soon get its number.
    pub(crate) fn remove(&self, group: Pid) {
        self.send(-group.as_raw());
    }

    fn send(&self, word: i32) {
        // Four bytes are below PIPE_BUF and therefore never split. If the watchdog was killed, the
        // run continues without it.
        let _ = nix::unistd::write(&self.pipe, &word.to_ne_bytes());
    }
}

/// Main loop of the watchdog: record groups until the pipe ends, then kill the remaining ones.
fn guard(read_end: &OwnedFd) -> ! {
    // A separate session, so that neither Ctrl-C nor a signal to the group of the agent ends the
    // watchdog first.
    let _ = nix::unistd::setsid();
    for signal in [
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGPIPE,
    ] {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // Close stdout and stderr of the agent, because their readers must get the end of file when the
    // agent ends.
    close_all_but(read_end.as_raw_fd());
    let groups = read_groups(read_end);
    for group in groups {
        let _ = nix::sys::signal::killpg(Pid::from_raw(group), nix::sys::signal::Signal::SIGKILL);
    }
    // SAFETY: ends the process without the destructors and exit handlers of the agent.
    unsafe { libc::_exit(0) }
}

fn read_groups(read_end: &OwnedFd) -> BTreeSet<i32> {
    let mut groups = BTreeSet::new();
    let mut buffer = [0_u8; 4096];
    let mut buffered = 0;
    loop {
        match nix::unistd::read(read_end, &mut buffer[buffered..]) {
            Ok(0) => return groups,
            Ok(count) => buffered += count,
            Err(nix::errno::Errno::EINTR) => continue,
            Err(_) => return groups,
        }
        let whole = buffered - buffered % 4;
        for word in buffer[..whole].chunks_exact(4) {
            let word = i32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            if word > 0 {
                groups.insert(word);
            } else {
                groups.remove(&-word);
            }
        }
        buffer.copy_within(whole..buffered, 0);
        buffered -= whole;
    }
}

fn close_all_but(kept: RawFd) {
    let kept = kept.unsigned_abs();
    let ranges = [(0, kept.checked_sub(1)), (kept + 1, Some(u32::MAX))];
    for (first, last) in ranges
        .into_iter()
        .filter_map(|(first, last)| Some((first, last?)))
    {
        // SAFETY: this process does not use these descriptors again. They are closed by number,
        // because a host with only this binary may have no /proc to list them.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            close_one_by_one(first, last);
        }
    }
}

/// For kernels before 5.9, which have no `close_range`.
fn close_one_by_one(first: u32, last: u32) {
    for fd in first..=last.min(MAX_DESCRIPTOR) {
        // SAFETY: as in `close_all_but`; closing a closed descriptor only fails.
        unsafe { libc::close(fd.cast_signed()) };
    }
}
