//! Carries out one host's actors, without a clock or a process of its own.
//!
//! The driver tells what happened and when ([`Input`]), and does what it is told ([`Output`]): in real time by running tools, in
//! virtual time by computing how long they would take.
//!
//! A *strand* is a place in a program where work goes on: an actor is one, and each child of a `parallel` while it runs. Strands
//! run one after the other, in the order in which they became ready, each until it has to wait; nothing depends on unordered maps.

mod arrivals;
mod barrier;
mod counters;
mod events;
mod pools;
mod program;
mod steps;
mod strand;
mod streams;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

pub use arrivals::{Arrival, Arrived};
pub use events::{Input, Output, Task, Transfer, TrialRef};

use crate::{ActorLine, Draw, Error, Header, Name, Seconds, TrialId};
use barrier::Barriers;
use counters::Counters;
use pools::Pools;
use program::Program;
use strand::{Strand, StrandId, Strands};
use streams::Streams;

/// Rounds of a `repeat`, one after the other, in which no time passes and nothing is carried out, before it is an error: an
/// endless loop must not hang the driver.
pub const MAX_IDLE_ROUNDS: u64 = 1000;

/// One host's actors.
///
/// After [`start`](Self::start) and after every input, call [`poll_output`](Self::poll_output) until it gives nothing more, then
/// sleep no longer than until [`poll_timeout`](Self::poll_timeout). `now` never falls.
///
/// ```
/// use std::collections::BTreeSet;
/// use venturi_plan::{Input, Interpreter, Output, Plan, Seconds};
/// # let text = concat!(
/// #     r#"{"format":"venturi-plan","version":1,"name":"x","seed":1,"scale":1.0,"scenario":{},"#,
/// #     r#""hosts":{"a":{"ssh":null,"memory_bytes":null}},"places":{},"datasets":{},"calls":{},"draws":{},"#,
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
/// let Some(Output::Compute { task, .. }) = interpreter.poll_output() else { panic!() };
/// interpreter.handle_input(Seconds::new(3.0), Input::Finished { task });
/// assert!(interpreter.is_finished());
/// # Ok::<(), venturi_plan::Error>(())
/// ```
#[derive(Debug)]
pub struct Interpreter {
    actors: Vec<Actor>,
    draws: BTreeMap<Name, Draw>,
    strands: Strands,
    ready: VecDeque<StrandId>,
    sleeping: BinaryHeap<Reverse<(Seconds, StrandId)>>,
    tasks: BTreeMap<Task, Outstanding>,
    next_task: u64,
    barriers: Barriers,
    counters: Counters,
    pools: Pools,
    outputs: VecDeque<Output>,
    /// What has arrived and is told in brief.
    arrived: VecDeque<Arrival>,
    failed: bool,
}

#[derive(Debug)]
struct Actor {
    program: Program,
    /// A trial is no part of another, so an actor is in one at most.
    trial: Option<TrialRef>,
    /// A preparation of this trial has failed.
    spoilt: bool,
    streams: Streams,
}

/// A task that the driver has not answered for good.
#[derive(Debug, Clone, Copy)]
struct Outstanding {
    strand: StrandId,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A transfer that is being made ready, alone or for a barrier.
    Arming { barrier: Option<barrier::Place> },
    /// A transfer that stands at a barrier.
    Held { barrier: barrier::Place },
    /// A released transfer, or another task.
    Running,
}

/// What a strand does after a step.
enum Flow {
    Next,
    Jump(usize),
    Wait,
    End,
}

