//! What each kind of step does to the strand that meets it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use super::program::Op;
use super::strand::{Round, StrandId};
use super::streams::Drawn;
use super::{
    Flow, Interpreter, MAX_IDLE_ROUNDS, Output, Outstanding, Stage, Task, Transfer, TrialRef,
};
use crate::{Endpoint, Error, Name, OrDraw, ReadStep, RepeatLimit, Seconds, TransferStep};

impl Interpreter {
    pub(super) fn step(&mut self, id: StrandId, op: &Op, now: Seconds) -> Result<Flow, Error> {
        let spoilt = self.actor_of(id).spoilt;
        if spoilt || !matches!(op, Op::Transfer(_) | Op::Read(_) | Op::Repeat { .. }) {
            // Its first step is no transfer, or none that will be armed: nobody waits for it at the barrier.
            let open = self.strands[id]
                .barrier
                .take()
                .and_then(|barrier| self.barriers.leave(barrier));
            self.release(open);
        }
        if let Some(flow) = spoilt.then(|| self.pass_over(id, op, now)).flatten() {
            return Ok(flow);
        }
        let flow = match op {
            Op::Trial(trial) => self.begin_trial(id, trial),
            Op::EndTrial => self.end_trial(id),
            Op::Skipped(signals) => self.skip_trial(id, signals),
            Op::Until {
                time,
                signals,
                next,
            } => {
                if now < *time {
                    Flow::Next
                } else {
                    self.skip_trial(id, signals);
                    Flow::Jump(*next)
                }
            }
            Op::Transfer(transfer) => self.transfer(id, transfer),
            Op::Read(read) => self.read(id, read),
            Op::Parallel { children, next } => self.fork(id, children, *next, now),
            Op::End => Flow::End,
            Op::Repeat { limit, next } => self.begin_repeat(id, *limit, *next, now),
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
                self.begin_task(id, |task, trial, actor| Output::Compute {
                    task,
                    trial,
                    actor,
                    core_s,
                })
            }
            Op::Prepare(prepare) => {
                let prepare = prepare.as_ref().clone();
                self.begin_task(id, |task, trial, actor| Output::Prepare {
                    task,
                    trial,
                    actor,
                    prepare,
                })
            }
            Op::DropCaches(drop) => {
                let drop_caches = drop.as_ref().clone();
                self.begin_task(id, |task, trial, actor| Output::DropCaches {
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
                let granted = granted.map_err(|held| Error::PoolNotHeld {
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

    fn begin_trial(&mut self, id: StrandId, trial: &TrialRef) -> Flow {
        let actor = &mut self.actors[self.strands[id].actor];
        actor.trial = Some(trial.clone());
        actor.streams.begin_trial(trial.trial);
        self.outputs.push_back(Output::TrialStarted {
            trial: trial.clone(),
        });
        Flow::Next
    }

    fn end_trial(&mut self, id: StrandId) -> Flow {
        let actor = &mut self.actors[self.strands[id].actor];
        if std::mem::take(&mut actor.spoilt) {
            // An `at` that found no transfer was not about the next trial's.
            self.strands[id].intended = None;
        }
        actor.streams.end_trial();
        self.outputs
            .extend(actor.trial.take().map(|trial| Output::TrialEnded { trial }));
        Flow::Next
    }

    fn skip_trial(&mut self, id: StrandId, signals: &[(Name, u64)]) -> Flow {
        // An `at` before the trial was about its first transfer, not about the one after it.
        self.strands[id].intended = None;
        for (counter, add) in signals {
            self.signal(counter, *add);
        }
        Flow::Next
    }

    /// Passes over a step of a trial that has failed; none if it concerns others. Signals are waited for, slots are shared.
    fn pass_over(&mut self, id: StrandId, op: &Op, now: Seconds) -> Option<Flow> {
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
                let at = self.strands[id].at;
                let counts = matches!(limit, RepeatLimit::Count(_));
                let needed = counts && self.concerns_others(id, at..*next);
                (!needed).then_some(Flow::Jump(*next))
            }
            // How many more would have come is known of none.
            Op::Arrivals { next, .. } => Some(self.end_arrivals(id, *next)),
            // These rounds take no time, and are no more than the plan counts: no loop to be afraid of.
            Op::EndRepeat { body } => {
                let needed = self.concerns_others(id, *body..self.strands[id].at);
                let rounds = &mut self.strands[id].rounds;
                let again = rounds.last_mut().is_some_and(|round| {
                    round.done += 1;
                    matches!(round.limit, RepeatLimit::Count(_)) && round.may_begin(now)
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

    fn concerns_others(&self, id: StrandId, steps: Range<usize>) -> bool {
        let shared = |op: &Op| {
            matches!(
                op,
                Op::Signal { .. } | Op::Acquire { .. } | Op::Release { .. }
            )
        };
        self.actor_of(id).program.ops[steps].iter().any(shared)
    }

    fn transfer(&mut self, id: StrandId, step: &TransferStep) -> Flow {
        let transfer = Transfer {
            call: step.call.clone(),
            slot: step.slot,
            source: self.draw::<Endpoint>(id, &step.source),
            source_via: step.source_via.clone(),
            // What has arrived side by side must not write to one file.
            destination: self
                .draw::<Endpoint>(id, &step.destination)
                .extended(&self.strands[id].suffix),
            destination_via: step.destination_via.clone(),
            files: step.files,
            bytes: self.draw(id, &step.bytes),
            offset_bytes: None,
            keep: step.keep,
            labels: step.labels.clone(),
        };
        self.arm(id, transfer)
    }

    fn read(&mut self, id: StrandId, step: &ReadStep) -> Flow {
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

    fn arm(&mut self, id: StrandId, transfer: Transfer) -> Flow {
        let strand = &mut self.strands[id];
        let intended = strand.intended.take();
        let stage = Stage::Arming {
            barrier: strand.barrier.take(),
        };
        let arm = |task, trial, actor| Output::Arm {
            task,
            trial,
            actor,
            transfer,
            intended,
        };
        self.begin_task_in(id, stage, arm)
    }

    fn begin_task(
        &mut self,
        id: StrandId,
        output: impl FnOnce(Task, Option<TrialRef>, Name) -> Output,
    ) -> Flow {
        self.begin_task_in(id, Stage::Running, output)
    }

    fn begin_task_in(
        &mut self,
        id: StrandId,
        stage: Stage,
        output: impl FnOnce(Task, Option<TrialRef>, Name) -> Output,
    ) -> Flow {
        let task = Task(self.next_task);
        self.next_task += 1;
        let actor = self.actor_of(id);
        let output = output(task, actor.trial.clone(), actor.program.actor.clone());
        self.outputs.push_back(output);
        self.tasks.insert(task, Outstanding { strand: id, stage });
        let strand = &mut self.strands[id];
        strand.at += 1;
        strand.suspensions += 1;
        Flow::Wait
    }

    fn fork(&mut self, id: StrandId, children: &[usize], next: usize, now: Seconds) -> Flow {
        if children.is_empty() {
            return Flow::Jump(next);
        }
        let barrier = self.barriers.open(children.len());
        let parent = &mut self.strands[id];
        parent.at = next;
        parent.children = children.len();
        parent.joins = true;
        for (child, &at) in children.iter().enumerate() {
            let child = self.strands[id].child(id, child, at, barrier, now);
            let child = self.strands.insert(child);
            self.ready.push_back(child);
        }
        self.strands[id].intended = None;
        Flow::Wait
    }

    pub(super) fn end(&mut self, id: StrandId) {
        let ended = self.strands.remove(id);
        let Some(parent_id) = ended.parent else {
            return;
        };
        if ended.arrived {
            self.actors[ended.actor].streams.forget(&ended.path);
        }
        let parent = &mut self.strands[parent_id];
        parent.work += ended.work;
        parent.suspensions += ended.suspensions;
        parent.children -= 1;
        if parent.children == 0 && std::mem::take(&mut parent.joins) {
            self.ready.push_back(parent_id);
        }
    }

    fn begin_repeat(
        &mut self,
        id: StrandId,
        limit: RepeatLimit,
        next: usize,
        now: Seconds,
    ) -> Flow {
        let limit = match limit {
            // From here on it is a time of the run like any other.
            RepeatLimit::For(duration) => RepeatLimit::Until(now + duration),
            limit => limit,
        };
        let round = Round {
            limit,
            done: 0,
            began: now,
            work: self.strands[id].work,
            idle: 0,
        };
        if !round.may_begin(now) {
            return Flow::Jump(next);
        }
        self.strands[id].rounds.push(round);
        Flow::Next
    }

    fn end_round(&mut self, id: StrandId, body: usize, now: Seconds) -> Result<Flow, Error> {
        if let Some(rounds) = self.strands[id].end_round(now, MAX_IDLE_ROUNDS) {
            let actor = self.actor_of(id).program.actor.as_ref().into();
            return Err(Error::EndlessLoop { actor, rounds });
        }
        let rounds = &mut self.strands[id].rounds;
        if rounds.last().is_some_and(|round| round.may_begin(now)) {
            return Ok(Flow::Jump(body));
        }
        rounds.pop();
        Ok(Flow::Next)
    }

    fn at(&mut self, id: StrandId, time: &OrDraw<Seconds>, now: Seconds) -> Flow {
        let time = self.draw(id, time);
        self.strands[id].intended = Some(time);
        self.sleep_until(id, time, now)
    }

    pub(super) fn sleep_until(&mut self, id: StrandId, time: Seconds, now: Seconds) -> Flow {
        if time <= now {
            return Flow::Next;
        }
        let strand = &mut self.strands[id];
        strand.at += 1;
        strand.suspensions += 1;
        self.sleeping.push(Reverse((time, id)));
        Flow::Wait
    }

    fn signal(&mut self, counter: &Name, add: u64) -> Flow {
        self.ready.extend(self.counters.add(counter, add));
        self.outputs.push_back(Output::Signal {
            counter: counter.clone(),
            add,
        });
        Flow::Next
    }

    /// Go on if `granted` now; else whoever grants it makes the strand ready.
    fn waits(&mut self, id: StrandId, granted: impl FnOnce(&mut Self) -> bool) -> Flow {
        if granted(self) {
            return Flow::Next;
        }
        self.strands[id].at += 1;
        Flow::Wait
    }

    /// The value itself, or the next one of its stream.
    pub(super) fn draw<T: Drawn>(&mut self, id: StrandId, value: &OrDraw<T>) -> T {
        let stream = match value {
            OrDraw::Fixed(value) => return value.clone(),
            OrDraw::Draw(name) => &name.draw,
        };
        let strand = &self.strands[id];
        let bits = self.actors[strand.actor]
            .streams
            .next_bits(&strand.path, stream);
        let drawn = self
            .draws
            .get(stream)
            .expect("compiling admits only draws of the header")
            .value(bits);
        T::from_scalar(&drawn).expect("compiling admits a draw only where all of its values fit")
    }
}
