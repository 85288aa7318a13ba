//! Interpreter of the actors of one host, without a clock or processes.
//!
//! The driver reports events with their times ([`InterpreterInput`]) and executes requests ([`InterpreterOutput`]): in
//! real time by running tools, in virtual time by computing their duration.
//!
//! A *fiber* is a position of execution in a program: each actor is a fiber, and so is each running
//! child of a `parallel`. Fibers run one after the other, in the order in which they became ready,
//! each until it must wait. The result does not depend on unordered maps.

mod arrivals;
mod barrier;
mod counters;
mod events;
mod fiber;
mod pools;
mod program;
mod steps;
mod streams;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;

pub use arrivals::{Arrival, Arrived};
pub use events::{InterpreterInput, InterpreterOutput, TaskId, Transfer, TrialRef};

use crate::{ActorLine, Draw, Error, Header, Name, Seconds, TrialId};
use barrier::Barriers;
use counters::PlanCounters;
use fiber::{Fiber, FiberId, Fibers};
use pools::Pools;
use program::{CompiledTrial, Program};
use streams::Streams;

/// Maximum number of consecutive rounds of a `repeat` without time or tasks; more rounds are an
/// error, so that an endless loop does not block the driver.
pub const MAX_IDLE_ROUNDS: u64 = 1000;

/// Actors of one host.
///
/// After [`start`](Self::start) and after every input, call [`poll_output`](Self::poll_output)
/// until it returns none. Then wait for inputs, at most until [`poll_timeout`](Self::poll_timeout).
/// `now` must not decrease.
///
/// ```
/// use std::collections::BTreeSet;
/// use venturi_plan::{InterpreterInput, Interpreter, InterpreterOutput, Plan, Seconds};
/// # let text = concat!(
/// #     r#"{"format":"venturi-plan","version":2,"name":"x","seed":1,"scale":1.0,"scenario":{},"#,
/// #     r#""hosts":{"a":{"ssh":null,"memory_bytes":null}},"storages":{},"datasets":{},"calls":{},"draws":{},"#,
/// #     r#""pools":{},"measure":{"interval_s":null,"counters":[]},"#,
/// #     r#""totals":{"trials":0,"transfers":0,"bytes":0,"disk_bytes":{}}}"#, "\n",
/// #     r#"{"actor":"x","host":"a","steps":[{"step":"pause","duration_s":2},{"step":"compute","core_s":1}]}"#);
/// let plan = Plan::read(text.as_bytes())?; // one actor: pause 2 s, compute 1 s
/// let mut interpreter = Interpreter::new(&plan.header, "a", plan.lines, BTreeSet::new())?;
/// interpreter.start(Seconds::ZERO);
/// assert!(interpreter.poll_output().is_none());
/// let wake = interpreter.poll_timeout().unwrap();
/// assert_eq!(wake, Seconds::new(2.0));
/// interpreter.handle_timeout(wake);
/// let Some(InterpreterOutput::Compute { task, .. }) = interpreter.poll_output() else { panic!() };
/// interpreter.handle_input(Seconds::new(3.0), InterpreterInput::Finished { task });
/// assert!(interpreter.is_finished());
/// # Ok::<(), venturi_plan::Error>(())
/// ```
#[derive(Debug)]
pub struct Interpreter {
    actors: Vec<Actor>,
    draws: BTreeMap<Name, Draw>,
    fibers: Fibers,
    ready: VecDeque<FiberId>,
    sleeping: BinaryHeap<Reverse<(Seconds, FiberId)>>,
    tasks: BTreeMap<TaskId, Outstanding>,
    next_task: u64,
    barriers: Barriers,
    counters: PlanCounters,
    pools: Pools,
    outputs: VecDeque<InterpreterOutput>,
    /// Arrivals in compact form.
    arrived: VecDeque<Arrival>,
    /// Services whose trials are skipped.
    ended_services: BTreeSet<Name>,
    failed: bool,
}

#[derive(Debug)]
struct Actor {
    program: Program,
    /// Current trial. Trials are not nested, so an actor is in at most one.
    trial: Option<Arc<CompiledTrial>>,
    /// A preparation of this trial has failed, or a service that it uses has ended.
    spoilt: bool,
    streams: Streams,
}

