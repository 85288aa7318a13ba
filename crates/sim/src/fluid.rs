//! Fluid solver: computes max-min fair rates of flows that share resources, and the end of each
//! flow.
//!
//! A *resource* has a capacity in bytes/s, which is constant or depends on its number of flows. A
//! *class* is a route over resources with a weight and a cap. All flows of a class have the same
//! rate, so a class is one variable for any number of flows. Rates are weighted max-min fair
//! (Bertsekas and Gallager, Data Networks, 2nd ed., 6.5.2): the level x of all flows rises
//! together, and each flow has the rate weight · x. A flow stops rising at its cap, or when a
//! resource on its route is full.
//!
//! Sans-IO: calls carry `now`. [`Fluid::poll_timeout`] returns the time of the next end,
//! [`Fluid::poll_output`] the flows that have ended. Calls at the same instant are solved together,
//! when time advances or a result is requested.
//!
//! ```
//! use venturi_sim::{Capacity, Fluid};
//!
//! let mut fluid = Fluid::new();
//! let link = fluid.resource(Capacity::Constant(1e9))?;
//! let class = fluid.class(&[link], 1.0, f64::INFINITY)?;
//! fluid.start(0.0, class, 1e9, 7)?;
//! fluid.start(0.0, class, 2e9, 8)?;
//! assert_eq!(fluid.poll_timeout(), Some(2.0)); // both at 0.5e9 bytes/s
//! let end = fluid.poll_output(2.0).expect("the shorter one has ended");
//! assert_eq!((end.token, end.at_s), (7, 2.0));
//! assert_eq!(fluid.poll_timeout(), Some(3.0)); // the longer one is alone
//! # Ok::<(), venturi_sim::fluid::FluidError>(())
//! ```

pub(crate) mod ahead;
mod error;
mod flows;
mod incremental;
mod network;
mod reference;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub use error::FluidError;
use flows::Flows;
use incremental::IncrementalSolver;
pub use incremental::Work;
use network::SolverNetwork;
use reference::ReferenceSolver;

/// Capacity of a resource: the maximum total rate of its flows, in bytes/s.
#[derive(Debug, Clone, PartialEq)]
pub enum Capacity {
    /// Independent of the number of flows. 0 is an outage: no flow makes progress.
    Constant(f64),
    /// Capacity with 1, 2, … n flows; the last value holds for more flows. Examples are a disk that
    /// seeks, and a server whose clients slow each other down.
    OfUsers(Box<[f64]>),
}

/// Identifier of a resource of one [`Fluid`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceId(u32);

/// Identifier of a class of one [`Fluid`]: resources, weight and cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId(u32);

/// Identifier of a flow of one [`Fluid`]. The slot is reused after the end of the flow, the
/// identifier is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowId {
    slot: u32,
    serial: u32,
}

/// Limit of the rate of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// The cap of its class.
    Cap,
    /// A full resource; no flow on it has a larger rate/weight.
    Resource(ResourceId),
}

/// A flow that has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowEnd {
    /// The flow.
    pub flow: FlowId,
    /// Token passed to [`Fluid::start`].
    pub token: u64,
    /// Time of the end, in seconds. Ends at one instant have the order of their starts.
    pub at_s: f64,
}

/// Resources, classes and flows, computed up to the current time.
///
/// Time never decreases: a `now` before the last one is an error. Every call computes all ends up
/// to `now`, each at its own time, and queues them for [`Fluid::poll_output`]. React to an end
/// before you call with a later `now`; otherwise the reaction takes effect too late.
#[derive(Debug)]
pub struct Fluid {
    network: SolverNetwork,
    flows: Flows,
    solver: Solver,
    ended: VecDeque<FlowEnd>,
    now: f64,
}

impl Default for Fluid {
    fn default() -> Self {
        Self::new()
    }
}

impl Fluid {
    /// Create a solver without resources, at 0 s.
    pub fn new() -> Self {
        Self::with(Solver::Partial(Box::default()))
    }

    /// Create a solver that computes the same results directly from the definition. At each event,
    /// it fills every class again and advances every flow. It is slow; tests use it as the
    /// reference.
    pub fn reference() -> Self {
        Self::with(Solver::Full(ReferenceSolver::default()))
    }

    fn with(solver: Solver) -> Self {
        Self {
            network: SolverNetwork::default(),
            flows: Flows::default(),
            solver,
            ended: VecDeque::new(),
            now: 0.0,
        }
    }

    /// Add a resource.
    ///
    /// # Errors
    /// [`FluidError::Value`] if a capacity is not a number from 0 to 1e30, or if there is no
    /// capacity.
    pub fn resource(&mut self, capacity: Capacity) -> Result<ResourceId, FluidError> {
        self.network.add_resource(capacity)
    }

