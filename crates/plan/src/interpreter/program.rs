//! Steps of an actor as one flat list, validated with the header.
//!
//! The list is flat, so that the state of a fiber is an index and its surrounding `repeat`s. It is
//! validated here, so that the execution needs no checks.

mod transfers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::TrialRef;
use super::arrivals::Rates;
use super::streams::{Drawn, MAX_SECONDS};
use transfers::Shape;

use crate::{
    ActorLine, ArrivalsStep, DropCachesStep, Error, Header, Name, OrDraw, PrepareStep, ReadStep,
    RepeatLimit, RepeatStep, Seconds, Step, TransferStep, TrialId, TrialStep, Via,
};

/// Maximum nesting of steps, far above any use and far below the limit of the stack.
const MAX_NESTING: usize = 64;

#[derive(Debug)]
pub(super) struct Program {
    pub actor: Name,
    pub ops: Vec<Op>,
}

/// A step, or an end of one. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Trial(Arc<CompiledTrial>),
    EndTrial,
    /// A completed trial, with its signals.
    Skipped(Arc<[(Name, u64)]>),
    Transfer(Arc<TransferStep>),
    Read(Arc<ReadStep>),
    /// Start of each child, and the position after all of them.
    Parallel {
        children: Arc<[usize]>,
        next: usize,
    },
    /// The end of a child or of the program.
    End,
    Repeat {
        limit: RepeatLimit,
        next: usize,
    },
    EndRepeat {
        body: usize,
    },
    /// Position after all arrivals; their body is next.
    Arrivals {
        rates: Arc<Rates>,
        next: usize,
        /// Number of the compact transfer, if it is one.
        brief: Option<u32>,
    },
    At(OrDraw<Seconds>),
    Compute(OrDraw<Seconds>),
    Pause(OrDraw<Seconds>),
    Signal {
        counter: Name,
        add: u64,
    },
    Wait {
        counter: Name,
        until: u64,
    },
    Acquire {
        pool: Name,
        count: u32,
    },
    Release {
        pool: Name,
        count: u32,
    },
    Prepare(Arc<PrepareStep>),
    DropCaches(Arc<DropCachesStep>),
}

/// A trial, and the conditions for skipping it.
#[derive(Debug)]
pub(super) struct CompiledTrial {
    pub trial: TrialRef,
    /// It does not start at or after this time.
    pub until: Option<Seconds>,
    /// Services that its transfers use.
    pub services: BTreeSet<Name>,
    /// Signals to send if it is skipped.
    pub signals: Vec<(Name, u64)>,
    /// Position after it.
    pub next: usize,
}

impl Program {
    /// Report arrivals in compact form if the body is one transfer without a draw and `alike` accepts it.
    pub fn abbreviate(
        &mut self,
        alike: &impl Fn(&TransferStep) -> bool,
        numbers: &mut impl Iterator<Item = u32>,
    ) {
        for at in 0..self.ops.len() {
            let is_brief = match &self.ops[at + 1..] {
                [Op::Transfer(step), Op::End, ..] => step.is_fixed() && alike(step),
                _ => false,
            };
            if let Op::Arrivals { brief, .. } = &mut self.ops[at] {
                *brief = numbers.next().filter(|_| is_brief);
            }
        }
    }
}

/// Return the programs of the actors on `host`, in the order of their first lines.
pub(super) fn compile(
    header: &Header,
    host: &str,
    lines: Vec<ActorLine>,
    skip: &BTreeSet<TrialId>,
) -> Result<Vec<Program>, Error> {
    for (name, draw) in &header.draws {
        draw.check(name)?;
    }
    header.check_services()?;
    let mut hosts: BTreeMap<Name, Name> = BTreeMap::new();
    let mut indices: BTreeMap<Name, usize> = BTreeMap::new();
    let mut compilers: Vec<Compiler<'_>> = Vec::new();
    for line in lines {
        if !header.hosts.contains_key(&line.host) {
            return Err(unknown(&line.actor, "host", &line.host));
        }
        let known = hosts
            .entry(line.actor.clone())
            .or_insert_with(|| line.host.clone());
        if *known != line.host {
            let (expected, found) = (known.as_ref().into(), line.host.as_ref().into());
            return Err(Error::ActorMoved {
                actor: line.actor.as_ref().into(),
                expected,
                found,
            });
        }
        if line.host.as_ref() != host {
            continue;
        }
        let index = *indices.entry(line.actor.clone()).or_insert(compilers.len());
        if index == compilers.len() {
            compilers.push(Compiler::new(header, skip, line.actor));
        }
        compilers[index].steps(line.steps, 0)?;
    }
    Ok(compilers.into_iter().map(Compiler::finish).collect())
}

