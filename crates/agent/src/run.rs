//! One host's part of a plan in real time: does what the interpreter says, and tells it what happened.

mod instruments;
mod orders;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use venturi_plan::{
    ActorLine, Done, Event, Finding, Idle, Input, Interpreter, Name, Outcome, Output, Record,
    Seconds, Start, Task, Trial, TrialRef,
};

use crate::barrier::Barrier;
use crate::clock::{NS_PER_S, RunClock, monotonic_ns};
use crate::findings;
use crate::folders;
use crate::guardian::Guardian;
use crate::list::{self, Listed};
use crate::order::Order;
use crate::output::Sender;
use crate::prepare::Prepared;
use crate::program::Environment;
use crate::pulse::Pulse;
use crate::reap;
use crate::sampler::Sampler;
use crate::scratch::Claim;
use crate::sockets::Sockets;
use crate::transfer::{Entry, Ready, Running};
use crate::trial::{Account, OpenTrial, Settled, Settlement, Settling};
use crate::worker::Workers;

/// Between SIGTERM and SIGKILL for a transfer that did not end in its time (agent protocol), and the time that killed
/// processes have to end when the run is halted.
const GRACE_NS: u64 = 2 * NS_PER_S;

/// What a settlement may take besides: for processes that vanish and servers that are late.
const SETTLING_NS: u64 = 5 * NS_PER_S;

/// How long a preparation may stand still where a plan has no transfers.
const PATIENCE_S: f64 = 600.0;

/// How often it is looked whether killed children have ended, when the run is halted.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Transfers that were released together within this are taken for simultaneous.
const SPREAD_NS: u64 = NS_PER_S / 1000;

/// Late or missing samples above this share are worth a finding.
const LATE_SHARE: f64 = 0.01;

/// What threads bring back to the event loop.
#[derive(Debug)]
pub(crate) enum Job {
    /// The host has been looked over for `ready`.
    Surveyed(Box<venturi_plan::Ready>),
    /// A `prepare` or `drop_caches` is over.
    Prepared(Task, Option<TrialRef>, Prepared),
    /// The list of a transfer of many files is made, or why not.
    Listed(Task, Box<Order>, Result<Listed, String>),
    /// A `compute` is over.
    Computed(Task),
    /// Receivers have been looked at and destinations removed.
    Settled(Settlement, Settled),
}

/// What a run works with; made before it begins.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) barrier: Barrier,
    pub(crate) guardian: Guardian,
    pub(crate) sender: Sender,
    pub(crate) workers: Workers<Job>,
    /// The scratch directory, once it is known which.
    #[expect(dead_code, reason = "held, never read")]
    pub(crate) scratch: Option<Claim>,
}

/// A preparation that is under way.
#[derive(Debug)]
struct Preparing {
    trial: Option<TrialRef>,
    dataset: String,
    /// When it is looked whether it goes on.
    due_ns: u64,
}

/// A run that has begun.
#[derive(Debug)]
pub(crate) struct Run {
    tools: Tools,
    start: Start,
    environment: Environment,
    clock: RunClock,
    interpreter: Interpreter,
    ready: BTreeMap<Task, Ready>,
    /// Those of `ready` that may not stand at the line yet; none between turns.
    arming: Vec<Task>,
    running: BTreeMap<Task, Running>,
    preparing: BTreeMap<Task, Preparing>,
    /// Whether what is prepared goes on.
    pulse: Arc<Pulse>,
    /// For so long a preparation may stand still.
    patience_ns: u64,
    deadlines: BTreeSet<(u64, Task)>,
    /// Accounts that threads settle.
    settling: BTreeMap<Settlement, Settling>,
    trials: BTreeMap<TrialRef, OpenTrial>,
    /// Destinations that transfers of open trials have written to.
    begun: BTreeSet<(TrialRef, String)>,
    /// What actors shall do once their trial is settled: the removal of a destination must not run into the next trial.
    held: BTreeMap<Name, VecDeque<Output>>,
    trials_done: u64,
    sampler: Option<Sampler>,
    sockets: Option<Sockets>,
    stop: Arc<AtomicBool>,
    /// It has been said that nothing is left to do.
    idle: bool,
    /// When the latest thing happened that the interpreter was told.
    latest_s: f64,
    failure: Option<String>,
    #[cfg(test)]
    trace: venturi_plan::conformance::Trace,
}

