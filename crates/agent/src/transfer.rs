//! One transfer from the barrier on: release, end and record. For its preparation, see `launch.rs`.

use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use venturi_plan::{
    Bytes, Call, CheckedBy, CheckedDestination, Finding, Name, Outcome, ReceiverState, Removal,
    RemovedDestination, Seconds, TransferRecord, TrialRef,
};

use crate::barrier::{self, Released};
use crate::capture::{Capture, LARGE_BYTES};
use crate::clock::RunClock;
use crate::error_tail::error_tail;
use crate::findings;
use crate::reap::Exit;
use crate::receiver::ReceiverDestination;
use crate::storages::Location;

/// A transfer at the barrier, or in its last step before it.
#[derive(Debug)]
pub(crate) struct ReadyTransfer {
    pub(crate) entry: TransferEntry,
    pub(crate) child: barrier::Armed,
    capture: Capture,
    capture_kept: bool,
    timeout_s: f64,
}

/// A running transfer.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) entry: TransferEntry,
    pub(crate) released: Released,
    /// Time at which the agent ends it, on the monotonic clock.
    pub(crate) deadline_ns: u64,
    /// The last signal that the agent has sent, and its reason.
    pub(crate) ended_by: Option<(Signal, Outcome)>,
    capture: Capture,
    capture_kept: bool,
    timeout_s: f64,
}

/// Known part of the record of a transfer.
#[derive(Debug)]
pub(crate) struct TransferEntry {
    pub(crate) trial: Option<TrialRef>,
    pub(crate) record: TransferRecord,
    pub(crate) destination: Option<ReceiverDestination>,
    /// The list of its files, and directories of links to them.
    pub(crate) made: Vec<Location>,
    pub(crate) findings: Vec<Finding>,
}

/// Return outcome and message of a failed `execve`: a file that does not exist or is not executable
/// is a missing tool; other errors are failures.
pub(crate) fn exec_failure(program: &Path, error: Errno) -> (Outcome, String) {
    let outcome = if matches!(error, Errno::ENOENT | Errno::EACCES) {
        Outcome::Missing
    } else {
        Outcome::Failed
    };
    let hint = match error {
        Errno::ENOENT => "; the file exists, but its interpreter or loader is missing",
        Errno::ENOEXEC => "; add the first line `#!/path/of/interpreter` to a script",
        Errno::EAGAIN => "; too many processes: raise the limit with `ulimit -u`",
        _ => "",
    };
    (
        outcome,
        format!(
            "cannot execute `{}`: {}{hint}",
            program.display(),
            error.desc()
        ),
    )
}

impl ReadyTransfer {
    /// Creates the transfer of a tool in its last step before the barrier; its output goes to
    /// `capture`.
    pub(crate) fn new(
        entry: TransferEntry,
        call: &Call,
        child: barrier::Armed,
        capture: Capture,
    ) -> Self {
        Self {
            entry,
            child,
            capture,
            capture_kept: call.capture,
            timeout_s: call.timeout_s.get(),
        }
    }

    /// Wait until the tool is at the barrier. If it has ended instead, this is a result, as in
    /// [`TransferLaunch::arm`](crate::launch::TransferLaunch::arm).
    pub(crate) fn stand(mut self) -> Result<Self, Box<TransferEntry>> {
        let Err(error) = self.child.stand() else {
            return Ok(self);
        };
        let record = &mut self.entry.record;
        let (outcome, error) = exec_failure(Path::new(&*record.call), error);
        record.outcome = outcome;
        record.error = Some(error);
        Err(Box::new(self.entry))
    }

    /// Releases it. Nothing else happens here, because other transfers are released at the same
    /// time.
    pub(crate) fn release(self) -> Running {
        let released = self.child.release();
        Running {
            entry: self.entry,
            deadline_ns: released
                .start_ns
                .saturating_add(nanoseconds(self.timeout_s)),
            released,
            ended_by: None,
            capture: self.capture,
            capture_kept: self.capture_kept,
            timeout_s: self.timeout_s,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float-to-integer cast saturates at both limits"
)]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

impl Running {
    /// Returns the leader of its process group.
    pub(crate) fn pid(&self) -> Pid {
        self.released.pid
    }

    /// Ends the whole process group, and records the reason. A group that has just ended is no
    /// error.
    pub(crate) fn end(&mut self, signal: Signal, reason: Outcome) {
        self.ended_by = Some((signal, reason));
        let _ = killpg(self.released.pid, signal);
    }

    /// Records its end.
    pub(crate) fn finish(mut self, end_ns: u64, exit: &Exit, clock: &RunClock) -> TransferEntry {
        write_account(&mut self.entry.record, exit);
        let (outcome, error) = self.check_result(exit);
        self.write_down(end_ns, clock, outcome, error)
    }

    /// Records that it has not ended, even after SIGKILL.
    pub(crate) fn abort(self, now_ns: u64, clock: &RunClock) -> TransferEntry {
        let error = format!(
            "timeout after {} s, and the process did not exit when killed; it waits for a file system or \
             device that does not respond",
            self.timeout_s
        );
        self.write_down(now_ns, clock, Outcome::Timeout, Some(error))
    }