struct Compiler<'a> {
    header: &'a Header,
    skip: &'a BTreeSet<TrialId>,
    actor: Name,
    ops: Vec<Op>,
    trials: BTreeSet<TrialId>,
    /// Calls with validated command lines for transfers of this shape.
    calls: BTreeSet<(Name, Shape)>,
}

impl<'a> Compiler<'a> {
    fn new(header: &'a Header, skip: &'a BTreeSet<TrialId>, actor: Name) -> Self {
        Self {
            header,
            skip,
            actor,
            ops: Vec::new(),
            trials: BTreeSet::new(),
            calls: BTreeSet::new(),
        }
    }

    fn finish(mut self) -> Program {
        self.ops.push(Op::End);
        self.ops.shrink_to_fit();
        Program {
            actor: self.actor,
            ops: self.ops,
        }
    }

    fn steps(&mut self, steps: Vec<Step>, depth: usize) -> Result<(), Error> {
        if depth > MAX_NESTING {
            return Err(self.wrong("parallel", "at most 64 nested steps", "more".into()));
        }
        steps
            .into_iter()
            .try_for_each(|step| self.step(step, depth))
    }

    fn step(&mut self, step: Step, depth: usize) -> Result<(), Error> {
        let op = match step {
            Step::Trial(trial) => return self.trial(*trial, depth),
            Step::Parallel(parallel) => return self.parallel(parallel.children, depth),
            Step::Repeat(repeat) => return self.repeat(repeat, depth),
            Step::Arrivals(arrivals) => return self.arrivals(arrivals, depth),
            Step::Transfer(transfer) => self.transfer(*transfer)?,
            Step::Read(read) => self.read(*read)?,
            Step::At(at) => Op::At(self.seconds("at", at.time_s)?),
            Step::Compute(compute) => Op::Compute(self.seconds("compute", compute.core_s)?),
            Step::Pause(pause) => Op::Pause(self.seconds("pause", pause.duration_s)?),
            Step::Signal(signal) => Op::Signal {
                counter: signal.counter,
                add: signal.add,
            },
            Step::Wait(wait) => Op::Wait {
                counter: wait.counter,
                until: wait.until,
            },
            Step::Acquire(acquire) => self.acquire(acquire.pool, acquire.count)?,
            Step::Release(release) => {
                self.known("pool", &self.header.pools, &release.pool)?;
                Op::Release {
                    pool: release.pool,
                    count: release.count,
                }
            }
            Step::Prepare(prepare) => {
                self.files("prepare", &prepare.dataset, prepare.first, prepare.files)?;
                Op::Prepare(Arc::new(prepare))
            }
            Step::DropCaches(drop) => {
                self.files("drop_caches", &drop.dataset, drop.first, drop.files)?;
                Op::DropCaches(Arc::new(drop))
            }
        };
        self.ops.push(op);
        Ok(())
    }

    fn trial(&mut self, trial: TrialStep, depth: usize) -> Result<(), Error> {
        let misplaced = |actor: &Name, found| Error::TrialStorage {
            actor: actor.as_ref().into(),
            trial: trial.id,
            found,
        };
        if depth > 0 {
            return Err(misplaced(&self.actor, "inside another step"));
        }
        if !self.trials.insert(trial.id) {
            return Err(misplaced(&self.actor, "twice"));
        }
        let mut signals = Vec::new();
        collect_signals(&trial.steps, 1, &mut signals);
        if self.skip.contains(&trial.id) {
            self.ops.push(Op::Skipped(signals.into()));
            return Ok(());
        }
        self.balanced(&trial.steps)?;
        let until = trial
            .until_s
            .map(|time| self.time("trial", time))
            .transpose()?;
        let mut services = BTreeSet::new();
        self.collect_services(&trial.steps, &mut services);
        let start = self.ops.len();
        self.ops.push(Op::End); // placeholder until the end of the trial is known
        self.steps(trial.steps, depth + 1)?;
        self.ops.push(Op::EndTrial);
        self.ops[start] = Op::Trial(Arc::new(CompiledTrial {
            trial: TrialRef {
                trial: trial.id,
                actor: self.actor.clone(),
                point: trial.point,
                repetition: trial.repetition,
                block: trial.block,
            },
            until,
            services,
            signals,
            next: self.ops.len(),
        }));
        Ok(())
    }

