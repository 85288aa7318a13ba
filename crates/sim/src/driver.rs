//! Carries out a plan in virtual time: one interpreter for each host, all in one thread, and the solver that says how long things take.
//!
//! An instant is handled in a defined order: flows that have ended, then what was put down for this time, then hosts whose time has come,
//! then transfers that are overdue; until nothing is left of it. So the same plan gives the same lines, bit for bit.
//!
//! What hosts tell each other by counters arrives after a latency. What a preparation does takes no time: data sets are there.
//!
//! Read [`Simulation`] first.

mod agenda;
mod counters;
mod lines;
mod load;
mod meters;
mod said;
mod samples;
#[cfg(test)]
mod tests;
mod transfers;
mod trials;
mod walk;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use venturi_plan::{
    ActorLine, Cache, Done, Endpoint, Finding, Header, Input, Interpreter, Name, Output,
    PrepareStep, Seconds, Task, TrialOutcome, TrialRef,
};

pub use said::{Line, Said, Told, Transfer, Trial};

use crate::fluid::Fluid;
use crate::world::{Assumptions, Courses, Error, World};
use agenda::{Agenda, Event};
use counters::Counters;
use lines::Lines;
use meters::Meters;
use samples::Sampler;
use transfers::{Active, Id};
use trials::OpenTrial;
use walk::Owner;

/// Things that may happen at one instant; a plan in which more do would never come to the next.
const MOST_AT_ONCE: u64 = 100_000_000;

/// A plan that is being carried out in virtual time.
///
/// Call [`step`](Self::step) until it returns false, and [`poll_line`](Self::poll_line) after each until there is none.
#[derive(Debug)]
pub struct Simulation {
    world: World,
    fluid: Fluid,
    courses: Courses,
    hosts: Vec<Host>,
    numbers: BTreeMap<Name, usize>,
    now: f64,
    agenda: Agenda,
    wakes: BTreeSet<(Seconds, usize)>,
    deadlines: BTreeSet<(Seconds, Id)>,
    inputs: VecDeque<(usize, Input)>,
    active: BTreeMap<Id, Active>,
    moving: BTreeMap<u64, Purpose>,
    next_token: u64,
    connections: u64,
    lines: Lines,
    /// Calls of which it has been told that their costs are not known.
    told_unknown: BTreeSet<Name>,
    /// What each proxy has delivered.
    fetched: BTreeMap<Name, BTreeSet<Endpoint>>,
    counters: Counters,
    meters: Meters,
    sampler: Option<Sampler>,
    lo: (Name, Name),
    out: VecDeque<Line>,
    trials_done: u64,
    ended: bool,
    #[cfg(test)]
    trace: venturi_plan::conformance::Trace,
}

#[derive(Debug)]
struct Host {
    name: Name,
    interpreter: Interpreter,
    wake: Option<Seconds>,
    trials: BTreeMap<TrialRef, OpenTrial>,
}

/// What a flow is for.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Of(Owner),
    Compute(usize, Task),
}

impl Simulation {
    /// A plan at its beginning.
    ///
    /// # Errors
    /// Where the plan cannot be carried out, or a number of its testbed is none that can be.
    pub fn new(
        header: Header,
        lines: Vec<ActorLine>,
        assumptions: Assumptions,
    ) -> Result<Self, Error> {
        let mut fluid = Fluid::new();
        let world = World::new(Arc::new(header), assumptions, &mut fluid)?;
        let numbers: BTreeMap<Name, usize> = world
            .header
            .hosts
            .keys()
            .enumerate()
            .map(|(number, name)| (name.clone(), number))
            .collect();
        let mut counters = Counters::default();
        let mut by_host: Vec<Vec<ActorLine>> = numbers.iter().map(|_| Vec::new()).collect();
        for line in lines {
            let host = *numbers.get(&line.host).ok_or_else(|| Error::Unknown {
                where_: format!("actor {}, host", line.actor),
                expected: "a host of the plan",
                found: line.host.as_ref().into(),
            })?;
            counters.read(host, &line);
            by_host[host].push(line);
        }
        let mut hosts = Vec::with_capacity(by_host.len());
        for (name, lines) in numbers.keys().zip(by_host) {
            let interpreter = Interpreter::new(&world.header, name, lines, BTreeSet::new());
            let interpreter = interpreter.map_err(|source| Error::Plan {
                host: name.as_ref().into(),
                source,
            })?;
            hosts.push(Host {
                name: name.clone(),
                interpreter,
                wake: None,
                trials: BTreeMap::new(),
            });
        }
        let names: Vec<Name> = hosts.iter().map(|host| host.name.clone()).collect();
        let sampler = Sampler::new(&world, &names);
        let counts = sampler.is_some();
        let mut simulation = Self {
            lines: Lines::new(&world),
            meters: Meters::new(&world, hosts.len(), counts),
            courses: Courses::default(),
            fluid,
            hosts,
            numbers,
            now: 0.0,
            agenda: Agenda::default(),
            wakes: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            inputs: VecDeque::new(),
            active: BTreeMap::new(),
            moving: BTreeMap::new(),
            next_token: 0,
            connections: 0,
            told_unknown: BTreeSet::new(),
            fetched: BTreeMap::new(),
            counters,
            sampler,
            lo: ("nic.lo.rx_bytes".into(), "nic.lo.tx_bytes".into()),
            out: VecDeque::new(),
            trials_done: 0,
            ended: false,
            world,
            #[cfg(test)]
            trace: venturi_plan::conformance::Trace::default(),
        };
        simulation.begin()?;
        Ok(simulation)
    }

