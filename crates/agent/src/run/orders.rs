//! The half of a run that does what the interpreter says.

use std::collections::VecDeque;
use std::sync::Arc;

use venturi_plan::{
    Event, Input, Name, Output, Record, Seconds, Task, Transfer, TrialRef, TrialStart,
};

use super::{Job, Preparing, Run, SPREAD_NS};
use crate::compute;
use crate::findings;
use crate::list::Listed;
use crate::order::{Order, Site};
use crate::places::Places;
use crate::prepare::{Files, Prepared};
use crate::transfer::{Entry, Ready, Running};
use crate::trial::{OpenTrial, Settlement};

impl Run {
    pub(super) fn obey(&mut self) {
        loop {
            while let Some(output) = self.interpreter.poll_output() {
                #[cfg(test)]
                self.trace.output(&output);
                let actor = self.actor_of(&output).cloned();
                match actor.and_then(|actor| self.held.get_mut(&actor)) {
                    Some(held) => held.push_back(output),
                    None => self.carry_out(output),
                }
            }
            // All have been forked before the first is waited for.
            let arming = std::mem::take(&mut self.arming);
            if arming.is_empty() {
                return;
            }
            arming.into_iter().for_each(|task| self.line_up(task));
        }
    }

    /// The actor that an output belongs to; a release belongs to the one whose transfers it lets go.
    fn actor_of<'a>(&'a self, output: &'a Output) -> Option<&'a Name> {
        match output {
            Output::TrialStarted { trial } | Output::TrialEnded { trial } => Some(&trial.actor),
            Output::Arm { actor, .. }
            | Output::Prepare { actor, .. }
            | Output::DropCaches { actor, .. }
            | Output::Compute { actor, .. } => Some(actor),
            Output::Release { tasks } => tasks
                .iter()
                .find_map(|task| Some(&self.ready.get(task)?.entry.record.actor)),
            Output::Signal { .. } | Output::Failed { .. } => None,
        }
    }

    pub(super) fn carry_out(&mut self, output: Output) {
        match output {
            Output::TrialStarted { trial } => self.open_trial(trial),
            Output::Arm {
                task,
                trial,
                actor,
                transfer,
                intended,
            } => self.arm(task, trial, actor, transfer, intended),
            Output::Release { tasks } => self.release(&tasks),
            Output::Prepare {
                task,
                trial,
                prepare,
                ..
            } => {
                let files = self.locate_files(&prepare.dataset, (prepare.first, prepare.files));
                let (sender, clock) = (self.tools.sender.clone(), self.clock);
                let tell = move |detail| {
                    let event = Event {
                        time_s: Seconds::new(clock.now_s()),
                        kind: "progress".into(),
                        detail,
                    };
                    sender.offer(&Record::Event(event));
                };
                self.run_preparation(task, trial, files, &prepare.dataset.clone(), move |files| {
                    files.prepare(&prepare, &tell)
                });
            }
            Output::DropCaches {
                task,
                trial,
                drop_caches,
                ..
            } => {
                let files =
                    self.locate_files(&drop_caches.dataset, (drop_caches.first, drop_caches.files));
                self.run_preparation(
                    task,
                    trial,
                    files,
                    &drop_caches.dataset.clone(),
                    Files::drop_caches,
                );
            }
            Output::Compute { task, core_s, .. } => {
                let stop = Arc::clone(&self.stop);
                self.run_job("compute", move || {
                    compute::burn(core_s.get(), &stop);
                    Job::Computed(task)
                });
            }
            Output::Signal { counter, add } => {
                self.tools
                    .sender
                    .send(&Record::Signal(venturi_plan::Signal { counter, add }));
            }
            Output::TrialEnded { trial } => self.end_trial(trial),
            Output::Failed { error } => self.failure = Some(error.to_string()),
        }
    }

    fn open_trial(&mut self, trial: TrialRef) {
        let start_s = self.clock.now_s();
        self.tools.sender.send(&Record::TrialStart(TrialStart {
            trial: trial.trial,
            time_s: Seconds::new(start_s),
        }));
        self.trials.insert(trial, OpenTrial::new(start_s));
    }

    fn end_trial(&mut self, trial: TrialRef) {
        let Some(mut open) = self.trials.remove(&trial) else {
            return;
        };
        self.begun.retain(|(of, _)| *of != trial);
        self.held.insert(trial.actor.clone(), VecDeque::new());
        let account = std::mem::take(&mut open.account);
        self.settle(
            Settlement::Trial(trial),
            Some((open, self.latest_s)),
            account,
        );
    }

