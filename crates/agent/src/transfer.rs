//! One call of a mover: made ready, let go, ended, written down.

use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use venturi_plan::{
    Bytes, Call, Expect, Finding, Name, Outcome, Seconds, Transfer, TransferRecord, TrialRef,
    Values,
};

use crate::barrier::{self, Barrier, Launch, Method, Released};
use crate::capture::{Capture, LARGE_BYTES};
use crate::clock::RunClock;
use crate::findings;
use crate::program::Environment;
use crate::reap::Exit;
use crate::receiver::{self, Destination, Places, Removal};

/// The longest error text in a record; the whole output stands beside it.
const ERROR_CHARS: usize = 300;

/// What arming needs to know of the host and the plan.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    pub(crate) places: Places<'a>,
    pub(crate) environment: &'a Environment,
}

/// A transfer as the plan wants it.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) trial: Option<TrialRef>,
    pub(crate) actor: Name,
    pub(crate) transfer: Transfer,
    pub(crate) intended: Option<Seconds>,
    /// A transfer of the same trial has written to this destination before.
    pub(crate) begun: bool,
}

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
    /// Why we have ended it.
    pub(crate) ended_by_us: Option<Outcome>,
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
    pub(crate) findings: Vec<Finding>,
}

impl Order {
    /// Sends the tool to the starting line. A transfer that cannot get there is a result too: its entry says why.
    pub(crate) fn arm(self, site: &Site<'_>, barrier: &mut Barrier) -> Result<Ready, Box<Entry>> {
        let mut entry = Entry {
            record: self.blank_record(),
            trial: self.trial.clone(),
            destination: None,
            findings: Vec::new(),
        };
        match self.try_arm(site, barrier, &mut entry) {
            Ok((child, capture)) => {
                let call = &site.places.header.calls[&self.transfer.call];
                Ok(Ready {
                    entry,
                    child,
                    capture,
                    capture_kept: call.capture,
                    timeout_s: call.timeout_s.get(),
                })
            }
            Err((outcome, error)) => {
                entry.record.outcome = outcome;
                entry.record.error = Some(error);
                Err(Box::new(entry))
            }
        }
    }

    fn try_arm(
        &self,
        site: &Site<'_>,
        barrier: &mut Barrier,
        entry: &mut Entry,
    ) -> Result<(barrier::Armed, Capture), (Outcome, String)> {
        let failed = |error: String| (Outcome::Failed, error);
        let call = site.places.header.calls.get(&self.transfer.call);
        let call = call.ok_or_else(|| {
            failed(format!(
                "expected a call `{}` in the plan, found none",
                self.transfer.call
            ))
        })?;
        let source = site.places.locate(&self.transfer.source);
        let destination = site.places.locate(&self.transfer.destination);
        let (Some(source), Some(destination)) = (source, destination) else {
            let (source, destination) = (&self.transfer.source, &self.transfer.destination);
            return Err(failed(format!(
                "expected places of the plan in `{source}` and `{destination}`"
            )));
        };
        let argv = self
            .argv(call, &source.path, &destination.path, site.places.scratch)
            .map_err(failed)?;
        let program = argv
            .first()
            .ok_or_else(|| failed(format!("call `{}` has no argument", self.transfer.call)))?;
        let program = site
            .environment
            .find(program)
            .map_err(|error| (Outcome::Missing, error))?;
        if destination.local {
            let removal =
                receiver::make_way(&destination, &source.path, self.transfer.keep, self.begun);
            let removal = removal.map_err(|error| {
                failed(format!(
                    "destination `{}`: {error}",
                    destination.path.display()
                ))
            })?;
            let proves = call.expect == Expect::Destination;
            entry.destination = Some(Destination {
                path: destination.path,
                proves,
                removal,
            });
        } else if call.expect == Expect::Destination && !self.transfer.destination.is_built_in() {
            entry.findings.push(findings::receiver_not_checked(
                self.transfer.destination.as_str(),
            ));
        }
        if barrier.method_for(&program) == Method::Pipe {
            entry
                .findings
                .push(findings::released_by_pipe(&program.path, barrier.method));
        }
        let capture = Capture::new()
            .map_err(|error| failed(format!("no memory file for the output: {error}")))?;
        let (stdout, stderr) = capture.streams();
        let environment = site.environment;
        let launch = Launch {
            program: &program,
            argv: &argv,
            environment,
            folder: site.places.scratch,
            stdout,
            stderr,
        };
        let child = barrier
            .arm(&launch)
            .map_err(|error| exec_failure(&program.path, error))?;
        Ok((child, capture))
    }

    fn argv(
        &self,
        call: &Call,
        source: &Path,
        destination: &Path,
        scratch: &Path,
    ) -> Result<Vec<String>, String> {
        let text = |path: &Path| {
            path.to_str()
                .map(str::to_owned)
                .ok_or_else(|| format!("`{}` is no UTF-8", path.display()))
        };
        let values = Values {
            source: &text(source)?,
            destination: &text(destination)?,
            bytes: self.transfer.bytes.get(),
            files: self.transfer.files,
            slot: self.transfer.slot,
            scratch: &text(scratch)?,
            offset_bytes: self.transfer.offset_bytes.map(Bytes::get),
        };
        call.argv(&values).map_err(|error| error.to_string())
    }

