//! Children of the shell: start, end, signals. One thread reaps them all; the threads of their commands wait here.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::failure::{FailureKind, ShellFailure};
use super::processes::{self, ProcessEntry};
use super::session::ProcessLog;
use super::spawn::{ExecError, Image, ImageError, StandardStreams};
use crate::reap;

/// Killed processes disappear within this time, except processes that are blocked in a file system.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// First and longest time between two checks of the processes of this host; on a large host, each
/// check takes some time.
const PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_millis(80);

/// All children that are not reaped.
#[derive(Debug)]
pub(crate) struct Children {
    living: Mutex<BTreeMap<i32, Arc<Child>>>,
    /// The session ends: no program can be started.
    closed: AtomicBool,
    log: ProcessLog,
    /// Prefix of all markers: the session directory.
    marker: String,
    next: AtomicU64,
    /// Limit of open files for the children. The shell itself has a higher limit.
    files: libc::rlimit,
}

/// One started program.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: Pid,
    marker: String,
    /// Its name, if it is a server.
    server: Option<String>,
    state: Mutex<ChildState>,
    ended: EventFd,
}

#[derive(Debug, Default)]
struct ChildState {
    exit: Option<ChildExit>,
    /// The controller knows of the start.
    announced: bool,
    /// The controller has sent `stop`, or the program never ran.
    expected: bool,
}

/// End of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChildExit {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
}

/// Reason why a program does not run.
#[derive(Debug)]
pub(crate) enum StartError {
    /// The program does not exist or cannot be executed. The exit code is the same as with `sh`.
    Program {
        exit_code: i32,
        failure: ShellFailure,
    },
    /// All other reasons.
    Failed(ShellFailure),
}

impl Children {
    /// Creates it without children. The children get the limit `files` of open files.
    pub(crate) fn new(log: ProcessLog, marker: String, files: libc::rlimit) -> Self {
        Self {
            living: Mutex::default(),
            closed: AtomicBool::new(false),
            log,
            marker,
            next: AtomicU64::new(0),
            files,
        }
    }