/// State of a task without a final reply from the driver.
#[derive(Debug, Clone, Copy)]
struct Outstanding {
    fiber: FiberId,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A transfer that is being armed, alone or for a barrier.
    Arming {
        barrier: Option<barrier::BarrierSlot>,
    },
    /// A transfer that waits at a barrier.
    Held { barrier: barrier::BarrierSlot },
    /// A released transfer, or another task.
    Running,
}

/// Continuation of a fiber after a step.
enum Flow {
    Next,
    Jump(usize),
    Wait,
    End,
}

impl Interpreter {
    /// Create the interpreter of the actors on `host` in these lines; the lines of an actor are
    /// concatenated.
    ///
    /// Trials in `skip` take no time and have no outputs except their signals, which are counted
    /// and sent, so that a fiber that waits for a finished trial does not wait forever. In a
    /// skipped trial, a `repeat` that ends at a time counts as no rounds. A trial that is reached
    /// at or after its `until_s` is skipped in the same way. Skipped trials do not change other
    /// draws, because every trial has its own (see [`DrawStream`](crate::DrawStream)).
    ///
    /// # Errors
    /// A line that does not fit the header or contradicts itself: an unknown name, a value out of range, a duplicate
    /// trial or a trial within another step.
    pub fn new(
        header: &Header,
        host: &str,
        actors: Vec<ActorLine>,
        skip: BTreeSet<TrialId>,
    ) -> Result<Self, Error> {
        let programs = program::compile(header, host, actors, &skip)?;
        let actor = |program: Program| {
            let streams = Streams::new(header.seed, &program.actor);
            Actor {
                program,
                trial: None,
                spoilt: false,
                streams,
            }
        };
        Ok(Self {
            actors: programs.into_iter().map(actor).collect(),
            draws: header.draws.clone(),
            fibers: Fibers::default(),
            ready: VecDeque::new(),
            sleeping: BinaryHeap::new(),
            tasks: BTreeMap::new(),
            next_task: 0,
            barriers: Barriers::default(),
            counters: PlanCounters::default(),
            pools: Pools::new(&header.pools),
            outputs: VecDeque::new(),
            arrived: VecDeque::new(),
            ended_services: BTreeSet::new(),
            failed: false,
        })
    }

    /// Start the actors. Call this once, before any input.
    pub fn start(&mut self, now: Seconds) {
        for actor in 0..self.actors.len() {
            let id = self.fibers.insert(Fiber::of_actor(actor, now));
            self.ready.push_back(id);
        }
        self.run_ready(now);
    }

    /// Process an event.
    pub fn handle_input(&mut self, now: Seconds, input: InterpreterInput) {
        if self.failed {
            return;
        }
        match input {
            InterpreterInput::Armed { task } => self.armed(task),
            InterpreterInput::NotArmed { task } => self.ended(task, false),
            InterpreterInput::Finished { task } => self.ended(task, true),
            InterpreterInput::Failed { task } => {
                self.spoil_trial(task);
                self.ended(task, false);
            }
            InterpreterInput::Counter { name, value } => {
                self.ready.extend(self.counters.raise_to(&name, value))
            }
            InterpreterInput::EndService { service } => self.end_service(service),
        }
        self.run_ready(now);
    }

    /// Advance the time to `now`.
    pub fn handle_timeout(&mut self, now: Seconds) {
        while let Some(&Reverse((time, id))) = self.sleeping.peek() {
            if time > now {
                break;
            }
            self.sleeping.pop();
            self.fibers[id].work += 1;
            self.ready.push_back(id);
        }
        self.run_ready(now);
    }

