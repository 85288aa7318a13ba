//! Supervisor outside of the sandbox: reads the configuration, starts PID 1, and runs until the controller exits.

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

use crate::config::SandboxConfig;
use crate::detach;
use crate::error::SandboxError;
use crate::init::{self, GRACE, InitPipes};
use crate::report::{InitMessage, Pids, SandboxRecord};
use crate::signals::Signals;

/// Maximum configuration line: about ten thousand hosts.
const MAX_CONFIG_BYTES: usize = 4 << 20;

/// Time for the kernel to kill remaining processes, after the grace time.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval between exit checks of PID 1.
const CHECK_INTERVAL_MS: u8 = 20;

/// Reason for the exit of the supervisor.
#[derive(Debug)]
enum SupervisorExit {
    /// Standard input or standard output is closed.
    Released,
    /// SIGINT, SIGTERM or SIGHUP.
    Signal(i32),
    /// The sandbox failed.
    Fatal(SandboxError),
    /// PID 1 reported a failure.
    InitFailed(String),
}

/// Runs a sandbox until standard input ends or a signal arrives. Returns the exit code: 0 at the
/// end of standard input, 2 after `fatal`, 128 plus the number of the signal that ended it.
///
/// Call it from the first thread, before any other thread starts, because it forks and the child
/// uses the whole library.
#[must_use]
pub fn serve() -> u8 {
    let (init, end) = run_sandbox();
    // Print the message first: the cleanup can take time.
    let code = match end {
        SupervisorExit::Released => 0,
        SupervisorExit::Signal(number) => 128 + u8::try_from(number).unwrap_or(0),
        SupervisorExit::Fatal(error) => complain(error.to_string()),
        SupervisorExit::InitFailed(message) => complain(message),
    };
    if let Some(init) = init {
        init.end();
    }
    code
}

fn complain(message: String) -> u8 {
    eprintln!("venturi-engine namespaces: {message}");
    SandboxRecord::Fatal { message }.emit();
    2
}

fn run_sandbox() -> (Option<Init>, SupervisorExit) {
    let signals = match Signals::watch() {
        Ok(signals) => signals,
        Err(errno) => return (None, kernel_error("watch signals", errno)),
    };
    let config = match read_config(&signals) {
        Ok(config) => config,
        Err(end) => return (None, end),
    };
    match start(&config, signals) {
        Ok(mut init) => {
            let end = init.supervise();
            (Some(init), end)
        }
        Err(error) => (None, SupervisorExit::Fatal(error)),
    }
}

fn kernel_error(action: &str, errno: Errno) -> SupervisorExit {
    SupervisorExit::Fatal(SandboxError::Kernel {
        action: action.into(),
        errno,
        user_namespace: false,
    })
}

fn stdin() -> BorrowedFd<'static> {
    // SAFETY: the standard library keeps descriptor 0 open during the whole process.
    unsafe { BorrowedFd::borrow_raw(0) }
}

/// Reads the first line. Later input only shows that the controller is alive.
fn read_config(signals: &Signals) -> Result<SandboxConfig, SupervisorExit> {
    let mut received = Vec::new();
    let mut buffer = [0_u8; 4096];
    loop {
        let waited = signals.wait([stdin()], PollTimeout::NONE);
        let (pending, [readable]) =
            waited.map_err(|errno| kernel_error("wait for the configuration", errno))?;
        if let Some(number) = pending.ending {
            return Err(SupervisorExit::Signal(number));
        }
        if !readable {
            continue;
        }
        let count = match nix::unistd::read(stdin(), &mut buffer) {
            Err(Errno::EINTR | Errno::EAGAIN) => continue,
            Ok(0) | Err(_) => {
                let found = format!("end of input after {} bytes", received.len());
                return Err(SupervisorExit::Fatal(SandboxError::Config(found)));
            }
            Ok(count) => count,
        };
        received.extend_from_slice(&buffer[..count]);
        if let Some(end) = received.iter().position(|byte| *byte == b'\n') {
            return SandboxConfig::parse(&received[..end]).map_err(SupervisorExit::Fatal);
        }
        if received.len() > MAX_CONFIG_BYTES {
            let found = format!("no line end in {MAX_CONFIG_BYTES} bytes");
            return Err(SupervisorExit::Fatal(SandboxError::Config(found)));
        }
    }
}

/// Handle of PID 1.
#[derive(Debug)]
struct Init {
    pid: Pid,
    user_namespace: bool,
    /// Closing it makes PID 1 end all processes. The kernel closes it if this process is killed.
    alive: OwnedFd,
    report: File,
    signals: Signals,
}

fn start(config: &SandboxConfig, signals: Signals) -> Result<Init, SandboxError> {
    let user_namespace = detach::create_pid_namespace()?;
    let kernel_error = |errno| SandboxError::Kernel {
        action: "start PID 1 of the lab".into(),
        errno,
        user_namespace,
    };
    let (alive_read, alive) = pipe2(OFlag::O_CLOEXEC).map_err(kernel_error)?;
    let (report, report_write) = pipe2(OFlag::O_CLOEXEC).map_err(kernel_error)?;
    // SAFETY: no other thread exists in this process (see `serve`), so the child can use the whole
    // library.
    match unsafe { fork() }.map_err(kernel_error)? {
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
            let line = InitPipes {
                alive: File::from(alive_read),
                report: File::from(report_write),
            };
            close_other_descriptors(&line, &signals);
            let code = init::run(config, user_namespace, line, &signals);
            // SAFETY: ends the process without the exit handlers, which belong to the parent.
            unsafe { libc::_exit(code) }
        }
    }
}

