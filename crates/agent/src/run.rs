//! Part of a plan on one host in real time: executes the requests of the interpreter and reports
//! events to it.

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
    ActorLine, AgentEvent, Bytes, Done, EndReason, Finding, Idle, Interpreter, InterpreterInput,
    InterpreterOutput, Name, OperationEvent, Outcome, PrepareOutcome, Record, Removal, Seconds,
    ServiceEnded, Start, TaskId, TransferRecord, Trial, TrialRef,
};

use crate::activity::ActivityMonitor;
use crate::barrier::Barrier;
use crate::cleared::ClearedDirectories;
use crate::clock::{NS_PER_S, RunClock, monotonic_ns};
use crate::directories;
use crate::findings;
use crate::launch::{Prepared, TransferLaunch};
use crate::list;
use crate::output::Sender;
use crate::program::Environment;
use crate::reap;
use crate::requests::Requests;
use crate::sampler::Sampler;
use crate::scratch::ScratchLock;
use crate::server_failures::ServerFailures;
use crate::servers::PlanServers;
use crate::sockets::SocketWatcher;
use crate::transfer::{ReadyTransfer, Running, TransferEntry};
use crate::trial::{AccountOwner, AgentTrial, Finalized, FinalizingTrial, TrialAccount};
use crate::watchdog::Watchdog;
use crate::work_groups::WorkGroups;
use crate::worker::WorkerThreads;

/// Time between SIGTERM and SIGKILL for a transfer after its timeout (agent protocol), and time for
/// killed processes to end when the run is halted.
const GRACE_NS: u64 = 2 * NS_PER_S;

/// Additional time for finalizing: for processes that vanish and servers that are late.
const FINALIZE_NS: u64 = 5 * NS_PER_S;

/// Timeout of a preparation without progress, for plans without transfers.
const TIMEOUT_S: f64 = 600.0;

/// Interval between checks whether killed children have exited, when the run is halted.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Transfers released together within this time count as simultaneous.
const SPREAD_NS: u64 = NS_PER_S / 1000;

/// Fraction of late or missing samples that causes a finding.
const LATE_FRACTION: f64 = 0.01;

/// Results of threads for the event loop.
#[derive(Debug)]
pub(crate) enum WorkerJob {
    /// The survey of the host for `ready` is complete.
    Surveyed(Box<venturi_plan::Ready>),
    /// A `prepare` or `drop_caches` is over.
    Prepared(TaskId, Option<TrialRef>, PrepareOutcome),
    /// The slow work before a transfer is armed is done, or has failed.
    TransferPrepared(TaskId, Box<TransferLaunch>, Result<Prepared, String>),
    /// A `compute` is over.
    Computed(TaskId, Result<(), String>),
    /// Receivers have been checked and destinations removed.
    Finalized(AccountOwner, Finalized),
}

/// Tools of a run, created before it starts.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) barrier: Barrier,
    pub(crate) watchdog: Watchdog,
    pub(crate) sender: Sender,
    pub(crate) workers: WorkerThreads<WorkerJob>,
    /// Operations on files of other hosts.
    pub(crate) requests: Requests,
    /// The lock of the scratch directory, after `start`.
    #[expect(dead_code, reason = "held, never read")]
    pub(crate) scratch: Option<ScratchLock>,
}

/// A preparation in progress.
#[derive(Debug)]
struct Preparing {
    trial: Option<TrialRef>,
    dataset: String,
    /// Time of the next check for progress; never for a preparation on another host, which checks
    /// its own progress.
    due_ns: u64,
}