    /// Return the class of flows over `resources`, with at most `cap` bytes/s each
    /// (`f64::INFINITY`: no cap). The same arguments return the same class.
    ///
    /// A resource that is listed twice carries each flow twice, as in a copy within one disk.
    ///
    /// A resource has one clock. If the weights on it differ by a factor f, ends may be off by f ·
    /// 1e-16 of the time that the resource has been in use. Rates are not affected.
    ///
    /// # Errors
    /// [`FluidError::Unknown`] for a resource of another solver. [`FluidError::Value`] if the
    /// weight is not from 1e-30 to 1e30, if the cap is negative or not a number, or if there is
    /// neither a resource nor a cap.
    pub fn class(
        &mut self,
        resources: &[ResourceId],
        weight: f64,
        cap: f64,
    ) -> Result<ClassId, FluidError> {
        self.network.class(resources, weight, cap)
    }

    /// Start a flow of `bytes` bytes. A flow of 0 bytes ends immediately. Its end carries `token`.
    ///
    /// # Errors
    /// [`FluidError::Past`], [`FluidError::Unknown`], or [`FluidError::Value`] if `bytes` is not a number from 0 to 1e300.
    pub fn start(
        &mut self,
        now: f64,
        class: ClassId,
        bytes: f64,
        token: u64,
    ) -> Result<FlowId, FluidError> {
        self.network.check_class(class)?;
        FluidError::unless_bytes("bytes of a flow", bytes)?;
        self.advance(now)?;
        let flow = self.flows.add(class.0, token)?;
        if bytes > 0.0 {
            self.solver
                .join(&mut self.network, &mut self.flows, flow, bytes);
        } else {
            self.flows.remove(flow.slot);
            let at_s = self.now;
            self.ended.push_back(FlowEnd { flow, token, at_s });
        }
        Ok(flow)
    }

    /// Stop a flow before its end and return its remaining bytes.
    ///
    /// # Errors
    /// [`FluidError::Past`], or [`FluidError::Unknown`] if the flow has ended, even if the end was
    /// not polled yet. Poll the ends up to `now` first.
    pub fn stop(&mut self, now: f64, flow: FlowId) -> Result<f64, FluidError> {
        self.advance(now)?;
        self.flows.class_of(flow)?;
        let remaining = self.solver.leave(&mut self.network, &mut self.flows, flow);
        self.flows.remove(flow.slot);
        Ok(remaining)
    }

    /// Change the capacity of a resource; 0 is an outage.
    ///
    /// # Errors
    /// [`FluidError::Past`], [`FluidError::Unknown`], or [`FluidError::Value`] as for
    /// [`Fluid::resource`].
    pub fn set_capacity(
        &mut self,
        now: f64,
        resource: ResourceId,
        capacity: Capacity,
    ) -> Result<(), FluidError> {
        self.network.check_resource(resource)?;
        network::check_capacity(&capacity)?;
        self.advance(now)?;
        self.network.set_capacity(resource.0, capacity);
        self.solver.resource_changed(&self.network, resource.0);
        Ok(())
    }

    /// Return the time of the next end that was not polled yet; `None` while no flow makes
    /// progress.
    pub fn poll_timeout(&mut self) -> Option<f64> {
        match self.ended.front() {
            Some(end) => Some(end.at_s),
            None => self.solver.next_end(&self.network, &self.flows),
        }
    }

    /// Return the next flow that has ended by `now`, in order of ends.
    ///
    /// This call never fails. If `now` is infinite, not a number or in the past, it computes
    /// nothing and returns only queued ends that are due. Calls that change the solver reject these
    /// times.
    pub fn poll_output(&mut self, now: f64) -> Option<FlowEnd> {
        if self.ended.is_empty() {
            self.advance(now).ok()?;
        }
        match self.ended.front() {
            Some(end) if end.at_s <= now => self.ended.pop_front(),
            _ => None,
        }
    }

    /// Return a hint: the token of a flow that probably ends soon. If the flows exceed the CPU
    /// cache, the caller can prefetch data of this flow.
    pub(crate) fn coming(&self) -> Option<u64> {
        match &self.solver {
            Solver::Partial(solver) => solver.coming,
            Solver::Full(_) => None,
        }
    }

    /// Return the current rate of a flow, in bytes/s.
    ///
    /// # Errors
    /// [`FluidError::Unknown`] if it has ended.
    pub fn rate(&mut self, flow: FlowId) -> Result<f64, FluidError> {
        let class = self.flows.class_of(flow)?;
        Ok(self.solver.rate(&self.network, &self.flows, class))
    }

