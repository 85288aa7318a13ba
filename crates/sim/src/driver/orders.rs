//! What interpreters order, carried out: data sets, computations, counters, trials. Transfers have files of their own.

use venturi_plan::{
    Cache, DropCachesStep, Finding, Input, Name, Output, PrepareStep, Seconds, Task, TrialOutcome,
    TrialRef,
};

use super::agenda::Event;
use super::said::Said;
use super::trials::OpenTrial;
use super::{Purpose, Simulation};
use crate::world::Error;

impl Simulation {
    /// What an interpreter will be told, in order; rows of columns have none.
    pub(super) fn tell(&mut self, host: usize, input: Input) {
        if self.rows.is_none() {
            self.inputs.push_back((host, input));
        }
    }

    pub(super) fn deliver(&mut self) -> Result<(), Error> {
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

    pub(super) fn obey(&mut self, host: usize) -> Result<(), Error> {
        while let Some(output) = self.hosts[host].interpreter.poll_output() {
            #[cfg(test)]
            self.trace.output(&output);
            self.carry_out(host, output)?;
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

    fn carry_out(&mut self, host: usize, output: Output) -> Result<(), Error> {
        match output {
            Output::TrialStarted { trial } => {
                let open = OpenTrial::new(self.now);
                self.hosts[host].trials.insert(trial, open);
            }
            Output::Arm {
                task,
                trial,
                actor,
                transfer,
                intended,
            } => {
                self.arm((host, task), trial, actor, transfer, intended);
            }
            Output::Release { tasks } => self.release(host, &tasks)?,
            Output::Prepare {
                task,
                trial,
                prepare,
                ..
            } => self.prepare(host, task, trial, &prepare),
            Output::DropCaches {
                task,
                trial,
                drop_caches,
                ..
            } => self.drop_caches(host, task, trial, &drop_caches),
            Output::Compute { task, core_s, .. } => self.compute(host, task, core_s.get())?,
            Output::Signal { counter, add } => self.signal(&counter, add),
            Output::TrialEnded { trial } => self.end_trial(host, &trial),
            Output::Failed { error } => {
                let host = self.hosts[host].name.as_ref().into();
                return Err(Error::Plan {
                    host,
                    source: error,
                });
            }
        }
        Ok(())
    }

    fn prepare(&mut self, host: usize, task: Task, trial: Option<TrialRef>, prepare: &PrepareStep) {
        let header = self.world.header.clone();
        let set = &header.datasets[&prepare.dataset];
        let bytes = set.sizes().sum(prepare.first, prepare.files);
        if let Some(room) = self.world.room_of(&set.place).filter(|room| bytes > *room) {
            let finding = Finding {
                code: "prepare-failed".into(),
                subject: prepare.dataset.as_ref().into(),
                evidence: format!(
                    "expected room for {bytes} bytes on `{}`, found {room}",
                    set.place
                ),
                advice: "give the storage the size that the data sets need".into(),
            };
            match trial
                .as_ref()
                .and_then(|trial| self.hosts[host].trials.get_mut(trial))
            {
                Some(open) => open.spoil(finding),
                None => self.say(host, Said::Finding(finding)),
            }
            self.tell(host, Input::Failed { task });
            return;
        }
        if prepare.cache == Cache::Warm {
            self.world
                .memories
                .warmed(set, prepare.first, prepare.files);
            self.cached(host, trial, "warm");
        }
        self.tell(host, Input::Finished { task });
    }

    fn drop_caches(
        &mut self,
        host: usize,
        task: Task,
        trial: Option<TrialRef>,
        drop_caches: &DropCachesStep,
    ) {
        let header = self.world.header.clone();
        let set = &header.datasets[&drop_caches.dataset];
        self.world
            .memories
            .dropped(set, drop_caches.first, drop_caches.files);
        self.cached(host, trial, "cold");
        self.tell(host, Input::Finished { task });
    }

    fn cached(&mut self, host: usize, trial: Option<TrialRef>, state: &str) {
        if let Some(open) = trial.and_then(|trial| self.hosts[host].trials.get_mut(&trial)) {
            open.cached(state);
        }
    }

    /// One core of its host at most, and a share of them all.
    fn compute(&mut self, host: usize, task: Task, core_s: f64) -> Result<(), Error> {
        let cpus = self.world.cpus(&self.hosts[host].name);
        if cpus.is_empty() {
            self.agenda.put(
                self.now + core_s,
                Event::Tell(host, Input::Finished { task }),
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
                .put(at_s, Event::Counter(counter.clone(), value));
        }
    }

    fn end_trial(&mut self, host: usize, trial: &TrialRef) {
        let Some(open) = self.hosts[host].trials.remove(trial) else {
            return;
        };
        let routes = self.told_in_brief(&open.brief);
        let ended = open.close(trial, self.now, routes);
        self.trials_done += 1;
        if ended.record.outcome == TrialOutcome::Ok {
            let counts: Vec<_> = self.counters.of_trial(trial.trial).collect();
            for (name, add) in counts {
                self.signal(&name, add);
            }
        }
        self.say(host, Said::Trial(Box::new(ended)));
    }
}
