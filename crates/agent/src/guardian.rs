//! A process that outlives the agent by one moment, to kill what the agent had started.
//!
//! `PR_SET_PDEATHSIG` reaches only the direct child, and is lost when that child changes its credentials. The guardian
//! knows the process groups, and learns of the agent's end, by whatever cause, from the end of a pipe.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::unistd::{ForkResult, Pid};

/// No agent has opened more than this when it forks its guardian; a controller hands down a few.
const MAX_DESCRIPTOR: u32 = 4096;

/// The agent's end of the pipe to the guardian. Dropping it lets the guardian kill all groups that it still knows.
#[derive(Debug)]
pub(crate) struct Guardian {
    pipe: OwnedFd,
}

impl Guardian {
    /// Forks the guardian.
    ///
    /// To be called before the first thread is started: the guardian goes on in the copied memory, where a lock that
    /// another thread held would never be let go.
    pub(crate) fn start() -> io::Result<Self> {
        let (read_end, write_end) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        // SAFETY: no other thread exists yet (see above), so the child may use the whole of the library.
        match unsafe { nix::unistd::fork() }? {
            ForkResult::Parent { .. } => Ok(Self { pipe: write_end }),
            ForkResult::Child => {
                drop(write_end); // else the guardian would keep its own pipe from ending
                guard(&read_end)
            }
        }
    }

    /// Learns of a group before its first instruction.
    pub(crate) fn add(&self, group: Pid) {
        self.send(group.as_raw());
    }

    /// Forgets a group of which nothing is left: its number may soon belong to somebody else.
    pub(crate) fn remove(&self, group: Pid) {
        self.send(-group.as_raw());
    }

    fn send(&self, word: i32) {
        // Four bytes are below PIPE_BUF and so never torn. A guardian that was killed loses its duty, not our run.
        let _ = nix::unistd::write(&self.pipe, &word.to_ne_bytes());
    }
}

/// The guardian's life: note groups until the pipe ends, then kill what is left.
fn guard(read_end: &OwnedFd) -> ! {
    // A session of its own: neither Ctrl-C nor a signal to the group of the agent ends the guardian first.
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
    // No stdout or stderr of the agent stays open here: whoever reads them must see their end when the agent ends.
    close_all_but(read_end.as_raw_fd());
    let groups = read_groups(read_end);
    for group in groups {
        let _ = nix::sys::signal::killpg(Pid::from_raw(group), nix::sys::signal::Signal::SIGKILL);
    }
    // SAFETY: ends the process without running the destructors and exit handlers that belong to the agent.
    unsafe { libc::_exit(0) }
}

fn read_groups(read_end: &OwnedFd) -> BTreeSet<i32> {
    let mut groups = BTreeSet::new();
    let mut buffer = [0_u8; 4096];
    let mut held = 0;
    loop {
        match nix::unistd::read(read_end, &mut buffer[held..]) {
            Ok(0) => return groups,
            Ok(count) => held += count,
            Err(nix::errno::Errno::EINTR) => continue,
            Err(_) => return groups,
        }
        let whole = held - held % 4;
        for word in buffer[..whole].chunks_exact(4) {
            let word = i32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            if word > 0 {
                groups.insert(word);
            } else {
                groups.remove(&-word);
            }
        }
        buffer.copy_within(whole..held, 0);
        held -= whole;
    }
}

fn close_all_but(kept: RawFd) {
    let kept = kept.unsigned_abs();
    let ranges = [(0, kept.checked_sub(1)), (kept + 1, Some(u32::MAX))];
    for (first, last) in ranges
        .into_iter()
        .filter_map(|(first, last)| Some((first, last?)))
    {
        // SAFETY: nothing in this process uses these descriptors again. By number, since a host with nothing but this
        // binary may have no /proc to list them in.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            close_one_by_one(first, last);
        }
    }
}

/// For kernels before 5.9, which have no `close_range`.
fn close_one_by_one(first: u32, last: u32) {
    for fd in first..=last.min(MAX_DESCRIPTOR) {
        // SAFETY: as in `close_all_but`; closing what is not open only fails.
        unsafe { libc::close(fd.cast_signed()) };
    }
}