    fn arm(
        &mut self,
        task: Task,
        trial: Option<TrialRef>,
        actor: Name,
        transfer: Transfer,
        intended: Option<Seconds>,
    ) {
        let begun = trial.as_ref().is_some_and(|trial| {
            !self
                .begun
                .insert((trial.clone(), transfer.destination.as_str().to_owned()))
        });
        let order = Order {
            trial,
            actor,
            transfer,
            intended,
            begun,
        };
        match order.list(&self.site(), task.number()) {
            Ok(None) => self.send_to_line(task, order, None),
            Ok(Some(list)) => self.run_job("list", move || {
                Job::Listed(task, Box::new(order), list.make())
            }),
            Err(entry) => self.give_up(task, *entry),
        }
    }

    /// The list of a transfer of many files is made, or cannot be.
    pub(super) fn take_list(&mut self, task: Task, order: Order, made: Result<Listed, String>) {
        match made {
            Ok(listed) => self.send_to_line(task, order, Some(listed)),
            Err(error) => self.give_up(task, *order.give_up(error)),
        }
    }

    fn send_to_line(&mut self, task: Task, order: Order, listed: Option<Listed>) {
        // Not `self.site()`, which borrows the barrier as well.
        let site = Site {
            places: Places::new(&self.start),
            environment: &self.environment,
        };
        match order.arm(&site, listed, &mut self.tools.barrier) {
            Ok(ready) => {
                self.tools.guardian.add(ready.child.pid);
                self.ready.insert(task, ready);
                self.arming.push(task);
            }
            Err(entry) => self.give_up(task, *entry),
        }
    }

    fn site(&self) -> Site<'_> {
        Site {
            places: Places::new(&self.start),
            environment: &self.environment,
        }
    }

    fn line_up(&mut self, task: Task) {
        let Some(ready) = self.ready.remove(&task) else {
            return;
        };
        let group = ready.child.pid;
        match ready.stand() {
            Ok(ready) => {
                self.ready.insert(task, ready);
                self.inform(self.clock.now_s(), Input::Armed { task });
            }
            Err(entry) => {
                self.tools.guardian.remove(group);
                self.give_up(task, *entry);
            }
        }
    }

    fn give_up(&mut self, task: Task, entry: Entry) {
        self.write_down(task, entry, None);
        self.inform(self.clock.now_s(), Input::NotArmed { task });
    }

    /// Lets transfers go together: one system call each and nothing between them.
    fn release(&mut self, tasks: &[Task]) {
        let ready: Vec<(Task, Ready)> = tasks
            .iter()
            .filter_map(|task| Some((*task, self.ready.remove(task)?)))
            .collect();
        let released: Vec<(Task, Running)> = ready
            .into_iter()
            .map(|(task, ready)| (task, ready.release()))
            .collect();
        self.doubt_spread(&released);
        for (task, running) in released {
            self.deadlines.insert((running.deadline_ns, task));
            self.running.insert(task, running);
        }
        // A child that was killed before its release has sent its signal already.
        self.tools.workers.waker().wake();
    }

    fn doubt_spread(&mut self, released: &[(Task, Running)]) {
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
            Some(open) => open.told.findings.push(finding),
            None => self.tools.sender.send(&Record::Finding(finding)),
        }
    }

    fn locate_files(&self, dataset: &str, range: (u64, u64)) -> Result<Files, String> {
        let places = Places::new(&self.start);
        Files::locate(&places, dataset, range, &self.pulse)
    }

    fn run_preparation(
        &mut self,
        task: Task,
        trial: Option<TrialRef>,
        files: Result<Files, String>,
        dataset: &str,
        work: impl FnOnce(&Files) -> Prepared + Send + 'static,
    ) {
        match files {
            Ok(files) => {
                self.pulse.beat();
                let due_ns = self.pulse.last_ns() + self.patience_ns;
                let preparing = Preparing {
                    trial: trial.clone(),
                    dataset: dataset.to_owned(),
                    due_ns,
                };
                self.preparing.insert(task, preparing);
                self.deadlines.insert((due_ns, task));
                self.run_job("prepare", move || Job::Prepared(task, trial, work(&files)));
            }
            Err(error) => {
                let findings = vec![findings::prepare_failed(dataset, &error)];
                self.take_prepared(
                    task,
                    trial,
                    Prepared {
                        findings,
                        failed: true,
                        ..Prepared::default()
                    },
                );
            }
        }
    }

    pub(super) fn run_job(&mut self, name: &str, job: impl FnOnce() -> Job + Send + 'static) {
        if let Err(error) = self.tools.workers.run(name, job) {
            self.failure = Some(format!(
                "expected room for one more thread (`{name}`), found: {error}; see `ulimit -u`"
            ));
        }
    }
}
