//! Inputs and outputs of the interpreter.

use std::collections::BTreeMap;
use std::fmt;

use crate::{
    Bytes, DropCachesStep, Endpoint, Error, Name, PrepareStep, Scalar, Seconds, TrialId, Via,
};

/// A request to the driver; the interpreter numbers requests from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub(super) u64);

impl TaskId {
    /// Create the task of this number, for tasks that no interpreter numbers.
    #[must_use]
    pub const fn numbered(number: u64) -> Self {
        Self(number)
    }

    /// Return the number of the task.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Events that the driver reports. An event of a task that is not outstanding, or in another state,
/// is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InterpreterInput {
    /// A transfer is ready to be released.
    Armed {
        /// Which.
        task: TaskId,
    },
    /// A transfer cannot be started, for example because its tool is missing. It counts as finished
    /// and does not block a barrier.
    NotArmed {
        /// Which.
        task: TaskId,
    },
    /// A task has ended, with or without success.
    Finished {
        /// Which.
        task: TaskId,
    },
    /// A preparation has failed. Within a trial, no further step starts, so that the trial measures
    /// only transfers with their intended files. Running tasks continue to their end. The remaining
    /// steps are skipped, except signals and slots of pools, because other fibers can wait for
    /// them. Outside of trials, the preparation counts as finished.
    Failed {
        /// Which.
        task: TaskId,
    },
    /// The value of a counter over all hosts. Counters never decrease, so the larger of this and
    /// the local value counts.
    Counter {
        /// Its name.
        name: Name,
        /// Its value.
        value: u64,
    },
    /// Trials that use this service are skipped from now on. The remaining steps of a started trial
    /// are skipped as after [`Failed`](Self::Failed).
    EndService {
        /// Name of the service.
        service: Name,
    },
}

/// Requests to the driver. Every task ends with exactly one input: [`InterpreterInput::Finished`],
/// [`InterpreterInput::NotArmed`] or [`InterpreterInput::Failed`].
#[derive(Debug)]
pub enum InterpreterOutput {
    /// A trial starts.
    TrialStarted {
        /// Which.
        trial: TrialRef,
    },
    /// A trial is skipped, because this service has ended; [`TrialStarted`](Self::TrialStarted)
    /// does not follow.
    TrialSkipped {
        /// Which.
        trial: TrialRef,
        /// Name of the service.
        service: Name,
    },
    /// The remaining steps of a trial are skipped, because a service has ended; its result is a
    /// failure.
    TrialCut {
        /// Which.
        trial: TrialRef,
    },
    /// Prepare a transfer: fork its tool without running it. The reply is
    /// [`InterpreterInput::Armed`] or [`InterpreterInput::NotArmed`].
    Arm {
        /// Its name from here on.
        task: TaskId,
        /// The trial it is part of, if any.
        trial: Option<TrialRef>,
        /// Its actor.
        actor: Name,
        /// Transfer to prepare.
        transfer: Transfer,
        /// Intended start; none in a closed loop.
        intended: Option<Seconds>,
    },
    /// Run these transfers, all at the same time. The reply is [`InterpreterInput::Finished`] for
    /// each.
    Release {
        /// Tasks, in the order of the plan.
        tasks: Vec<TaskId>,
    },
    /// Create missing files of a dataset. The reply is [`InterpreterInput::Finished`] or
    /// [`InterpreterInput::Failed`].
    Prepare {
        /// Its name from here on.
        task: TaskId,
        /// The trial it is part of, if any.
        trial: Option<TrialRef>,
        /// Its actor.
        actor: Name,
        /// What.
        prepare: PrepareStep,
    },
    /// Flush and drop the page cache of files.
    DropCaches {
        /// Its name from here on.
        task: TaskId,
        /// The trial it is part of, if any.
        trial: Option<TrialRef>,
        /// Its actor.
        actor: Name,
        /// What.
        drop_caches: DropCachesStep,
    },
    /// Keep one core busy.
    Compute {
        /// Its name from here on.
        task: TaskId,
        /// The trial it is part of, if any.
        trial: Option<TrialRef>,
        /// Its actor.
        actor: Name,
        /// CPU time, in core-seconds.
        core_s: Seconds,
    },
    /// Report a signal to the other hosts. It is already counted on this host.
    Signal {
        /// Name of the counter.
        counter: Name,
        /// Added number.
        add: u64,
    },
    /// A trial has ended, with all its tasks.
    TrialEnded {
        /// Which.
        trial: TrialRef,
    },
    /// The plan cannot continue; no output follows. The driver ends all running tasks.
    Failed {
        /// The reason.
        error: Error,
    },
}

/// A trial with its actor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrialRef {
    /// The trial.
    pub trial: TrialId,
    /// The actor.
    pub actor: Name,
    /// Number of the sweep point.
    pub point: u32,
    /// Number of the repetition within the point.
    pub repetition: u32,
    /// Number of the randomised block.
    pub block: u32,
}

/// A `transfer` or `read` step with all draws resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct Transfer {
    /// Call of the header.
    pub call: Name,
    /// Number of the concurrent transfer, from 0.
    pub slot: u32,
    /// Source of the bytes.
    pub source: Endpoint,
    /// Service and service port for reading, if any.
    pub source_via: Option<Via>,
    /// Destination of the bytes; `null:` for a `read`.
    pub destination: Endpoint,
    /// Service and service port for writing, if any.
    pub destination_via: Option<Via>,
    /// Number of files; 1 for a `read`.
    pub files: u64,
    /// Bytes of all files together.
    pub bytes: Bytes,
    /// Start offset of a `read`; none for a `transfer`.
    pub offset_bytes: Option<Bytes>,
    /// Whether the destination remains after the trial.
    pub keep: bool,
    /// Labels from the plan.
    pub labels: BTreeMap<Name, Scalar>,
}