impl Run {
    /// Begins: from here on, times count.
    ///
    /// # Errors
    /// A text when the plan is not one that can be carried out, or the sampler cannot be started.
    pub(crate) fn begin(
        tools: Tools,
        start: Start,
        environment: Environment,
        lines: Vec<ActorLine>,
    ) -> Result<Self, String> {
        let interpreter = Interpreter::new(&start.header, &start.host, lines, start.skip.clone());
        let mut interpreter = interpreter.map_err(|error| error.to_string())?;
        folders::remove_left_behind(&start);
        let clock = RunClock::new(start.epoch_unix_ns);
        let sampler = instruments::start_sampler(&start, clock, &tools.sender)?;
        let sockets = instruments::start_sockets(&start, clock, &tools.sender)?;
        let latest_s = clock.now_s();
        interpreter.start(Seconds::new(latest_s));
        let stop = Arc::default();
        let patience_ns = patience_ns(&start);
        Ok(Self {
            tools,
            start,
            environment,
            clock,
            interpreter,
            ready: BTreeMap::new(),
            arming: Vec::new(),
            running: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            settling: BTreeMap::new(),
            trials: BTreeMap::new(),
            begun: BTreeSet::new(),
            held: BTreeMap::new(),
            trials_done: 0,
            sampler,
            sockets,
            preparing: BTreeMap::new(),
            pulse: Arc::new(Pulse::new(Arc::clone(&stop))),
            patience_ns,
            stop,
            idle: false,
            latest_s,
            failure: None,
            #[cfg(test)]
            trace: venturi_plan::conformance::Trace::default(),
        })
    }

    /// When [`Run::turn`] is due at the latest, on the monotonic clock.
    pub(crate) fn wake_ns(&self) -> Option<u64> {
        let interpreter = self
            .interpreter
            .poll_timeout()
            .map(|time| self.clock.monotonic_ns_at(time.get()));
        let settled = self.settling.values().map(|settling| settling.due_ns);
        let deadline = self.deadlines.first().map(|(ns, _)| *ns);
        let deadline = deadline.into_iter().chain(settled).min();
        interpreter.into_iter().chain(deadline).min()
    }

    /// Whether all is done and written down.
    pub(crate) fn is_finished(&self) -> bool {
        self.interpreter.is_finished()
            && self.held.is_empty()
            && self.settling.is_empty()
            && self.running.is_empty()
    }

    /// Whether the agent is to stay when all is done; says once that it is.
    pub(crate) fn stays(&mut self) -> bool {
        if self.start.stay && !std::mem::replace(&mut self.idle, true) {
            let time_s = Seconds::new(self.clock.now_s());
            self.tools.sender.send(&Record::Idle(Idle { time_s }));
        }
        self.start.stay
    }

