//! Executes a workload in virtual time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::{FlowBatch, FlowColumns, FlowRoute, FlowSettings, Workload, WorkloadKind};
use crate::fluid::ahead::fetch;
use crate::fluid::{Capacity, ClassId, Fluid, FluidError, ResourceId, Work};

/// Marks the end of the flows of an agent.
const NONE: u32 = u32::MAX;

/// Prefetch distance in flows: early enough for data to arrive, and small enough for a cache.
const PREFETCH_DISTANCE: usize = 8;

/// Result of a workload.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkloadResult {
    /// End of each flow in the order of the workload; for a batch, of each job. In seconds.
    pub end_s: Vec<f64>,
    /// Requested start of each flow of a closed workload, before its latency; empty for other
    /// kinds. In seconds.
    pub requested_s: Vec<f64>,
    /// Maximum number of concurrent flows.
    pub peak_live: usize,
    /// Work counters of the fast solver; 0 with the reference solver.
    pub work: Work,
}

/// Time as bits, and number of a flow. Times are not negative, so their bits have the same order.
type Due = (u64, u32);

/// Flows that start later, by time.
#[derive(Debug, Default)]
struct Agenda {
    /// Flows known at the start, last first. Sorting these many flows once is faster than a heap.
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

    /// Return a flow known at the start that will be taken soon.
    fn coming(&self) -> Option<u32> {
        let ahead = self.known.len().checked_sub(PREFETCH_DISTANCE)?;
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

/// Solver with the number of its flows.
struct Stage {
    fluid: Fluid,
    live: usize,
    peak: usize,
}

impl Stage {
    fn start(
        &mut self,
        now: f64,
        class: ClassId,
        bytes: f64,
        token: u32,
    ) -> Result<(), FluidError> {
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

    fn outcome(self, end_s: Vec<f64>, requested_s: Vec<f64>) -> WorkloadResult {
        WorkloadResult {
            end_s,
            requested_s,
            peak_live: self.peak,
            work: self.fluid.work(),
        }
    }
}

/// Run a workload.
///
/// # Errors
/// [`FluidError`] if a capacity, size or time is out of its range.
pub fn run(workload: &Workload, settings: FlowSettings) -> Result<WorkloadResult, FluidError> {
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
    let (links, routes) = workload.build(&mut stage.fluid, settings)?;
    match &workload.kind {
        WorkloadKind::Open(flows) => open(stage, flows, &routes),
        WorkloadKind::Closed {
            flows,
            agent,
            agents,
        } => closed(stage, flows, agent, *agents, &routes),
        WorkloadKind::Batch(batch) => {
            let compute_hosts =
                compute_hosts_of(workload, batch, settings, &links, &mut stage.fluid)?;
            jobs(stage, batch, &compute_hosts)
        }
    }
}

/// Return the computing hosts of a batch, each with its cores and the route from the disk of the
/// server.
fn compute_hosts_of(
    workload: &Workload,
    batch: &FlowBatch,
    settings: FlowSettings,
    links: &[ResourceId],
    fluid: &mut Fluid,
) -> Result<Vec<ComputeHost>, FluidError> {
    let link = |number: &u32| links[*number as usize];
    let disk = fluid.resource(Capacity::Constant(batch.disk))?;
    let out = &workload.hosts[batch.server as usize].out;
    let mut compute_hosts = Vec::new();
    for (host, flow_host) in (0..)
        .zip(&workload.hosts)
        .filter(|(host, _)| *host != batch.server)
    {
        let route = workload.links_of(batch.server, host);
        let latency_s = route
            .iter()
            .map(|&link| workload.links[link as usize].latency_s)
            .sum();
        let mut resources: Vec<ResourceId> = out.iter().chain(&flow_host.into).map(link).collect();
        resources.push(disk);
        let cap = settings
            .window_bytes
            .map_or(f64::INFINITY, |window| window / (2.0 * latency_s));
        let class = fluid.class(&resources, 1.0, cap)?;
        let cores = fluid.resource(Capacity::Constant(batch.cores))?;
        compute_hosts.push(ComputeHost {
            read: FlowRoute { class, latency_s },
            compute: fluid.class(&[cores], 1.0, 1.0)?,
        });
    }
    Ok(compute_hosts)
}

fn open(
    mut stage: Stage,
    flows: &FlowColumns,
    routes: &[FlowRoute],
) -> Result<WorkloadResult, FluidError> {
    let enter_s = |at: usize| flows.start_s[at] + routes[flows.route[at] as usize].latency_s;
    let count = flows.bytes.len();
    let mut end_s = vec![f64::NAN; count];
    let sorted = (1..count).all(|at| enter_s(at - 1) <= enter_s(at));
    let mut order = Vec::new();
    if !sorted {
        // By time; at equal times by number.
        order = (0..count as u32).collect();
        order.sort_by(|&one, &other| enter_s(one as usize).total_cmp(&enter_s(other as usize)));
    }
    for agent_flow in 0..count {
        let at = order.get(agent_flow).map_or(agent_flow, |&at| at as usize);
        let now = enter_s(at);
        while let Some((flow, at_s)) = stage.end(now) {
            end_s[flow as usize] = at_s;
        }
        stage.start(
            now,
            routes[flows.route[at] as usize].class,
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
    flows: &FlowColumns,
    agent: &[u32],
    agents: u32,
    routes: &[FlowRoute],
) -> Result<WorkloadResult, FluidError> {
    let (first, mut agent_flows) = agent_flows_of(flows, agent, agents);
    let first = first.into_iter();
    let mut agenda =
        Agenda::of(first.filter_map(|flow| request(&mut agent_flows, routes, 0.0, flow)));
    while let Some(now) = stage.next_s(&agenda) {
        while let Some((flow, at_s)) = stage.end(now) {
            let agent_flow = &mut agent_flows[flow as usize];
            agent_flow.bytes = at_s;
            let next = agent_flow.next;
            if let Some((at_s, flow)) = request(&mut agent_flows, routes, at_s, next) {
                agenda.put(at_s, flow);
            }
            // There can be more agents than fit into a cache, so data that is read soon is
            // prefetched.
            if let Some(flow) = stage.fluid.coming() {
                fetch(&agent_flows, flow as usize);
                fetch(&agent_flows, flow as usize + 1);
            }
        }
        while let Some(flow) = agenda.take(now) {
            if let Some(flow) = agenda.coming() {
                fetch(&agent_flows, flow as usize);
            }
            let agent_flow = &agent_flows[flow as usize];
            stage.start(
                now,
                routes[agent_flow.route as usize].class,
                agent_flow.bytes,
                flow,
            )?;
        }
    }
    let end_s = agent_flows
        .iter()
        .map(|agent_flow| agent_flow.bytes)
        .collect();
    let requested_s = agent_flows
        .iter()
        .map(|agent_flow| agent_flow.start_s)
        .collect();
    Ok(stage.outcome(end_s, requested_s))
}

/// Flow of a closed workload. Agents use their flows in an order without locality, so all fields of
/// a flow are together.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct AgentFlow {
    /// Pause after the previous flow; once the flow is requested, the time of the request.
    start_s: f64,
    /// Bytes of the flow; once it has ended, the time of the end.
    bytes: f64,
    route: u32,
    next: u32,
}

/// Request a flow after its pause, which starts at `now`. Return the time of its first movement.
fn request(
    agent_flows: &mut [AgentFlow],
    routes: &[FlowRoute],
    now: f64,
    flow: u32,
) -> Option<(f64, u32)> {
    let agent_flow = agent_flows.get_mut(flow as usize)?;
    agent_flow.start_s += now;
    Some((
        agent_flow.start_s + routes[agent_flow.route as usize].latency_s,
        flow,
    ))
}

/// Return the first flow of each agent, and all flows, each with the next flow of its agent.
fn agent_flows_of(flows: &FlowColumns, agent: &[u32], agents: u32) -> (Vec<u32>, Vec<AgentFlow>) {
    let mut first = vec![NONE; agents as usize];
    let mut agent_flows: Vec<AgentFlow> = (0..agent.len())
        .map(|at| AgentFlow {
            start_s: flows.start_s[at],
            bytes: flows.bytes[at],
            route: flows.route[at],
            next: NONE,
        })
        .collect();
    for (flow, &agent) in (0..agent.len() as u32).zip(agent).rev() {
        agent_flows[flow as usize].next = std::mem::replace(&mut first[agent as usize], flow);
    }
    (first, agent_flows)
}

/// Host that computes.
struct ComputeHost {
    read: FlowRoute,
    compute: ClassId,
}

/// State of a slot.
#[derive(Debug, Clone, Copy)]
struct Slot {
    job: u32,
    chunks: u32,
    computing: bool,
}

impl Slot {
    /// Create the state of a job before its first chunk.
    fn with(job: u32, batch: &FlowBatch) -> Self {
        Self {
            job,
            chunks: batch.chunks,
            computing: false,
        }
    }
}

fn jobs(
    mut stage: Stage,
    batch: &FlowBatch,
    compute_hosts: &[ComputeHost],
) -> Result<WorkloadResult, FluidError> {
    let mut end_s = vec![f64::NAN; batch.bytes.len()];
    let mut queue: VecDeque<u32> = (0..batch.bytes.len() as u32).collect();
    let mut slots = Vec::new();
    let mut agenda = Agenda::default();
    let compute_host_of = |slot: u32| &compute_hosts[slot as usize % compute_hosts.len()];
    for slot in 0..batch.slots {
        let Some(job) = queue.pop_front() else { break };
        slots.push(Slot::with(job, batch));
        agenda.put(compute_host_of(slot).read.latency_s, slot);
    }
    while let Some(now) = stage.next_s(&agenda) {
        while let Some((slot, at_s)) = stage.end(now) {
            let work = &mut slots[slot as usize];
            let compute_host = compute_host_of(slot);
            if !work.computing {
                work.computing = true;
                let core_s = batch.compute_s[work.job as usize];
                stage.start(at_s, compute_host.compute, core_s, slot)?;
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
            agenda.put(at_s + compute_host.read.latency_s, slot);
        }
        while let Some(slot) = agenda.take(now) {
            let bytes = batch.bytes[slots[slot as usize].job as usize];
            stage.start(now, compute_host_of(slot).read.class, bytes, slot)?;
        }
    }
    Ok(stage.outcome(end_s, Vec::new()))
}