    /// Virtual time, in seconds since the start of the plan.
    #[must_use]
    pub fn now_s(&self) -> f64 {
        self.now
    }

    /// The next line, if any.
    pub fn poll_line(&mut self) -> Option<Line> {
        self.out.pop_front()
    }

    /// Goes on to the next instant and handles it; false: the plan is at its end.
    ///
    /// # Errors
    /// If nothing can happen any more and somebody waits, or the plan fails.
    pub fn step(&mut self) -> Result<bool, Error> {
        if self.ended {
            return Ok(false);
        }
        if self.is_over() {
            self.end();
            return Ok(false);
        }
        let next_s = self.next_s().ok_or_else(|| self.deadlock())?;
        let next_s = next_s.max(self.now);
        self.sample_until(next_s)?;
        self.pass_to(next_s)?;
        let mut happened = 0;
        while self.handle_next()? {
            happened += 1;
            if happened == MOST_AT_ONCE {
                return Err(Error::Endless {
                    time_s: self.now,
                    happened,
                });
            }
        }
        Ok(true)
    }

    fn begin(&mut self) -> Result<(), Error> {
        let header = self.world.header.clone();
        for (number, change) in header
            .network
            .iter()
            .flat_map(|network| network.changes.iter().enumerate())
        {
            self.agenda.put(change.time_s.get(), Event::Change(number));
        }
        for host in 0..self.hosts.len() {
            self.hosts[host].interpreter.start(Seconds::ZERO);
            self.obey(host)?;
        }
        self.deliver()
    }

    fn is_over(&self) -> bool {
        self.active.is_empty() && self.hosts.iter().all(|host| host.interpreter.is_finished())
    }

    fn end(&mut self) {
        self.ended = true;
        self.tell_samples();
        let done = Done {
            time_s: Seconds::new(self.now),
            trials: self.trials_done,
        };
        self.out.push_back(Line {
            host: "".into(),
            said: Said::Done(done),
        });
    }

    fn next_s(&mut self) -> Option<f64> {
        let wake = self.wakes.first().map(|(time, _)| time.get());
        let deadline = self.deadlines.first().map(|(time, _)| time.get());
        let all = [
            self.fluid.poll_timeout(),
            self.agenda.next_s(),
            wake,
            deadline,
        ];
        all.into_iter().flatten().reduce(f64::min)
    }

    /// Lets time pass in which nothing changes.
    fn pass_to(&mut self, time_s: f64) -> Result<(), Error> {
        let passed = self.meters.pass(&mut self.fluid, time_s - self.now);
        passed.map_err(|source| self.wrong("a rate", source))?;
        self.now = time_s;
        Ok(())
    }

