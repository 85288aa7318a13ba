//! Runs a plan in virtual time: one interpreter per host, all in one thread, and the solver that
//! computes durations.
//!
//! Events of an instant have a defined order: ended flows, then scheduled events, then due hosts,
//! then overdue transfers, until none is left. So the same plan gives the same lines, bit for bit.
//!
//! Changes of counters reach other hosts after a latency. Preparations take no time, because all
//! datasets exist.
//!
//! Read [`Simulation`] first.

mod agenda;
mod attempts;
mod bounds;
mod bulk;
pub mod columns;
mod counters;
mod hosts;
mod ledger;
mod load;
mod meters;
mod orders;
mod outages;
mod records;
mod samples;
mod service_queues;
mod sketch;
mod stage_runner;
mod tally;
#[cfg(test)]
mod tests;
mod transfers;
mod trials;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use venturi_plan::{ActorLine, Done, Header, InterpreterInput, Name, Recorded, Seconds, TaskId};

pub use records::{RouteKey, RouteRecord, SimLine, SimRecord, SimTransfer, SimTrial, ToolReport};
pub use sketch::RELATIVE_ERROR;

use crate::fluid::Fluid;
use crate::world::{Assumptions, RouteCache, World, WorldError};
use agenda::{Agenda, AgendaEvent};
use bulk::{BRIEF, BulkTransfers};
use columns::Rows;
use counters::SimCounters;
use hosts::{SimHost, hosts_of, last_time};
use ledger::Ledger;
use meters::Meters;
use samples::SimSampler;
use service_queues::ServiceQueues;
use stage_runner::Owner;
use transfers::{ActiveTransfer, Id};

/// Plan that runs in virtual time.
///
/// Call [`step`](Self::step) until it returns false, and after each call
/// [`poll_line`](Self::poll_line) until it returns `None`.
#[derive(Debug)]
pub struct Simulation {
    world: World,
    fluid: Fluid,
    route_cache: RouteCache,
    hosts: Vec<SimHost>,
    numbers: BTreeMap<Name, usize>,
    now: f64,
    agenda: Agenda,
    wakes: BTreeSet<(Seconds, usize)>,
    deadlines: BTreeSet<(Seconds, Id)>,
    inputs: VecDeque<(usize, InterpreterInput)>,
    active: BTreeMap<Id, ActiveTransfer>,
    moving: BTreeMap<u64, Purpose>,
    /// Bulk transfers, and whether all transfers are recorded by route.
    brief: BulkTransfers,
    by_route: bool,
    /// Columns that run instead of a plan.
    rows: Option<Rows>,
    ledger: Option<Ledger>,
    /// Last time in the plan.
    until_s: f64,
    next_token: u64,
    connections: u64,
    /// Number of released transfers.
    started: u64,
    links_down: usize,
    /// Number of events at this instant.
    happened: u64,
    /// Number of pauses so far.
    holds: u64,
    lines: ServiceQueues,
    /// Calls whose unknown costs have been reported.
    reported_unknown: BTreeSet<Name>,
    counters: SimCounters,
    meters: Meters,
    sampler: Option<SimSampler>,
    lo: (Name, Name),
    out: VecDeque<SimLine>,
    trials_done: u64,
    ended: bool,
    #[cfg(test)]
    trace: venturi_plan::conformance::Trace,
}

/// Progress of a simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimProgress {
    /// Virtual time.
    pub time_s: f64,
    /// The last time in the plan; the simulation can run longer.
    pub until_s: f64,
    /// Number of transfers that have started.
    pub transfers: u64,
    /// Number of active transfers.
    pub live: u64,
}

/// Purpose of a flow.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Of(Owner),
    Compute(usize, TaskId),
}

