//! Executes interpreter outputs: datasets, computations, counters, trials. Transfers have their own
//! files.

use venturi_plan::{
    Cache, DropCachesStep, Finding, InterpreterInput, InterpreterOutput, Name, PrepareStep,
    Seconds, TaskId, TrialOutcome, TrialRef,
};

use super::agenda::AgendaEvent;
use super::records::SimRecord;
use super::trials::SimOpenTrial;
use super::{Purpose, Simulation};
use crate::world::WorldError;

impl Simulation {
    /// Schedule an input of an interpreter, in order. Rows of columns have no interpreter.
    pub(super) fn report(&mut self, host: usize, input: InterpreterInput) {
        if self.rows.is_none() {
            self.inputs.push_back((host, input));
        }
    }

    pub(super) fn deliver(&mut self) -> Result<(), WorldError> {
        loop {
            if let Some((host, input)) = self.inputs.pop_front() {
                self.count_one()?;
                #[cfg(test)]
                self.trace.input(&input);
                self.hosts[host]
                    .interpreter
                    .handle_input(Seconds::new(self.now), input);
                self.obey(host)?;
            } else if let Some((host, of)) = self.brief.departed.pop_front() {
                self.depart(host, of)?;
            } else {
                return Ok(());
            }
        }
    }

    pub(super) fn obey(&mut self, host: usize) -> Result<(), WorldError> {
        while let Some(output) = self.hosts[host].interpreter.poll_output() {
            #[cfg(test)]
            self.trace.output(&output);
            self.execute(host, output)?;
        }
        while let Some(arrival) = self.hosts[host].interpreter.poll_arrival() {
            self.arrive(host, arrival)?;
        }
        let due = self.hosts[host].interpreter.poll_timeout();
        if due != self.hosts[host].wake {
            if let Some(before) = self.hosts[host].wake {
                self.wakes.remove(&(before, host));
            }
            self.wakes.extend(due.map(|time| (time, host)));
            self.hosts[host].wake = due;
        }
        Ok(())
    }

    fn execute(&mut self, host: usize, output: InterpreterOutput) -> Result<(), WorldError> {
        match output {
            InterpreterOutput::TrialStarted { trial } => {
                let open = SimOpenTrial::new(self.now);
                self.hosts[host].trials.insert(trial, open);
            }
            InterpreterOutput::Arm {
                task,
                trial,
                actor,
                transfer,
                intended,
            } => {
                self.arm((host, task), trial, actor, transfer, intended);
            }
            InterpreterOutput::Release { tasks } => self.release(host, &tasks)?,
            InterpreterOutput::Prepare {
                task,
                trial,
                prepare,
                ..
            } => self.prepare(host, task, trial, &prepare),
            InterpreterOutput::DropCaches {
                task,
                trial,
                drop_caches,
                ..
            } => self.drop_caches(host, task, trial, &drop_caches),
            InterpreterOutput::Compute { task, core_s, .. } => {
                self.compute(host, task, core_s.get())?
            }
            InterpreterOutput::Signal { counter, add } => self.signal(&counter, add),
            InterpreterOutput::TrialEnded { trial } => self.end_trial(host, &trial),
            // Simulated servers do not exit.
            InterpreterOutput::TrialSkipped { .. } | InterpreterOutput::TrialCut { .. } => {}
            InterpreterOutput::Failed { error } => {
                let host = self.hosts[host].name.as_ref().into();
                return Err(WorldError::Plan {
                    host,
                    source: error,
                });
            }
        }
        Ok(())
    }

    fn prepare(
        &mut self,
        host: usize,
        task: TaskId,
        trial: Option<TrialRef>,
        prepare: &PrepareStep,
    ) {
        let header = self.world.header.clone();
        let set = &header.datasets[&prepare.dataset];
        let bytes = set.sizes().sum(prepare.first, prepare.files);
        if let Some(slots) = self
            .world
            .slots_of_pool(&set.storage)
            .filter(|slots| bytes > *slots)
        {
            let finding = Finding {
                code: "prepare-failed".into(),
                subject: prepare.dataset.as_ref().into(),
                evidence: format!(
                    "expected {bytes} free bytes on `{}`, found {slots}",
                    set.storage
                ),
                advice: "enlarge the storage so that the datasets fit".into(),
            };
            match trial
                .as_ref()
                .and_then(|trial| self.hosts[host].trials.get_mut(trial))
            {
                Some(open) => open.spoil(finding),
                None => self.push(host, SimRecord::Finding(finding)),
            }
            self.report(host, InterpreterInput::Failed { task });
            return;
        }
        if prepare.cache == Cache::Warm {
            self.world
                .memories
                .warmed(set, prepare.first, prepare.files);
            self.cached(host, trial, "warm");
        }
        self.report(host, InterpreterInput::Finished { task });
    }

    fn drop_caches(
        &mut self,
        host: usize,
        task: TaskId,
        trial: Option<TrialRef>,
        drop_caches: &DropCachesStep,
    ) {
        let header = self.world.header.clone();
        let set = &header.datasets[&drop_caches.dataset];
        self.world
            .memories
            .dropped(set, drop_caches.first, drop_caches.files);
        self.cached(host, trial, "cold");
        self.report(host, InterpreterInput::Finished { task });
    }

    fn cached(&mut self, host: usize, trial: Option<TrialRef>, state: &str) {
        if let Some(open) = trial.and_then(|trial| self.hosts[host].trials.get_mut(&trial)) {
            open.cached(state);
        }
    }

    /// Start a computation on at most one core of its host, with a share of all cores.
    fn compute(&mut self, host: usize, task: TaskId, core_s: f64) -> Result<(), WorldError> {
        let cpus = self.world.cpus(&self.hosts[host].name);
        if cpus.is_empty() {
            self.agenda.put(
                self.now + core_s,
                AgendaEvent::Report(host, InterpreterInput::Finished { task }),
            );
            return Ok(());
        }
        let class = self
            .fluid
            .class(cpus, 1.0, 1.0)
            .map_err(|source| self.wrong("a core", source))?;
        let token = self.next_token;
        self.next_token += 1;
        self.fluid
            .start(self.now, class, core_s, token)
            .map_err(|source| self.wrong("a computation", source))?;
        self.moving.insert(token, Purpose::Compute(host, task));
        Ok(())
    }

    fn signal(&mut self, counter: &Name, add: u64) {
        let value = self.counters.add(counter, add);
        if self.counters.is_awaited(counter) {
            let at_s = self.now + self.world.assumptions.counter_latency_s;
            self.agenda
                .put(at_s, AgendaEvent::Counter(counter.clone(), value));
        }
    }

    fn end_trial(&mut self, host: usize, trial: &TrialRef) {
        let Some(open) = self.hosts[host].trials.remove(trial) else {
            return;
        };
        let routes = self.bulk_tallies(&open.brief);
        let ended = open.close(trial, self.now, routes);
        self.trials_done += 1;
        if ended.record.outcome == TrialOutcome::Ok {
            let counts: Vec<_> = self.counters.of_trial(trial.trial).collect();
            for (name, add) in counts {
                self.signal(&name, add);
            }
        }
        self.push(host, SimRecord::Trial(Box::new(ended)));
    }
}
