//! PID 1 of the sandbox: mounts file systems, starts hosts, reaps orphans, and ends all processes when the supervisor
//! exits.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollTimeout;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, setsid};

use crate::config::SandboxConfig;
use crate::error::SandboxError;
use crate::report::{InitMessage, Pids};
use crate::signals::Signals;
use crate::{host, mounts};

/// Time between SIGTERM to all processes and the end.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// Interval between checks for processes whose parent is outside; their exit causes no signal.
const CHECK_INTERVAL_MS: u8 = 5;

/// Pipes between PID 1 and the supervisor.
#[derive(Debug)]
pub(crate) struct InitPipes {
    /// Closes when the supervisor exits or requests the end.
    pub(crate) alive: File,
    /// Pipe for messages to the supervisor.
    pub(crate) report: File,
}

/// Runs PID 1. Returns its exit code.
pub(crate) fn run(
    config: &SandboxConfig,
    user_namespace: bool,
    mut pipes: InitPipes,
    signals: &Signals,
) -> i32 {
    let result = set_up(config, user_namespace).and_then(|hosts| {
        let pids = hosts.iter().map(|(pid, host)| (host.clone(), pid.as_raw()));
        send(
            &mut pipes.report,
            &InitMessage::Ready(Pids::from_iter(pids)),
        );
        supervise(&hosts, &pipes, signals)
    });
    if let Err(error) = &result {
        send(&mut pipes.report, &InitMessage::Failed(error.to_string()));
    }
    end_all(signals);
    i32::from(result.is_err())
}

fn send(report: &mut File, message: &InitMessage) {
    let mut text = serde_json::to_vec(message).expect("a word is text and numbers");
    text.push(b'\n');
    let _ = report.write_all(&text); // `supervise` detects a reader that has exited
}

fn set_up(
    config: &SandboxConfig,
    user_namespace: bool,
) -> Result<BTreeMap<Pid, String>, SandboxError> {
    // Signals of the terminal are for the supervisor.
    let _ = setsid();
    mounts::mount_all(config, user_namespace)?;
    let start = |(host, name): (&String, &String)| {
        Ok((host::start(host, name, user_namespace)?, host.clone()))
    };
    config.hosts.iter().map(start).collect()
}

/// Reaps processes until the supervisor releases the sandbox.
fn supervise(
    hosts: &BTreeMap<Pid, String>,
    pipes: &InitPipes,
    signals: &Signals,
) -> Result<(), SandboxError> {
    loop {
        let waited = signals.wait([pipes.alive.as_fd()], PollTimeout::NONE);
        let (_, [released]) = waited.map_err(|errno| SandboxError::Kernel {
            action: "wait for events in the lab".into(),
            errno,
            user_namespace: false,
        })?;
        while let Some((pid, exit)) = reap() {
            if let Some(host) = hosts.get(&pid) {
                return Err(SandboxError::Ended {
                    process: format!("the process of the host `{host}`"),
                    exit,
                });
            }
        }
        if released {
            return Ok(());
        }
    }
}

/// Returns one exited child and its exit status.
fn reap() -> Option<(Pid, String)> {
    match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(pid, code)) => Some((pid, format!("exit code {code}"))),
        Ok(WaitStatus::Signaled(pid, signal, _)) => Some((pid, format!("signal {signal}"))),
        _ => None,
    }
}

/// Sends SIGTERM to all processes and waits until they exit or the grace time is over. The kernel kills the rest when
/// PID 1 exits.
fn end_all(signals: &Signals) {
    let end = Instant::now() + GRACE;
    // -1: every process of this namespace except this one (kill(2)).
    if kill(Pid::from_raw(-1), Signal::SIGTERM) == Err(Errno::ESRCH) {
        return;
    }
    // A stopped process handles the signal after SIGCONT.
    let _ = kill(Pid::from_raw(-1), Signal::SIGCONT);
    while Instant::now() < end {
        while reap().is_some() {}
        if is_alone() {
            return;
        }
        // A signal ends the wait early; without a signal, or after an error, it lasts a full
        // interval.
        let _ = signals.wait([], PollTimeout::from(CHECK_INTERVAL_MS));
    }
}

/// Whether PID 1 is the only running process. Zombies with a parent outside do not count.
fn is_alone() -> bool {
    let Ok(processes) = fs::read_dir("/proc") else {
        return false; // /proc may not be mounted: wait for the whole grace time
    };
    let runs = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let number: Option<u32> = name.to_str().and_then(|name| name.parse().ok());
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        number.is_some_and(|pid| pid > 1) && !matches!(state, None | Some('Z' | 'X'))
    };
    !processes.flatten().any(runs)
}