    /// Starts a program; `server` is the name of a server.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub(crate) fn start(
        &self,
        argv: &[String],
        environment: &BTreeMap<String, String>,
        directory: &Path,
        streams: StandardStreams,
        server: Option<&str>,
    ) -> Result<Arc<Child>, StartError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let marker = format!("{}#{number}", self.marker);
        let image = Image::new(argv, environment, directory, &marker)?;
        let ended = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|error| system("cannot start a program", error.into()))?;
        let (held, child) = {
            // Locked, so that the reaper finds each child that it reaps.
            let mut living = self.lock();
            if self.closed.load(Ordering::Relaxed) {
                return Err(StartError::Failed(ShellFailure {
                    kind: FailureKind::Other,
                    message: "cannot start a program: the session ends".into(),
                }));
            }
            let held = image
                .fork(&streams, &self.files)
                .map_err(|error| system("cannot start a program", error))?;
            let child = Arc::new(Child {
                pid: held.pid,
                marker,
                server: server.map(str::to_owned),
                state: Mutex::default(),
                ended,
            });
            living.insert(held.pid.as_raw(), Arc::clone(&child));
            (held, child)
        };
        drop(streams);
        self.log.add(child.pid.as_raw());
        held.release().map_err(|error| {
            child.state().expected = true;
            match error {
                ExecError::Directory(error) => {
                    let action = format!("{}: cannot use the directory", directory.display());
                    system(&action, error)
                }
                ExecError::Program(error) => StartError::from_exec(&argv[0], error),
            }
        })?;
        Ok(child)
    }

    /// Rejects all later starts.
    pub(crate) fn close(&self) {
        // Locked, so that no child is being forked at the same time.
        let _living = self.lock();
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Reaps all exited children. Returns servers that ended without `stop`.
    pub(crate) fn reap(&self) -> Vec<(String, ChildExit)> {
        let mut ended = Vec::new();
        while let Some(pid) = reap::any_ended() {
            let mut living = self.lock();
            let Some(child) = living.remove(&pid.as_raw()) else {
                // An adopted descendant.
                if !reap::forget(pid) {
                    break;
                }
                continue;
            };
            let exit = reap::reap(pid).map_or(
                ChildExit {
                    code: None,
                    signal: None,
                },
                |exit| ChildExit {
                    code: exit.code,
                    signal: exit.signal,
                },
            );
            drop(living);
            ended.extend(child.end(exit));
        }
        ended
    }

    /// Returns all running processes of a child: its descendants, its process group, and processes
    /// with its marker.
    fn members(&self, child: &Child) -> Vec<ProcessEntry> {
        let all = processes::all();
        let ours = processes::descendants(std::process::id().cast_signed(), &all);
        let leader = child.pid.as_raw();
        // A new child can have the PID of a reaped child.
        let is_reaped = child.exit().is_some();
        let is_reused = is_reaped && self.lock().contains_key(&leader);
        let below: Vec<i32> = if is_reaped {
            Vec::new()
        } else {
            processes::descendants(leader, &all)
                .iter()
                .map(|process| process.pid)
                .collect()
        };
        let mut members = ours;
        members.retain(|process| {
            !process.zombie
                && (process.pid == leader && !is_reaped
                    || process.group == leader && !is_reused
                    || below.contains(&process.pid)
                    || processes::marker_of(process.pid).as_ref() == Some(&child.marker))
        });
        members
    }

    /// Returns whether processes of a child run.
    pub(crate) fn has_members(&self, child: &Child) -> bool {
        !self.members(child).is_empty()
    }

    /// Sends a signal to all processes of a child, waits for their end, and kills them after `grace`.
    ///
    /// # Errors
    /// If killed processes do not end.
    pub(crate) fn stop(
        &self,
        child: &Child,
        signal: Signal,
        grace: Duration,
    ) -> Result<ChildExit, ShellFailure> {
        child.state().expected = true;
        let start = Instant::now();
        let mut signalled = Vec::new();
        let mut pause = PAUSE;
        loop {
            let members = self.members(child);
            let is_late = start.elapsed() >= grace;
            for process in &members {
                let identity = (process.pid, process.start_ticks);
                if is_late {
                    processes::send(process, Signal::SIGKILL);
                } else if !signalled.contains(&identity) {
                    processes::send(process, signal);
                    signalled.push(identity);
                }
            }
            if members.is_empty()
                && let Some(exit) = child.exit()
            {
                return Ok(exit);
            }
            if start.elapsed() >= grace + KILL_LIMIT {
                let mut message = String::from("killed processes do not end:");
                for process in &members {
                    let _ = write!(message, " {}", process.pid);
                }
                return Err(ShellFailure {
                    kind: FailureKind::Timeout,
                    message,
                });
            }
            child.wait(pause.min(until_late(start, grace)));
            pause = (2 * pause).min(MAX_PAUSE);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i32, Arc<Child>>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Child {
    /// Returns its end; none while it runs.
    pub(crate) fn exit(&self) -> Option<ChildExit> {
        self.state().exit
    }

    /// Returns a descriptor that is readable after its end.
    pub(crate) fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Waits for its end, for at most `limit`. After its end, this is a pause in the wait for other
    /// processes.
    fn wait(&self, limit: Duration) {
        if self.exit().is_some() {
            std::thread::sleep(limit);
            return;
        }
        let mut watched = [PollFd::new(self.ended(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::ZERO);
        let _ = nix::poll::poll(&mut watched, timeout);
    }

    /// Records that the controller has got the reply to `start`. Returns the end, if it came
    /// earlier.
    pub(crate) fn announce(&self) -> Option<ChildExit> {
        let mut state = self.state();
        state.announced = true;
        state.exit.filter(|_| !state.expected)
    }

    /// Records its end. Returns name and end of a server if the controller must be informed now.
    fn end(&self, exit: ChildExit) -> Option<(String, ChildExit)> {
        let mut state = self.state();
        state.exit = Some(exit);
        let is_news = state.announced && !state.expected;
        drop(state);
        let _ = self.ended.write(1);
        self.server
            .clone()
            .filter(|_| is_news)
            .map(|name| (name, exit))
    }

    fn state(&self) -> MutexGuard<'_, ChildState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StartError {
    fn from_exec(program: &str, error: std::io::Error) -> Self {
        let exit_code = if error.kind() == std::io::ErrorKind::NotFound {
            127
        } else {
            126
        };
        Self::Program {
            exit_code,
            failure: ShellFailure::system(&format!("{program}: cannot run the program"), &error),
        }
    }
}

impl From<ImageError> for StartError {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Missing(message) => Self::Program {
                exit_code: 127,
                failure: ShellFailure {
                    kind: FailureKind::NotFound,
                    message,
                },
            },
            ImageError::Invalid(message) => Self::Failed(ShellFailure::invalid(message)),
        }
    }
}

/// Returns the time until the end of the grace period; after it, no limit.
fn until_late(start: Instant, grace: Duration) -> Duration {
    grace
        .checked_sub(start.elapsed())
        .filter(|left| !left.is_zero())
        .unwrap_or(Duration::MAX)
}

fn system(action: &str, error: std::io::Error) -> StartError {
    StartError::Failed(ShellFailure::system(action, &error))
}