/// A started run.
#[derive(Debug)]
pub(crate) struct Run {
    tools: Tools,
    /// Control groups of CPU phases.
    groups: WorkGroups,
    start: Start,
    environment: Environment,
    clock: RunClock,
    interpreter: Interpreter,
    ready: BTreeMap<TaskId, ReadyTransfer>,
    /// Tasks of `ready` that wait to be sent to the barrier; none between turns.
    arming: Vec<TaskId>,
    running: BTreeMap<TaskId, Running>,
    preparing: BTreeMap<TaskId, Preparing>,
    /// Activity of the current preparation.
    activity: Arc<ActivityMonitor>,
    /// Timeout of a preparation without progress.
    timeout_ns: u64,
    deadlines: BTreeSet<(u64, TaskId)>,
    /// Trials and transfers that threads finalize.
    finalizing: BTreeMap<AccountOwner, FinalizingTrial>,
    trials: BTreeMap<TrialRef, AgentTrial>,
    /// Destinations that transfers of open trials have written, with their rules if they are known.
    started: BTreeMap<(TrialRef, String), Option<Removal>>,
    /// Directories of other hosts.
    cleared: ClearedDirectories,
    /// Outputs of actors that wait until their trial is finalized: the removal of a destination must not run into the
    /// next trial.
    deferred: BTreeMap<Name, VecDeque<InterpreterOutput>>,
    trials_done: u64,
    /// Sizes of files of the user, by endpoint.
    existing_sizes: BTreeMap<String, Bytes>,
    /// Failures at each server.
    server_failures: ServerFailures,
    sampler: Option<Sampler>,
    sockets: Option<SocketWatcher>,
    stop: Arc<AtomicBool>,
    /// The agent has reported that it is idle.
    idle: bool,
    /// Time of the latest event that the interpreter received.
    latest_s: f64,
    failure: Option<String>,
    #[cfg(test)]
    trace: venturi_plan::conformance::Trace,
}

impl Run {
    /// Starts the run; times count from here on.
    ///
    /// # Errors
    /// A message if the plan is invalid, or the sampler cannot start.
    pub(crate) fn start(
        mut tools: Tools,
        start: Start,
        environment: Environment,
        lines: Vec<ActorLine>,
    ) -> Result<Self, String> {
        let interpreter = Interpreter::new(&start.header, &start.host, lines, start.skip.clone());
        let mut interpreter = interpreter.map_err(|error| error.to_string())?;
        directories::remove_stale(&start);
        let clock = RunClock::new(start.epoch_unix_ns);
        let groups = WorkGroups::open(&start.work_groups)?;
        tools.barrier.groups = groups.clone();
        let servers = PlanServers::new(&start);
        let sampler =
            instruments::start_sampler(&start, clock, &tools.sender, &servers, tools.watchdog.pid)?;
        let sockets = instruments::start_sockets(&start, clock, &tools.sender, &servers)?;
        let latest_s = clock.now_s();
        let mut server_failures = ServerFailures::new(start.server_failures);
        for service in &start.ended_services {
            server_failures.end(service);
            let service = service.clone();
            interpreter.handle_input(
                Seconds::new(latest_s),
                InterpreterInput::EndService { service },
            );
        }
        interpreter.start(Seconds::new(latest_s));
        let stop = Arc::default();
        let timeout_ns = timeout_ns(&start);
        Ok(Self {
            tools,
            groups,
            start,
            environment,
            clock,
            interpreter,
            ready: BTreeMap::new(),
            arming: Vec::new(),
            running: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            finalizing: BTreeMap::new(),
            trials: BTreeMap::new(),
            started: BTreeMap::new(),
            cleared: ClearedDirectories::default(),
            deferred: BTreeMap::new(),
            trials_done: 0,
            existing_sizes: BTreeMap::new(),
            server_failures,
            sampler,
            sockets,
            preparing: BTreeMap::new(),
            activity: Arc::new(ActivityMonitor::new(Arc::clone(&stop))),
            timeout_ns,
            stop,
            idle: false,
            latest_s,
            failure: None,
            #[cfg(test)]
            trace: venturi_plan::conformance::Trace::default(),
        })
    }

    /// Returns the latest time for the next [`Run::turn`], on the monotonic clock.
    pub(crate) fn wake_ns(&self) -> Option<u64> {
        let interpreter = self
            .interpreter
            .poll_timeout()
            .map(|time| self.clock.monotonic_ns_at(time.get()));
        let finalized = self.finalizing.values().map(|finalizing| finalizing.due_ns);
        let deadline = self.deadlines.first().map(|(ns, _)| *ns);
        let deadline = deadline.into_iter().chain(finalized).min();
        interpreter.into_iter().chain(deadline).min()
    }

