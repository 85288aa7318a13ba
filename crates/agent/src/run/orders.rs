//! Execution of the requests of the interpreter.

use std::collections::VecDeque;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use venturi_plan::{
    AgentEvent, DatasetFiles, DropCachesOperation, FileOperation, InterpreterInput,
    InterpreterOutput, Name, OperationOutcome, PrepareOperation, PrepareOutcome, Record, Seconds,
    TaskId, Transfer, TrialRef, TrialSkipped, TrialStart,
};

use super::{Preparing, Run, SPREAD_NS, WorkerJob};
use crate::compute;
use crate::findings;
use crate::launch::{Prepared, Site, TransferLaunch};
use crate::prepare::{self, Files};
use crate::requests::wrong_outcome;
use crate::storages::Storages;
use crate::transfer::{ReadyTransfer, Running, TransferEntry};
use crate::trial::{AccountOwner, AgentTrial};

/// Files of a preparation, by the host that prepares them.
#[derive(Debug)]
enum PreparedFiles {
    /// This agent sees them.
    Own(Files),
    /// The shell of this host prepares them.
    Requested(Name, FileOperation),
}

/// Return the outcome of a preparation that failed.
fn not_prepared(dataset: &str, error: &str) -> PrepareOutcome {
    PrepareOutcome {
        findings: vec![findings::prepare_failed(dataset, error)],
        failed: true,
        ..PrepareOutcome::default()
    }
}

impl Run {
    pub(super) fn obey(&mut self) {
        loop {
            while let Some(output) = self.interpreter.poll_output() {
                #[cfg(test)]
                self.trace.output(&output);
                let actor = self.actor_of(&output).cloned();
                match actor.and_then(|actor| self.deferred.get_mut(&actor)) {
                    Some(deferred) => deferred.push_back(output),
                    None => self.execute(output),
                }
            }
            // All are forked before the wait for the first one.
            let arming = std::mem::take(&mut self.arming);
            if arming.is_empty() {
                return;
            }
            arming
                .into_iter()
                .for_each(|task| self.send_armed_to_barrier(task));
        }
    }

    /// Returns the actor of an output; the actor of a release is the actor of its transfers.
    fn actor_of<'a>(&'a self, output: &'a InterpreterOutput) -> Option<&'a Name> {
        match output {
            InterpreterOutput::TrialStarted { trial }
            | InterpreterOutput::TrialSkipped { trial, .. }
            | InterpreterOutput::TrialCut { trial }
            | InterpreterOutput::TrialEnded { trial } => Some(&trial.actor),
            InterpreterOutput::Arm { actor, .. }
            | InterpreterOutput::Prepare { actor, .. }
            | InterpreterOutput::DropCaches { actor, .. }
            | InterpreterOutput::Compute { actor, .. } => Some(actor),
            InterpreterOutput::Release { tasks } => tasks
                .iter()
                .find_map(|task| Some(&self.ready.get(task)?.entry.record.actor)),
            InterpreterOutput::Signal { .. } | InterpreterOutput::Failed { .. } => None,
        }
    }

    pub(super) fn execute(&mut self, output: InterpreterOutput) {
        match output {
            InterpreterOutput::TrialStarted { trial } => self.open_trial(trial),
            InterpreterOutput::TrialSkipped { trial, service } => {
                let trial = trial.trial;
                let skipped = Record::TrialSkipped(TrialSkipped { trial, service });
                self.tools.sender.send(&skipped);
            }
            InterpreterOutput::TrialCut { trial } => {
                if let Some(open) = self.trials.get_mut(&trial) {
                    open.record.spoilt = true;
                }
            }
            InterpreterOutput::Arm {
                task,
                trial,
                actor,
                transfer,
                intended,
            } => self.arm(task, trial, actor, transfer, intended),
            InterpreterOutput::Release { tasks } => self.release(&tasks),
            InterpreterOutput::Prepare {
                task,
                trial,
                prepare,
                ..
            } => {
                let range = (prepare.first, prepare.files);
                let located = self.locate_files(&prepare.dataset, range, |files| {
                    FileOperation::Prepare(PrepareOperation {
                        files,
                        cache: prepare.cache,
                        stall_timeout_s: Seconds::new(self.timeout_s()),
                    })
                });
                let (sender, clock) = (self.tools.sender.clone(), self.clock);
                let record = move |detail| {
                    let event = AgentEvent {
                        time_s: Seconds::new(clock.now_s()),
                        kind: "progress".into(),
                        detail,
                    };
                    sender.offer(&Record::Event(event));
                };
                self.run_preparation(task, trial, located, &prepare.dataset, move |files| {
                    let _turn = prepare::take_turn();
                    files.prepare(prepare.cache, &record)
                });
            }
            InterpreterOutput::DropCaches {
                task,
                trial,
                drop_caches,
                ..
            } => {
                let range = (drop_caches.first, drop_caches.files);
                let located = self.locate_files(&drop_caches.dataset, range, |files| {
                    FileOperation::DropCaches(DropCachesOperation {
                        files,
                        stall_timeout_s: Seconds::new(self.timeout_s()),
                    })
                });
                let dataset = &drop_caches.dataset;
                self.run_preparation(task, trial, located, dataset, Files::drop_caches);
            }
            InterpreterOutput::Compute { task, core_s, .. } => {
                let (stop, groups) = (Arc::clone(&self.stop), self.groups.clone());
                self.run_job("compute", move || {
                    let joined = groups.join();
                    compute::burn(core_s.get(), &stop);
                    let error =
                        |error| format!("a CPU phase cannot join its control group: {error}");
                    WorkerJob::Computed(task, joined.map_err(error))
                });
            }
            InterpreterOutput::Signal { counter, add } => {
                self.tools
                    .sender
                    .send(&Record::Signal(venturi_plan::Signal { counter, add }));
            }
            InterpreterOutput::TrialEnded { trial } => self.end_trial(trial),
            InterpreterOutput::Failed { error } => self.failure = Some(error.to_string()),
        }
    }