    /// Return the next request to the driver, if any.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<InterpreterOutput> {
        self.outputs.pop_front()
    }

    /// Return when to call [`handle_timeout`](Self::handle_timeout) if no event happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Seconds> {
        self.sleeping.peek().map(|&Reverse((time, _))| time)
    }

    /// Return whether all actors have ended, or the plan has failed. Outputs can remain to be
    /// polled.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.failed || self.fibers.is_empty()
    }

    /// Return whether all fibers wait for a counter that another host must increase.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        !self.is_finished() && self.tasks.is_empty() && self.sleeping.is_empty()
    }

    /// Return one description per fiber that waits for a counter or a pool.
    #[must_use]
    pub fn waiting(&self) -> Vec<String> {
        let waiting = self.counters.waiting().chain(self.pools.waiting());
        waiting
            .map(|(id, what)| {
                format!(
                    "actor `{}` waits for {what}",
                    self.actor_of(id).program.actor
                )
            })
            .collect()
    }

    fn actor_of(&self, id: FiberId) -> &Actor {
        &self.actors[self.fibers[id].actor]
    }

    fn armed(&mut self, task: TaskId) {
        let Some(outstanding) = self.tasks.get_mut(&task) else {
            return;
        };
        match outstanding.stage {
            Stage::Arming { barrier: None } => {
                outstanding.stage = Stage::Running;
                self.outputs
                    .push_back(InterpreterOutput::Release { tasks: vec![task] });
            }
            Stage::Arming {
                barrier: Some(barrier),
            } => {
                outstanding.stage = Stage::Held { barrier };
                let open = self.barriers.arrive(barrier, task);
                self.release(open);
            }
            Stage::Held { .. } | Stage::Running => {}
        }
    }

    fn ended(&mut self, task: TaskId, completed: bool) {
        let Some(Outstanding { fiber, stage }) = self.tasks.remove(&task) else {
            return;
        };
        let open = match stage {
            Stage::Arming {
                barrier: Some(barrier),
            } => self.barriers.leave(barrier),
            Stage::Held { barrier } => self.barriers.withdraw(barrier),
            Stage::Arming { barrier: None } | Stage::Running => None,
        };
        self.release(open);
        self.fibers[fiber].work += u64::from(completed);
        self.ready.push_back(fiber);
    }

    fn end_service(&mut self, service: Name) {
        for actor in self.actors.iter_mut().filter(|actor| !actor.spoilt) {
            let open = actor.trial.as_ref();
            if let Some(compiled) = open.filter(|it| it.services.contains(&service)) {
                actor.spoilt = true;
                self.outputs.push_back(InterpreterOutput::TrialCut {
                    trial: compiled.trial.clone(),
                });
            }
        }
        self.ended_services.insert(service);
    }

    fn spoil_trial(&mut self, task: TaskId) {
        if let Some(outstanding) = self.tasks.get(&task) {
            let actor = &mut self.actors[self.fibers[outstanding.fiber].actor];
            actor.spoilt = actor.trial.is_some();
        }
    }

    /// Release all tasks at a complete barrier.
    fn release(&mut self, open: Option<Vec<TaskId>>) {
        let Some(tasks) = open.filter(|tasks| !tasks.is_empty()) else {
            return;
        };
        for task in &tasks {
            self.tasks
                .get_mut(task)
                .expect("a task that ends at a barrier withdraws from it")
                .stage = Stage::Running;
        }
        self.outputs.push_back(InterpreterOutput::Release { tasks });
    }

    fn run_ready(&mut self, now: Seconds) {
        while let Some(id) = self.ready.pop_front() {
            if let Err(error) = self.run(id, now) {
                self.fail(error);
            }
        }
    }

    fn fail(&mut self, error: Error) {
        self.failed = true;
        self.ready.clear();
        self.arrived.clear();
        self.sleeping.clear();
        self.tasks.clear();
        self.outputs.push_back(InterpreterOutput::Failed { error });
    }

    /// Run one fiber until it waits or ends.
    fn run(&mut self, id: FiberId, now: Seconds) -> Result<(), Error> {
        loop {
            let at = self.fibers[id].at;
            // Clone the shared step, so that its execution can borrow the interpreter.
            let op = self.actor_of(id).program.ops[at].clone();
            match self.step(id, &op, now)? {
                Flow::Next => self.fibers[id].at = at + 1,
                Flow::Jump(to) => self.fibers[id].at = to,
                Flow::Wait => return Ok(()),
                Flow::End => {
                    self.end(id);
                    return Ok(());
                }
            }
        }
    }
}
