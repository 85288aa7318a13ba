//! Hosts of a plan at its start, each with its interpreter, and properties of the plan that are
//! known before the run.

use std::collections::BTreeMap;

use venturi_plan::{
    ActorLine, Interpreter, Name, OrDraw, Recorded, RepeatLimit, Seconds, Step, TrialRef,
};

use super::counters::SimCounters;
use super::trials::SimOpenTrial;
use crate::world::{World, WorldError, changes_caches};

/// Return the interpreters of all hosts, and the counters that connect them.
pub(super) fn hosts_of(
    world: &World,
    numbers: &BTreeMap<Name, usize>,
    lines: Vec<ActorLine>,
) -> Result<(Vec<SimHost>, SimCounters), WorldError> {
    let mut counters = SimCounters::default();
    let in_brief = world.header.measure.transfers == Recorded::Routes
        && !lines.iter().any(|line| changes_caches(&line.steps));
    let mut by_host: Vec<Vec<ActorLine>> = numbers.iter().map(|_| Vec::new()).collect();
    for line in lines {
        let host = *numbers.get(&line.host).ok_or_else(|| WorldError::Unknown {
            where_: format!("actor {}, host", line.actor),
            expected: "a host of the plan",
            found: line.host.as_ref().into(),
        })?;
        counters.read(host, &line);
        by_host[host].push(line);
    }
    let skip = &world.assumptions.skip;
    let mut hosts = Vec::with_capacity(by_host.len());
    for (name, lines) in numbers.keys().zip(by_host) {
        let interpreter = Interpreter::new(&world.header, name, lines, skip.clone());
        let interpreter = interpreter.map_err(|source| WorldError::Plan {
            host: name.as_ref().into(),
            source,
        })?;
        hosts.push(SimHost {
            name: name.clone(),
            interpreter: interpreter.brief(|step| in_brief && world.is_uniform(step)),
            wake: None,
            trials: BTreeMap::new(),
        });
    }
    Ok((hosts, counters))
}

/// Return the last time that these steps specify.
pub(super) fn last_time(steps: &[Step]) -> f64 {
    let of = |step: &Step| match step {
        Step::At(at) => match at.time_s {
            OrDraw::Fixed(time) => time.get(),
            OrDraw::Draw(_) => 0.0,
        },
        Step::Arrivals(arrivals) => {
            let last = arrivals.rate_per_s.last();
            last.map_or(0.0, |(time, _)| time.get())
        }
        Step::Trial(trial) => last_time(&trial.steps),
        Step::Repeat(repeat) => match repeat.limit {
            RepeatLimit::Until(time) => time.get(),
            _ => last_time(&repeat.steps),
        },
        Step::Parallel(parallel) => {
            let children = parallel.children.iter();
            children.map(|child| last_time(child)).fold(0.0, f64::max)
        }
        _ => 0.0,
    };
    steps.iter().map(of).fold(0.0, f64::max)
}

/// Host with its interpreter and state.
#[derive(Debug)]
pub(super) struct SimHost {
    pub name: Name,
    pub interpreter: Interpreter,
    pub wake: Option<Seconds>,
    pub trials: BTreeMap<TrialRef, SimOpenTrial>,
}
