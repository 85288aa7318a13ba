//! A transfer from its release to its end: it stands in line, is set up, moves, and is written down.

use std::collections::BTreeMap;
use std::sync::Arc;

use venturi_plan::{
    Bytes, Expect, Finding, Input, Name, Outcome, Scalar, Seconds, Task, TransferRecord, TrialRef,
};

use super::Simulation;
use super::load::Load;
use super::said::{Said, Told};
use super::walk::{Cause, Owner, Walk, add};
use crate::world::{Amounts, Ask, Error};

/// A transfer: the number of its host, and its task.
pub(super) type Id = (usize, Task);

/// Most bytes of one transfer: beyond, doubles do not count single ones.
const MOST_BYTES: u64 = 1 << 53;
/// The mover that stands for many clients.
const LOAD: &str = "http-load";

/// A transfer that was asked for and has not ended.
#[derive(Debug)]
pub(super) struct Active {
    pub trial: Option<TrialRef>,
    pub actor: Name,
    pub transfer: venturi_plan::Transfer,
    pub intended: Option<Seconds>,
    pub start_s: f64,
    /// Slots that it has, of the lines of its passage.
    taken: usize,
    served_s: f64,
    pub phase: Phase,
}

/// How far it is.
#[derive(Debug)]
pub(super) enum Phase {
    Armed,
    InLine(Walk),
    Walking(Walk),
    Load(Box<Load>),
}

impl Simulation {
    pub(super) fn arm(
        &mut self,
        id: Id,
        trial: Option<TrialRef>,
        actor: Name,
        transfer: venturi_plan::Transfer,
        intended: Option<Seconds>,
    ) {
        let requires = &self.world.header.calls[&transfer.call].requires;
        let missing = requires
            .iter()
            .find(|tool| self.world.assumptions.missing_tools.contains(*tool))
            .cloned();
        let active = Active {
            trial,
            actor,
            transfer,
            intended,
            start_s: self.now,
            taken: 0,
            served_s: self.now,
            phase: Phase::Armed,
        };
        let Some(tool) = missing else {
            self.active.insert(id, active);
            self.tell(id.0, Input::Armed { task: id.1 });
            return;
        };
        let record = record(
            &active,
            Outcome::Missing,
            Some(format!("`{tool}` is assumed to be on no host")),
        );
        self.write_down(id, active.trial, record, Told::default(), BTreeMap::new());
        self.tell(id.0, Input::NotArmed { task: id.1 });
    }

    pub(super) fn release(&mut self, host: usize, tasks: &[Task]) -> Result<(), Error> {
        for task in tasks {
            let id = (host, *task);
            let Some(active) = self.active.get_mut(&id) else {
                continue;
            };
            active.start_s = self.now;
            let call = &self.world.header.calls[&active.transfer.call];
            let asked = active.transfer.bytes.get();
            if asked > MOST_BYTES {
                return Err(Error::Value {
                    where_: format!("actor {}, task {task}, bytes", active.actor),
                    expected: "at most 2^53 bytes in one transfer",
                    found: asked.to_string(),
                });
            }
            self.deadlines
                .insert((Seconds::new(self.now + call.timeout_s.get()), id));
            if call.mover == LOAD {
                self.begin_load(id)?;
                continue;
            }
            let timed_s = call.options.get("time_s").and_then(Scalar::as_number);
            let transfer = &active.transfer;
            let first = transfer.source.numbered().map_or(0, |(_, number)| number);
            let files = transfer.files;
            let amounts = Amounts {
                first: if files > 1 { first } else { 0 },
                files,
                bytes: asked,
            };
            let walk = self.walk_of(id, amounts, timed_s)?;
            self.active.get_mut(&id).expect("just released").phase = Phase::InLine(walk);
            self.stand_in_line(id)?;
        }
        Ok(())
    }

