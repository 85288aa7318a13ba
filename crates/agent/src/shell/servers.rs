//! Servers by name: `start` and `stop`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::children::{Child, ChildExit, Children, StartError};
use super::failure::{FailureKind, ShellFailure, at_path};
use super::files::{absolute, make_parents};
use super::protocol::{ShellResult, StartCommand, StopCommand};
use super::run_command::working_directory;
use super::spawn::StandardStreams;

/// Longest `grace_s`: one hour.
pub(crate) const MAX_GRACE_S: f64 = 3600.0;

/// All servers that were started and not stopped.
#[derive(Debug, Default)]
pub(crate) struct ServerTable {
    by_name: Mutex<BTreeMap<String, Slot>>,
}

#[derive(Debug, Clone)]
enum Slot {
    Starting,
    Started(Arc<Child>),
}

impl ServerTable {
    /// Starts a server.
    ///
    /// # Errors
    /// `exists` if a server with this name runs.
    pub(crate) fn start(
        &self,
        children: &Children,
        session: &Path,
        command: &StartCommand,
    ) -> Result<ShellResult, ShellFailure> {
        self.reserve(children, &command.process)?;
        let started = start(children, session, command);
        let mut by_name = self.lock();
        match started {
            Ok(child) => {
                let pid = child.pid.as_raw();
                by_name.insert(command.process.clone(), Slot::Started(child));
                Ok(ShellResult::Start { pid })
            }
            Err(failure) => {
                by_name.remove(&command.process);
                Err(failure)
            }
        }
    }

    fn reserve(&self, children: &Children, name: &str) -> Result<(), ShellFailure> {
        let mut by_name = self.lock();
        match by_name.entry(name.to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert(Slot::Starting);
                Ok(())
            }
            Entry::Occupied(mut entry) => match entry.get() {
                Slot::Started(child) if child.exit().is_some() && !children.has_members(child) => {
                    entry.insert(Slot::Starting);
                    Ok(())
                }
                _ => Err(ShellFailure {
                    kind: FailureKind::Exists,
                    message: format!(
                        "`process`: a server `{name}` or a process that it started runs already. Stop it, or use another name."
                    ),
                }),
            },
        }
    }

    /// Records that the controller has got the reply to `start`. Returns the end of the server if
    /// it came earlier.
    pub(crate) fn announce(&self, name: &str) -> Option<ChildExit> {
        let slot = self.lock().get(name).cloned();
        match slot {
            Some(Slot::Started(child)) => child.announce(),
            _ => None,
        }
    }

    /// Stops a server and all its descendants.
    ///
    /// # Errors
    /// `not_found` if no server has this name; `timeout` if killed processes do not end.
    pub(crate) fn stop(
        &self,
        children: &Children,
        command: &StopCommand,
    ) -> Result<ShellResult, ShellFailure> {
        let grace = grace(command)?;
        let signal = Signal::try_from(command.signal).map_err(|_| {
            ShellFailure::invalid(format!(
                "`signal`: expected the number of a signal, found {}",
                command.signal
            ))
        })?;
        let slot = self.lock().get(&command.process).cloned();
        let Some(Slot::Started(child)) = slot else {
            return Err(ShellFailure {
                kind: FailureKind::NotFound,
                message: format!("`process`: no server `{}` was started", command.process),
            });
        };
        let exit = children.stop(&child, signal, grace)?;
        let mut by_name = self.lock();
        if let Entry::Occupied(entry) = by_name.entry(command.process.clone())
            && matches!(entry.get(), Slot::Started(found) if Arc::ptr_eq(found, &child))
        {
            entry.remove();
        }
        Ok(ShellResult::Stop {
            exit_code: exit.code,
            signal: exit.signal,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn grace(command: &StopCommand) -> Result<Duration, ShellFailure> {
    if (0.0..=MAX_GRACE_S).contains(&command.grace_s) {
        return Ok(Duration::from_secs_f64(command.grace_s));
    }
    Err(ShellFailure::invalid(format!(
        "`grace_s`: expected seconds from 0 to {MAX_GRACE_S}, found {}",
        command.grace_s
    )))
}

fn start(
    children: &Children,
    session: &Path,
    command: &StartCommand,
) -> Result<Arc<Child>, ShellFailure> {
    let directory = working_directory(command.directory.as_deref(), session)?;
    let log = absolute(&command.log)?;
    make_parents(&log)?;
    let open = || -> io::Result<StandardStreams> {
        let output = File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&log)?;
        Ok(StandardStreams {
            stdin: File::open("/dev/null")?.into(),
            stderr: OwnedFd::from(output.try_clone()?),
            stdout: output.into(),
        })
    };
    let streams = open().map_err(at_path("open the log", &log))?;
    children
        .start(
            &command.argv,
            &command.environment,
            &directory,
            streams,
            Some(&command.process),
        )
        .map_err(|error| match error {
            StartError::Program { failure, .. } | StartError::Failed(failure) => failure,
        })
}
