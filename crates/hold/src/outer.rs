//! The process outside: takes the order, starts PID 1, and stays until the controller is gone.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::PollTimeout;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

use crate::error::Error;
use crate::grounds;
use crate::init::{self, GRACE, Line};
use crate::order::Order;
use crate::report::{Pids, Record, Word};
use crate::signals::Signals;

/// The longest order: some ten thousand hosts.
const ORDER_LIMIT_BYTES: usize = 4 << 20;

/// What the kernel may take to end what did not end by itself, beyond the grace.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked whether PID 1 has ended, at the end.
const LOOK_INTERVAL_MS: u8 = 20;

/// How this process ends.
#[derive(Debug)]
enum End {
    /// Standard input has ended, or nobody reads standard output.
    LetGo,
    /// SIGINT, SIGTERM or SIGHUP.
    Signal(i32),
    /// There is no ground.
    Fatal(Error),
    /// PID 1 has said why.
    Told(String),
}

/// Holds a ground until standard input ends or a signal comes. Returns the exit code: 0 when standard input ended, 2 after
/// `fatal`, 128 and the number of the signal that ended it.
///
/// To be called from the first thread, before any other is started: it forks, and its child uses all of the library.
#[must_use]
pub fn serve() -> u8 {
    let (init, end) = hold();
    // The message first: what follows may take its time.
    let code = match end {
        End::LetGo => 0,
        End::Signal(number) => 128 + u8::try_from(number).unwrap_or(0),
        End::Fatal(error) => complain(error.to_string()),
        End::Told(message) => complain(message),
    };
    if let Some(init) = init {
        init.end();
    }
    code
}

fn complain(message: String) -> u8 {
    eprintln!("venturi-engine hold: {message}");
    Record::Fatal { message }.emit();
    2
}

fn hold() -> (Option<Init>, End) {
    let signals = match Signals::watch() {
        Ok(signals) => signals,
        Err(errno) => return (None, refused("watch signals", errno)),
    };
    let order = match take_order(&signals) {
        Ok(order) => order,
        Err(end) => return (None, end),
    };
    match start(&order, signals) {
        Ok(mut init) => {
            let end = init.attend();
            (Some(init), end)
        }
        Err(error) => (None, End::Fatal(error)),
    }
}

fn refused(what: &str, errno: Errno) -> End {
    End::Fatal(Error::Refused {
        what: what.into(),
        errno,
        user_namespace: false,
    })
}

fn stdin() -> BorrowedFd<'static> {
    // SAFETY: descriptor 0 is open for as long as the process: the standard library sees to it.
    unsafe { BorrowedFd::borrow_raw(0) }
}

/// Reads up to the end of the first line; what comes behind it is nothing to us but a sign of life.
fn take_order(signals: &Signals) -> Result<Order, End> {
    let mut held = Vec::new();
    let mut buffer = [0_u8; 4096];
    loop {
        let waited = signals.wait([stdin()], PollTimeout::NONE);
        let (came, [readable]) = waited.map_err(|errno| refused("wait for an order", errno))?;
        if let Some(number) = came.ending {
            return Err(End::Signal(number));
        }
        if !readable {
            continue;
        }
        let count = match nix::unistd::read(stdin(), &mut buffer) {
            Err(Errno::EINTR | Errno::EAGAIN) => continue,
            Ok(0) | Err(_) => {
                let found = format!("its end after {} bytes", held.len());
                return Err(End::Fatal(Error::Order(found)));
            }
            Ok(count) => count,
        };
        held.extend_from_slice(&buffer[..count]);
        if let Some(end) = held.iter().position(|byte| *byte == b'\n') {
            return Order::parse(&held[..end]).map_err(End::Fatal);
        }
        if held.len() > ORDER_LIMIT_BYTES {
            let found = format!("no end of the line in {ORDER_LIMIT_BYTES} bytes");
            return Err(End::Fatal(Error::Order(found)));
        }
    }
}

/// PID 1, seen from outside.
#[derive(Debug)]
struct Init {
    pid: Pid,
    user_namespace: bool,
    /// Closed, it tells PID 1 to end everything; the kernel closes it when this process is killed.
    alive: OwnedFd,
    report: File,
    signals: Signals,
}

fn start(order: &Order, signals: Signals) -> Result<Init, Error> {
    let user_namespace = grounds::leave()?;
    let refused = |errno| Error::Refused {
        what: "start PID 1 of the lab".into(),
        errno,
        user_namespace,
    };
    let (alive_read, alive) = pipe2(OFlag::O_CLOEXEC).map_err(refused)?;
    let (report, report_write) = pipe2(OFlag::O_CLOEXEC).map_err(refused)?;
    // SAFETY: no other thread exists in this process (see `serve`), so the child may use the whole of the library.
    match unsafe { fork() }.map_err(refused)? {
        ForkResult::Parent { child } => Ok(Init {
            pid: child,
            user_namespace,
            alive,
            report: File::from(report),
            signals,
        }),
        ForkResult::Child => {
            die_with_parent();
            drop((alive, report));
            let line = Line {
                alive: File::from(alive_read),
                report: File::from(report_write),
            };
            keep_only(&line, &signals);
            let code = init::live(order, user_namespace, line, &signals);
            // SAFETY: ends the process without the exit handlers, which belong to the parent.
            unsafe { libc::_exit(code) }
        }
    }
}