    fn parallel(&mut self, children: Vec<Vec<Step>>, depth: usize) -> Result<(), Error> {
        let fork = self.ops.len();
        self.ops.push(Op::End); // placeholder until the positions of the children are known
        let mut starts = Vec::with_capacity(children.len());
        for child in children {
            starts.push(self.ops.len());
            self.steps(child, depth + 1)?;
            self.ops.push(Op::End);
        }
        self.ops[fork] = Op::Parallel {
            children: starts.into(),
            next: self.ops.len(),
        };
        Ok(())
    }

    fn repeat(&mut self, repeat: RepeatStep, depth: usize) -> Result<(), Error> {
        let start = self.ops.len();
        self.ops.push(Op::End); // placeholder until the end of the body is known
        self.steps(repeat.steps, depth + 1)?;
        self.ops.push(Op::EndRepeat { body: start + 1 });
        self.ops[start] = Op::Repeat {
            limit: repeat.limit,
            next: self.ops.len(),
        };
        Ok(())
    }

    fn arrivals(&mut self, arrivals: ArrivalsStep, depth: usize) -> Result<(), Error> {
        for gap in arrivals.first.iter().chain([&arrivals.gap]) {
            self.drawable(gap)?;
        }
        let rates = Rates::new(arrivals.rate_per_s, arrivals.gap, arrivals.first);
        let rates = rates.map_err(|(expected, found)| self.wrong("arrivals", expected, found))?;
        let start = self.ops.len();
        self.ops.push(Op::End); // placeholder until the end of the body is known
        self.steps(arrivals.steps, depth + 1)?;
        self.ops.push(Op::End);
        self.ops[start] = Op::Arrivals {
            rates: Arc::new(rates),
            next: self.ops.len(),
            brief: None,
        };
        Ok(())
    }

    fn acquire(&self, pool: Name, count: u32) -> Result<Op, Error> {
        let slots = *self.known("pool", &self.header.pools, &pool)?;
        if count > slots {
            return Err(self.wrong(
                "acquire",
                "no more slots than the pool has",
                format!("{count} of {slots}"),
            ));
        }
        Ok(Op::Acquire { pool, count })
    }

    fn seconds(
        &self,
        step: &'static str,
        value: OrDraw<Seconds>,
    ) -> Result<OrDraw<Seconds>, Error> {
        self.drawable(&value)?;
        match value {
            OrDraw::Fixed(time) => self.time(step, time).map(OrDraw::Fixed),
            value => Ok(value),
        }
    }

    fn time(&self, step: &'static str, time: Seconds) -> Result<Seconds, Error> {
        if (0.0..=MAX_SECONDS).contains(&time.get()) {
            return Ok(time);
        }
        let expected = "a number of at least 0 and at most 1e10";
        Err(self.wrong(step, expected, time.to_string()))
    }

    /// Check that each value of a draw is valid here.
    fn drawable<T: Drawn>(&self, value: &OrDraw<T>) -> Result<(), Error> {
        let OrDraw::Draw(name) = value else {
            return Ok(());
        };
        let draw = self.known("draw", &self.header.draws, &name.draw)?;
        match draw
            .range()
            .iter()
            .find(|value| T::from_scalar(value).is_none())
        {
            Some(found) => Err(Error::Draw {
                draw: name.draw.as_ref().into(),
                expected: T::EXPECTED,
                found: found.as_argument().unwrap_or_else(|| "null".into()),
            }),
            None => Ok(()),
        }
    }

    fn files(
        &self,
        step: &'static str,
        dataset: &Name,
        first: u64,
        files: u64,
    ) -> Result<(), Error> {
        let known = self.known("dataset", &self.header.datasets, dataset)?;
        if first.checked_add(files).is_none_or(|end| end > known.files) {
            let found = format!("{files} files from number {first}, of {}", known.files);
            return Err(self.wrong(step, "a range within the files of the dataset", found));
        }
        Ok(())
    }

