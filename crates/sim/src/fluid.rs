//! Flows of bytes that share resources max-min fairly: who gets which rate, and who ends when.
//!
//! A *resource* has a capacity in bytes/s, constant or a function of how many flows use it. A *class* is a way over resources with a weight
//! and a cap; all flows of a class have one rate, so that a class is one variable however many flows it has. Rates are the weighted max-min
//! fair ones (Bertsekas and Gallager, Data Networks, 2nd ed., 6.5.2): raise the level x of all flows together, each at the rate
//! weight · x; a flow stops at its cap, or when a resource on its way is full.
//!
//! Sans-IO: calls carry `now`, [`Fluid::poll_timeout`] tells the next end, [`Fluid::poll_output`] the flows that have ended. Everything that is
//! called at one instant is solved together, when time goes on or somebody asks.
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
//! # Ok::<(), venturi_sim::fluid::Error>(())
//! ```

pub(crate) mod ahead;
mod error;
mod flows;
mod full;
mod network;
mod partial;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub use error::Error;
use flows::Flows;
use full::Full;
use network::Network;
use partial::Partial;
pub use partial::Work;

/// What a resource gives to all of its flows together, in bytes/s.
#[derive(Debug, Clone, PartialEq)]
pub enum Capacity {
    /// The same whatever the number of flows. 0 is an outage: flows stand still.
    Constant(f64),
    /// With 1, 2, … n flows on it; the last value holds for more. A disk whose heads move, a server that gets in its own way.
    OfUsers(Box<[f64]>),
}

/// A resource of one [`Fluid`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceId(u32);

/// A class of one [`Fluid`]: resources, weight and cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId(u32);

/// A flow of one [`Fluid`]. Its place is used again after its end, the id is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowId {
    slot: u32,
    serial: u32,
}

/// What keeps a flow from being faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The cap of its class.
    Cap,
    /// A full resource, on which no flow has a larger rate/weight.
    Resource(ResourceId),
}

/// A flow that has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct End {
    /// Which one.
    pub flow: FlowId,
    /// What [`Fluid::start`] was given.
    pub token: u64,
    /// When, in seconds. Ends of one instant come in the order in which the flows were started.
    pub at_s: f64,
}

/// Resources, classes and flows, and the time up to which they are computed.
///
/// Time never goes back: a `now` before the last one is an error. Ends up to `now` are computed by every call, at their own times, and wait for
/// [`Fluid::poll_output`]; react to an end before calling with a later `now`, or the reaction comes late.
#[derive(Debug)]
pub struct Fluid {
    network: Network,
    flows: Flows,
    solver: Solver,
    ended: VecDeque<End>,
    now: f64,
}

impl Default for Fluid {
    fn default() -> Self {
        Self::new()
    }
}

impl Fluid {
    /// Without resources, at 0 s.
    pub fn new() -> Self {
        Self::with(Solver::Partial(Box::default()))
    }

    /// The same answers by the definition: at each event, every class is filled again and every flow is moved on. Slow; what tests believe.
    pub fn reference() -> Self {
        Self::with(Solver::Full(Full::default()))
    }

    fn with(solver: Solver) -> Self {
        Self {
            network: Network::default(),
            flows: Flows::default(),
            solver,
            ended: VecDeque::new(),
            now: 0.0,
        }
    }

    /// Add a resource.
    ///
    /// # Errors
    /// [`Error::Value`] if a capacity is not a number from 0 to 1e30, or if there is none.
    pub fn resource(&mut self, capacity: Capacity) -> Result<ResourceId, Error> {
        self.network.add_resource(capacity)
    }