    fn open_trial(&mut self, trial: TrialRef) {
        let start_s = self.clock.now_s();
        self.tools.sender.send(&Record::TrialStart(TrialStart {
            trial: trial.trial,
            time_s: Seconds::new(start_s),
        }));
        self.trials.insert(trial, AgentTrial::new(start_s));
    }

    fn end_trial(&mut self, trial: TrialRef) {
        let Some(mut open) = self.trials.remove(&trial) else {
            return;
        };
        self.started.retain(|(of, _), _| *of != trial);
        self.deferred.insert(trial.actor.clone(), VecDeque::new());
        let account = std::mem::take(&mut open.account);
        self.finalize(
            AccountOwner::Trial(trial),
            Some((open, self.latest_s)),
            account,
        );
    }

    fn arm(
        &mut self,
        task: TaskId,
        trial: Option<TrialRef>,
        actor: Name,
        mut transfer: Transfer,
        intended: Option<Seconds>,
    ) {
        if let Some(size) = self.existing_sizes.get(transfer.source.as_str()) {
            transfer.bytes = *size;
        }
        let started = trial.as_ref().and_then(|trial| {
            let key = (trial.clone(), transfer.destination.as_str().to_owned());
            match self.started.entry(key) {
                Entry::Occupied(earlier) => Some(*earlier.get()),
                Entry::Vacant(new) => {
                    new.insert(None);
                    None
                }
            }
        });
        let mut order = TransferLaunch {
            trial,
            actor,
            transfer,
            intended,
            started: started.is_some(),
            earlier: started.flatten(),
            known: None,
        };
        order.find_known_rule(&Storages::new(&self.start), &mut self.cleared);
        match order.preparation(&self.site(), task.number()) {
            Ok(None) => self.send_to_barrier(task, order, None),
            Ok(Some(preparation)) => self.run_job("transfer", move || {
                WorkerJob::TransferPrepared(task, Box::new(order), preparation.make())
            }),
            Err(entry) => self.abort(task, *entry),
        }
    }

    /// Take the result of the slow work before a transfer is armed.
    pub(super) fn take_transfer(
        &mut self,
        task: TaskId,
        order: TransferLaunch,
        prepared: Result<Prepared, String>,
    ) {
        match prepared {
            Ok(prepared) => {
                if let Prepared::Cleared(location, outcome) = &prepared {
                    self.cleared.learn(location, outcome.siblings.clone());
                    self.cleared.occupy(location);
                }
                self.send_to_barrier(task, order, Some(prepared));
            }
            Err(error) => self.abort(task, *order.abort(error)),
        }
    }

    fn send_to_barrier(&mut self, task: TaskId, order: TransferLaunch, prepared: Option<Prepared>) {
        // Not `self.site()`, which would borrow the barrier, too.
        let site = Site {
            storages: Storages::new(&self.start),
            environment: &self.environment,
            requests: &self.tools.requests,
            timeout: Duration::from_nanos(self.timeout_ns),
        };
        match order.arm(&site, prepared, &mut self.tools.barrier) {
            Ok(ready) => {
                self.tools.watchdog.add(ready.child.pid);
                self.note_rule(&ready.entry);
                self.ready.insert(task, ready);
                self.arming.push(task);
            }
            Err(entry) => self.abort(task, *entry),
        }
    }

    /// Keep the rule for a destination, for later transfers of the trial.
    fn note_rule(&mut self, entry: &TransferEntry) {
        if let (Some(trial), Some(destination)) = (&entry.trial, &entry.destination) {
            let key = (trial.clone(), entry.record.destination.as_str().to_owned());
            if let Some(rule) = self.started.get_mut(&key) {
                rule.get_or_insert(destination.removal);
            }
        }
    }