    /// Check that a trial releases all acquired slots, because a resume skips it as a whole.
    fn balanced(&self, steps: &[Step]) -> Result<(), Error> {
        let mut balance = BTreeMap::new();
        collect_slots(steps, 1, &mut balance);
        match balance.into_iter().find(|&(_, kept)| kept != 0) {
            Some((pool, kept)) => {
                let found = format!("{kept} of `{pool}` not released");
                Err(self.wrong("trial", "a release of every slot that it acquires", found))
            }
            None => Ok(()),
        }
    }

    /// Collect the services that transfers use; each child of a `parallel` and each body counts.
    fn collect_services(&self, steps: &[Step], services: &mut BTreeSet<Name>) {
        let mut add = |call: &Name, source: Option<&Via>, destination: Option<&Via>| {
            services.extend(self.header.services_of(call, source, destination));
        };
        for step in steps {
            match step {
                Step::Transfer(it) => add(
                    &it.call,
                    it.source_via.as_ref(),
                    it.destination_via.as_ref(),
                ),
                Step::Read(it) => add(&it.call, it.source_via.as_ref(), None),
                _ => {}
            }
        }
        for step in steps {
            match step {
                Step::Parallel(it) => {
                    for child in &it.children {
                        self.collect_services(child, services);
                    }
                }
                Step::Repeat(it) => self.collect_services(&it.steps, services),
                Step::Arrivals(it) => self.collect_services(&it.steps, services),
                _ => {}
            }
        }
    }

    fn known<'m, T>(
        &self,
        kind: &'static str,
        names: &'m BTreeMap<Name, T>,
        name: &Name,
    ) -> Result<&'m T, Error> {
        names
            .get(name)
            .ok_or_else(|| unknown(&self.actor, kind, name))
    }

    fn wrong(&self, step: &'static str, expected: &'static str, found: String) -> Error {
        Error::Step {
            actor: self.actor.as_ref().into(),
            step,
            expected,
            found,
        }
    }
}

fn unknown(actor: &Name, kind: &'static str, found: &str) -> Error {
    Error::UnknownName {
        actor: actor.as_ref().into(),
        kind,
        found: found.into(),
    }
}

/// Return the signals of the steps when each runs `times` times.
fn collect_signals(steps: &[Step], times: u64, signals: &mut Vec<(Name, u64)>) {
    for step in steps {
        match step {
            Step::Signal(signal) => {
                signals.push((signal.counter.clone(), signal.add.saturating_mul(times)))
            }
            Step::Parallel(parallel) => parallel
                .children
                .iter()
                .for_each(|it| collect_signals(it, times, signals)),
            Step::Repeat(RepeatStep {
                limit: RepeatLimit::Count(count),
                steps,
            }) if *count > 0 => {
                collect_signals(steps, times.saturating_mul(*count), signals);
            }
            _ => {}
        }
    }
}

/// Count acquired minus released slots; a loop that ends at a time counts once, and so does an open
/// loop.
fn collect_slots<'a>(steps: &'a [Step], times: i128, balance: &mut BTreeMap<&'a Name, i128>) {
    let mut add = |pool, count: i128| {
        let kept: &mut i128 = balance.entry(pool).or_default();
        *kept = kept.saturating_add(count.saturating_mul(times));
    };
    for step in steps {
        match step {
            Step::Acquire(acquire) => add(&acquire.pool, acquire.count.into()),
            Step::Release(release) => add(&release.pool, -i128::from(release.count)),
            _ => {}
        }
    }
    for step in steps {
        match step {
            Step::Parallel(parallel) => parallel
                .children
                .iter()
                .for_each(|it| collect_slots(it, times, balance)),
            Step::Repeat(repeat) => {
                let count = match repeat.limit {
                    RepeatLimit::Count(count) => i128::from(count),
                    RepeatLimit::Until(_) | RepeatLimit::For(_) => 1,
                };
                collect_slots(&repeat.steps, times.saturating_mul(count), balance);
            }
            Step::Arrivals(arrivals) => collect_slots(&arrivals.steps, times, balance),
            _ => {}
        }
    }
}
