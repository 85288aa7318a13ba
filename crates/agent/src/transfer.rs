//! One call of a mover from the starting line on: let go, ended, written down. How it gets there: `order.rs`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use venturi_plan::{Bytes, Call, Finding, Outcome, Seconds, TransferRecord, TrialRef};

use crate::barrier::{self, Released};
use crate::capture::{Capture, LARGE_BYTES};
use crate::clock::RunClock;
use crate::findings;
use crate::last_words::last_words;
use crate::list;
use crate::reap::Exit;
use crate::receiver::Destination;

/// A transfer at the starting line, or on its last step to it.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) entry: Entry,
    pub(crate) child: barrier::Armed,
    capture: Capture,
    capture_kept: bool,
    timeout_s: f64,
}

/// A transfer on its way.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) entry: Entry,
    pub(crate) released: Released,
    /// When it will be ended by us, on the monotonic clock.
    pub(crate) deadline_ns: u64,
    /// With which signal we have ended it last, and why.
    pub(crate) ended_by: Option<(Signal, Outcome)>,
    capture: Capture,
    capture_kept: bool,
    timeout_s: f64,
}

/// What is to be written down of a transfer, as far as it is known.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) trial: Option<TrialRef>,
    pub(crate) record: TransferRecord,
    pub(crate) destination: Option<Destination>,
    /// The list of its files, and folders of links to them.
    pub(crate) made: Vec<PathBuf>,
    pub(crate) findings: Vec<Finding>,
}

/// By `execve`, a file that is not there or not executable is a missing tool; all else is a failure.
pub(crate) fn exec_failure(program: &Path, error: Errno) -> (Outcome, String) {
    let outcome = if matches!(error, Errno::ENOENT | Errno::EACCES) {
        Outcome::Missing
    } else {
        Outcome::Failed
    };
    let hint = match error {
        Errno::ENOENT => "; the file is there, so its interpreter or loader is not",
        Errno::ENOEXEC => "; a script needs a first line `#!/path/of/interpreter`",
        Errno::EAGAIN => "; too many processes: see `ulimit -u`",
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

impl Ready {
    /// A tool on its way to the line, whose output goes to `capture`.
    pub(crate) fn new(entry: Entry, call: &Call, child: barrier::Armed, capture: Capture) -> Self {
        Self {
            entry,
            child,
            capture,
            capture_kept: call.capture,
            timeout_s: call.timeout_s.get(),
        }
    }

    /// Waits until the tool stands at the line. One that has ended instead is a result, as in [`Order::arm`].
    pub(crate) fn stand(mut self) -> Result<Self, Box<Entry>> {
        let Err(error) = self.child.stand() else {
            return Ok(self);
        };
        let record = &mut self.entry.record;
        let (outcome, error) = exec_failure(Path::new(&*record.call), error);
        record.outcome = outcome;
        record.error = Some(error);
        Err(Box::new(self.entry))
    }

    /// Lets it go. Nothing but the release is done here: with its neighbours it shares one moment.
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
    reason = "a float-to-integer cast saturates at both ends"
)]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

impl Running {
    /// The leader of its process group.
    pub(crate) fn pid(&self) -> Pid {
        self.released.pid
    }

    /// Ends the whole process group, and remembers why. A group that has just gone is no error.
    pub(crate) fn end(&mut self, signal: Signal, reason: Outcome) {
        self.ended_by = Some((signal, reason));
        let _ = killpg(self.released.pid, signal);
    }

    /// Writes down how it ended.
    pub(crate) fn finish(mut self, end_ns: u64, exit: &Exit, clock: &RunClock) -> Entry {
        write_account(&mut self.entry.record, exit);
        let (outcome, error) = self.judge(exit);
        self.write_down(end_ns, clock, outcome, error)
    }

    /// Writes down that it has not ended, not even when it was killed.
    pub(crate) fn give_up(self, now_ns: u64, clock: &RunClock) -> Entry {
        let error = format!(
            "did not end within its {} s, nor when it was killed: it waits for a file system or device that does not answer",
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
    ) -> Entry {
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
        let longest = self.capture.longest_bytes();
        if longest > LARGE_BYTES {
            let call = self.entry.record.call.clone();
            self.entry
                .findings
                .push(findings::large_output(&call, longest));
        }
        self.entry
    }

    fn judge(&self, exit: &Exit) -> (Outcome, Option<String>) {
        if let Some(error) = self.released.exec_failure() {
            let (outcome, text) = exec_failure(Path::new(&*self.entry.record.call), error);
            return (outcome, Some(text));
        }
        let reason = self.ended_by.map(|(_, reason)| reason);
        match (reason, exit.code, exit.signal) {
            (Some(Outcome::Timeout), ..) => (
                Outcome::Timeout,
                Some(format!(
                    "did not end within its {} s and was ended",
                    self.timeout_s
                )),
            ),
            (Some(reason), ..) => (reason, Some("the run was stopped".into())),
            (None, Some(0), _) => (Outcome::Ok, None),
            (None, Some(code), _) => {
                let said = last_words(&self.capture.stderr());
                let said = said.as_deref().unwrap_or("it printed no error");
                (Outcome::Failed, Some(format!("exit code {code}: {said}")))
            }
            (None, None, signal) => {
                let name = signal
                    .and_then(|signal| Signal::try_from(signal).ok())
                    .map_or("an unknown signal", Signal::as_str);
                (
                    Outcome::Killed,
                    Some(format!("ended by {name}, which the agent did not send")),
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

impl Entry {
    /// Looks at what the receiver holds, and judges by it. What a server is late with is waited for up to `end`.
    pub(crate) fn check_receiver(&mut self, end: Instant) {
        let Some(destination) = self
            .destination
            .as_ref()
            .filter(|destination| destination.proves)
        else {
            return;
        };
        let asked = self.record.asked_bytes.get();
        let looked = if destination.served && self.record.outcome == Outcome::Ok {
            destination.look_until(asked, end)
        } else {
            destination.look(asked).map(|held| (held, None))
        };
        let (held, late) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                self.findings
                    .push(findings::receiver_unreadable(&destination.path, &error));
                return;
            }
        };
        self.record.received_bytes = Some(Bytes::new(held.bytes));
        if let (Some(lacking), Outcome::Ok) = (held.lacking, self.record.outcome) {
            self.record.outcome = Outcome::Short;
            self.record.error = Some(lacking);
        }
        let path = &destination.path;
        if held.more {
            self.findings
                .push(findings::receiver_holds_more(path, asked, held.bytes));
        }
        if let Some(late) = late {
            let (first, waited) = (late.first_bytes, late.waited);
            self.findings
                .push(findings::receiver_late(path, asked, first, waited));
        }
    }

    /// Removes the destination, unless the plan keeps it, and what was made for the tool.
    pub(crate) fn clear_away(&mut self) {
        self.made.iter().for_each(|path| list::remove(path));
        let Some(destination) = &self.destination else {
            return;
        };
        if let Err(reason) = destination.clear() {
            self.findings.push(findings::destination_not_removed(
                &destination.path,
                &reason,
            ));
        }
    }
}