    /// A class of flows over `resources`, at most `cap` bytes/s each (`f64::INFINITY`: no cap). The same arguments give the same class.
    ///
    /// A resource that is named twice carries each flow twice: a copy within one disk.
    ///
    /// A resource has one clock: where weights that meet on it differ by a factor f, ends may be off by f · 1e-16 of the time that it has
    /// been in use. Rates are not.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a resource of another solver, [`Error::Value`] if the weight is not from 1e-30 to 1e30, the cap negative or not
    /// a number, or if there is neither a resource nor a cap.
    pub fn class(
        &mut self,
        resources: &[ResourceId],
        weight: f64,
        cap: f64,
    ) -> Result<ClassId, Error> {
        self.network.class(resources, weight, cap)
    }

    /// Begin a flow of so many bytes; of none, it ends at once. `token` comes back with its end.
    ///
    /// # Errors
    /// [`Error::Past`], [`Error::Unknown`], or [`Error::Value`] if `bytes` is not a number from 0 to 1e300.
    pub fn start(
        &mut self,
        now: f64,
        class: ClassId,
        bytes: f64,
        token: u64,
    ) -> Result<FlowId, Error> {
        self.network.check_class(class)?;
        Error::unless_bytes("bytes of a flow", bytes)?;
        self.advance(now)?;
        let flow = self.flows.add(class.0, token)?;
        if bytes > 0.0 {
            self.solver
                .join(&mut self.network, &mut self.flows, flow, bytes);
        } else {
            self.flows.remove(flow.slot);
            let at_s = self.now;
            self.ended.push_back(End { flow, token, at_s });
        }
        Ok(flow)
    }

    /// Take a flow away before its end; the bytes that remained.
    ///
    /// # Errors
    /// [`Error::Past`], or [`Error::Unknown`] if the flow has ended, told or not: poll the ends up to `now` first.
    pub fn stop(&mut self, now: f64, flow: FlowId) -> Result<f64, Error> {
        self.advance(now)?;
        self.flows.class_of(flow)?;
        let remaining = self.solver.leave(&mut self.network, &mut self.flows, flow);
        self.flows.remove(flow.slot);
        Ok(remaining)
    }

    /// Change what a resource gives; 0 is an outage.
    ///
    /// # Errors
    /// [`Error::Past`], [`Error::Unknown`], or [`Error::Value`] as of [`Fluid::resource`].
    pub fn set_capacity(
        &mut self,
        now: f64,
        resource: ResourceId,
        capacity: Capacity,
    ) -> Result<(), Error> {
        self.network.check_resource(resource)?;
        network::check_capacity(&capacity)?;
        self.advance(now)?;
        self.network.set_capacity(resource.0, capacity);
        self.solver.resource_changed(&self.network, resource.0);
        Ok(())
    }

    /// When the next flow ends, or has ended without being told; `None` while nothing moves.
    pub fn poll_timeout(&mut self) -> Option<f64> {
        match self.ended.front() {
            Some(end) => Some(end.at_s),
            None => self.solver.next_end(&self.network, &self.flows),
        }
    }

    /// The next flow that has ended by `now`, in order of ends.
    ///
    /// It only tells, so it never fails: by a `now` that is no time (not a number, infinite) or is past, nothing more is computed, and only
    /// what waits to be told and is due is told. Calls that change something refuse such a `now`.
    pub fn poll_output(&mut self, now: f64) -> Option<End> {
        if self.ended.is_empty() {
            self.advance(now).ok()?;
        }
        match self.ended.front() {
            Some(end) if end.at_s <= now => self.ended.pop_front(),
            _ => None,
        }
    }

    /// A hint: the token of a flow that is likely to end soon. With more flows than a cache holds, what belongs to it can be fetched ahead.
    pub(crate) fn coming(&self) -> Option<u64> {
        match &self.solver {
            Solver::Partial(solver) => solver.coming,
            Solver::Full(_) => None,
        }
    }

    /// The rate of a flow now, in bytes/s.
    ///
    /// # Errors
    /// [`Error::Unknown`] if it has ended.
    pub fn rate(&mut self, flow: FlowId) -> Result<f64, Error> {
        let class = self.flows.class_of(flow)?;
        Ok(self.solver.rate(&self.network, &self.flows, class))
    }

