//! Processes of this host from `/proc`: descendants of a process, and their end.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Environment variable of all children of a shell: `SESSION_DIRECTORY#NUMBER`. It identifies a daemon that has left its
/// process group and its parent.
pub(crate) const MARKER: &str = "VENTURI_SHELL_PROCESS";

/// Killed processes disappear within this time, except processes that are blocked in a file system.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// First and longest time between two checks of the processes of this host; on a large host, each
/// check takes some time.
const PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_millis(80);

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessEntry {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) zombie: bool,
    /// Start in clock ticks since boot, to distinguish processes with the same PID.
    pub(crate) start_ticks: u64,
}

/// Returns all processes of this host in `/proc`.
pub(crate) fn all() -> Vec<ProcessEntry> {
    let directory = std::fs::read_dir("/proc");
    let pids = directory.into_iter().flatten().flatten();
    pids.filter_map(|entry| entry_of(entry.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// Returns one process, if it exists.
pub(crate) fn entry_of(pid: i32) -> Option<ProcessEntry> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(pid, &String::from_utf8_lossy(&stat))
}

/// Parses proc_pid_stat(5). The name can contain any text, so the fields are counted from its end.
fn parse_stat(pid: i32, stat: &str) -> Option<ProcessEntry> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some(ProcessEntry {
        pid,
        zombie: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        start_ticks: fields.get(19)?.parse().ok()?,
    })
}

/// Returns all descendants of a process, without the process itself.
pub(crate) fn descendants(of: i32, all: &[ProcessEntry]) -> Vec<ProcessEntry> {
    let mut found = BTreeSet::from([of]);
    let mut result = Vec::new();
    loop {
        let before = result.len();
        for process in all {
            if found.contains(&process.parent) && found.insert(process.pid) {
                result.push(*process);
            }
        }
        if result.len() == before {
            return result;
        }
    }
}

/// Returns the marker of a process; none if it has none or this user cannot read it.
pub(crate) fn marker_of(pid: i32) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(MARKER.as_bytes())?.strip_prefix(b"="))
        .map(|value| String::from_utf8_lossy(value).into_owned())
}

/// Sends a signal to a process that was just seen. A stopped process also gets SIGCONT, to handle the signal.
pub(crate) fn send(process: &ProcessEntry, signal: Signal) {
    let pid = Pid::from_raw(process.pid);
    let _ = kill(pid, signal);
    if signal != Signal::SIGKILL {
        let _ = kill(pid, Signal::SIGCONT);
    }
}

/// Ends all descendants of this process, which must be a subreaper: first with SIGTERM, after `grace` with SIGKILL.
/// Reaps all children. Returns the PIDs of processes that do not end.
pub(crate) fn end_descendants(grace: Duration) -> Vec<i32> {
    let start = Instant::now();
    let own = std::process::id().cast_signed();
    let mut terminated = BTreeSet::new();
    let mut pause = PAUSE;
    loop {
        if !reap_children() {
            return Vec::new();
        }
        let elapsed = start.elapsed();
        let mut living = descendants(own, &all());
        living.retain(|process| !process.zombie);
        for process in &living {
            if elapsed >= grace {
                send(process, Signal::SIGKILL);
            } else if terminated.insert((process.pid, process.start_ticks)) {
                send(process, Signal::SIGTERM);
            }
        }
        if elapsed >= grace + KILL_LIMIT {
            return living.iter().map(|process| process.pid).collect();
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(MAX_PAUSE);
    }
}

/// Reaps exited children. Returns whether there are others.
fn reap_children() -> bool {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
    loop {
        match waitpid(None, Some(flags)) {
            Ok(WaitStatus::StillAlive) => return true,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_process_follow_its_name() {
        let stat = "12 (a) R 1 2 (b)) S 1 345 346 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 8 9";
        assert_eq!(
            parse_stat(12, stat),
            Some(ProcessEntry {
                pid: 12,
                parent: 1,
                group: 345,
                zombie: false,
                start_ticks: 777,
            })
        );
        assert_eq!(parse_stat(12, "12 (cut"), None);
    }

    #[test]
    fn descendants_are_children_and_their_children() {
        let process = |pid, parent| ProcessEntry {
            pid,
            parent,
            group: pid,
            zombie: false,
            start_ticks: 1,
        };
        // A child can have a lower PID than its parent.
        let all = [process(3, 9), process(9, 5), process(4, 1), process(5, 1)];
        let mut pids: Vec<i32> = descendants(5, &all).iter().map(|found| found.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [3, 9]);
    }

    #[test]
    fn this_process_has_no_marker_and_is_in_proc() {
        let own = std::process::id().cast_signed();
        assert_eq!(marker_of(own), None);
        assert!(
            all()
                .iter()
                .any(|process| process.pid == own && !process.zombie)
        );
    }
}