    fn write_down(
        mut self,
        end_ns: u64,
        clock: &RunClock,
        outcome: Outcome,
        error: Option<String>,
    ) -> TransferEntry {
        let (start_ns, record) = (self.released.start_ns, &mut self.entry.record);
        record.start_s = Some(Seconds::new(clock.seconds_at(start_ns)));
        record.end_s = Some(Seconds::new(clock.seconds_at(end_ns)));
        record.duration_s = Some(Seconds::new(end_ns.saturating_sub(start_ns) as f64 * 1e-9));
        record.outcome = outcome;
        record.error = error;
        if self.capture_kept || outcome != Outcome::Ok {
            record.stdout = Some(self.capture.stdout());
            record.stderr = Some(self.capture.stderr());
        }
        let max_bytes = self.capture.max_bytes();
        if max_bytes > LARGE_BYTES {
            let call = self.entry.record.call.clone();
            self.entry
                .findings
                .push(findings::large_output(&call, max_bytes));
        }
        self.entry
    }

    fn check_result(&self, exit: &Exit) -> (Outcome, Option<String>) {
        if let Some(error) = self.released.exec_failure() {
            let (outcome, text) = exec_failure(Path::new(&*self.entry.record.call), error);
            return (outcome, Some(text));
        }
        let reason = self.ended_by.map(|(_, reason)| reason);
        match (reason, exit.code, exit.signal) {
            (Some(Outcome::Timeout), ..) => (
                Outcome::Timeout,
                Some(format!(
                    "timeout after {} s; the agent ended the process",
                    self.timeout_s
                )),
            ),
            (Some(reason), ..) => (reason, Some("the run was stopped".into())),
            (None, Some(0), _) => (Outcome::Ok, None),
            (None, Some(code), _) => {
                let output = error_tail(&self.capture.stderr());
                let output = output.as_deref().unwrap_or("it printed no error");
                (Outcome::Failed, Some(format!("exit code {code}: {output}")))
            }
            (None, None, signal) => {
                let name = signal
                    .and_then(|signal| Signal::try_from(signal).ok())
                    .map_or("an unknown signal", Signal::as_str);
                (
                    Outcome::Killed,
                    Some(format!("ended by {name}, which the agent had not sent")),
                )
            }
        }
    }
}

fn write_account(record: &mut TransferRecord, exit: &Exit) {
    let usage = &exit.usage;
    record.exit_code = exit.code;
    record.signal = exit.signal;
    record.user_s = Some(Seconds::new(usage.user_s));
    record.system_s = Some(Seconds::new(usage.system_s));
    record.max_rss_bytes = Some(Bytes::new(usage.max_rss_bytes));
    record.minor_faults = Some(usage.minor_faults);
    record.major_faults = Some(usage.major_faults);
    record.voluntary_switches = Some(usage.voluntary_switches);
    record.involuntary_switches = Some(usage.involuntary_switches);
    record.read_call_bytes = exit.io.map(|io| Bytes::new(io.read_call_bytes));
    record.write_call_bytes = exit.io.map(|io| Bytes::new(io.write_call_bytes));
    record.read_disk_bytes = exit.io.map(|io| Bytes::new(io.read_disk_bytes));
    record.write_disk_bytes = exit.io.map(|io| Bytes::new(io.write_disk_bytes));
}

impl TransferEntry {
    /// Return the destination to check; none if the receiver does not verify the transfer.
    pub(crate) fn checked_destination(&self) -> Option<(Option<Name>, CheckedDestination)> {
        let destination = self
            .destination
            .as_ref()
            .filter(|destination| destination.proves)?;
        let checked = CheckedDestination {
            path: destination.location.path.to_str()?.to_owned(),
            files: destination.files.clone(),
            requested_bytes: self.record.requested_bytes,
            late: destination.served && self.record.outcome == Outcome::Ok,
            checksum: destination.checksum.clone(),
        };
        Some((destination.location.host.clone(), checked))
    }

    /// Derive the result from the state of the receiver.
    pub(crate) fn take_state(&mut self, path: &str, state: ReceiverState) {
        let requested_bytes = self.record.requested_bytes.get();
        let received = match state {
            ReceiverState::Received(received) => received,
            ReceiverState::Error(error) => {
                self.findings
                    .push(findings::receiver_unreadable(path, &error));
                return;
            }
        };
        self.record.received_bytes = Some(received.bytes);
        self.record.checksum = received.checksum;
        let on_server = self
            .destination
            .as_ref()
            .is_some_and(|destination| destination.location.is_url());
        self.record.checked_by = Some(if on_server {
            CheckedBy::Server
        } else {
            CheckedBy::Agent
        });
        if let (Some(lacking), Outcome::Ok) = (received.lacking, self.record.outcome) {
            self.record.outcome = Outcome::Short;
            self.record.error = Some(lacking);
        }
        if let (Some(differs), Outcome::Ok) = (received.differs, self.record.outcome) {
            self.record.outcome = Outcome::Failed;
            self.record.error = Some(differs);
        }
        if received.more {
            self.findings.push(findings::receiver_has_more(
                path,
                requested_bytes,
                received.bytes.get(),
            ));
        }
        if let Some(late) = received.late {
            self.findings
                .push(findings::receiver_late(path, requested_bytes, late));
        }
    }

    /// Return the destination to remove, if operations on it are possible.
    pub(crate) fn removed_destination(&self) -> Option<(Option<Name>, RemovedDestination)> {
        let kept = |it: &&ReceiverDestination| it.removal == Removal::Keep;
        let destination = self.destination.as_ref().filter(|it| !kept(it))?;
        let removed = RemovedDestination {
            path: destination.location.path.to_str()?.to_owned(),
            files: destination.files.clone(),
            removal: destination.removal,
            failed: self.record.outcome != Outcome::Ok,
        };
        Some((destination.location.host.clone(), removed))
    }
}
