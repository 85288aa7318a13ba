//! Execution of each kind of step by a fiber.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::fiber::{FiberId, Round};
use super::program::{CompiledTrial, Op};
use super::streams::Drawn;
use super::{
    Flow, Interpreter, InterpreterOutput, MAX_IDLE_ROUNDS, Outstanding, Stage, TaskId, Transfer,
    TrialRef,
};
use crate::{Endpoint, Error, Name, OrDraw, ReadStep, RepeatLimit, Seconds, TransferStep};

impl Interpreter {
    pub(super) fn step(&mut self, id: FiberId, op: &Op, now: Seconds) -> Result<Flow, Error> {
        let spoilt = self.actor_of(id).spoilt;
        if spoilt || !matches!(op, Op::Transfer(_) | Op::Read(_) | Op::Repeat { .. }) {
            // Its first step is not a transfer, or a transfer that will not be armed: the barrier does not wait for
            // it.
            let open = self.fibers[id]
                .barrier
                .take()
                .and_then(|barrier| self.barriers.leave(barrier));
            self.release(open);
        }
        if let Some(flow) = spoilt.then(|| self.pass_over(id, op, now)).flatten() {
            return Ok(flow);
        }
        let flow = match op {
            Op::Trial(trial) => self.start_trial(id, trial, now),
            Op::EndTrial => self.end_trial(id),
            Op::Skipped(signals) => self.skip_trial(id, signals),
            Op::Transfer(transfer) => self.transfer(id, transfer),
            Op::Read(read) => self.read(id, read),
            Op::Parallel { children, next } => self.fork(id, children, *next, now),
            Op::End => Flow::End,
            Op::Repeat { limit, next } => self.start_repeat(id, *limit, *next, now),
            Op::EndRepeat { body } => return self.end_round(id, *body, now),
            Op::Arrivals { rates, next, brief } => {
                return self.arrivals(id, rates, *brief, *next, now);
            }
            Op::At(time) => self.at(id, time, now),
            Op::Pause(duration) => {
                let duration = self.draw(id, duration);
                self.sleep_until(id, now + duration, now)
            }
            Op::Compute(core_s) => {
                let core_s = self.draw(id, core_s);
                self.start_task(id, |task, trial, actor| InterpreterOutput::Compute {
                    task,
                    trial,
                    actor,
                    core_s,
                })
            }
            Op::Prepare(prepare) => {
                let prepare = prepare.as_ref().clone();
                self.start_task(id, |task, trial, actor| InterpreterOutput::Prepare {
                    task,
                    trial,
                    actor,
                    prepare,
                })
            }
            Op::DropCaches(drop) => {
                let drop_caches = drop.as_ref().clone();
                self.start_task(id, |task, trial, actor| InterpreterOutput::DropCaches {
                    task,
                    trial,
                    actor,
                    drop_caches,
                })
            }
            Op::Signal { counter, add } => self.signal(counter, *add),
            Op::Wait { counter, until } => {
                self.waits(id, |it| it.counters.wait(counter, *until, id))
            }
            Op::Acquire { pool, count } => self.waits(id, |it| it.pools.acquire(pool, *count, id)),
            Op::Release { pool, count } => {
                let granted = self.pools.release(pool, *count);
                let actor = &self.actor_of(id).program.actor;
                let granted = granted.map_err(|held| Error::PoolNotAcquired {
                    actor: actor.as_ref().into(),
                    pool: pool.as_ref().into(),
                    count: *count,
                    held,
                })?;
                self.ready.extend(granted);
                Flow::Next
            }
        };
        Ok(flow)
    }

    fn start_trial(&mut self, id: FiberId, compiled: &Arc<CompiledTrial>, now: Seconds) -> Flow {
        let trial = compiled.trial.clone();
        let is_late = compiled.until.is_some_and(|time| now >= time);
        let mut services = compiled.services.iter();
        if let Some(service) = services.find(|&it| !is_late && self.ended_services.contains(it)) {
            self.outputs.push_back(InterpreterOutput::TrialSkipped {
                trial,
                service: service.clone(),
            });
        } else if !is_late {
            let actor = &mut self.actors[self.fibers[id].actor];
            actor.trial = Some(Arc::clone(compiled));
            actor.streams.start_trial(trial.trial);
            self.outputs
                .push_back(InterpreterOutput::TrialStarted { trial });
            return Flow::Next;
        }
        self.skip_trial(id, &compiled.signals);
        Flow::Jump(compiled.next)
    }

