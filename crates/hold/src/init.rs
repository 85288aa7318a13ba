//! PID 1 of the ground: furnishes it, makes the hosts, reaps orphans, and ends everything when the process outside goes.

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

use crate::error::Error;
use crate::order::Order;
use crate::report::{Pids, Word};
use crate::signals::Signals;
use crate::{host, mounts};

/// Between SIGTERM to all inside and the end.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// How often it is looked whether those have ended whose parent is outside: their end brings no signal.
const LOOK_INTERVAL_MS: u8 = 5;

/// What PID 1 has of the process outside.
#[derive(Debug)]
pub(crate) struct Line {
    /// Ends when that process wants the end, or is gone.
    pub(crate) alive: File,
    /// Where its words go.
    pub(crate) report: File,
}

/// The life of PID 1. Returns its exit code.
pub(crate) fn live(order: &Order, user_namespace: bool, mut line: Line, signals: &Signals) -> i32 {
    let told = settle(order, user_namespace).and_then(|hosts| {
        let pids = hosts.iter().map(|(pid, host)| (host.clone(), pid.as_raw()));
        say(&mut line.report, &Word::Ready(Pids::from_iter(pids)));
        stay(&hosts, &line, signals)
    });
    if let Err(error) = &told {
        say(&mut line.report, &Word::Failed(error.to_string()));
    }
    end_all(signals);
    i32::from(told.is_err())
}

fn say(report: &mut File, word: &Word) {
    let mut text = serde_json::to_vec(word).expect("a word is text and numbers");
    text.push(b'\n');
    let _ = report.write_all(&text); // who does not read it is gone, which `stay` sees
}

fn settle(order: &Order, user_namespace: bool) -> Result<BTreeMap<Pid, String>, Error> {
    // The terminal's signals are for the process outside.
    let _ = setsid();
    mounts::furnish(order, user_namespace)?;
    let start = |(host, name): (&String, &String)| {
        Ok((host::start(host, name, user_namespace)?, host.clone()))
    };
    order.hosts.iter().map(start).collect()
}

/// Reaps what ends until the process outside lets go.
fn stay(hosts: &BTreeMap<Pid, String>, line: &Line, signals: &Signals) -> Result<(), Error> {
    loop {
        let waited = signals.wait([line.alive.as_fd()], PollTimeout::NONE);
        let (_, [let_go]) = waited.map_err(|errno| Error::Refused {
            what: "wait for events in the lab".into(),
            errno,
            user_namespace: false,
        })?;
        while let Some((pid, how)) = reap() {
            if let Some(host) = hosts.get(&pid) {
                return Err(Error::Ended {
                    who: format!("the process of the host `{host}`"),
                    how,
                });
            }
        }
        if let_go {
            return Ok(());
        }
    }
}

/// One child that has ended, and how.
fn reap() -> Option<(Pid, String)> {
    match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(pid, code)) => Some((pid, format!("exit code {code}"))),
        Ok(WaitStatus::Signaled(pid, signal, _)) => Some((pid, format!("signal {signal}"))),
        _ => None,
    }
}

/// Asks all to end, and waits until they have, or their time is over; the kernel kills the rest when PID 1 is gone.
fn end_all(signals: &Signals) {
    let end = Instant::now() + GRACE;
    // -1: every process of this namespace but this one (kill(2)).
    if kill(Pid::from_raw(-1), Signal::SIGTERM) == Err(Errno::ESRCH) {
        return;
    }
    // A process that was stopped obeys once it goes on.
    let _ = kill(Pid::from_raw(-1), Signal::SIGCONT);
    while Instant::now() < end {
        while reap().is_some() {}
        if nobody_else() {
            return;
        }
        // A signal ends the wait early; that there is none, or an error, only makes it a full interval.
        let _ = signals.wait([], PollTimeout::from(LOOK_INTERVAL_MS));
    }
}

/// Whether PID 1 is alone. What has ended and waits for a parent outside no longer counts.
fn nobody_else() -> bool {
    let Ok(processes) = fs::read_dir("/proc") else {
        return false; // not mounted, for all that is known: the grace is waited out
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
