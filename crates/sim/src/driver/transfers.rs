//! A transfer from its release to its end: it stands in line, is set up, moves, and is written down.

use std::collections::BTreeMap;
use std::sync::Arc;

use venturi_plan::{
    Bytes, Endpoint, Expect, Finding, Input, Name, Outcome, Scalar, Seconds, Task, TransferRecord,
    TrialRef,
};

use super::Simulation;
use super::load::Load;
use super::said::{Said, Told, Way};
use super::tally::Ended;
use super::walk::{Cause, ENDLESS_BYTES, Owner, Walk, add};
use crate::world::{Amounts, Ask, Error, LOAD, Passage, Stages};

/// A transfer: the number of its host, and its task.
pub(super) type Id = (usize, Task);

/// Most bytes of one transfer: beyond, doubles do not count single ones.
const MOST_BYTES: u64 = 1 << 53;

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
    pub amounts: Amounts,
    /// Attempts that broke.
    pub broken: u32,
    /// Why the last one did.
    pub error: Option<String>,
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
            amounts: Amounts::default(),
            broken: 0,
            error: None,
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
            self.begun += 1;
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
                // What runs for a time is asked for no bytes where the time alone is given.
                bytes: if timed_s.is_some() && asked == 0 {
                    ENDLESS_BYTES as u64
                } else {
                    asked
                },
            };
            active.amounts = amounts;
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
        let transfer = &active.transfer;
        let process = self.world.process_of(transfer, self.connections);
        let proxy = self.world.proxies.of(&transfer.call).cloned();
        let cached = proxy.is_some_and(|proxy| {
            let proxies = &mut self.world.proxies;
            proxies.asked(&proxy, process, &transfer.source, amounts.bytes)
        });
        let ask = Ask {
            host: &self.hosts[id.0].name,
            transfer,
            process,
            warm: self.world.memories.holds(&transfer.source, amounts.files),
            cached,
        };
        let (passage, stages) = self
            .courses
            .of(&self.world, &mut self.fluid, &ask, amounts)?;
        let call = active.transfer.call.clone();
        self.tell_unknown(id.0, &call, &stages);
        Ok(Walk::new(passage, stages, self.now, timed_s))
    }

    /// That nobody knows some costs of a call, once.
    pub(super) fn tell_unknown(&mut self, host: usize, call: &Name, stages: &Stages) {
        if let Some(rows) = &mut self.rows {
            rows.unknown(call, stages);
            return;
        }
        if stages.unknown.is_empty() || !self.told_unknown.insert(call.clone()) {
            return;
        }
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
        self.say(host, Said::Finding(finding));
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
        let timeout_s = self.world.header.calls[&active.transfer.call].timeout_s;
        self.deadlines
            .remove(&(Seconds::new(active.start_s + timeout_s.get()), id));
        let error = (outcome == Outcome::Timeout)
            .then(|| format!("did not end within its {timeout_s} s and was ended"))
            .or_else(|| active.error.take());
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
            Phase::Walking(walk) => {
                given_back.extend_from_slice(&walk.passage.lines);
                (told, bound) = self.end_walk(&active, walk, &mut record);
            }
            Phase::Load(load) => (told, bound) = self.end_load(id, *load)?,
        }
        self.write_down(id, active.trial, record, told, bound);
        self.tell(id.0, Input::Finished { task: id.1 });
        self.give_back(&given_back)
    }

    /// What a transfer that was served says of itself, and leaves behind.
    fn end_walk(
        &mut self,
        active: &Active,
        mut walk: Walk,
        record: &mut TransferRecord,
    ) -> (Told, BTreeMap<Arc<str>, f64>) {
        let queued_s = active.served_s - active.start_s;
        add(&mut walk.causes, Cause::Named("queue"), queued_s);
        let bound = self.shares(&walk.causes, self.now - active.start_s);
        let good = record.outcome == Outcome::Ok;
        if self.world.header.calls[&active.transfer.call].expect == Expect::Destination {
            let whole = good && !walk.is_timed();
            let moved = Bytes::new(walk.moved() as u64);
            record.received_bytes = Some(if whole { active.transfer.bytes } else { moved });
        }
        if good {
            self.leave_behind(active, &walk.passage);
        }
        let told = walk.is_timed().then(|| timed(&walk, self.now));
        (told.unwrap_or_default(), bound)
    }

    /// Slots of services are free again: whoever is next in line has them.
    fn give_back(&mut self, services: &[Name]) -> Result<(), Error> {
        for service in services {
            if let Some(next) = self.lines.give_back(service) {
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
    fn leave_behind(&mut self, active: &Active, passage: &Passage) {
        let (source, amounts) = (&active.transfer.source, active.amounts);
        self.delivered(passage, source, amounts.bytes);
        if !passage.from_cache && self.world.memories.remembers(source) {
            let set = self.world.header.dataset_of(source);
            self.world
                .memories
                .read(source, amounts.files, amounts.bytes, set);
        }
    }

    /// A proxy, if there is one, has a file now.
    pub(super) fn delivered(&mut self, passage: &Passage, source: &Endpoint, bytes: u64) {
        if let Some(proxy) = &passage.proxy {
            let proxies = &mut self.world.proxies;
            proxies.delivered(proxy, passage.process, source, bytes);
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
        if self.rows.is_some() {
            return self.note_row(id.1.number() as u32, record.outcome, &bound);
        }
        let (times_s, by_route) = (record.start_s.zip(record.end_s), self.by_route);
        if let (Some(ledger), Some((start_s, end_s))) = (&mut self.ledger, times_s) {
            ledger.lived(start_s.get(), end_s.get());
        }
        let open = trial
            .as_ref()
            .and_then(|trial| self.hosts[id.0].trials.get_mut(trial));
        match open {
            Some(open) if by_route => {
                let took_s = times_s.map_or(0.0, |(start_s, end_s)| end_s.get() - start_s.get());
                let tally = open.tally(Way::of(&record));
                tally.add(&Ended::of(&record));
                for (name, share) in bound {
                    *tally.bound_s.entry(name).or_default() += share * took_s;
                }
            }
            Some(open) => open.add(id.1.number(), single(record, told, bound)),
            None => {
                let transfer = single(record, told, bound);
                self.say(id.0, Said::Transfer(Box::new(transfer)));
            }
        }
    }
}

fn single(
    record: TransferRecord,
    told: Told,
    bound: BTreeMap<Arc<str>, f64>,
) -> super::said::Transfer {
    super::said::Transfer {
        record,
        told,
        bound,
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
    let trial = active.trial.as_ref().map(|trial| trial.trial);
    let planned = TransferRecord::of(
        &active.transfer,
        trial,
        active.actor.clone(),
        active.intended,
    );
    TransferRecord {
        outcome,
        error,
        ..planned
    }
}