    fn end_trial(&mut self, id: FiberId) -> Flow {
        let actor = &mut self.actors[self.fibers[id].actor];
        if std::mem::take(&mut actor.spoilt) {
            // An `at` without a transfer does not apply to the next trial.
            self.fibers[id].intended = None;
        }
        actor.streams.end_trial();
        self.outputs.extend(
            actor
                .trial
                .take()
                .map(|compiled| InterpreterOutput::TrialEnded {
                    trial: compiled.trial.clone(),
                }),
        );
        Flow::Next
    }

    fn skip_trial(&mut self, id: FiberId, signals: &[(Name, u64)]) -> Flow {
        // An `at` before the trial applies to its first transfer, not to a transfer after the
        // trial.
        self.fibers[id].intended = None;
        for (counter, add) in signals {
            self.signal(counter, *add);
        }
        Flow::Next
    }

    /// Skip a step of a failed trial; return none if other fibers depend on it, because they wait
    /// for signals and share slots.
    fn pass_over(&mut self, id: FiberId, op: &Op, now: Seconds) -> Option<Flow> {
        match op {
            Op::Transfer(_)
            | Op::Read(_)
            | Op::At(_)
            | Op::Compute(_)
            | Op::Pause(_)
            | Op::Wait { .. }
            | Op::Prepare(_)
            | Op::DropCaches(_) => Some(Flow::Next),
            Op::Repeat { limit, next } => {
                let at = self.fibers[id].at;
                let counts = matches!(limit, RepeatLimit::Count(_));
                let needed = counts && self.concerns_others(id, at..*next);
                (!needed).then_some(Flow::Jump(*next))
            }
            // The number of further arrivals is unknown.
            Op::Arrivals { next, .. } => Some(self.end_arrivals(id, *next)),
            // These rounds take no time, but their number is limited by the plan, so they are no
            // endless loop.
            Op::EndRepeat { body } => {
                let needed = self.concerns_others(id, *body..self.fibers[id].at);
                let rounds = &mut self.fibers[id].rounds;
                let again = rounds.last_mut().is_some_and(|round| {
                    round.done += 1;
                    matches!(round.limit, RepeatLimit::Count(_)) && round.can_start(now)
                });
                if needed && again {
                    return Some(Flow::Jump(*body));
                }
                rounds.pop();
                Some(Flow::Next)
            }
            _ => None,
        }
    }

    fn concerns_others(&self, id: FiberId, steps: Range<usize>) -> bool {
        let shared = |op: &Op| {
            matches!(
                op,
                Op::Signal { .. } | Op::Acquire { .. } | Op::Release { .. }
            )
        };
        self.actor_of(id).program.ops[steps].iter().any(shared)
    }

    fn transfer(&mut self, id: FiberId, step: &TransferStep) -> Flow {
        let transfer = Transfer {
            call: step.call.clone(),
            slot: step.slot,
            source: self.draw::<Endpoint>(id, &step.source),
            source_via: step.source_via.clone(),
            // Parallel arrivals must not write to the same file.
            destination: self
                .draw::<Endpoint>(id, &step.destination)
                .extended(&self.fibers[id].suffix),
            destination_via: step.destination_via.clone(),
            files: step.files,
            bytes: self.draw(id, &step.bytes),
            offset_bytes: None,
            keep: step.keep,
            labels: step.labels.clone(),
        };
        self.arm(id, transfer)
    }

    fn read(&mut self, id: FiberId, step: &ReadStep) -> Flow {
        let transfer = Transfer {
            call: step.call.clone(),
            slot: step.slot,
            source: self.draw::<Endpoint>(id, &step.source),
            source_via: step.source_via.clone(),
            destination: Endpoint::null(),
            destination_via: None,
            files: 1,
            offset_bytes: Some(self.draw(id, &step.offset_bytes)),
            bytes: self.draw(id, &step.bytes),
            keep: false,
            labels: BTreeMap::new(),
        };
        self.arm(id, transfer)
    }

    fn arm(&mut self, id: FiberId, transfer: Transfer) -> Flow {
        let fiber = &mut self.fibers[id];
        let intended = fiber.intended.take();
        let stage = Stage::Arming {
            barrier: fiber.barrier.take(),
        };
        let arm = |task, trial, actor| InterpreterOutput::Arm {
            task,
            trial,
            actor,
            transfer,
            intended,
        };
        self.start_task_in(id, stage, arm)
    }

    fn start_task(
        &mut self,
        id: FiberId,
        output: impl FnOnce(TaskId, Option<TrialRef>, Name) -> InterpreterOutput,
    ) -> Flow {
        self.start_task_in(id, Stage::Running, output)
    }