    /// One turn of the event loop, after whatever woke it.
    ///
    /// # Errors
    /// A text when the plan cannot go on.
    pub(crate) fn turn(&mut self) -> Result<(), String> {
        self.notice_ends();
        self.take_results()?;
        self.end_overdue();
        self.give_settling_up();
        let now = self.clock.now_s();
        if self
            .interpreter
            .poll_timeout()
            .is_some_and(|due| due.get() <= now)
        {
            self.latest_s = now;
            self.interpreter.handle_timeout(Seconds::new(now));
        }
        self.obey();
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Reaps what tools have left to us: the agent adopts their orphans. Its own children keep their account until their turn.
    /// For a process that has no other children alone.
    pub(crate) fn bury_orphans(&self) {
        let runs = |pid: Pid| self.running.values().any(|running| running.pid() == pid);
        let waits = |pid: Pid| self.ready.values().any(|ready| ready.child.pid == pid);
        while let Some(pid) = reap::any_ended() {
            if runs(pid) || waits(pid) {
                return; // its own signal, which has come since, wakes the loop again
            }
            reap::forget(pid);
        }
    }

    /// The value of a shared counter.
    pub(crate) fn take_counter(&mut self, name: Name, value: u64) {
        self.inform(self.clock.now_s(), Input::Counter { name, value });
    }

    /// Kills what runs, and writes down the transfers that belong to no trial. Trials that are under way are lost, as they
    /// have to be done again.
    pub(crate) fn halt(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for (_, ready) in std::mem::take(&mut self.ready) {
            ready.child.cancel();
            self.tools.guardian.remove(ready.child.pid);
        }
        let mut running = std::mem::take(&mut self.running);
        for transfer in running.values_mut() {
            transfer.end(Signal::SIGKILL, Outcome::Stopped);
        }
        let patience_ns = monotonic_ns() + GRACE_NS;
        for transfer in running.into_values() {
            let group = transfer.pid();
            // Not even SIGKILL ends a process that hangs in a dead file system: it is left to the guardian.
            while !reap::has_ended(group) && monotonic_ns() < patience_ns {
                std::thread::sleep(LOOK_INTERVAL);
            }
            if !reap::has_ended(group) {
                continue;
            }
            let Ok(exit) = reap::reap(group) else {
                continue;
            };
            // The guardian keeps the group when some of it is still dying.
            if !reap::group_is_alive(group) {
                self.tools.guardian.remove(group);
            }
            let entry = transfer.finish(monotonic_ns(), &exit, &self.clock);
            if entry.trial.is_none() {
                self.tools
                    .sender
                    .send(&Record::Transfer(Box::new(entry.record)));
            }
        }
        list::remove_all(Path::new(&self.start.scratch));
    }

    /// The last words: how punctual the samples were, and `done`.
    pub(crate) fn close(&mut self) {
        if let Some(sockets) = self.sockets.take() {
            self.send_findings(sockets.finish());
        }
        if let Some(sampler) = self.sampler.take() {
            let told = sampler.finish();
            let interval_s = self
                .start
                .header
                .measure
                .interval_s
                .map_or(0.0, Seconds::get);
            if (told.late + told.missed) as f64 > told.taken as f64 * LATE_SHARE {
                self.tools
                    .sender
                    .send(&Record::Finding(findings::samples_late(told, interval_s)));
            }
        }
        let done = Done {
            time_s: Seconds::new(self.clock.now_s()),
            trials: self.trials_done,
        };
        self.tools.sender.send(&Record::Done(done));
    }

    /// What the run works with.
    pub(crate) fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Tells the interpreter.
    fn inform(&mut self, time_s: f64, input: Input) {
        self.latest_s = time_s;
        #[cfg(test)]
        self.trace.input(&input);
        self.interpreter.handle_input(Seconds::new(time_s), input);
    }

    /// Finds the children that have ended. All are looked at before the clock is read and anything else is done: so a
    /// time is never too early, and is not made late by the handling of the other children.
    fn notice_ends(&mut self) {
        let ended =
            |(task, running): (&Task, &Running)| reap::has_ended(running.pid()).then_some(*task);
        let ended: Vec<Task> = self.running.iter().filter_map(ended).collect();
        let end_ns = monotonic_ns();
        for task in ended {
            let Some(running) = self.running.remove(&task) else {
                continue;
            };
            self.deadlines.remove(&(running.deadline_ns, task));
            self.end_transfer(task, running, end_ns);
        }
    }

    fn end_transfer(&mut self, task: Task, running: Running, end_ns: u64) {
        let (group, timed_out) = (running.pid(), running.ended_by.is_some());
        let exit = match reap::reap(group) {
            Ok(exit) => exit,
            Err(error) => {
                self.failure = Some(format!(
                    "expected to reap the child {group}, found: {error}"
                ));
                return;
            }
        };
        let mut entry = running.finish(end_ns, &exit, &self.clock);
        let left_behind = reap::group_is_alive(group).then_some(group);
        match left_behind {
            None => self.tools.guardian.remove(group),
            // Of a group that we have ended something may still be dying; that is no doubt about the tool.
            Some(group) if timed_out => drop(nix::sys::signal::killpg(group, Signal::SIGKILL)),
            Some(_) => entry
                .findings
                .push(findings::children_left_behind(&entry.record.call)),
        }
        let in_trial = entry.trial.is_some();
        self.write_down(task, entry, left_behind);
        if in_trial {
            self.inform(self.clock.seconds_at(end_ns), Input::Finished { task });
        }
    }

    /// Puts an ended transfer into the account of its trial. One that has none is settled at once, and over only then: the
    /// next one may write to the same destination.
    fn write_down(&mut self, task: Task, entry: Entry, left_behind: Option<Pid>) {
        let trial = entry.trial.clone();
        let open = trial.as_ref().and_then(|trial| self.trials.get_mut(trial));
        if let Some(open) = open {
            open.account.entries.push((task.number(), entry));
            open.account.left_behind.extend(left_behind);
            return;
        }
        let account = Account {
            entries: vec![(task.number(), entry)],
            left_behind: left_behind.into_iter().collect(),
        };
        self.settle(Settlement::Loose(task), None, account);
    }

    /// Has an account settled. It is waited for as long as for a transfer: removing takes no longer than making did.
    fn settle(&mut self, of: Settlement, open: Option<(OpenTrial, f64)>, account: Account) {
        let settling = Settling {
            due_ns: monotonic_ns() + self.patience_ns + SETTLING_NS,
            open,
            unsettled: account.unsettled(self.patience_s()),
        };
        self.settling.insert(of.clone(), settling);
        self.run_job("settle", move || Job::Settled(of, account.settle()));
    }

    /// Takes accounts as they are whose settlement stands still: its thread waits for a file system that does not answer.
    fn give_settling_up(&mut self) {
        let now_ns = monotonic_ns();
        let overdue = self
            .settling
            .extract_if(.., |_, settling| settling.due_ns <= now_ns);
        for (of, settling) in overdue.collect::<Vec<_>>() {
            self.close_account(of, settling.open, settling.unsettled);
        }
    }

    fn close_account(&mut self, of: Settlement, open: Option<(OpenTrial, f64)>, settled: Settled) {
        settled
            .vanished
            .iter()
            .for_each(|group| self.tools.guardian.remove(*group));
        match (of, open) {
            (Settlement::Trial(trial), Some((open, end_s))) => {
                let record = Box::new(open.close(&trial, end_s, settled));
                self.close_trial(&trial, record);
            }
            (Settlement::Trial(_), None) => {} // each trial is open when its settling begins
            (Settlement::Loose(task), _) => self.close_loose(task, settled),
        }
    }

    fn take_results(&mut self) -> Result<(), String> {
        self.tools.workers.waker().clear();
        while let Some(result) = self.tools.workers.poll() {
            let job = result.map_err(|_| {
                "a thread of the agent panicked; its last words are on stderr".to_owned()
            })?;
            match job {
                Job::Surveyed(_) => {} // before the run only
                Job::Prepared(task, trial, prepared) => {
                    // Whose time was over has been told as failed.
                    if let Some(preparing) = self.preparing.remove(&task) {
                        self.deadlines.remove(&(preparing.due_ns, task));
                        self.take_prepared(task, trial, prepared);
                    }
                }
                Job::Listed(task, order, made) => self.take_list(task, *order, made),
                Job::Computed(task) => self.inform(self.clock.now_s(), Input::Finished { task }),
                Job::Settled(of, settled) => {
                    // Whose time was over has been written down as it was.
                    if let Some(settling) = self.settling.remove(&of) {
                        self.close_account(of, settling.open, settled);
                    }
                }
            }
        }
        Ok(())
    }

    fn close_loose(&mut self, task: Task, settled: Settled) {
        for record in settled.transfers {
            self.tools.sender.send(&Record::Transfer(Box::new(record)));
        }
        self.send_findings(settled.findings);
        // One that never started is no outstanding task any more, and the interpreter passes it over.
        self.inform(self.clock.now_s(), Input::Finished { task });
    }

    fn take_prepared(&mut self, task: Task, trial: Option<TrialRef>, prepared: Prepared) {
        let now_s = self.clock.now_s();
        if let Some((kind, detail)) = prepared.event {
            let event = Event {
                time_s: Seconds::new(now_s),
                kind: kind.into(),
                detail,
            };
            self.tools.sender.send(&Record::Event(event));
        }
        match trial.and_then(|trial| self.trials.get_mut(&trial)) {
            Some(open) => {
                let open = &mut open.told;
                open.spoilt |= prepared.failed;
                // The latest word on the cache counts: a drop after a preparation is what the transfers meet.
                open.cache = prepared.cache.or(open.cache.take());
                open.findings.extend(prepared.findings);
            }
            None => self.send_findings(prepared.findings),
        }
        let input = if prepared.failed {
            Input::Failed { task }
        } else {
            Input::Finished { task }
        };
        self.inform(now_s, input);
    }

    fn close_trial(&mut self, trial: &TrialRef, record: Box<Trial>) {
        self.tools.sender.send(&Record::Trial(record));
        self.trials_done += 1;
        // The actor goes on, up to the end of its next trial at most, behind which it is held again.
        let mut held = self.held.remove(&trial.actor).unwrap_or_default();
        while let Some(output) = held.pop_front() {
            self.carry_out(output);
            if let Some(again) = self.held.get_mut(&trial.actor) {
                again.append(&mut held);
            }
        }
    }

    fn send_findings(&self, findings: Vec<Finding>) {
        for finding in findings {
            self.tools.sender.send(&Record::Finding(finding));
        }
    }

    /// Gives a preparation up that stands still: its thread waits for a file system that does not answer, and cannot be ended.
    fn doubt_preparation(&mut self, task: Task, mut preparing: Preparing, now_ns: u64) {
        preparing.due_ns = self.pulse.last_ns() + self.patience_ns;
        if preparing.due_ns > now_ns {
            self.deadlines.insert((preparing.due_ns, task));
            self.preparing.insert(task, preparing);
            return;
        }
        let prepared = Prepared {
            findings: vec![findings::prepare_stalled(
                &preparing.dataset,
                self.patience_s(),
            )],
            failed: true,
            ..Prepared::default()
        };
        self.take_prepared(task, preparing.trial, prepared);
    }

    /// Ends transfers whose time is over: first politely, then for good.
    fn end_overdue(&mut self) {
        let now_ns = monotonic_ns();
        while let Some((due_ns, task)) = self
            .deadlines
            .first()
            .copied()
            .filter(|(due_ns, _)| *due_ns <= now_ns)
        {
            self.deadlines.remove(&(due_ns, task));
            if let Some(preparing) = self.preparing.remove(&task) {
                self.doubt_preparation(task, preparing, now_ns);
                continue;
            }
            let Some(running) = self.running.get_mut(&task) else {
                continue;
            };
            let signal = match running.ended_by {
                None => Signal::SIGTERM,
                Some((Signal::SIGKILL, _)) => {
                    self.give_transfer_up(task, now_ns);
                    continue;
                }
                Some(_) => Signal::SIGKILL,
            };
            running.end(signal, Outcome::Timeout);
            running.deadline_ns = now_ns + GRACE_NS;
            self.deadlines.insert((running.deadline_ns, task));
        }
    }

    /// Goes on without a transfer that not even SIGKILL has ended: its process hangs in a file system that does not answer, and
    /// stays with the guardian.
    fn give_transfer_up(&mut self, task: Task, now_ns: u64) {
        let Some(running) = self.running.remove(&task) else {
            return;
        };
        let entry = running.give_up(now_ns, &self.clock);
        let in_trial = entry.trial.is_some();
        self.write_down(task, entry, None);
        if in_trial {
            self.inform(self.clock.seconds_at(now_ns), Input::Finished { task });
        }
    }

    /// How long a file system may stand still.
    #[expect(clippy::cast_precision_loss, reason = "a time that people give")]
    fn patience_s(&self) -> f64 {
        self.patience_ns as f64 / NS_PER_S as f64
    }
}

/// How long a preparation may stand still: as long as the plan lets a transfer take, as it is the same file system.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a plan has no negative timeouts, and a cast ends at the largest number"
)]
fn patience_ns(start: &Start) -> u64 {
    let longest_s = start.header.calls.values().map(|call| call.timeout_s.get());
    (longest_s.reduce(f64::max).unwrap_or(PATIENCE_S) * NS_PER_S as f64) as u64
}