/// Makes the kernel kill this process when its parent exits. If the parent has already exited, the pipe `alive` is
/// closed.
fn die_with_parent() {
    // SAFETY: takes and returns numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Closes standard input and output and all inherited descriptors, so that no reader waits for PID 1.
fn close_other_descriptors(line: &InitPipes, signals: &Signals) {
    let mut kept = [
        2,
        line.alive.as_raw_fd(),
        line.report.as_raw_fd(),
        signals.as_raw_fd(),
    ];
    kept.sort_unstable();
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        // SAFETY: both descriptors belong to this process, which does not read 0 or write 1
        // afterwards.
        unsafe {
            libc::dup2(null.as_raw_fd(), 0);
            libc::dup2(null.as_raw_fd(), 1);
        }
    }
    let gaps = kept.windows(2).map(|pair| (pair[0] + 1, pair[1] - 1));
    let rest = (kept[kept.len() - 1] + 1, i32::MAX);
    for (first, last) in gaps.chain([rest]).filter(|(first, last)| first <= last) {
        // SAFETY: these descriptors are not used again. On kernels before 5.9 they stay open, which
        // is harmless, because the process ends with its parent.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

impl Init {
    /// Reports the ready sandbox to the controller, then waits for the end.
    fn supervise(&mut self) -> SupervisorExit {
        let mut received = Vec::new();
        loop {
            let descriptors = [stdin(), self.report.as_fd()];
            let (pending, [input, report]) = match self.signals.wait(descriptors, PollTimeout::NONE)
            {
                Ok(waited) => waited,
                Err(errno) => return kernel_error("wait for events", errno),
            };
            if let Some(number) = pending.ending {
                return SupervisorExit::Signal(number);
            }
            if report && let Some(end) = self.read_report(&mut received) {
                return end;
            }
            if input && stdin_has_ended() {
                return SupervisorExit::Released;
            }
        }
    }

    /// Reads messages of PID 1.
    fn read_report(&mut self, received: &mut Vec<u8>) -> Option<SupervisorExit> {
        let mut buffer = [0_u8; 4096];
        let count = self.report.read(&mut buffer).unwrap_or(0);
        if count == 0 {
            let exit = self.exit_reason();
            return Some(SupervisorExit::Fatal(SandboxError::Ended {
                process: "PID 1 of the lab".into(),
                exit,
            }));
        }
        received.extend_from_slice(&buffer[..count]);
        while let Some(end) = received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = received.drain(..=end).collect();
            match serde_json::from_slice(&line).expect("PID 1 is this very program") {
                InitMessage::Ready(pids) => {
                    if !self.announce(pids) {
                        return Some(SupervisorExit::Released);
                    }
                }
                InitMessage::Failed(message) => return Some(SupervisorExit::InitFailed(message)),
            }
        }
        None
    }

    fn announce(&self, pids: Pids) -> bool {
        SandboxRecord::Ready {
            pid: self.pid.as_raw(),
            pids,
            user_namespace: self.user_namespace,
        }
        .emit()
    }

    /// Returns the exit status of PID 1 after its pipe closed.
    fn exit_reason(&self) -> String {
        let end = Instant::now() + KILL_TIMEOUT;
        while Instant::now() < end {
            match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => {}
                Ok(WaitStatus::Signaled(_, signal, _)) => return format!("signal {signal}"),
                Ok(WaitStatus::Exited(_, code)) => return format!("exit code {code}"),
                Ok(_) | Err(_) => break,
            }
            // Wait for SIGCHLD or one interval.
            let _ = self.signals.wait([], PollTimeout::from(CHECK_INTERVAL_MS));
        }
        "its pipe closed".to_owned()
    }

    /// Ends all processes of the sandbox and waits for their exit.
    fn end(self) {
        let Self {
            pid,
            alive,
            signals,
            ..
        } = self;
        drop(alive);
        let wait_for_exit = |timeout: Duration| {
            let end = Instant::now() + timeout;
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
                // Wait for SIGCHLD or one interval.
                let _ = signals.wait([], PollTimeout::from(CHECK_INTERVAL_MS));
            }
        };
        if wait_for_exit(GRACE + KILL_TIMEOUT) {
            return;
        }
        let _ = kill(pid, Signal::SIGKILL);
        if !wait_for_exit(KILL_TIMEOUT) {
            eprintln!(
                "venturi-engine namespaces: process {pid} still exists {KILL_TIMEOUT:?} after SIGKILL: a process of the lab \
                 hangs in the kernel, or a parent outside of the lab does not reap its child"
            );
        }
    }
}

/// Discards input; returns whether standard input has ended.
fn stdin_has_ended() -> bool {
    let mut buffer = [0_u8; 4096];
    !matches!(
        nix::unistd::read(stdin(), &mut buffer),
        Ok(1..) | Err(Errno::EINTR | Errno::EAGAIN)
    )
}