    /// A transfer's next connection, at its beginning.
    pub(super) fn walk_of(
        &mut self,
        id: Id,
        amounts: Amounts,
        timed_s: Option<f64>,
    ) -> Result<Walk, Error> {
        let active = &self.active[&id];
        self.connections += 1;
        let proxy = self.world.proxies.get(&active.transfer.call);
        let known = proxy.and_then(|proxy| self.fetched.get(proxy));
        let ask = Ask {
            host: &self.hosts[id.0].name,
            transfer: &active.transfer,
            connection: self.connections,
            cached: known.is_some_and(|known| known.contains(&active.transfer.source)),
        };
        let (passage, stages) = self
            .courses
            .of(&self.world, &mut self.fluid, &ask, amounts)?;
        if !stages.unknown.is_empty() && self.told_unknown.insert(active.transfer.call.clone()) {
            let call = &active.transfer.call;
            let finding = Finding {
                code: "cost-unknown".into(),
                subject: call.as_ref().into(),
                evidence: format!(
                    "nobody has measured or said, from `{}` to `{}`: {}; they count nothing",
                    stages.source,
                    stages.destination,
                    stages.unknown.join(", ")
                ),
                advice: "say it under `[testbed.cost]`, by hand or from a calibration".into(),
            };
            self.say(id.0, Said::Finding(finding));
        }
        Ok(Walk::new(passage, stages, self.now, timed_s))
    }

    /// Takes the slots that are free; begins once all are there.
    fn stand_in_line(&mut self, id: Id) -> Result<(), Error> {
        let active = self.active.get_mut(&id).expect("it stands in line");
        let Phase::InLine(walk) = &active.phase else {
            return Ok(());
        };
        while let Some(service) = walk.passage.lines.get(active.taken) {
            if !self.lines.take(service, id) {
                return Ok(());
            }
            active.taken += 1;
        }
        active.served_s = self.now;
        if let Phase::InLine(walk) = std::mem::replace(&mut active.phase, Phase::Armed) {
            active.phase = Phase::Walking(walk);
        }
        self.go_on(Owner::Transfer(id))
    }

    /// It took longer than it may.
    pub(super) fn overdue(&mut self, id: Id) -> Result<(), Error> {
        self.break_off(Owner::Transfer(id))?;
        for client in self.fetching(id) {
            self.break_off(Owner::Fetch(id, client))?;
        }
        self.end_transfer(id, Outcome::Timeout)
    }

    pub(super) fn end_transfer(&mut self, id: Id, outcome: Outcome) -> Result<(), Error> {
        let mut active = self
            .active
            .remove(&id)
            .expect("only what has not ended ends");
        let (timeout_s, expect) = {
            let call = &self.world.header.calls[&active.transfer.call];
            (call.timeout_s, call.expect)
        };
        self.deadlines
            .remove(&(Seconds::new(active.start_s + timeout_s.get()), id));
        let error = (outcome == Outcome::Timeout)
            .then(|| format!("did not end within its {timeout_s} s and was ended"));
        let mut record = record(&active, outcome, error);
        let took_s = self.now - active.start_s;
        record.start_s = Some(Seconds::new(active.start_s));
        record.end_s = Some(Seconds::new(self.now));
        record.duration_s = Some(Seconds::new(took_s));
        let (mut told, mut bound) = (Told::default(), BTreeMap::new());
        let mut given_back: Vec<Name> = Vec::new();
        match std::mem::replace(&mut active.phase, Phase::Armed) {
            Phase::Armed => {}
            Phase::InLine(walk) => {
                self.lines.leave(&walk.passage.lines[active.taken], id);
                bound = self.shares(&vec![(Cause::Named("queue"), took_s)], took_s);
                given_back.extend_from_slice(&walk.passage.lines[..active.taken]);
            }
            Phase::Walking(mut walk) => {
                add(
                    &mut walk.causes,
                    Cause::Named("queue"),
                    active.served_s - active.start_s,
                );
                bound = self.shares(&walk.causes, took_s);
                if expect == Expect::Destination {
                    let whole = outcome == Outcome::Ok && !walk.is_timed();
                    let moved = Bytes::new(walk.moved() as u64);
                    record.received_bytes = Some(if whole { active.transfer.bytes } else { moved });
                }
                if walk.is_timed() {
                    told = timed(&walk, self.now);
                }
                given_back.extend_from_slice(&walk.passage.lines);
                if outcome == Outcome::Ok {
                    self.leave_behind(&active, walk.passage.proxy.as_ref());
                }
            }
            Phase::Load(load) => (told, bound) = self.end_load(id, *load)?,
        }
        self.write_down(id, active.trial, record, told, bound);
        self.tell(id.0, Input::Finished { task: id.1 });
        for service in given_back {
            if let Some(next) = self.lines.give_back(&service) {
                self.active
                    .get_mut(&next)
                    .expect("who waits has not ended")
                    .taken += 1;
                self.stand_in_line(next)?;
            }
        }
        Ok(())
    }

