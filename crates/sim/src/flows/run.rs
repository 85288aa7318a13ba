//! Carrying a workload out in virtual time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::{Batch, Columns, Kind, Settings, Way, Workload};
use crate::fluid::ahead::fetch;
use crate::fluid::{Capacity, ClassId, Error, Fluid, ResourceId, Work};

/// No further flow.
const NONE: u32 = u32::MAX;

/// What is kept of a flow is fetched so many flows ahead: soon enough to be there, and few enough for a cache.
const AHEAD: usize = 8;

/// What came of a workload.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// When each flow ended, in the order of the workload; of a batch, each job. Seconds.
    pub end_s: Vec<f64>,
    /// When each flow of a closed workload was asked for, before its latency; empty of the others. Seconds.
    pub asked_s: Vec<f64>,
    /// Flows at once at most.
    pub peak_live: usize,
    /// What the fast solver did; nothing of the oracle.
    pub work: Work,
}

/// When, as bits (times are not negative, so these are in their order), and which flow.
type Due = (u64, u32);

/// Flows that begin later, by time.
#[derive(Debug, Default)]
struct Agenda {
    /// Those that were known from the beginning, last first: many, and sorted once they cost less than in a heap.
    known: Vec<Due>,
    waiting: BinaryHeap<Reverse<Due>>,
}

impl Agenda {
    fn of(known: impl Iterator<Item = (f64, u32)>) -> Self {
        let mut known: Vec<Due> = known.map(|(at_s, item)| (at_s.to_bits(), item)).collect();
        known.sort_unstable_by(|one, other| other.cmp(one));
        Self {
            known,
            waiting: BinaryHeap::new(),
        }
    }

    fn put(&mut self, at_s: f64, item: u32) {
        self.waiting.push(Reverse((at_s.to_bits(), item)));
    }

    fn next(&self) -> Option<Due> {
        let waiting = self.waiting.peek().map(|&Reverse(due)| due);
        self.known.last().copied().into_iter().chain(waiting).min()
    }

    fn next_s(&self) -> Option<f64> {
        self.next().map(|(at_s, _)| f64::from_bits(at_s))
    }

    /// One that will be taken soon, of those known from the beginning.
    fn coming(&self) -> Option<u32> {
        let ahead = self.known.len().checked_sub(AHEAD)?;
        Some(self.known[ahead].1)
    }

    fn take(&mut self, now: f64) -> Option<u32> {
        let next = self
            .next()
            .filter(|(at_s, _)| f64::from_bits(*at_s) <= now)?;
        if self.known.last() == Some(&next) {
            self.known.pop();
        } else {
            self.waiting.pop();
        }
        Some(next.1)
    }
}

/// A solver and how many flows it has.
struct Stage {
    fluid: Fluid,
    live: usize,
    peak: usize,
}

impl Stage {
    fn start(&mut self, now: f64, class: ClassId, bytes: f64, token: u32) -> Result<(), Error> {
        self.fluid.start(now, class, bytes, u64::from(token))?;
        self.live += 1;
        self.peak = self.peak.max(self.live);
        Ok(())
    }

    fn end(&mut self, now: f64) -> Option<(u32, f64)> {
        let end = self.fluid.poll_output(now)?;
        self.live -= 1;
        Some((end.token as u32, end.at_s))
    }