    fn start_task_in(
        &mut self,
        id: FiberId,
        stage: Stage,
        output: impl FnOnce(TaskId, Option<TrialRef>, Name) -> InterpreterOutput,
    ) -> Flow {
        let task = TaskId(self.next_task);
        self.next_task += 1;
        let actor = self.actor_of(id);
        let trial = actor.trial.as_ref().map(|compiled| compiled.trial.clone());
        let output = output(task, trial, actor.program.actor.clone());
        self.outputs.push_back(output);
        self.tasks.insert(task, Outstanding { fiber: id, stage });
        let fiber = &mut self.fibers[id];
        fiber.at += 1;
        fiber.suspensions += 1;
        Flow::Wait
    }

    fn fork(&mut self, id: FiberId, children: &[usize], next: usize, now: Seconds) -> Flow {
        if children.is_empty() {
            return Flow::Jump(next);
        }
        let barrier = self.barriers.open(children.len());
        let parent = &mut self.fibers[id];
        parent.at = next;
        parent.children = children.len();
        parent.joins = true;
        for (child, &at) in children.iter().enumerate() {
            let child = self.fibers[id].child(id, child, at, barrier, now);
            let child = self.fibers.insert(child);
            self.ready.push_back(child);
        }
        self.fibers[id].intended = None;
        Flow::Wait
    }

    pub(super) fn end(&mut self, id: FiberId) {
        let ended = self.fibers.remove(id);
        let Some(parent_id) = ended.parent else {
            return;
        };
        if ended.arrived {
            self.actors[ended.actor].streams.forget(&ended.path);
        }
        let parent = &mut self.fibers[parent_id];
        parent.work += ended.work;
        parent.suspensions += ended.suspensions;
        parent.children -= 1;
        if parent.children == 0 && std::mem::take(&mut parent.joins) {
            self.ready.push_back(parent_id);
        }
    }

    fn start_repeat(&mut self, id: FiberId, limit: RepeatLimit, next: usize, now: Seconds) -> Flow {
        let limit = match limit {
            // Convert the duration to a time of the run.
            RepeatLimit::For(duration) => RepeatLimit::Until(now + duration),
            limit => limit,
        };
        let round = Round {
            limit,
            done: 0,
            started: now,
            work: self.fibers[id].work,
            idle: 0,
        };
        if !round.can_start(now) {
            return Flow::Jump(next);
        }
        self.fibers[id].rounds.push(round);
        Flow::Next
    }

    fn end_round(&mut self, id: FiberId, body: usize, now: Seconds) -> Result<Flow, Error> {
        if let Some(rounds) = self.fibers[id].end_round(now, MAX_IDLE_ROUNDS) {
            let actor = self.actor_of(id).program.actor.as_ref().into();
            return Err(Error::EndlessLoop { actor, rounds });
        }
        let rounds = &mut self.fibers[id].rounds;
        if rounds.last().is_some_and(|round| round.can_start(now)) {
            return Ok(Flow::Jump(body));
        }
        rounds.pop();
        Ok(Flow::Next)
    }

    fn at(&mut self, id: FiberId, time: &OrDraw<Seconds>, now: Seconds) -> Flow {
        let time = self.draw(id, time);
        self.fibers[id].intended = Some(time);
        self.sleep_until(id, time, now)
    }

    pub(super) fn sleep_until(&mut self, id: FiberId, time: Seconds, now: Seconds) -> Flow {
        if time <= now {
            return Flow::Next;
        }
        let fiber = &mut self.fibers[id];
        fiber.at += 1;
        fiber.suspensions += 1;
        self.sleeping.push(Reverse((time, id)));
        Flow::Wait
    }

    fn signal(&mut self, counter: &Name, add: u64) -> Flow {
        self.ready.extend(self.counters.add(counter, add));
        self.outputs.push_back(InterpreterOutput::Signal {
            counter: counter.clone(),
            add,
        });
        Flow::Next
    }

    /// Continue if `granted` now; otherwise the fiber becomes ready when its request is granted.
    fn waits(&mut self, id: FiberId, granted: impl FnOnce(&mut Self) -> bool) -> Flow {
        if granted(self) {
            return Flow::Next;
        }
        self.fibers[id].at += 1;
        Flow::Wait
    }

    /// Return the value itself, or the next value of its stream.
    pub(super) fn draw<T: Drawn>(&mut self, id: FiberId, value: &OrDraw<T>) -> T {
        let stream = match value {
            OrDraw::Fixed(value) => return value.clone(),
            OrDraw::Draw(name) => &name.draw,
        };
        let fiber = &self.fibers[id];
        let bits = self.actors[fiber.actor]
            .streams
            .next_bits(&fiber.path, stream);
        let drawn = self
            .draws
            .get(stream)
            .expect("compiling admits only draws of the header")
            .value(bits);
        T::from_scalar(&drawn).expect("compiling admits a draw only where all of its values fit")
    }
}
