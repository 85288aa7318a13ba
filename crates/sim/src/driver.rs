//! Carries out a plan in virtual time: one interpreter for each host, all in one thread, and the solver that says how long things take.
//!
//! An instant is handled in a defined order: flows that have ended, then what was put down for this time, then hosts whose time has come,
//! then transfers that are overdue; until nothing is left of it. So the same plan gives the same lines, bit for bit.
//!
//! What hosts tell each other by counters arrives after a latency. What a preparation does takes no time: data sets are there.
//!
//! Read [`Simulation`] first.

mod agenda;
mod attempts;
mod bounds;
mod brief;
pub mod columns;
mod counters;
mod hosts;
mod ledger;
mod lines;
mod load;
mod meters;
mod orders;
mod outages;
mod said;
mod samples;
mod sketch;
mod tally;
#[cfg(test)]
mod tests;
mod transfers;
mod trials;
mod walk;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use venturi_plan::{ActorLine, Done, Header, Input, Name, Recorded, Seconds, Task};

pub use said::{Line, Route, Said, Told, Transfer, Trial, Way};
pub use sketch::RELATIVE_ERROR;

use crate::fluid::Fluid;
use crate::world::{Assumptions, Courses, Error, World};
use agenda::{Agenda, Event};
use brief::{BRIEF, Brief};
use columns::Rows;
use counters::Counters;
use hosts::{Host, hosts_of, last_time};
use ledger::Ledger;
use lines::Lines;
use meters::Meters;
use samples::Sampler;
use transfers::{Active, Id};
use walk::Owner;

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
    /// Transfers that are told in brief, and whether all are written down by route.
    brief: Brief,
    by_route: bool,
    /// Columns that are carried out in place of a plan.
    rows: Option<Rows>,
    ledger: Option<Ledger>,
    /// The last time that the plan names.
    until_s: f64,
    next_token: u64,
    connections: u64,
    /// Transfers that were released.
    begun: u64,
    links_down: usize,
    /// Things that happened at this instant.
    happened: u64,
    /// Times that something was held.
    holds: u64,
    lines: Lines,
    /// Calls of which it has been told that their costs are not known.
    told_unknown: BTreeSet<Name>,
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

/// How far a simulation is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Virtual time.
    pub time_s: f64,
    /// The last time that the plan names; it may go on longer.
    pub until_s: f64,
    /// Transfers that have begun.
    pub transfers: u64,
    /// Of these, those that have not ended.
    pub live: u64,
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
        let until_s = lines
            .iter()
            .map(|line| last_time(&line.steps))
            .fold(0.0, f64::max);
        let (hosts, counters) = hosts_of(&world, &numbers, lines)?;
        let names: Vec<Name> = hosts.iter().map(|host| host.name.clone()).collect();
        let start_s = world.assumptions.start_s;
        let sampler = Sampler::new(&world, &names).map(|sampler| sampler.from(start_s));
        let by_route = world.header.measure.transfers == Recorded::Routes;
        let ledger = by_route
            .then(|| Ledger::new(&world, hosts.len(), start_s))
            .flatten();
        let counts = sampler.is_some() && !by_route;
        let mut simulation = Self {
            lines: Lines::new(&world),
            meters: Meters::new(&world, hosts.len(), counts),
            courses: Courses::default(),
            fluid,
            hosts,
            numbers,
            now: start_s,
            agenda: Agenda::default(),
            wakes: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            inputs: VecDeque::new(),
            active: BTreeMap::new(),
            moving: BTreeMap::new(),
            brief: Brief::default(),
            by_route,
            rows: None,
            ledger,
            until_s,
            next_token: 0,
            connections: 0,
            begun: 0,
            links_down: world.links.iter().filter(|link| !link.is_up()).count(),
            happened: 0,
            holds: 0,
            told_unknown: BTreeSet::new(),
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

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            time_s: self.now,
            until_s: self.until_s,
            transfers: self.brief.begun() + self.begun,
            live: (self.brief.count() + self.active.len()) as u64,
        }
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
        self.check_time(next_s)?;
        self.sample_until(next_s)?;
        self.pass_to(next_s)?;
        self.happened = 0;
        while self.handle_next()? {
            self.count_one()?;
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
            if change.time_s.get() <= self.now {
                self.change(number)?;
            } else {
                self.agenda.put(change.time_s.get(), Event::Change(number));
            }
        }
        for host in 0..self.hosts.len() {
            self.hosts[host].interpreter.start(Seconds::new(self.now));
            self.obey(host)?;
        }
        self.deliver()
    }

    fn is_over(&self) -> bool {
        self.active.is_empty()
            && self.rows.as_ref().is_none_or(Rows::are_over)
            && self.hosts.iter().all(|host| host.interpreter.is_finished())
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
            self.brief.next_limit_s(),
            self.rows.as_ref().and_then(Rows::next_s),
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
        } else if !self.end_overdue()? && !self.ask_for_row()? {
            return Ok(false);
        }
        self.deliver()?;
        Ok(true)
    }

    fn flow_ended(&mut self, token: u64) -> Result<(), Error> {
        if token & BRIEF != 0 {
            return self.flowed((token & !BRIEF) as u32);
        }
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
            Event::Onward(place, number) => return self.awake(place, number),
            Event::StageOver(owner) => return self.stage_over(owner),
            Event::TimeOver(owner) => return self.time_over(owner),
            Event::Fetch(id, client) => return self.fetch(id, client),
            Event::Resume(owner, number) => return self.resume(owner, number),
            Event::GiveUp(owner, number) => return self.give_up(owner, number),
        }
        Ok(())
    }

    fn say(&mut self, host: usize, said: Said) {
        let host = self.hosts[host].name.clone();
        self.out.push_back(Line { host, said });
    }

    fn number_of(&self, host: &str) -> Option<usize> {
        self.numbers.get(host).copied()
    }

    fn wrong(&self, what: &str, source: crate::fluid::Error) -> Error {
        Error::Solver {
            what: what.into(),
            time_s: self.now,
            source,
        }
    }
}