    /// Return whether all work is done and recorded.
    pub(crate) fn is_finished(&self) -> bool {
        self.interpreter.is_finished()
            && self.deferred.is_empty()
            && self.finalizing.is_empty()
            && self.running.is_empty()
    }

    /// Return whether the agent must stay after the end of all work; report once that it is idle.
    pub(crate) fn stays(&mut self) -> bool {
        if self.start.stay && !std::mem::replace(&mut self.idle, true) {
            let time_s = Seconds::new(self.clock.now_s());
            self.tools.sender.send(&Record::Idle(Idle { time_s }));
        }
        self.start.stay
    }

    /// One turn of the event loop.
    ///
    /// # Errors
    /// A message if the plan cannot continue.
    pub(crate) fn turn(&mut self) -> Result<(), String> {
        self.handle_exits();
        self.take_results()?;
        self.end_overdue();
        self.abort_finalizing();
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

    /// Reap orphans of tools, which the agent adopts. Its own children keep their counters until
    /// their turn. Only for a process without other children.
    pub(crate) fn bury_orphans(&self) {
        let runs = |pid: Pid| self.running.values().any(|running| running.pid() == pid);
        let waits = |pid: Pid| self.ready.values().any(|ready| ready.child.pid == pid);
        while let Some(pid) = reap::any_ended() {
            if runs(pid) || waits(pid) {
                return; // its signal, which has arrived since, wakes the loop again
            }
            reap::forget(pid);
        }
    }

    /// Process the value of a shared counter.
    pub(crate) fn take_counter(&mut self, name: Name, value: u64) {
        self.inform(
            self.clock.now_s(),
            InterpreterInput::Counter { name, value },
        );
    }

    /// End the trials at a service that another host has ended.
    pub(crate) fn end_service(&mut self, service: Name) {
        if self.server_failures.end(&service) {
            self.inform(self.clock.now_s(), InterpreterInput::EndService { service });
        }
    }

    /// Count the result of a transfer at its servers, before the interpreter starts another one.
    fn count_at_servers(&mut self, record: &TransferRecord, time_s: f64) {
        let services = self.start.header.services_of(
            &record.call,
            record.source_via.as_ref(),
            record.destination_via.as_ref(),
        );
        let texts = [&record.error, &record.stderr, &record.stdout];
        let texts = texts.into_iter().flatten().map(String::as_str);
        let ended = self.server_failures.count(services, record.outcome, texts);
        self.report_ended(ended, record.error.as_deref().unwrap_or_default(), time_s);
    }

    /// Count files that could not be created on existing servers.
    fn count_preparation(&mut self, findings: &[Finding], time_s: f64) {
        for finding in findings {
            let Some(dataset) = self.start.header.datasets.get(&*finding.subject) else {
                continue;
            };
            let servers = self.start.header.servers_of(&dataset.storage);
            let texts = [finding.evidence.as_str()];
            let ended = self.server_failures.count(servers, Outcome::Failed, texts);
            self.report_ended(ended, &finding.evidence, time_s);
        }
    }

    fn report_ended(&mut self, ended: Vec<(Name, EndReason)>, error: &str, time_s: f64) {
        for (service, reason) in ended {
            self.tools.sender.send(&Record::ServiceEnded(ServiceEnded {
                time_s: Seconds::new(time_s),
                service: service.clone(),
                reason,
                error: error.to_owned(),
            }));
            self.inform(time_s, InterpreterInput::EndService { service });
        }
    }

    /// Kill running tools, and record the transfers outside of trials. Trials in progress are lost
    /// and must be repeated.
    pub(crate) fn halt(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for (_, ready) in std::mem::take(&mut self.ready) {
            ready.child.cancel();
            self.tools.watchdog.remove(ready.child.pid);
        }
        let mut running = std::mem::take(&mut self.running);
        for transfer in running.values_mut() {
            transfer.end(Signal::SIGKILL, Outcome::Stopped);
        }
        let timeout_ns = monotonic_ns() + GRACE_NS;
        for transfer in running.into_values() {
            let group = transfer.pid();
            // Even SIGKILL does not end a process that blocks in a dead file system; it is left to
            // the watchdog.
            while !reap::has_ended(group) && monotonic_ns() < timeout_ns {
                std::thread::sleep(POLL_INTERVAL);
            }
            if !reap::has_ended(group) {
                continue;
            }
            let Ok(exit) = reap::reap(group) else {
                continue;
            };
            // The watchdog keeps the group while some of its processes are ending.
            if !reap::group_is_alive(group) {
                self.tools.watchdog.remove(group);
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

    /// Send the last records: the punctuality of the samples, and `done`.
    pub(crate) fn close(&mut self) {
        if let Some(sockets) = self.sockets.take() {
            self.send_findings(sockets.finish());
        }
        if let Some(sampler) = self.sampler.take() {
            let timing = sampler.finish();
            let interval_s = self
                .start
                .header
                .measure
                .interval_s
                .map_or(0.0, Seconds::get);
            if (timing.late + timing.missed) as f64 > timing.taken as f64 * LATE_FRACTION {
                self.tools
                    .sender
                    .send(&Record::Finding(findings::samples_late(timing, interval_s)));
            }
        }
        let done = Done {
            time_s: Seconds::new(self.clock.now_s()),
            trials: self.trials_done,
        };
        self.tools.sender.send(&Record::Done(done));
    }

    /// Return the tools of the run.
    pub(crate) fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Send an input to the interpreter.
    fn inform(&mut self, time_s: f64, input: InterpreterInput) {
        self.latest_s = time_s;
        #[cfg(test)]
        self.trace.input(&input);
        self.interpreter.handle_input(Seconds::new(time_s), input);
    }

    /// Finds exited children. All children are checked before the clock is read, so a time is never
    /// too early, and the handling of other children does not delay it.
    fn handle_exits(&mut self) {
        let ended =
            |(task, running): (&TaskId, &Running)| reap::has_ended(running.pid()).then_some(*task);
        let ended: Vec<TaskId> = self.running.iter().filter_map(ended).collect();
        let end_ns = monotonic_ns();
        for task in ended {
            let Some(running) = self.running.remove(&task) else {
                continue;
            };
            self.deadlines.remove(&(running.deadline_ns, task));
            self.end_transfer(task, running, end_ns);
        }
    }

    fn end_transfer(&mut self, task: TaskId, running: Running, end_ns: u64) {
        let (group, timed_out) = (running.pid(), running.ended_by.is_some());
        let exit = match reap::reap(group) {
            Ok(exit) => exit,
            Err(error) => {
                self.failure = Some(format!("cannot reap the child {group}: {error}"));
                return;
            }
        };
        let mut entry = running.finish(end_ns, &exit, &self.clock);
        let orphans = reap::group_is_alive(group).then_some(group);
        match orphans {
            None => self.tools.watchdog.remove(group),
            // Processes of a group that the agent has ended may still be exiting, which is no fault
            // of the tool.
            Some(group) if timed_out => drop(nix::sys::signal::killpg(group, Signal::SIGKILL)),
            Some(_) => entry
                .findings
                .push(findings::orphan_processes(&entry.record.call)),
        }
        let in_trial = entry.trial.is_some();
        self.count_at_servers(&entry.record, self.clock.seconds_at(end_ns));
        self.write_down(task, entry, orphans);
        if in_trial {
            self.inform(
                self.clock.seconds_at(end_ns),
                InterpreterInput::Finished { task },
            );
        }
    }

    /// Adds an ended transfer to its trial. A transfer outside of trials is finalized immediately,
    /// and ends only then, because the next one may write to the same destination.
    fn write_down(&mut self, task: TaskId, entry: TransferEntry, orphans: Option<Pid>) {
        let trial = entry.trial.clone();
        let open = trial.as_ref().and_then(|trial| self.trials.get_mut(trial));
        if let Some(open) = open {
            open.account.entries.push((task.number(), entry));
            open.account.orphans.extend(orphans);
            return;
        }
        let account = TrialAccount {
            entries: vec![(task.number(), entry)],
            orphans: orphans.into_iter().collect(),
        };
        self.finalize(AccountOwner::Loose(task), None, account);
    }

    /// Finalizes transfers on a thread. The limit is the time of a transfer, because a removal
    /// takes no longer than the creation.
    fn finalize(
        &mut self,
        of: AccountOwner,
        open: Option<(AgentTrial, f64)>,
        account: TrialAccount,
    ) {
        let finalizing = FinalizingTrial {
            due_ns: monotonic_ns() + self.timeout_ns + FINALIZE_NS,
            open,
            unsettled: account.unsettled(self.timeout_s()),
        };
        self.finalizing.insert(of.clone(), finalizing);
        let requests = self.tools.requests.clone();
        self.run_job("finalize", move || {
            WorkerJob::Finalized(of, account.finalize(&requests))
        });
    }

    /// Record trials in their current state if finalizing makes no progress, because its thread
    /// waits for a file system that does not respond.
    fn abort_finalizing(&mut self) {
        let now_ns = monotonic_ns();
        let overdue = self
            .finalizing
            .extract_if(.., |_, finalizing| finalizing.due_ns <= now_ns);
        for (of, finalizing) in overdue.collect::<Vec<_>>() {
            self.close_account(of, finalizing.open, finalizing.unsettled);
        }
    }

    fn close_account(
        &mut self,
        of: AccountOwner,
        open: Option<(AgentTrial, f64)>,
        finalized: Finalized,
    ) {
        for location in &finalized.removed {
            self.cleared.vacate(location);
        }
        finalized
            .vanished
            .iter()
            .for_each(|group| self.tools.watchdog.remove(*group));
        match (of, open) {
            (AccountOwner::Trial(trial), Some((open, end_s))) => {
                let record = Box::new(open.close(&trial, end_s, finalized));
                self.close_trial(&trial, record);
            }
            (AccountOwner::Trial(_), None) => {} // each trial is open at the start of its finalizing
            (AccountOwner::Loose(task), _) => self.close_loose(task, finalized),
        }
    }

    fn take_results(&mut self) -> Result<(), String> {
        self.tools.workers.waker().clear();
        while let Some(result) = self.tools.workers.poll() {
            let job = result.map_err(|_| {
                "a thread of the agent panicked; see the messages on stderr".to_owned()
            })?;
            match job {
                WorkerJob::Surveyed(_) => {} // only before the run
                WorkerJob::Prepared(task, trial, prepared) => {
                    // A task that timed out has already been reported as failed.
                    if let Some(preparing) = self.preparing.remove(&task) {
                        self.deadlines.remove(&(preparing.due_ns, task));
                        self.learn_sizes(&preparing.dataset, &prepared);
                        self.take_prepared(task, trial, prepared);
                    }
                }
                WorkerJob::TransferPrepared(task, order, prepared) => {
                    self.take_transfer(task, *order, prepared)
                }
                WorkerJob::Computed(task, result) => {
                    self.failure = result.err().or_else(|| self.failure.take());
                    self.inform(self.clock.now_s(), InterpreterInput::Finished { task })
                }
                WorkerJob::Finalized(of, finalized) => {
                    // After its timeout, it has already been recorded.
                    if let Some(finalizing) = self.finalizing.remove(&of) {
                        self.close_account(of, finalizing.open, finalized);
                    }
                }
            }
        }
        Ok(())
    }

    fn close_loose(&mut self, task: TaskId, finalized: Finalized) {
        for record in finalized.transfers {
            self.tools.sender.send(&Record::Transfer(Box::new(record)));
        }
        self.send_findings(finalized.findings);
        // A task that never started is not outstanding any more, and the interpreter skips it.
        self.inform(self.clock.now_s(), InterpreterInput::Finished { task });
    }

    /// Keep the sizes of existing files for their transfers.
    fn learn_sizes(&mut self, dataset: &str, prepared: &PrepareOutcome) {
        let Some(dataset) = self.start.header.datasets.get(dataset) else {
            return;
        };
        let sizes = prepared.sizes.iter();
        let sizes = sizes.map(|(name, size)| (format!("{}:{name}", dataset.storage), *size));
        self.existing_sizes.extend(sizes);
    }

    fn take_prepared(&mut self, task: TaskId, trial: Option<TrialRef>, prepared: PrepareOutcome) {
        let now_s = self.clock.now_s();
        if let Some(OperationEvent { kind, detail }) = prepared.event {
            let event = AgentEvent {
                time_s: Seconds::new(now_s),
                kind,
                detail,
            };
            self.tools.sender.send(&Record::Event(event));
        }
        if prepared.failed {
            self.count_preparation(&prepared.findings, now_s);
        }
        match trial.and_then(|trial| self.trials.get_mut(&trial)) {
            Some(open) => {
                let open = &mut open.record;
                open.spoilt |= prepared.failed;
                // The latest state of the cache counts: after a preparation, a drop sets the state for the transfers.
                open.cache = prepared.cache.or(open.cache.take());
                open.findings.extend(prepared.findings);
            }
            None => self.send_findings(prepared.findings),
        }
        let input = if prepared.failed {
            InterpreterInput::Failed { task }
        } else {
            InterpreterInput::Finished { task }
        };
        self.inform(now_s, input);
    }

    fn close_trial(&mut self, trial: &TrialRef, record: Box<Trial>) {
        self.tools.sender.send(&Record::Trial(record));
        self.trials_done += 1;
        // The actor continues, at most up to the end of its next trial, where its outputs are deferred again.
        let mut deferred = self.deferred.remove(&trial.actor).unwrap_or_default();
        while let Some(output) = deferred.pop_front() {
            self.execute(output);
            if let Some(again) = self.deferred.get_mut(&trial.actor) {
                again.append(&mut deferred);
            }
        }
    }

    fn send_findings(&self, findings: Vec<Finding>) {
        for finding in findings {
            self.tools.sender.send(&Record::Finding(finding));
        }
    }

    /// Abort a preparation without progress. Its thread waits for a file system that does not
    /// respond, and cannot be ended.
    fn report_preparation(&mut self, task: TaskId, mut preparing: Preparing, now_ns: u64) {
        preparing.due_ns = self.activity.last_ns() + self.timeout_ns;
        if preparing.due_ns > now_ns {
            self.deadlines.insert((preparing.due_ns, task));
            self.preparing.insert(task, preparing);
            return;
        }
        let prepared = PrepareOutcome {
            findings: vec![findings::prepare_stalled(
                &preparing.dataset,
                self.timeout_s(),
            )],
            failed: true,
            ..PrepareOutcome::default()
        };
        self.take_prepared(task, preparing.trial, prepared);
    }

    /// Ends transfers after their timeout: first with SIGTERM, then with SIGKILL.
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
                self.report_preparation(task, preparing, now_ns);
                continue;
            }
            let Some(running) = self.running.get_mut(&task) else {
                continue;
            };
            let signal = match running.ended_by {
                None => Signal::SIGTERM,
                Some((Signal::SIGKILL, _)) => {
                    self.abort_transfer(task, now_ns);
                    continue;
                }
                Some(_) => Signal::SIGKILL,
            };
            running.end(signal, Outcome::Timeout);
            running.deadline_ns = now_ns + GRACE_NS;
            self.deadlines.insert((running.deadline_ns, task));
        }
    }

    /// Continue without a transfer that SIGKILL has not ended. Its process blocks in a file system
    /// that does not respond, and is left to the watchdog.
    fn abort_transfer(&mut self, task: TaskId, now_ns: u64) {
        let Some(running) = self.running.remove(&task) else {
            return;
        };
        let entry = running.abort(now_ns, &self.clock);
        let in_trial = entry.trial.is_some();
        self.count_at_servers(&entry.record, self.clock.seconds_at(now_ns));
        self.write_down(task, entry, None);
        if in_trial {
            self.inform(
                self.clock.seconds_at(now_ns),
                InterpreterInput::Finished { task },
            );
        }
    }

    /// Maximum time of a file system without progress.
    #[expect(clippy::cast_precision_loss, reason = "a time that people give")]
    fn timeout_s(&self) -> f64 {
        self.timeout_ns as f64 / NS_PER_S as f64
    }
}

/// Timeout of a preparation without progress: the longest timeout of a transfer, because it uses
/// the same file system.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a plan has no negative timeouts, and a cast ends at the largest number"
)]
fn timeout_ns(start: &Start) -> u64 {
    let max_s = start.header.calls.values().map(|call| call.timeout_s.get());
    (max_s.reduce(f64::max).unwrap_or(TIMEOUT_S) * NS_PER_S as f64) as u64
}