/// Has the kernel kill this process when its parent ends, however. A parent that has ended already is seen by the end of the
/// pipe `alive`.
fn die_with_parent() {
    // SAFETY: takes and returns numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Lets go of standard input and output, and of all that was inherited: who waits for their end must not wait for PID 1.
fn keep_only(line: &Line, signals: &Signals) {
    let mut kept = [
        2,
        line.alive.as_raw_fd(),
        line.report.as_raw_fd(),
        signals.as_raw_fd(),
    ];
    kept.sort_unstable();
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        // SAFETY: both descriptors are of this process; nothing here reads 0 or writes 1 afterwards.
        unsafe {
            libc::dup2(null.as_raw_fd(), 0);
            libc::dup2(null.as_raw_fd(), 1);
        }
    }
    let gaps = kept.windows(2).map(|pair| (pair[0] + 1, pair[1] - 1));
    let rest = (kept[kept.len() - 1] + 1, i32::MAX);
    for (first, last) in gaps.chain([rest]).filter(|(first, last)| first <= last) {
        // SAFETY: none of these descriptors is used again. On a kernel before 5.9 they stay open: harmless, as the process
        // ends with its parent.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

impl Init {
    /// Tells the controller when the ground is there, and waits for the end.
    fn attend(&mut self) -> End {
        let mut held = Vec::new();
        loop {
            let others = [stdin(), self.report.as_fd()];
            let (came, [input, report]) = match self.signals.wait(others, PollTimeout::NONE) {
                Ok(waited) => waited,
                Err(errno) => return refused("wait for events", errno),
            };
            if let Some(number) = came.ending {
                return End::Signal(number);
            }
            if report && let Some(end) = self.hear(&mut held) {
                return end;
            }
            if input && stdin_has_ended() {
                return End::LetGo;
            }
        }
    }

    /// Takes what PID 1 says.
    fn hear(&mut self, held: &mut Vec<u8>) -> Option<End> {
        let mut buffer = [0_u8; 4096];
        let count = self.report.read(&mut buffer).unwrap_or(0);
        if count == 0 {
            let how = self.died_of();
            return Some(End::Fatal(Error::Ended {
                who: "PID 1 of the lab".into(),
                how,
            }));
        }
        held.extend_from_slice(&buffer[..count]);
        while let Some(end) = held.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = held.drain(..=end).collect();
            match serde_json::from_slice(&line).expect("PID 1 is this very program") {
                Word::Ready(pids) => {
                    if !self.announce(pids) {
                        return Some(End::LetGo);
                    }
                }
                Word::Failed(message) => return Some(End::Told(message)),
            }
        }
        None
    }

    fn announce(&self, pids: Pids) -> bool {
        Record::Ready {
            pid: self.pid.as_raw(),
            pids,
            user_namespace: self.user_namespace,
        }
        .emit()
    }

    /// How it ended: its pipe has, so it has, or is about to.
    fn died_of(&self) -> String {
        let end = Instant::now() + KILL_PATIENCE;
        while Instant::now() < end {
            match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => {}
                Ok(WaitStatus::Signaled(_, signal, _)) => return format!("signal {signal}"),
                Ok(WaitStatus::Exited(_, code)) => return format!("exit code {code}"),
                Ok(_) | Err(_) => break,
            }
            // The signal of its end, or a full interval.
            let _ = self.signals.wait([], PollTimeout::from(LOOK_INTERVAL_MS));
        }
        "the end of its pipe".to_owned()
    }

    /// Ends everything inside and waits until it is gone.
    fn end(self) {
        let Self {
            pid,
            alive,
            signals,
            ..
        } = self;
        drop(alive);
        let gone = |patience: Duration| {
            let end = Instant::now() + patience;
            loop {
                if !matches!(
                    waitpid(pid, Some(WaitPidFlag::WNOHANG)),
                    Ok(WaitStatus::StillAlive)
                ) {
                    return true;
                }
                if Instant::now() >= end {
                    return false;
                }
                // The signal of its end, or a full interval.
                let _ = signals.wait([], PollTimeout::from(LOOK_INTERVAL_MS));
            }
        };
        if gone(GRACE + KILL_PATIENCE) {
            return;
        }
        let _ = kill(pid, Signal::SIGKILL);
        if !gone(KILL_PATIENCE) {
            eprintln!(
                "venturi-engine hold: process {pid} has not ended {KILL_PATIENCE:?} after SIGKILL: something in the lab \
                 hangs in the kernel, or a parent outside does not wait for its child"
            );
        }
    }
}

/// Reads and forgets. Only the end matters.
fn stdin_has_ended() -> bool {
    let mut buffer = [0_u8; 4096];
    !matches!(
        nix::unistd::read(stdin(), &mut buffer),
        Ok(1..) | Err(Errno::EINTR | Errno::EAGAIN)
    )
}