    fn next_s(&mut self, agenda: &Agenda) -> Option<f64> {
        match (self.fluid.poll_timeout(), agenda.next_s()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    fn outcome(self, end_s: Vec<f64>, asked_s: Vec<f64>) -> Outcome {
        Outcome {
            end_s,
            asked_s,
            peak_live: self.peak,
            work: self.fluid.work(),
        }
    }
}

/// Carry a workload out.
///
/// # Errors
/// What the solver refuses: a capacity, a size or a time out of its range.
pub fn carry_out(workload: &Workload, settings: Settings) -> Result<Outcome, Error> {
    let fluid = if settings.reference {
        Fluid::reference()
    } else {
        Fluid::new()
    };
    let mut stage = Stage {
        fluid,
        live: 0,
        peak: 0,
    };
    let (links, ways) = workload.build(&mut stage.fluid, settings)?;
    match &workload.kind {
        Kind::Open(flows) => open(stage, flows, &ways),
        Kind::Closed {
            flows,
            agent,
            agents,
        } => closed(stage, flows, agent, *agents, &ways),
        Kind::Batch(batch) => {
            let places = places_of(workload, batch, settings, &links, &mut stage.fluid)?;
            jobs(stage, batch, &places)
        }
    }
}

/// The hosts of a batch that compute: each with its cores, and the way from the server's disk.
fn places_of(
    workload: &Workload,
    batch: &Batch,
    settings: Settings,
    links: &[ResourceId],
    fluid: &mut Fluid,
) -> Result<Vec<Place>, Error> {
    let link = |number: &u32| links[*number as usize];
    let disk = fluid.resource(Capacity::Constant(batch.disk))?;
    let out = &workload.hosts[batch.server as usize].out;
    let mut places = Vec::new();
    for (host, facts) in (0..)
        .zip(&workload.hosts)
        .filter(|(host, _)| *host != batch.server)
    {
        let way = workload.links_of(batch.server, host);
        let latency_s = way
            .iter()
            .map(|&link| workload.links[link as usize].latency_s)
            .sum();
        let mut resources: Vec<ResourceId> = out.iter().chain(&facts.into).map(link).collect();
        resources.push(disk);
        let cap = settings
            .window_bytes
            .map_or(f64::INFINITY, |window| window / (2.0 * latency_s));
        let class = fluid.class(&resources, 1.0, cap)?;
        let cores = fluid.resource(Capacity::Constant(batch.cores))?;
        places.push(Place {
            read: Way { class, latency_s },
            compute: fluid.class(&[cores], 1.0, 1.0)?,
        });
    }
    Ok(places)
}

fn open(mut stage: Stage, flows: &Columns, ways: &[Way]) -> Result<Outcome, Error> {
    let enter_s = |at: usize| flows.start_s[at] + ways[flows.way[at] as usize].latency_s;
    let count = flows.bytes.len();
    let mut end_s = vec![f64::NAN; count];
    let sorted = (1..count).all(|at| enter_s(at - 1) <= enter_s(at));
    let mut order = Vec::new();
    if !sorted {
        // By time, and of one time by number.
        order = (0..count as u32).collect();
        order.sort_by(|&one, &other| enter_s(one as usize).total_cmp(&enter_s(other as usize)));
    }
    for turn in 0..count {
        let at = order.get(turn).map_or(turn, |&at| at as usize);
        let now = enter_s(at);
        while let Some((flow, at_s)) = stage.end(now) {
            end_s[flow as usize] = at_s;
        }
        stage.start(
            now,
            ways[flows.way[at] as usize].class,
            flows.bytes[at],
            at as u32,
        )?;
    }
    while let Some(now) = stage.fluid.poll_timeout() {
        while let Some((flow, at_s)) = stage.end(now) {
            end_s[flow as usize] = at_s;
        }
    }
    Ok(stage.outcome(end_s, Vec::new()))
}

fn closed(
    mut stage: Stage,
    flows: &Columns,
    agent: &[u32],
    agents: u32,
    ways: &[Way],
) -> Result<Outcome, Error> {
    let (first, mut turns) = turns_of(flows, agent, agents);
    let first = first.into_iter();
    let mut agenda = Agenda::of(first.filter_map(|flow| ask(&mut turns, ways, 0.0, flow)));
    while let Some(now) = stage.next_s(&agenda) {
        while let Some((flow, at_s)) = stage.end(now) {
            let turn = &mut turns[flow as usize];
            turn.bytes = at_s;
            let next = turn.next;
            if let Some((at_s, flow)) = ask(&mut turns, ways, at_s, next) {
                agenda.put(at_s, flow);
            }
            // More agents than a cache holds: what will be read soon is fetched now.
            if let Some(flow) = stage.fluid.coming() {
                fetch(&turns, flow as usize);
                fetch(&turns, flow as usize + 1);
            }
        }
        while let Some(flow) = agenda.take(now) {
            if let Some(flow) = agenda.coming() {
                fetch(&turns, flow as usize);
            }
            let turn = &turns[flow as usize];
            stage.start(now, ways[turn.way as usize].class, turn.bytes, flow)?;
        }
    }
    let end_s = turns.iter().map(|turn| turn.bytes).collect();
    let asked_s = turns.iter().map(|turn| turn.start_s).collect();
    Ok(stage.outcome(end_s, asked_s))
}

/// A flow of a closed workload: agents take theirs in no order that memory likes, so that what belongs to one stands together.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct Turn {
    /// After the end of the one before; once it is asked for, when that was.
    start_s: f64,
    /// Once it has ended, when that was.
    bytes: f64,
    way: u32,
    next: u32,
}

/// The agent of a flow asks for it from `now` on, when its pause is over: when it begins to move.
fn ask(turns: &mut [Turn], ways: &[Way], now: f64, flow: u32) -> Option<(f64, u32)> {
    let turn = turns.get_mut(flow as usize)?;
    turn.start_s += now;
    Some((turn.start_s + ways[turn.way as usize].latency_s, flow))
}

/// The first flow of each agent, and all of them, each with the agent's next.
fn turns_of(flows: &Columns, agent: &[u32], agents: u32) -> (Vec<u32>, Vec<Turn>) {
    let mut first = vec![NONE; agents as usize];
    let mut turns: Vec<Turn> = (0..agent.len())
        .map(|at| Turn {
            start_s: flows.start_s[at],
            bytes: flows.bytes[at],
            way: flows.way[at],
            next: NONE,
        })
        .collect();
    for (flow, &agent) in (0..agent.len() as u32).zip(agent).rev() {
        turns[flow as usize].next = std::mem::replace(&mut first[agent as usize], flow);
    }
    (first, turns)
}

/// A host that computes.
struct Place {
    read: Way,
    compute: ClassId,
}

/// What a slot does.
#[derive(Debug, Clone, Copy)]
struct Slot {
    job: u32,
    chunks: u32,
    computing: bool,
}

impl Slot {
    /// A job before its first chunk.
    fn with(job: u32, batch: &Batch) -> Self {
        Self {
            job,
            chunks: batch.chunks,
            computing: false,
        }
    }
}

fn jobs(mut stage: Stage, batch: &Batch, places: &[Place]) -> Result<Outcome, Error> {
    let mut end_s = vec![f64::NAN; batch.bytes.len()];
    let mut queue: VecDeque<u32> = (0..batch.bytes.len() as u32).collect();
    let mut slots = Vec::new();
    let mut agenda = Agenda::default();
    let place_of = |slot: u32| &places[slot as usize % places.len()];
    for slot in 0..batch.slots {
        let Some(job) = queue.pop_front() else { break };
        slots.push(Slot::with(job, batch));
        agenda.put(place_of(slot).read.latency_s, slot);
    }
    while let Some(now) = stage.next_s(&agenda) {
        while let Some((slot, at_s)) = stage.end(now) {
            let work = &mut slots[slot as usize];
            let place = place_of(slot);
            if !work.computing {
                work.computing = true;
                let core_s = batch.compute_s[work.job as usize];
                stage.start(at_s, place.compute, core_s, slot)?;
                continue;
            }
            work.computing = false;
            work.chunks -= 1;
            if work.chunks == 0 {
                end_s[work.job as usize] = at_s;
                let Some(job) = queue.pop_front() else {
                    continue;
                };
                *work = Slot::with(job, batch);
            }
            agenda.put(at_s + place.read.latency_s, slot);
        }
        while let Some(slot) = agenda.take(now) {
            let bytes = batch.bytes[slots[slot as usize].job as usize];
            stage.start(now, place_of(slot).read.class, bytes, slot)?;
        }
    }
    Ok(stage.outcome(end_s, Vec::new()))
}
