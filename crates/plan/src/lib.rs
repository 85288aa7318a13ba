//! Data formats of Venturi: plans, records and commands, and the interpreter that executes a plan.
//!
//! By design, this crate uses no clocks, processes, files, sockets, threads or environment
//! variables; `clippy.toml` bans them. Drivers provide clock and processes: the agent in real time,
//! the simulator in virtual time.
//!
//! Read [`Plan`] first, then [`Step`], then [`Interpreter`].

#![deny(missing_docs)]

mod call;
mod command;
pub mod conformance;
mod content;
mod cost;
mod draw;
mod endpoint;
mod error;
mod header;
mod interpreter;
mod lab;
mod network;
mod operation;
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
pub use command::{
    ActorCommand, Command, CounterCommand, EndServiceCommand, OtherHost, Response, Start,
};
pub use content::FileContent;
pub use cost::{Amount, Cost, HostCost, MoverCost, MoverRule, ServiceCost, StorageCost};
pub use draw::{Draw, DrawStream};
pub use endpoint::{Endpoint, NULL, ZERO, file_name};
pub use error::Error;
pub use header::{
    CounterFamily, Dataset, FORMAT, Format, Header, Host, Measure, Name, PortRange, Recorded,
    Storage, Totals, VERSION, Version,
};
pub use interpreter::{
    Arrival, Arrived, Interpreter, InterpreterInput, InterpreterOutput, MAX_IDLE_ROUNDS, TaskId,
    Transfer, TrialRef,
};
pub use lab::{CONGESTION_CONTROL, LabHost, StorageKind, StorageSpec};
pub use network::{ANY_DESTINATION, Change, Interface, Link, LinkSet, Loss, Network};
pub use operation::{
    CheckOperation, CheckOutcome, CheckedDestination, ChecksumCheck, ClearOperation, ClearOutcome,
    DatasetFiles, DropCachesOperation, FileOperation, FileSet, LateBytes, LinkOperation,
    LinkOutcome, OperationEvent, OperationOutcome, OperationResult, PrepareOperation,
    PrepareOutcome, ReceivedBytes, ReceiverState, Removal, RemoveOperation, RemoveOutcome,
    RemovedDestination,
};
pub use plan::{ActorLines, LINE_LIMIT_BYTES, Plan};
pub use record::{
    AgentEvent, CacheState, CheckedBy, Clock, Done, EndReason, Fatal, FatalKind, Finding, Hello,
    Idle, OpenTrial, Outcome, PROTOCOL, Ready, Record, ReleaseMethod, Request, Sample,
    ServiceEnded, Signal, TransferRecord, Trial, TrialOutcome, TrialSkipped, TrialStart,
};
pub use scalar::Scalar;
pub use service::{Service, ServiceAddress, ServicePort, Via, authority};
pub use sizes::{SizeGroup, Sizes};
pub use socket::{Socket, Sockets};
pub use step::{
    ActorLine, ArrivalsStep, AtStep, Cache, ComputeStep, DrawName, DropCachesStep, OrDraw,
    ParallelStep, PauseStep, PoolStep, PrepareStep, ReadStep, RepeatLimit, RepeatStep, SignalStep,
    Step, TransferStep, TrialStep, WaitStep,
};
pub use trial_id::TrialId;
pub use units::{Bytes, Seconds};