    /// What has been read lies in memory now: the server's, and the proxy's.
    fn leave_behind(&mut self, active: &Active, proxy: Option<&Name>) {
        let source = &active.transfer.source;
        if let Some(proxy) = proxy {
            self.delivered(proxy, source);
        }
        if !self.world.stores.remembers(source) || self.world.stores.is_warm(source) {
            return;
        }
        if let (Some((folder, _)), Some(set)) =
            (source.numbered(), self.world.header.dataset_of(source))
        {
            let bytes = set.sizes().sum(0, set.files);
            self.world
                .stores
                .warmed(source.place(), folder, bytes, false);
        }
    }

    /// A proxy has a file now.
    pub(super) fn delivered(&mut self, proxy: &Name, source: &venturi_plan::Endpoint) {
        if self
            .fetched
            .get(proxy)
            .is_none_or(|known| !known.contains(source))
        {
            self.fetched
                .entry(proxy.clone())
                .or_default()
                .insert(source.clone());
        }
    }

    fn write_down(
        &mut self,
        id: Id,
        trial: Option<TrialRef>,
        record: TransferRecord,
        told: Told,
        bound: BTreeMap<Arc<str>, f64>,
    ) {
        let transfer = super::said::Transfer {
            record,
            told,
            bound,
        };
        let open = trial
            .as_ref()
            .and_then(|trial| self.hosts[id.0].trials.get_mut(trial));
        match open {
            Some(open) => open.add(id.1.number(), transfer),
            None => self.say(id.0, Said::Transfer(Box::new(transfer))),
        }
    }
}

/// What a tool says that moved bytes for a time.
fn timed(walk: &Walk, now: f64) -> Told {
    let took_s = walk.first_byte_s.map_or(0.0, |first_s| now - first_s);
    Told {
        tool_bytes: Some(walk.moved() as u64),
        tool_duration_s: Some(took_s),
        tool_rate_bytes_per_s: (took_s > 0.0).then(|| walk.moved() / took_s),
        ..Told::default()
    }
}

fn record(active: &Active, outcome: Outcome, error: Option<String>) -> TransferRecord {
    let transfer = &active.transfer;
    TransferRecord {
        trial: active.trial.as_ref().map(|trial| trial.trial),
        actor: active.actor.clone(),
        slot: transfer.slot,
        call: transfer.call.clone(),
        source: transfer.source.clone(),
        source_via: transfer.source_via.clone(),
        destination: transfer.destination.clone(),
        destination_via: transfer.destination_via.clone(),
        files: transfer.files,
        asked_bytes: transfer.bytes,
        received_bytes: None,
        intended_s: active.intended,
        start_s: None,
        end_s: None,
        duration_s: None,
        outcome,
        exit_code: None,
        signal: None,
        error,
        user_s: None,
        system_s: None,
        max_rss_bytes: None,
        minor_faults: None,
        major_faults: None,
        voluntary_switches: None,
        involuntary_switches: None,
        read_call_bytes: None,
        write_call_bytes: None,
        read_disk_bytes: None,
        write_disk_bytes: None,
        stdout: None,
        stderr: None,
        labels: transfer.labels.clone(),
    }
}
