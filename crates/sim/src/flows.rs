//! Workloads of nothing but flows, as fast as the solver goes: columns in, columns out.
//!
//! Three kinds, in a text file with one record a line, numbers in base units (bytes, bytes/s, seconds):
//!
//! ```text
//! LINKS                        how many; then of each
//! CAPACITY LATENCY             bytes/s, seconds one way
//! HOSTS                        how many; then of each
//! N LINK … M LINK …            the links on its way out, and on its way in
//! open HOSTS FLOWS             then of each flow, by time
//! START FROM TO BYTES
//! ```
//!
//! or, in place of the last two,
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
//! A flow is as long as the latency of its way without moving, and then shares the links. With a window W it gets at most W / (2 · latency):
//! CM02 of Casanova and Marchal (2002).

mod parse;
mod run;
#[cfg(test)]
mod tests;

pub use parse::ParseError;
pub use run::{Outcome, carry_out};

use crate::fluid::{Capacity, ClassId, Fluid, ResourceId};

/// A link: what it gives and how long it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Bytes/s.
    pub capacity: f64,
    /// Seconds one way.
    pub latency_s: f64,
}

/// The links of a host, out and in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// From the host.
    pub out: Vec<u32>,
    /// To the host.
    pub into: Vec<u32>,
}

/// Flows as columns, each as long as the others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Columns {
    /// Open: when the flow is asked for. Closed: how long after the agent's last one ended. Seconds.
    pub start_s: Vec<f64>,
    /// Number of the way in [`Workload::ways`].
    pub way: Vec<u32>,
    /// Bytes.
    pub bytes: Vec<f64>,
}

/// What begins when.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// At given times, whatever becomes of the others.
    Open(Columns),
    /// One after the other of each agent.
    Closed {
        /// In order of each agent.
        flows: Columns,
        /// Whose flow it is.
        agent: Vec<u32>,
        /// Number of agents.
        agents: u32,
    },
    /// Jobs that read and compute in turn.
    Batch(Batch),
}

/// Jobs that read and compute in turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// At once, dealt to the hosts other than the server in turn.
    pub slots: u32,
    /// Reads of a job, each with a computation behind it.
    pub chunks: u32,
    /// The host that is read from.
    pub server: u32,
    /// Bytes/s of its disk.
    pub disk: f64,
    /// Of each other host.
    pub cores: f64,
    /// Bytes of each chunk, by job.
    pub bytes: Vec<f64>,
    /// Seconds on one core for each chunk, by job.
    pub compute_s: Vec<f64>,
}

/// Links, hosts, and what moves between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// All links.
    pub links: Vec<Link>,
    /// All hosts.
    pub hosts: Vec<Host>,
    /// Pairs of hosts between which something moves: from, to.
    pub ways: Vec<(u32, u32)>,
    /// What begins when.
    pub kind: Kind,
}

/// How to carry a workload out.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Settings {
    /// Bytes under way at most, of each flow.
    pub window_bytes: Option<f64>,
    /// By the oracle in place of the fast solver.
    pub reference: bool,
}

/// A way as a solver knows it.
#[derive(Debug, Clone, Copy)]
struct Way {
    class: ClassId,
    latency_s: f64,
}

impl Workload {
    /// How many flows (of a batch: reads and computations) there are.
    pub fn activities(&self) -> usize {
        match &self.kind {
            Kind::Open(flows) | Kind::Closed { flows, .. } => flows.bytes.len(),
            Kind::Batch(batch) => 2 * batch.bytes.len() * batch.chunks as usize,
        }
    }

    /// The same flows at the times at which `outcome` asked for them, whatever becomes of them; in order of these times.
    ///
    /// Long closed loops are chaotic: two exact solvers drift apart with the last bits. Without the feedback they do not.
    ///
    /// `None` for a batch, which is no list of flows.
    pub fn replay(&self, outcome: &Outcome) -> Option<Self> {
        let flows = match &self.kind {
            Kind::Open(_) => return Some(self.clone()),
            Kind::Closed { flows, .. } => flows,
            Kind::Batch(_) => return None,
        };
        let mut order: Vec<usize> = (0..flows.bytes.len()).collect();
        order.sort_by(|&one, &other| outcome.asked_s[one].total_cmp(&outcome.asked_s[other]));
        let kind = Kind::Open(Columns {
            start_s: order.iter().map(|&at| outcome.asked_s[at]).collect(),
            way: order.iter().map(|&at| flows.way[at]).collect(),
            bytes: order.iter().map(|&at| flows.bytes[at]).collect(),
        });
        Some(Self {
            kind,
            ..self.clone()
        })
    }

    /// Make links and ways known to a solver.
    fn build(
        &self,
        fluid: &mut Fluid,
        settings: Settings,
    ) -> Result<(Vec<ResourceId>, Vec<Way>), crate::fluid::Error> {
        let links: Vec<ResourceId> = self
            .links
            .iter()
            .map(|link| fluid.resource(Capacity::Constant(link.capacity)))
            .collect::<Result<_, _>>()?;
        let ways = self
            .ways
            .iter()
            .map(|&(from, to)| {
                let way = self.links_of(from, to);
                let latency_s: f64 = way
                    .iter()
                    .map(|&link| self.links[link as usize].latency_s)
                    .sum();
                let cap = settings
                    .window_bytes
                    .map_or(f64::INFINITY, |window| window / (2.0 * latency_s));
                let resources: Vec<ResourceId> =
                    way.iter().map(|&link| links[link as usize]).collect();
                Ok(Way {
                    class: fluid.class(&resources, 1.0, cap)?,
                    latency_s,
                })
            })
            .collect::<Result<_, crate::fluid::Error>>()?;
        Ok((links, ways))
    }

    fn links_of(&self, from: u32, to: u32) -> Vec<u32> {
        let mut way = self.hosts[from as usize].out.clone();
        way.extend(&self.hosts[to as usize].into);
        way
    }
}
