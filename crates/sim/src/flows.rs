//! Workloads that consist only of flows, at the full speed of the solver: columns in, columns out.
//!
//! A workload is a text file with one record per line and numbers in base units (bytes, bytes/s,
//! seconds). It has one of three kinds:
//!
//! ```text
//! LINKS                        how many; then of each
//! CAPACITY LATENCY             bytes/s, seconds one way
//! HOSTS                        how many; then of each
//! N LINK … M LINK …            the outgoing links, and the incoming links
//! open HOSTS FLOWS             then of each flow, by time
//! START FROM TO BYTES
//! ```
//!
//! or, instead of the last two lines,
//!
//! ```text
//! closed AGENTS FLOWS          then of each flow; an agent starts its next one so long after the end of the one before
//! AGENT DELAY FROM TO BYTES
//! ```
//!
//! ```text
//! batch SLOTS JOBS CHUNKS SERVER DISK CORES     then of each job; a free slot takes the next one
//! BYTES SECONDS                of a chunk: read from the server's disk (DISK bytes/s), then computed with on one of CORES of the slot's host
//! ```
//!
//! A flow first waits for the latency of its route, then shares the links. With a window W, its
//! rate is at most W / (2 · latency), as in model CM02 of Casanova and Marchal (2002).

mod parse;
mod run;
#[cfg(test)]
mod tests;

pub use parse::ParseError;
pub use run::{WorkloadResult, run};

use crate::fluid::{Capacity, ClassId, Fluid, ResourceId};

/// Link with its capacity and latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowLink {
    /// Capacity in bytes/s.
    pub capacity: f64,
    /// One-way latency in seconds.
    pub latency_s: f64,
}

/// Outgoing and incoming links of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowHost {
    /// Links from the host.
    pub out: Vec<u32>,
    /// Links to the host.
    pub into: Vec<u32>,
}

/// Flows as columns of equal length.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FlowColumns {
    /// Open workload: requested start. Closed workload: pause after the previous flow of the agent
    /// ended. In seconds.
    pub start_s: Vec<f64>,
    /// Index of the route in [`Workload::routes`].
    pub route: Vec<u32>,
    /// Bytes of the flow.
    pub bytes: Vec<f64>,
}

/// Kind of a workload.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkloadKind {
    /// Flows start at fixed times, independently of each other.
    Open(FlowColumns),
    /// Each agent runs its flows one after the other.
    Closed {
        /// Flows, in the order of each agent.
        flows: FlowColumns,
        /// Agent of each flow.
        agent: Vec<u32>,
        /// Number of agents.
        agents: u32,
    },
    /// Jobs that alternately read and compute.
    Batch(FlowBatch),
}

/// Jobs that alternately read and compute.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FlowBatch {
    /// Number of concurrent jobs, distributed in turn to the hosts other than the server.
    pub slots: u32,
    /// Number of reads per job, each followed by a computation.
    pub chunks: u32,
    /// Source host of all reads.
    pub server: u32,
    /// Rate of its disk in bytes/s.
    pub disk: f64,
    /// Number of cores of each other host.
    pub cores: f64,
    /// Bytes of each chunk, by job.
    pub bytes: Vec<f64>,
    /// Seconds on one core for each chunk, by job.
    pub compute_s: Vec<f64>,
}

/// Links, hosts and the flows between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// All links.
    pub links: Vec<FlowLink>,
    /// All hosts.
    pub hosts: Vec<FlowHost>,
    /// Pairs of hosts (from, to) with flows between them.
    pub routes: Vec<(u32, u32)>,
    /// Kind of the workload, with its flows.
    pub kind: WorkloadKind,
}

/// Settings of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FlowSettings {
    /// Maximum bytes in flight of each flow.
    pub window_bytes: Option<f64>,
    /// Use the reference solver instead of the fast one.
    pub reference: bool,
}

/// Route as known to a solver.
#[derive(Debug, Clone, Copy)]
struct FlowRoute {
    class: ClassId,
    latency_s: f64,
}

impl Workload {
    /// Return the number of flows; for a batch, the number of reads and computations.
    pub fn activities(&self) -> usize {
        match &self.kind {
            WorkloadKind::Open(flows) | WorkloadKind::Closed { flows, .. } => flows.bytes.len(),
            WorkloadKind::Batch(batch) => 2 * batch.bytes.len() * batch.chunks as usize,
        }
    }

    /// Return an open workload with the same flows at the request times of `outcome`, in this
    /// order.
    ///
    /// Long closed loops are chaotic: two exact solvers diverge because of the last bits. Without
    /// the feedback they do not.
    ///
    /// Returns `None` for a batch, which is not a list of flows.
    pub fn replay(&self, outcome: &WorkloadResult) -> Option<Self> {
        let flows = match &self.kind {
            WorkloadKind::Open(_) => return Some(self.clone()),
            WorkloadKind::Closed { flows, .. } => flows,
            WorkloadKind::Batch(_) => return None,
        };
        let mut order: Vec<usize> = (0..flows.bytes.len()).collect();
        order.sort_by(|&one, &other| {
            outcome.requested_s[one].total_cmp(&outcome.requested_s[other])
        });
        let kind = WorkloadKind::Open(FlowColumns {
            start_s: order.iter().map(|&at| outcome.requested_s[at]).collect(),
            route: order.iter().map(|&at| flows.route[at]).collect(),
            bytes: order.iter().map(|&at| flows.bytes[at]).collect(),
        });
        Some(Self {
            kind,
            ..self.clone()
        })
    }

    /// Add the links and routes to a solver.
    fn build(
        &self,
        fluid: &mut Fluid,
        settings: FlowSettings,
    ) -> Result<(Vec<ResourceId>, Vec<FlowRoute>), crate::fluid::FluidError> {
        let links: Vec<ResourceId> = self
            .links
            .iter()
            .map(|link| fluid.resource(Capacity::Constant(link.capacity)))
            .collect::<Result<_, _>>()?;
        let routes = self
            .routes
            .iter()
            .map(|&(from, to)| {
                let route = self.links_of(from, to);
                let latency_s: f64 = route
                    .iter()
                    .map(|&link| self.links[link as usize].latency_s)
                    .sum();
                let cap = settings
                    .window_bytes
                    .map_or(f64::INFINITY, |window| window / (2.0 * latency_s));
                let resources: Vec<ResourceId> =
                    route.iter().map(|&link| links[link as usize]).collect();
                Ok(FlowRoute {
                    class: fluid.class(&resources, 1.0, cap)?,
                    latency_s,
                })
            })
            .collect::<Result<_, crate::fluid::FluidError>>()?;
        Ok((links, routes))
    }

    fn links_of(&self, from: u32, to: u32) -> Vec<u32> {
        let mut route = self.hosts[from as usize].out.clone();
        route.extend(&self.hosts[to as usize].into);
        route
    }
}