impl Interpreter {
    /// The actors among these lines that live on `host`; the lines of an actor are concatenated.
    ///
    /// Trials in `skip` are passed over in no time and without a trace, but for their signals, which are counted and sent (a
    /// `repeat` in them that ends with the time counts for no round): what waits for a finished trial must not wait for ever.
    /// A trial with `until_s` that is reached at or after that time is passed over in the same way.
    /// They shift no draw, as every trial has its own (see [`DrawStream`](crate::DrawStream)).
    ///
    /// # Errors
    /// Where a line does not fit the header or itself: an unknown name, a value out of range, a trial twice or within another step.
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
            strands: Strands::default(),
            ready: VecDeque::new(),
            sleeping: BinaryHeap::new(),
            tasks: BTreeMap::new(),
            next_task: 0,
            barriers: Barriers::default(),
            counters: Counters::default(),
            pools: Pools::new(&header.pools),
            outputs: VecDeque::new(),
            arrived: VecDeque::new(),
            failed: false,
        })
    }

    /// Begin; once, before any input.
    pub fn start(&mut self, now: Seconds) {
        for actor in 0..self.actors.len() {
            let id = self.strands.insert(Strand::of_actor(actor, now));
            self.ready.push_back(id);
        }
        self.run_ready(now);
    }

    /// Something happened.
    pub fn handle_input(&mut self, now: Seconds, input: Input) {
        if self.failed {
            return;
        }
        match input {
            Input::Armed { task } => self.armed(task),
            Input::NotArmed { task } => self.ended(task, false),
            Input::Finished { task } => self.ended(task, true),
            Input::Failed { task } => {
                self.spoil_trial(task);
                self.ended(task, false);
            }
            Input::Counter { name, value } => {
                self.ready.extend(self.counters.raise_to(&name, value))
            }
        }
        self.run_ready(now);
    }

    /// Time has come to `now`.
    pub fn handle_timeout(&mut self, now: Seconds) {
        while let Some(&Reverse((time, id))) = self.sleeping.peek() {
            if time > now {
                break;
            }
            self.sleeping.pop();
            self.strands[id].work += 1;
            self.ready.push_back(id);
        }
        self.run_ready(now);
    }

    /// The next thing to do, if any.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Seconds> {
        self.sleeping.peek().map(|&Reverse((time, _))| time)
    }

    /// Whether all actors are at their end, or the plan has failed. Outputs may be left to poll.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.failed || self.strands.is_empty()
    }

    /// Whether nothing goes on here any more unless another host raises a counter.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        !self.is_finished() && self.tasks.is_empty() && self.sleeping.is_empty()
    }

    /// What the strands that wait for a counter or a pool wait for, in words.
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

    fn actor_of(&self, id: StrandId) -> &Actor {
        &self.actors[self.strands[id].actor]
    }

    fn armed(&mut self, task: Task) {
        let Some(outstanding) = self.tasks.get_mut(&task) else {
            return;
        };
        match outstanding.stage {
            Stage::Arming { barrier: None } => {
                outstanding.stage = Stage::Running;
                self.outputs
                    .push_back(Output::Release { tasks: vec![task] });
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

    fn ended(&mut self, task: Task, carried_out: bool) {
        let Some(Outstanding { strand, stage }) = self.tasks.remove(&task) else {
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
        self.strands[strand].work += u64::from(carried_out);
        self.ready.push_back(strand);
    }

    fn spoil_trial(&mut self, task: Task) {
        if let Some(outstanding) = self.tasks.get(&task) {
            let actor = &mut self.actors[self.strands[outstanding.strand].actor];
            actor.spoilt = actor.trial.is_some();
        }
    }

    /// Let go all who stood at a barrier that is complete.
    fn release(&mut self, open: Option<Vec<Task>>) {
        let Some(tasks) = open.filter(|tasks| !tasks.is_empty()) else {
            return;
        };
        for task in &tasks {
            self.tasks
                .get_mut(task)
                .expect("who ends at a barrier withdraws from it")
                .stage = Stage::Running;
        }
        self.outputs.push_back(Output::Release { tasks });
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
        self.outputs.push_back(Output::Failed { error });
    }

    /// Run one strand until it waits or ends.
    fn run(&mut self, id: StrandId, now: Seconds) -> Result<(), Error> {
        loop {
            let at = self.strands[id].at;
            // Shared, so that a step may borrow the rest of the interpreter.
            let op = self.actor_of(id).program.ops[at].clone();
            match self.step(id, &op, now)? {
                Flow::Next => self.strands[id].at = at + 1,
                Flow::Jump(to) => self.strands[id].at = to,
                Flow::Wait => return Ok(()),
                Flow::End => {
                    self.end(id);
                    return Ok(());
                }
            }
        }
    }
}
