//! What goes into the interpreter and what comes out.

use std::collections::BTreeMap;
use std::fmt;

use crate::{
    Bytes, DropCachesStep, Endpoint, Error, Name, PrepareStep, Scalar, Seconds, TrialId, Via,
};

/// Something the driver was asked to do; the interpreter counts them from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task(pub(super) u64);

impl Task {
    /// The task of this number, where no interpreter counts them.
    #[must_use]
    pub const fn numbered(number: u64) -> Self {
        Self(number)
    }

    /// The number of the task.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What happened. A task that is not outstanding, or not in the state the input is about, is passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A transfer is ready to be released.
    Armed {
        /// Which.
        task: Task,
    },
    /// A transfer cannot be started, for example as its tool is missing: it counts as finished and holds up no barrier.
    NotArmed {
        /// Which.
        task: Task,
    },
    /// A task has ended, well or badly.
    Finished {
        /// Which.
        task: Task,
    },
    /// A preparation could not be done. Within a trial nothing more of it is begun, so that nothing is measured that the plan did
    /// not mean: what runs already goes on to its end, what is left is passed over but for signals and slots of pools, as others
    /// may wait for them. Outside of trials it counts as finished.
    Failed {
        /// Which.
        task: Task,
    },
    /// The value of a counter over all hosts. Counters never fall: the greater of this and the value here counts.
    Counter {
        /// Its name.
        name: Name,
        /// Its value.
        value: u64,
    },
}

/// What to do. Every task is answered by [`Input::Finished`], [`Input::NotArmed`] or [`Input::Failed`], exactly once.
#[derive(Debug)]
pub enum Output {
    /// A trial begins.
    TrialStarted {
        /// Which.
        trial: TrialRef,
    },
    /// Make a transfer ready: fork its tool, but do not let it run. Answered by [`Input::Armed`] or [`Input::NotArmed`].
    Arm {
        /// Its name from here on.
        task: Task,
        /// The trial it is part of, if any.
        trial: Option<TrialRef>,
        /// Its actor.
        actor: Name,
        /// What to transfer.
        transfer: Transfer,
        /// When it should start; none in a closed loop.
        intended: Option<Seconds>,
    },
    /// Let these transfers run, together. Answered by [`Input::Finished`] for each.
    Release {
        /// Which, in the order of the plan.
        tasks: Vec<Task>,
    },
    /// Make files of a data set exist. Answered by [`Input::Finished`] or [`Input::Failed`].
    Prepare {
        /// Its name from here on.
        task: Task,
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
        task: Task,
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
        task: Task,
        /// The trial it is part of, if any.
        trial: Option<TrialRef>,
        /// Its actor.
        actor: Name,
        /// For so long, in seconds of a core.
        core_s: Seconds,
    },
    /// Tell the other hosts. Here it is counted already.
    Signal {
        /// Name of the counter.
        counter: Name,
        /// What was added.
        add: u64,
    },
    /// A trial is over: all that it started has ended.
    TrialEnded {
        /// Which.
        trial: TrialRef,
    },
    /// The plan cannot go on; nothing follows. The driver ends what still runs.
    Failed {
        /// Why.
        error: Error,
    },
}

/// Which trial, by which actor.
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
    /// The randomised block it is in.
    pub block: u32,
}

/// A `transfer` or `read` step with all draws resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct Transfer {
    /// Which call of the header.
    pub call: Name,
    /// Number of the concurrent transfer, from 0.
    pub slot: u32,
    /// Where the bytes come from.
    pub source: Endpoint,
    /// The service and door through which they are read, if any.
    pub source_via: Option<Via>,
    /// Where they go to; `null:` for a `read`.
    pub destination: Endpoint,
    /// The service and door through which they are written, if any.
    pub destination_via: Option<Via>,
    /// Number of files; 1 for a `read`.
    pub files: u64,
    /// Bytes of all files together.
    pub bytes: Bytes,
    /// Where in the file a `read` begins; none for a `transfer`.
    pub offset_bytes: Option<Bytes>,
    /// Whether the destination stays after the trial.
    pub keep: bool,
    /// The plan's labels.
    pub labels: BTreeMap<Name, Scalar>,
}