    /// Handles one thing that is due; false: nothing is.
    fn handle_next(&mut self) -> Result<bool, Error> {
        if let Some(end) = self.fluid.poll_output(self.now) {
            self.flow_ended(end.token)?;
        } else if let Some(event) = self.agenda.take(self.now) {
            self.happen(event)?;
        } else if let Some(&(time, host)) = self
            .wakes
            .first()
            .filter(|(time, _)| time.get() <= self.now)
        {
            self.wakes.remove(&(time, host));
            self.hosts[host].wake = None;
            self.hosts[host]
                .interpreter
                .handle_timeout(Seconds::new(self.now));
            self.obey(host)?;
        } else if let Some(&(_, id)) = self
            .deadlines
            .first()
            .filter(|(time, _)| time.get() <= self.now)
        {
            self.overdue(id)?;
        } else {
            return Ok(false);
        }
        self.deliver()?;
        Ok(true)
    }

    fn flow_ended(&mut self, token: u64) -> Result<(), Error> {
        match self.moving.remove(&token) {
            Some(Purpose::Of(owner)) => self.stage_over(owner),
            Some(Purpose::Compute(host, task)) => {
                self.tell(host, Input::Finished { task });
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Change(number) => return self.change(number),
            Event::Tell(host, input) => self.tell(host, input),
            Event::Counter(name, value) => {
                for host in self.counters.listeners(&name) {
                    self.tell(
                        host,
                        Input::Counter {
                            name: name.clone(),
                            value,
                        },
                    );
                }
            }
            Event::StageOver(owner) => return self.stage_over(owner),
            Event::TimeOver(owner) => return self.time_over(owner),
            Event::Fetch(id, client) => return self.fetch(id, client),
        }
        Ok(())
    }

    fn change(&mut self, number: usize) -> Result<(), Error> {
        let header = self.world.header.clone();
        let Some(change) = header
            .network
            .as_ref()
            .and_then(|network| network.changes.get(number))
        else {
            return Ok(());
        };
        let link = self.world.link_named(&change.link)?;
        let (resource, capacity) = self.world.change(link, &change.set)?;
        self.meters.capacity[link] = capacity;
        let capacity = crate::fluid::Capacity::Constant(capacity);
        let changed = self.fluid.set_capacity(self.now, resource, capacity);
        changed.map_err(|source| self.wrong("a change of a link", source))
    }

    /// What an interpreter will be told, in order.
    fn tell(&mut self, host: usize, input: Input) {
        self.inputs.push_back((host, input));
    }

    fn deliver(&mut self) -> Result<(), Error> {
        while let Some((host, input)) = self.inputs.pop_front() {
            #[cfg(test)]
            self.trace.input(&input);
            self.hosts[host]
                .interpreter
                .handle_input(Seconds::new(self.now), input);
            self.obey(host)?;
        }
        Ok(())
    }

    fn obey(&mut self, host: usize) -> Result<(), Error> {
        while let Some(output) = self.hosts[host].interpreter.poll_output() {
            #[cfg(test)]
            self.trace.output(&output);
            self.carry_out(host, output)?;
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
            } => {
                let header = self.world.header.clone();
                let set = &header.datasets[&drop_caches.dataset];
                self.world.stores.dropped(&set.place, &set.path);
                self.cached(host, trial, "cold");
                self.tell(host, Input::Finished { task });
            }
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
            self.world.stores.warmed(&set.place, &set.path, bytes, true);
            self.cached(host, trial, "warm");
        }
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
        let record = open.close(trial, self.now);
        self.trials_done += 1;
        if record.outcome == TrialOutcome::Ok {
            let counts: Vec<_> = self.counters.of_trial(trial.trial).collect();
            for (name, add) in counts {
                self.signal(&name, add);
            }
        }
        self.say(host, Said::Trial(Box::new(record)));
    }

    fn say(&mut self, host: usize, said: Said) {
        let host = self.hosts[host].name.clone();
        self.out.push_back(Line { host, said });
    }

    fn number_of(&self, host: &str) -> Option<usize> {
        self.numbers.get(host).copied()
    }

    fn deadlock(&self) -> Error {
        let waits = |host: &Host| {
            host.interpreter
                .waiting()
                .into_iter()
                .map(|what| format!("on {}, {what}", host.name))
                .collect::<Vec<_>>()
        };
        let waiting: Vec<String> = self.hosts.iter().flat_map(waits).collect();
        Error::Deadlock {
            time_s: self.now,
            waiting: waiting.join("; "),
        }
    }

    fn wrong(&self, what: &str, source: crate::fluid::Error) -> Error {
        Error::Solver {
            what: what.into(),
            time_s: self.now,
            source,
        }
    }
}