    /// Return the current limit of a flow.
    ///
    /// # Errors
    /// [`FluidError::Unknown`] if it has ended.
    pub fn bottleneck(&mut self, flow: FlowId) -> Result<Bottleneck, FluidError> {
        let class = self.flows.class_of(flow)?;
        Ok(self.solver.bottleneck(&self.network, &self.flows, class))
    }

    /// Return the current total rate of the flows on a resource, in bytes/s.
    ///
    /// # Errors
    /// [`FluidError::Unknown`] for a resource of another solver.
    pub fn load(&mut self, resource: ResourceId) -> Result<f64, FluidError> {
        self.network.check_resource(resource)?;
        Ok(self.solver.load(&self.network, &self.flows, resource.0))
    }

    /// Return the work counters; [`Fluid::reference`] counts nothing.
    pub fn work(&self) -> Work {
        match &self.solver {
            Solver::Partial(solver) => solver.work,
            Solver::Full(_) => Work::default(),
        }
    }

    /// Compute all ends up to `now`.
    fn advance(&mut self, now: f64) -> Result<(), FluidError> {
        if now == self.now && self.ended.is_empty() {
            // The usual case: several calls at one instant. Only a flow of 0 bytes can end between
            // them.
            return Ok(());
        }
        FluidError::unless_time(now, self.now)?;
        while let Some(at_s) = self.solver.next_end(&self.network, &self.flows) {
            if at_s > now {
                break;
            }
            self.now = at_s;
            self.solver
                .end_at(&mut self.network, &mut self.flows, at_s, &mut self.ended);
        }
        self.solver.move_to(&self.network, &mut self.flows, now);
        self.now = now;
        Ok(())
    }
}

/// Implementation that computes the rates.
#[derive(Debug)]
enum Solver {
    Partial(Box<IncrementalSolver>),
    Full(ReferenceSolver),
}

/// Call the same method of either implementation.
macro_rules! either {
    ($self:ident, $solver:ident => $call:expr) => {
        match $self {
            Solver::Partial($solver) => $call,
            Solver::Full($solver) => $call,
        }
    };
}

impl Solver {
    fn join(&mut self, network: &mut SolverNetwork, flows: &mut Flows, flow: FlowId, bytes: f64) {
        either!(self, solver => solver.join(network, flows, flow, bytes));
    }

    fn leave(&mut self, network: &mut SolverNetwork, flows: &mut Flows, flow: FlowId) -> f64 {
        either!(self, solver => solver.leave(network, flows, flow))
    }

    fn resource_changed(&mut self, network: &SolverNetwork, resource: u32) {
        either!(self, solver => solver.resource_changed(network, resource));
    }

    fn next_end(&mut self, network: &SolverNetwork, flows: &Flows) -> Option<f64> {
        either!(self, solver => solver.next_end(network, flows))
    }

    fn end_at(
        &mut self,
        network: &mut SolverNetwork,
        flows: &mut Flows,
        at_s: f64,
        ended: &mut VecDeque<FlowEnd>,
    ) {
        match self {
            Self::Partial(solver) => solver.end_at(flows, at_s, ended),
            Self::Full(solver) => solver.end_at(network, flows, at_s, ended),
        }
    }

    fn move_to(&mut self, network: &SolverNetwork, flows: &mut Flows, now: f64) {
        match self {
            Self::Partial(solver) => solver.move_to(now),
            Self::Full(solver) => solver.move_to(network, flows, now),
        }
    }

    fn rate(&mut self, network: &SolverNetwork, flows: &Flows, class: u32) -> f64 {
        match self {
            Self::Partial(solver) => solver.rate(network, flows, class),
            Self::Full(solver) => solver.rate(network, class),
        }
    }

    fn bottleneck(&mut self, network: &SolverNetwork, flows: &Flows, class: u32) -> Bottleneck {
        match self {
            Self::Partial(solver) => solver.bottleneck(network, flows, class),
            Self::Full(solver) => solver.bottleneck(network, class),
        }
    }

    fn load(&mut self, network: &SolverNetwork, flows: &Flows, resource: u32) -> f64 {
        match self {
            Self::Partial(solver) => solver.load(network, flows, resource),
            Self::Full(solver) => solver.load(network, resource),
        }
    }
}

/// Return whether an end belongs to the instant `at_s`, because doubles this close do not order the
/// two times reliably.
///
/// Flows that end together in exact arithmetic differ by a few units in the last place, in a
/// meaningless order.
fn same_instant(end_s: f64, at_s: f64) -> bool {
    end_s <= at_s * (1.0 + 8.0 * f64::EPSILON)
}