impl Simulation {
    /// Create a simulation at the start of a plan.
    ///
    /// # Errors
    /// If the plan cannot run, or its testbed has an invalid number.
    pub fn new(
        header: Header,
        lines: Vec<ActorLine>,
        assumptions: Assumptions,
    ) -> Result<Self, WorldError> {
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
        let sampler = SimSampler::new(&world, &names).map(|sampler| sampler.from(start_s));
        let by_route = world.header.measure.transfers == Recorded::Routes;
        let ledger = by_route
            .then(|| Ledger::new(&world, hosts.len(), start_s))
            .flatten();
        let counts = sampler.is_some() && !by_route;
        let mut simulation = Self {
            lines: ServiceQueues::new(&world),
            meters: Meters::new(&world, hosts.len(), counts),
            route_cache: RouteCache::default(),
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
            brief: BulkTransfers::default(),
            by_route,
            rows: None,
            ledger,
            until_s,
            next_token: 0,
            connections: 0,
            started: 0,
            links_down: world.links.iter().filter(|link| !link.is_up()).count(),
            happened: 0,
            holds: 0,
            reported_unknown: BTreeSet::new(),
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
        simulation.start_simulation()?;
        Ok(simulation)
    }

    /// Return the virtual time, in seconds since the start of the plan.
    #[must_use]
    pub fn now_s(&self) -> f64 {
        self.now
    }

    /// Return the progress.
    #[must_use]
    pub fn progress(&self) -> SimProgress {
        SimProgress {
            time_s: self.now,
            until_s: self.until_s,
            transfers: self.brief.started() + self.started,
            live: (self.brief.count() + self.active.len()) as u64,
        }
    }

    /// Return the next line, if any.
    pub fn poll_line(&mut self) -> Option<SimLine> {
        self.out.pop_front()
    }

    /// Advance to the next instant and handle it. Return false if the plan has ended.
    ///
    /// # Errors
    /// If the plan fails, or if actors wait and no event is left.
    pub fn step(&mut self) -> Result<bool, WorldError> {
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

    fn start_simulation(&mut self) -> Result<(), WorldError> {
        let header = self.world.header.clone();
        for (number, change) in header
            .network
            .iter()
            .flat_map(|network| network.changes.iter().enumerate())
        {
            if change.time_s.get() <= self.now {
                self.change(number)?;
            } else {
                self.agenda
                    .put(change.time_s.get(), AgendaEvent::Change(number));
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
        self.report_samples();
        let done = Done {
            time_s: Seconds::new(self.now),
            trials: self.trials_done,
        };
        self.out.push_back(SimLine {
            host: "".into(),
            record: SimRecord::Done(done),
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

    /// Advance the time without changes.
    fn pass_to(&mut self, time_s: f64) -> Result<(), WorldError> {
        let passed = self.meters.pass(&mut self.fluid, time_s - self.now);
        passed.map_err(|source| self.wrong("a rate", source))?;
        self.now = time_s;
        Ok(())
    }

    /// Handle one due event. Return false if there is none.
    fn handle_next(&mut self) -> Result<bool, WorldError> {
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
        } else if !self.end_overdue()? && !self.start_next_row()? {
            return Ok(false);
        }
        self.deliver()?;
        Ok(true)
    }

    fn flow_ended(&mut self, token: u64) -> Result<(), WorldError> {
        if token & BRIEF != 0 {
            return self.flowed((token & !BRIEF) as u32);
        }
        match self.moving.remove(&token) {
            Some(Purpose::Of(owner)) => self.stage_over(owner),
            Some(Purpose::Compute(host, task)) => {
                self.report(host, InterpreterInput::Finished { task });
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn happen(&mut self, event: AgendaEvent) -> Result<(), WorldError> {
        match event {
            AgendaEvent::Change(number) => return self.change(number),
            AgendaEvent::Report(host, input) => self.report(host, input),
            AgendaEvent::Counter(name, value) => {
                for host in self.counters.listeners(&name) {
                    self.report(
                        host,
                        InterpreterInput::Counter {
                            name: name.clone(),
                            value,
                        },
                    );
                }
            }
            AgendaEvent::Onward(storage, number) => return self.awake(storage, number),
            AgendaEvent::StageOver(owner) => return self.stage_over(owner),
            AgendaEvent::TimeOver(owner) => return self.time_over(owner),
            AgendaEvent::Fetch(id, client) => return self.fetch(id, client),
            AgendaEvent::Resume(owner, number) => return self.resume(owner, number),
            AgendaEvent::Abort(owner, number) => return self.abort(owner, number),
        }
        Ok(())
    }

    fn push(&mut self, host: usize, record: SimRecord) {
        let host = self.hosts[host].name.clone();
        self.out.push_back(SimLine { host, record });
    }

    fn number_of(&self, host: &str) -> Option<usize> {
        self.numbers.get(host).copied()
    }

    fn wrong(&self, what: &str, source: crate::fluid::FluidError) -> WorldError {
        WorldError::Solver {
            what: what.into(),
            time_s: self.now,
            source,
        }
    }
}