    fn site(&self) -> Site<'_> {
        Site {
            storages: Storages::new(&self.start),
            environment: &self.environment,
            requests: &self.tools.requests,
            timeout: Duration::from_nanos(self.timeout_ns),
        }
    }

    fn send_armed_to_barrier(&mut self, task: TaskId) {
        let Some(ready) = self.ready.remove(&task) else {
            return;
        };
        let group = ready.child.pid;
        match ready.stand() {
            Ok(ready) => {
                self.ready.insert(task, ready);
                self.inform(self.clock.now_s(), InterpreterInput::Armed { task });
            }
            Err(entry) => {
                self.tools.watchdog.remove(group);
                self.abort(task, *entry);
            }
        }
    }

    fn abort(&mut self, task: TaskId, entry: TransferEntry) {
        self.write_down(task, entry, None);
        self.inform(self.clock.now_s(), InterpreterInput::NotArmed { task });
    }

    /// Releases transfers together, with one system call each and nothing in between.
    fn release(&mut self, tasks: &[TaskId]) {
        let ready: Vec<(TaskId, ReadyTransfer)> = tasks
            .iter()
            .filter_map(|task| Some((*task, self.ready.remove(task)?)))
            .collect();
        let released: Vec<(TaskId, Running)> = ready
            .into_iter()
            .map(|(task, ready)| (task, ready.release()))
            .collect();
        self.report_spread(&released);
        for (task, running) in released {
            self.deadlines.insert((running.deadline_ns, task));
            self.running.insert(task, running);
        }
        // A child that was killed before its release has already sent its signal.
        self.tools.workers.waker().wake();
    }

    fn report_spread(&mut self, released: &[(TaskId, Running)]) {
        let (Some((_, first)), Some((_, last))) = (released.first(), released.last()) else {
            return;
        };
        let spread_ns = last.released.start_ns - first.released.start_ns;
        if spread_ns <= SPREAD_NS {
            return;
        }
        let finding = findings::start_spread(spread_ns as f64 * 1e-9, released.len());
        match first
            .entry
            .trial
            .as_ref()
            .and_then(|trial| self.trials.get_mut(trial))
        {
            Some(open) => open.record.findings.push(finding),
            None => self.tools.sender.send(&Record::Finding(finding)),
        }
    }

    /// Find the files of a preparation; `operation` is the request for files of another host.
    fn locate_files(
        &self,
        dataset: &Name,
        range: (u64, u64),
        operation: impl FnOnce(DatasetFiles) -> FileOperation,
    ) -> Result<PreparedFiles, String> {
        let (host, files) = prepare::locate(&Storages::new(&self.start), dataset, range)?;
        Ok(match host {
            None => PreparedFiles::Own(Files::new(&files, &self.activity)),
            Some(host) => PreparedFiles::Requested(host, operation(files)),
        })
    }

    fn run_preparation(
        &mut self,
        task: TaskId,
        trial: Option<TrialRef>,
        files: Result<PreparedFiles, String>,
        dataset: &Name,
        work: impl FnOnce(&Files) -> PrepareOutcome + Send + 'static,
    ) {
        let preparing = |due_ns| Preparing {
            trial: trial.clone(),
            dataset: dataset.to_string(),
            due_ns,
        };
        match files {
            Ok(PreparedFiles::Own(files)) => {
                self.activity.beat();
                let due_ns = self.activity.last_ns() + self.timeout_ns;
                self.preparing.insert(task, preparing(due_ns));
                self.deadlines.insert((due_ns, task));
                self.run_job("prepare", move || {
                    WorkerJob::Prepared(task, trial, work(&files))
                });
            }
            Ok(PreparedFiles::Requested(host, operation)) => {
                self.preparing.insert(task, preparing(u64::MAX));
                let (requests, dataset) = (self.tools.requests.clone(), dataset.clone());
                self.run_job("prepare", move || {
                    let outcome = match requests.send(&host, operation).wait(None) {
                        Ok(OperationOutcome::Prepared(outcome)) => outcome,
                        Ok(other) => not_prepared(&dataset, &wrong_outcome(&host, &other)),
                        Err(error) => not_prepared(&dataset, &error),
                    };
                    WorkerJob::Prepared(task, trial, outcome)
                });
            }
            Err(error) => self.take_prepared(task, trial, not_prepared(dataset, &error)),
        }
    }

    pub(super) fn run_job(&mut self, name: &str, job: impl FnOnce() -> WorkerJob + Send + 'static) {
        if let Err(error) = self.tools.workers.run(name, job) {
            self.failure = Some(format!(
                "cannot start a thread (`{name}`): {error}; raise the limit with `ulimit -u`"
            ));
        }
    }
}
