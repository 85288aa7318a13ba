//! Execution of operations on files of this machine, for the shell of a host and for an agent's own storages.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use venturi_plan::{
    CheckOperation, CheckOutcome, ClearOutcome, DatasetFiles, FileOperation, OperationOutcome,
    OperationResult, PrepareOutcome, ReceiverState, RemoveOperation, RemoveOutcome, Seconds,
};

use crate::activity::ActivityMonitor;
use crate::clock::{NS_PER_S, monotonic_ns};
use crate::directories;
use crate::findings;
use crate::prepare::{Files, take_turn};
use crate::receiver;

/// Interval between checks whether a preparation makes progress.
const STALL_CHECK: Duration = Duration::from_millis(200);

/// Executes operations of one process, for any number of threads.
#[derive(Debug)]
pub(crate) struct Operations {
    stop: Arc<AtomicBool>,
}

impl Operations {
    /// Creates operations that end when `stop` becomes true.
    pub(crate) fn new(stop: Arc<AtomicBool>) -> Self {
        Self { stop }
    }

    /// Execute an operation on files of this machine. It can take hours: call it on a separate thread.
    pub(crate) fn execute(&self, operation: &FileOperation) -> OperationResult {
        if let Err(error) = check_paths(operation) {
            return OperationResult::Error(error);
        }
        OperationResult::Outcome(match operation {
            FileOperation::Prepare(prepare) => {
                let cache = prepare.cache;
                // The working thread does not take the turn, because it would keep it after a
                // stall.
                let _turn = take_turn();
                self.execute_preparation(&prepare.files, prepare.stall_timeout_s, move |files| {
                    files.prepare(cache, &|_| ())
                })
            }
            FileOperation::DropCaches(drop) => {
                self.execute_preparation(&drop.files, drop.stall_timeout_s, Files::drop_caches)
            }
            FileOperation::Clear(clear) => match receiver::clear_destination(clear) {
                Ok(removal) => OperationOutcome::Cleared(ClearOutcome {
                    removal,
                    siblings: receiver::siblings(Path::new(&clear.path)),
                }),
                Err(error) => return OperationResult::Error(error),
            },
            FileOperation::Check(operation) => OperationOutcome::Checked(check(operation)),
            FileOperation::Remove(operation) => OperationOutcome::Removed(remove(operation)),
            FileOperation::Link(link) => match directories::link(link) {
                Ok(outcome) => OperationOutcome::Linked(outcome),
                Err(error) => return OperationResult::Error(error),
            },
        })
    }

    /// Run a preparation on a separate thread. Return without it if its file system makes no progress: such a thread
    /// cannot be ended.
    fn execute_preparation(
        &self,
        files: &DatasetFiles,
        stall_timeout_s: Seconds,
        work: impl FnOnce(&Files) -> PrepareOutcome + Send + 'static,
    ) -> OperationOutcome {
        let activity = Arc::new(ActivityMonitor::new(Arc::clone(&self.stop)));
        let own = Files::new(files, &activity);
        let (sender, receiver) = mpsc::channel();
        let started = std::thread::Builder::new()
            .name("prepare".into())
            .spawn(move || {
                // After a stall, no thread receives the outcome.
                let _ = sender.send(work(&own));
            });
        let failed = |finding| {
            OperationOutcome::Prepared(PrepareOutcome {
                findings: vec![finding],
                failed: true,
                ..PrepareOutcome::default()
            })
        };
        if let Err(error) = started {
            let error = format!("cannot start a thread: {error}; raise the limit with `ulimit -u`");
            return failed(findings::prepare_failed(&files.dataset, &error));
        }
        loop {
            match receiver.recv_timeout(STALL_CHECK) {
                Ok(outcome) => return OperationOutcome::Prepared(outcome),
                Err(RecvTimeoutError::Disconnected) => {
                    let error = "the preparation panicked; see the messages on stderr";
                    return failed(findings::prepare_failed(&files.dataset, error));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let idle_s =
                        monotonic_ns().saturating_sub(activity.last_ns()) as f64 / NS_PER_S as f64;
                    if idle_s > stall_timeout_s.get() {
                        let finding =
                            findings::prepare_stalled(&files.dataset, stall_timeout_s.get());
                        return failed(finding);
                    }
                }
            }
        }
    }
}

/// Checks that paths are absolute. Operations of other hosts arrive as text, and a relative path
/// would depend on the directory of this process.
fn check_paths(operation: &FileOperation) -> Result<(), String> {
    let paths: Vec<&String> = match operation {
        FileOperation::Prepare(prepare) => vec![&prepare.files.directory],
        FileOperation::DropCaches(drop) => vec![&drop.files.directory],
        FileOperation::Clear(clear) => vec![&clear.path],
        FileOperation::Check(check) => check.destinations.iter().map(|it| &it.path).collect(),
        FileOperation::Remove(remove) => remove.destinations.iter().map(|it| &it.path).collect(),
        FileOperation::Link(link) => link.source.iter().chain([&link.directory]).collect(),
    };
    match paths
        .into_iter()
        .find(|path| !Path::new(path).is_absolute())
    {
        None => Ok(()),
        Some(path) => Err(format!(
            "expected an absolute path in an operation, found `{path}`; report this bug"
        )),
    }
}

/// Check destinations. All of them share the time for late servers.
pub(crate) fn check(operation: &CheckOperation) -> CheckOutcome {
    let grace = Duration::try_from_secs_f64(operation.grace_s.get()).unwrap_or_default();
    let end = Instant::now() + grace;
    let destinations = operation.destinations.iter();
    CheckOutcome {
        destinations: destinations
            .map(|destination| match receiver::check(destination, end) {
                Ok(received) => ReceiverState::Received(received),
                Err(error) => ReceiverState::Error(error.to_string()),
            })
            .collect(),
    }
}

/// Remove destinations.
pub(crate) fn remove(operation: &RemoveOperation) -> RemoveOutcome {
    let destinations = operation.destinations.iter();
    RemoveOutcome {
        errors: destinations
            .map(|destination| {
                let error = receiver::remove_destination(destination).err();
                directories::remove_empty(Path::new(&destination.path));
                error
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests;
