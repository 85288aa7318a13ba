//! The parent process of a shell. It exits shortly after the shell, to kill its processes and
//! remove its session.
//!
//! The watchdog of the agent is a child with a list of process groups. A server can leave its
//! group, so the watchdog of a shell is its parent and adopts all orphans: after the shell was
//! killed, all its processes are descendants of the watchdog. If the watchdog is killed, the shell
//! gets SIGTERM from the kernel. If both are killed, the next session cleans up.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getppid, setsid};

use super::processes;
use super::session::Session;
use crate::reap;

/// The process after the fork.
#[derive(Debug)]
pub(crate) enum Role {
    /// This process is the shell. All signals of [`watched_signals`] are blocked.
    Shell,
    /// This process was the watchdog; the shell has ended with this exit code, and its processes
    /// and files are removed.
    Done(u8),
}

/// Signals that the shell and its watchdog wait for.
pub(crate) fn watched_signals() -> SigSet {
    let mut signals = SigSet::empty();
    for signal in [
        Signal::SIGCHLD,
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
    ] {
        signals.add(signal);
    }
    signals
}

/// Forks the shell. This process continues as the watchdog and returns after the end of the shell.
///
/// Call it before the first thread starts: the shell continues in the copied memory, where a lock that another thread
/// held would never be released.
///
/// # Errors
/// If no other process can be created.
pub(crate) fn split(session: &Session) -> io::Result<Role> {
    watched_signals().thread_block()?;
    let parent = nix::unistd::getpid();
    // SAFETY: no other thread exists yet (see above), so the child can use the whole library.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            reap::adopt_orphans();
            Ok(Role::Done(watch(child, session)))
        }
        ForkResult::Child => {
            follow(parent)?;
            session.record_own()?;
            reap::adopt_orphans();
            Ok(Role::Shell)
        }
    }
}

/// Ensures that the shell ends with its watchdog.
fn follow(parent: Pid) -> io::Result<()> {
    // A separate session: Ctrl-C and a signal to the process group reach only the watchdog, which passes them on.
    setsid()?;
    // SAFETY: sets an attribute of this process, by numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
    if getppid() != parent {
        return Err(io::Error::other("the watchdog of the shell was killed"));
    }
    Ok(())
}

fn watch(shell: Pid, session: &Session) -> u8 {
    if let Err(error) = close_streams() {
        eprintln!("venturi-engine shell: cannot open /dev/null: {error}");
    }
    let signals = watched_signals();
    let code = loop {
        match waitpid(shell, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => break u8::try_from(code).unwrap_or(1),
            Ok(WaitStatus::Signaled(_, signal, _)) => {
                eprintln!("venturi-engine shell: signal {signal} ended the shell");
                break 128 + u8::try_from(signal as i32).unwrap_or(0);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => break 1,
        }
        match signals.wait() {
            Ok(Signal::SIGCHLD) | Err(_) => {}
            Ok(signal) => {
                let _ = kill(shell, signal);
            }
        }
    };
    let left = processes::end_descendants(Duration::ZERO);
    if !left.is_empty() {
        eprintln!("venturi-engine shell: killed processes do not end: {left:?}");
    }
    if session.directory.exists()
        && let Err(error) = session.remove()
    {
        eprintln!(
            "venturi-engine shell: {}: cannot remove the session: {error}",
            session.directory.display()
        );
    }
    code
}

/// Closes the standard streams: readers of the shell's output must get the end of file when the
/// shell ends, and only the shell reads its input.
fn close_streams() -> io::Result<()> {
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    for stream in [0, 1] {
        // SAFETY: replaces a standard stream by another open descriptor.
        unsafe { libc::dup2(null.as_raw_fd(), stream) };
    }
    Ok(())
}
