//! The vocabulary of Venturi: plans, records, commands, and the interpreter that carries a plan out.
//!
//! Left out on purpose: clocks, processes, files, sockets, threads and the environment. Whoever carries out a plan in real time
//! (the agent) or in virtual time (a simulator) brings its own; `clippy.toml` keeps them out of here.
//!
//! Read [`Plan`] first, then [`Step`], then [`Interpreter`].

#![deny(missing_docs)]

mod call;
mod command;
pub mod conformance;
mod cost;
mod draw;
mod endpoint;
mod error;
mod header;
mod interpreter;
mod lab;
mod network;
mod plan;
mod record;
mod scalar;
pub mod schema;
mod service;
mod sizes;
mod socket;
mod step;
mod template;
mod trial_id;
mod units;

pub use call::{Argument, Call, Expect, Values};
pub use command::{ActorCommand, Command, CounterCommand, Start};
pub use cost::{Amount, Cost, HostCost, MoverCost, MoverRule, ServiceCost, StorageCost};
pub use draw::{Draw, DrawStream};
pub use endpoint::{Endpoint, NULL, ZERO, file_name};
pub use error::Error;
pub use header::{
    CounterFamily, Dataset, FORMAT, Format, Header, Host, Measure, Name, Place, Recorded, Totals,
    VERSION, Version,
};
pub use interpreter::{
    Arrival, Arrived, Input, Interpreter, MAX_IDLE_ROUNDS, Output, Task, Transfer, TrialRef,
};
pub use lab::{CONGESTION_CONTROL, LabHost, Storage, StorageKind};
pub use network::{ANY_DESTINATION, Change, Interface, Link, LinkSet, Loss, Network};
pub use plan::{LINE_LIMIT_BYTES, Lines, Plan};
pub use record::{
    CacheState, Clock, Done, Event, Fatal, Finding, Hello, Idle, OpenTrial, Outcome, PROTOCOL,
    Ready, Record, ReleaseMethod, Sample, Signal, TransferRecord, Trial, TrialOutcome, TrialStart,
};
pub use scalar::Scalar;
pub use service::{Door, Service, Via, authority};
pub use sizes::{Portion, Sizes};
pub use socket::{Socket, Sockets};
pub use step::{
    ActorLine, ArrivalsStep, AtStep, Cache, ComputeStep, DrawName, DropCachesStep, OrDraw,
    ParallelStep, PauseStep, PoolStep, PrepareStep, ReadStep, RepeatLimit, RepeatStep, SignalStep,
    Step, TransferStep, TrialStep, WaitStep,
};
pub use trial_id::TrialId;
pub use units::{Bytes, Seconds};