    fn blank_record(&self) -> TransferRecord {
        TransferRecord {
            trial: self.trial.as_ref().map(|trial| trial.trial),
            actor: self.actor.clone(),
            slot: self.transfer.slot,
            call: self.transfer.call.clone(),
            source: self.transfer.source.clone(),
            destination: self.transfer.destination.clone(),
            files: self.transfer.files,
            asked_bytes: self.transfer.bytes,
            received_bytes: None,
            intended_s: self.intended,
            start_s: None,
            end_s: None,
            duration_s: None,
            outcome: Outcome::Failed,
            exit_code: None,
            signal: None,
            error: None,
            user_s: None,
            system_s: None,
            max_rss_bytes: None,
            minor_faults: None,
            major_faults: None,
            voluntary_switches: None,
            involuntary_switches: None,
            read_call_bytes: None,
            write_call_bytes: None,
            read_disk_bytes: None,
            write_disk_bytes: None,
            stdout: None,
            stderr: None,
            labels: self.transfer.labels.clone(),
        }
    }
}

/// By `execve`, a file that is not there or not executable is a missing tool; all else is a failure.
fn exec_failure(program: &Path, error: Errno) -> (Outcome, String) {
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
            ended_by_us: None,
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
        self.ended_by_us = Some(reason);
        let _ = killpg(self.released.pid, signal);
    }

    /// Writes down how it ended.
    pub(crate) fn finish(mut self, end_ns: u64, exit: &Exit, clock: &RunClock) -> Entry {
        let (start_ns, record) = (self.released.start_ns, &mut self.entry.record);
        record.start_s = Some(Seconds::new(clock.seconds_at(start_ns)));
        record.end_s = Some(Seconds::new(clock.seconds_at(end_ns)));
        record.duration_s = Some(Seconds::new(end_ns.saturating_sub(start_ns) as f64 * 1e-9));
        write_account(record, exit);
        let (outcome, error) = self.judge(exit);
        let longest = self.capture.longest_bytes();
        if longest > LARGE_BYTES {
            let call = self.entry.record.call.clone();
            self.entry
                .findings
                .push(findings::large_output(&call, longest));
        }
        let record = &mut self.entry.record;
        record.outcome = outcome;
        record.error = error;
        if self.capture_kept || outcome != Outcome::Ok {
            record.stdout = Some(self.capture.stdout());
            record.stderr = Some(self.capture.stderr());
        }
        self.entry
    }

    fn judge(&self, exit: &Exit) -> (Outcome, Option<String>) {
        if let Some(error) = self.released.exec_failure() {
            let (outcome, text) = exec_failure(Path::new(&*self.entry.record.call), error);
            return (outcome, Some(text));
        }
        match (self.ended_by_us, exit.code, exit.signal) {
            (Some(Outcome::Timeout), ..) => (
                Outcome::Timeout,
                Some(format!(
                    "did not end within its {} s and was ended",
                    self.timeout_s
                )),
            ),
            (Some(reason), ..) => (reason, Some("the run was stopped".into())),
            (None, Some(0), _) => (Outcome::Ok, None),
            (None, Some(code), _) => (Outcome::Failed, Some(self.last_words(code))),
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

    fn last_words(&self, code: i32) -> String {
        let stderr = self.capture.stderr();
        let last = stderr
            .lines()
            .rev()
            .map(str::trim)
            .find(|line| !line.is_empty());
        let told: String = last
            .unwrap_or("it printed no error")
            .chars()
            .take(ERROR_CHARS)
            .collect();
        format!("exit code {code}: {told}")
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
    /// Looks at what the receiver holds, and judges by it.
    pub(crate) fn check_receiver(&mut self) {
        let Some(destination) = self
            .destination
            .as_ref()
            .filter(|destination| destination.proves)
        else {
            return;
        };
        let asked = self.record.asked_bytes.get();
        match receiver::held_bytes(&destination.path) {
            Err(error) => self
                .findings
                .push(findings::receiver_unreadable(&destination.path, &error)),
            Ok(held) => {
                self.record.received_bytes = Some(Bytes::new(held));
                if self.record.outcome == Outcome::Ok && held < asked {
                    self.record.outcome = Outcome::Short;
                    self.record.error = Some(format!(
                        "{asked} bytes were asked for, the receiver holds {held}"
                    ));
                } else if held > asked {
                    self.findings.push(findings::receiver_holds_more(
                        &destination.path,
                        asked,
                        held,
                    ));
                }
            }
        }
    }

    /// Removes the destination, unless the plan keeps it.
    pub(crate) fn remove_destination(&mut self) {
        let Some(destination) = &self.destination else {
            return;
        };
        let told = match destination.removal {
            Removal::Keep => return,
            Removal::Refused => {
                Some("it is the source, or a directory that was there before".to_owned())
            }
            Removal::Remove => receiver::remove(&destination.path)
                .err()
                .map(|error| error.to_string()),
        };
        self.findings.extend(
            told.map(|reason| findings::destination_not_removed(&destination.path, &reason)),
        );
    }
}