    /// What limits a flow now.
    ///
    /// # Errors
    /// [`Error::Unknown`] if it has ended.
    pub fn bound(&mut self, flow: FlowId) -> Result<Bound, Error> {
        let class = self.flows.class_of(flow)?;
        Ok(self.solver.bound(&self.network, &self.flows, class))
    }

    /// What all flows on a resource move together now, in bytes/s.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a resource of another solver.
    pub fn load(&mut self, resource: ResourceId) -> Result<f64, Error> {
        self.network.check_resource(resource)?;
        Ok(self.solver.load(&self.network, &self.flows, resource.0))
    }

    /// What has been done so far; nothing is counted by [`Fluid::reference`].
    pub fn work(&self) -> Work {
        match &self.solver {
            Solver::Partial(solver) => solver.work,
            Solver::Full(_) => Work::default(),
        }
    }

    /// Compute all ends up to `now`.
    fn advance(&mut self, now: f64) -> Result<(), Error> {
        if now == self.now && self.ended.is_empty() {
            // The usual case: several calls of one instant. Nothing can end between them but what starts with nothing.
            return Ok(());
        }
        Error::unless_time(now, self.now)?;
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

/// Who finds the rates.
#[derive(Debug)]
enum Solver {
    Partial(Box<Partial>),
    Full(Full),
}

/// Both answer the same calls.
macro_rules! either {
    ($self:ident, $solver:ident => $call:expr) => {
        match $self {
            Solver::Partial($solver) => $call,
            Solver::Full($solver) => $call,
        }
    };
}

impl Solver {
    fn join(&mut self, network: &mut Network, flows: &mut Flows, flow: FlowId, bytes: f64) {
        either!(self, solver => solver.join(network, flows, flow, bytes));
    }

    fn leave(&mut self, network: &mut Network, flows: &mut Flows, flow: FlowId) -> f64 {
        either!(self, solver => solver.leave(network, flows, flow))
    }

    fn resource_changed(&mut self, network: &Network, resource: u32) {
        either!(self, solver => solver.resource_changed(network, resource));
    }

    fn next_end(&mut self, network: &Network, flows: &Flows) -> Option<f64> {
        either!(self, solver => solver.next_end(network, flows))
    }

    fn end_at(
        &mut self,
        network: &mut Network,
        flows: &mut Flows,
        at_s: f64,
        ended: &mut VecDeque<End>,
    ) {
        match self {
            Self::Partial(solver) => solver.end_at(flows, at_s, ended),
            Self::Full(solver) => solver.end_at(network, flows, at_s, ended),
        }
    }

    fn move_to(&mut self, network: &Network, flows: &mut Flows, now: f64) {
        match self {
            Self::Partial(solver) => solver.move_to(now),
            Self::Full(solver) => solver.move_to(network, flows, now),
        }
    }

    fn rate(&mut self, network: &Network, flows: &Flows, class: u32) -> f64 {
        match self {
            Self::Partial(solver) => solver.rate(network, flows, class),
            Self::Full(solver) => solver.rate(network, class),
        }
    }

    fn bound(&mut self, network: &Network, flows: &Flows, class: u32) -> Bound {
        match self {
            Self::Partial(solver) => solver.bound(network, flows, class),
            Self::Full(solver) => solver.bound(network, class),
        }
    }

    fn load(&mut self, network: &Network, flows: &Flows, resource: u32) -> f64 {
        match self {
            Self::Partial(solver) => solver.load(network, flows, resource),
            Self::Full(solver) => solver.load(network, resource),
        }
    }
}

/// Whether an end belongs to the instant `at_s`: so close that doubles of that size do not tell times apart reliably.
///
/// Flows that end together by arithmetic on paper differ by a few units in the last place, in an order that says nothing.
fn same_instant(end_s: f64, at_s: f64) -> bool {
    end_s <= at_s * (1.0 + 8.0 * f64::EPSILON)
}
