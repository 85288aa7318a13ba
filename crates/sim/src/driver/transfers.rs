//! Transfer from its release to its end: queue, set-up, movement of bytes, record.

use std::collections::BTreeMap;
use std::sync::Arc;

use venturi_plan::{
    Bytes, Endpoint, Expect, Finding, InterpreterInput, Name, Outcome, Scalar, Seconds, TaskId,
    TransferRecord, TrialRef,
};

use super::Simulation;
use super::load::Load;
use super::records::{RouteKey, SimRecord, ToolReport};
use super::stage_runner::{Cause, ENDLESS_BYTES, Owner, StageRunner, add};
use super::tally::Ended;
use crate::world::{Amounts, LOAD, RouteQuery, Stages, TransferRoute, WorldError};

/// Identifier of a transfer: the number of its host, and its task.
pub(super) type Id = (usize, TaskId);

/// Maximum bytes of one transfer; beyond it, doubles do not count single bytes.
const MAX_BYTES: u64 = 1 << 53;

/// Requested transfer that has not ended.
#[derive(Debug)]
pub(super) struct ActiveTransfer {
    pub trial: Option<TrialRef>,
    pub actor: Name,
    pub transfer: venturi_plan::Transfer,
    pub intended: Option<Seconds>,
    pub start_s: f64,
    /// Number of slots that it has, among the queues of its route.
    taken: usize,
    served_s: f64,
    pub phase: TransferState,
    pub amounts: Amounts,
    /// Number of failed attempts.
    pub broken: u32,
    /// Error of the last failed attempt.
    pub error: Option<String>,
}

/// State of the transfer.
#[derive(Debug)]
pub(super) enum TransferState {
    Armed,
    Queued(StageRunner),
    Walking(StageRunner),
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
        let active = ActiveTransfer {
            trial,
            actor,
            transfer,
            intended,
            start_s: self.now,
            taken: 0,
            served_s: self.now,
            phase: TransferState::Armed,
            amounts: Amounts::default(),
            broken: 0,
            error: None,
        };
        let Some(tool) = missing else {
            self.active.insert(id, active);
            self.report(id.0, InterpreterInput::Armed { task: id.1 });
            return;
        };
        let record = record(
            &active,
            Outcome::Missing,
            Some(format!("`{tool}` is assumed to be on no host")),
        );
        self.write_record(
            id,
            active.trial,
            record,
            ToolReport::default(),
            BTreeMap::new(),
        );
        self.report(id.0, InterpreterInput::NotArmed { task: id.1 });
    }

    pub(super) fn release(&mut self, host: usize, tasks: &[TaskId]) -> Result<(), WorldError> {
        for task in tasks {
            let id = (host, *task);
            let Some(active) = self.active.get_mut(&id) else {
                continue;
            };
            active.start_s = self.now;
            self.started += 1;
            let call = &self.world.header.calls[&active.transfer.call];
            let requested_bytes = active.transfer.bytes.get();
            if requested_bytes > MAX_BYTES {
                return Err(WorldError::Value {
                    where_: format!("actor {}, task {task}, bytes", active.actor),
                    expected: "at most 2^53 bytes in one transfer",
                    found: requested_bytes.to_string(),
                });
            }
            self.deadlines
                .insert((Seconds::new(self.now + call.timeout_s.get()), id));
            if call.mover == LOAD {
                self.start_load(id)?;
                continue;
            }
            let timed_s = call.options.get("time_s").and_then(Scalar::as_number);
            let transfer = &active.transfer;
            let first = transfer.source.numbered().map_or(0, |(_, number)| number);
            let files = transfer.files;
            let amounts = Amounts {
                first: if files > 1 { first } else { 0 },
                files,
                // A transfer with a fixed duration requests no bytes if only the time is set.
                bytes: if timed_s.is_some() && requested_bytes == 0 {
                    ENDLESS_BYTES as u64
                } else {
                    requested_bytes
                },
            };
            active.amounts = amounts;
            let walk = self.walk_of(id, amounts, timed_s)?;
            self.active.get_mut(&id).expect("just released").phase = TransferState::Queued(walk);
            self.enqueue(id)?;
        }
        Ok(())
    }

    /// Create the stage runner of the next connection of a transfer.
    pub(super) fn walk_of(
        &mut self,
        id: Id,
        amounts: Amounts,
        timed_s: Option<f64>,
    ) -> Result<StageRunner, WorldError> {
        let active = &self.active[&id];
        self.connections += 1;
        let transfer = &active.transfer;
        let process = self.world.process_of(transfer, self.connections);
        let proxy = self.world.proxies.of(&transfer.call).cloned();
        let cached = proxy.is_some_and(|proxy| {
            let proxies = &mut self.world.proxies;
            proxies.request(&proxy, process, &transfer.source, amounts.bytes)
        });
        let query = RouteQuery {
            host: &self.hosts[id.0].name,
            transfer,
            process,
            warm: self.world.memories.holds(&transfer.source, amounts.files),
            cached,
        };
        let (route, stages) = self
            .route_cache
            .of(&self.world, &mut self.fluid, &query, amounts)?;
        let call = active.transfer.call.clone();
        self.report_unknown(id.0, &call, &stages);
        Ok(StageRunner::new(route, stages, self.now, timed_s))
    }

    /// Report unknown costs of a call, once.
    pub(super) fn report_unknown(&mut self, host: usize, call: &Name, stages: &Stages) {
        if let Some(rows) = &mut self.rows {
            rows.unknown(call, stages);
            return;
        }
        if stages.unknown.is_empty() || !self.reported_unknown.insert(call.clone()) {
            return;
        }
        let finding = Finding {
            code: "cost-unknown".into(),
            subject: call.as_ref().into(),
            evidence: format!(
                "costs from `{}` to `{}` are unknown: {}; the simulation counts them as 0",
                stages.source,
                stages.destination,
                stages.unknown.join(", ")
            ),
            advice: "set them under `[testbed.cost]`, by hand or from a calibration".into(),
        };
        self.push(host, SimRecord::Finding(finding));
    }

    /// Take the free slots, and start the transfer once it has all slots.
    fn enqueue(&mut self, id: Id) -> Result<(), WorldError> {
        let active = self.active.get_mut(&id).expect("it is in the queue");
        let TransferState::Queued(walk) = &active.phase else {
            return Ok(());
        };
        while let Some(service) = walk.route.queues.get(active.taken) {
            if !self.lines.take(service, id) {
                return Ok(());
            }
            active.taken += 1;
        }
        active.served_s = self.now;
        if let TransferState::Queued(walk) =
            std::mem::replace(&mut active.phase, TransferState::Armed)
        {
            active.phase = TransferState::Walking(walk);
        }
        self.advance(Owner::Transfer(id))
    }

    /// End a transfer that exceeded its timeout.
    pub(super) fn overdue(&mut self, id: Id) -> Result<(), WorldError> {
        self.break_off(Owner::Transfer(id))?;
        for client in self.fetching(id) {
            self.break_off(Owner::Fetch(id, client))?;
        }
        self.end_transfer(id, Outcome::Timeout)
    }

    pub(super) fn end_transfer(&mut self, id: Id, outcome: Outcome) -> Result<(), WorldError> {
        let mut active = self.active.remove(&id).expect("a transfer ends once");
        let timeout_s = self.world.header.calls[&active.transfer.call].timeout_s;
        self.deadlines
            .remove(&(Seconds::new(active.start_s + timeout_s.get()), id));
        let error = (outcome == Outcome::Timeout)
            .then(|| format!("timeout after {timeout_s} s; the agent ended the process"))
            .or_else(|| active.error.take());
        let mut record = record(&active, outcome, error);
        let took_s = self.now - active.start_s;
        record.start_s = Some(Seconds::new(active.start_s));
        record.end_s = Some(Seconds::new(self.now));
        record.duration_s = Some(Seconds::new(took_s));
        let (mut tool_report, mut bottleneck) = (ToolReport::default(), BTreeMap::new());
        let mut release_slots: Vec<Name> = Vec::new();
        match std::mem::replace(&mut active.phase, TransferState::Armed) {
            TransferState::Armed => {}
            TransferState::Queued(walk) => {
                self.lines.leave(&walk.route.queues[active.taken], id);
                bottleneck = self.fractions(&vec![(Cause::Named("queue"), took_s)], took_s);
                release_slots.extend_from_slice(&walk.route.queues[..active.taken]);
            }
            TransferState::Walking(walk) => {
                release_slots.extend_from_slice(&walk.route.queues);
                (tool_report, bottleneck) = self.finish_stages(&active, walk, &mut record);
            }
            TransferState::Load(load) => (tool_report, bottleneck) = self.finish_load(id, *load)?,
        }
        self.write_record(id, active.trial, record, tool_report, bottleneck);
        self.report(id.0, InterpreterInput::Finished { task: id.1 });
        self.release_slots(&release_slots)
    }

    /// Return the report of a completed transfer, and store its bytes in the caches.
    fn finish_stages(
        &mut self,
        active: &ActiveTransfer,
        mut walk: StageRunner,
        record: &mut TransferRecord,
    ) -> (ToolReport, BTreeMap<Arc<str>, f64>) {
        let queued_s = active.served_s - active.start_s;
        add(&mut walk.causes, Cause::Named("queue"), queued_s);
        let bottleneck = self.fractions(&walk.causes, self.now - active.start_s);
        let good = record.outcome == Outcome::Ok;
        if self.world.header.calls[&active.transfer.call].expect == Expect::Destination {
            let whole = good && !walk.is_timed();
            let moved = Bytes::new(walk.moved() as u64);
            record.received_bytes = Some(if whole { active.transfer.bytes } else { moved });
        }
        if good {
            self.leave_partial(active, &walk.route);
        }
        let tool_report = walk.is_timed().then(|| timed(&walk, self.now));
        (tool_report.unwrap_or_default(), bottleneck)
    }

    /// Release slots of services: the next transfers in their queues get them.
    fn release_slots(&mut self, services: &[Name]) -> Result<(), WorldError> {
        for service in services {
            if let Some(next) = self.lines.release(service) {
                self.active
                    .get_mut(&next)
                    .expect("a transfer that waits has not ended")
                    .taken += 1;
                self.enqueue(next)?;
            }
        }
        Ok(())
    }

    /// Store the bytes read in the caches of the server and the proxy.
    fn leave_partial(&mut self, active: &ActiveTransfer, route: &TransferRoute) {
        let (source, amounts) = (&active.transfer.source, active.amounts);
        self.delivered(route, source, amounts.bytes);
        if !route.from_cache && self.world.memories.remembers(source) {
            let set = self.world.header.dataset_of(source);
            self.world
                .memories
                .read(source, amounts.files, amounts.bytes, set);
        }
    }

    /// Store a file in the cache of the proxy, if there is one.
    pub(super) fn delivered(&mut self, route: &TransferRoute, source: &Endpoint, bytes: u64) {
        if let Some(proxy) = &route.proxy {
            let proxies = &mut self.world.proxies;
            proxies.delivered(proxy, route.process, source, bytes);
        }
    }

    fn write_record(
        &mut self,
        id: Id,
        trial: Option<TrialRef>,
        record: TransferRecord,
        tool_report: ToolReport,
        bottleneck: BTreeMap<Arc<str>, f64>,
    ) {
        if self.rows.is_some() {
            return self.note_row(id.1.number() as u32, record.outcome, &bottleneck);
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
                let tally = open.tally(RouteKey::of(&record));
                tally.add(&Ended::of(&record));
                for (name, fraction) in bottleneck {
                    *tally.bottleneck_s.entry(name).or_default() += fraction * took_s;
                }
            }
            Some(open) => open.add(id.1.number(), single(record, tool_report, bottleneck)),
            None => {
                let transfer = single(record, tool_report, bottleneck);
                self.push(id.0, SimRecord::Transfer(Box::new(transfer)));
            }
        }
    }
}

fn single(
    record: TransferRecord,
    tool_report: ToolReport,
    bottleneck: BTreeMap<Arc<str>, f64>,
) -> super::records::SimTransfer {
    super::records::SimTransfer {
        record,
        tool_report,
        bottleneck,
    }
}

/// Return the report of a tool that moved bytes for a fixed time.
fn timed(walk: &StageRunner, now: f64) -> ToolReport {
    let took_s = walk.first_byte_s.map_or(0.0, |first_s| now - first_s);
    ToolReport {
        tool_bytes: Some(walk.moved() as u64),
        tool_duration_s: Some(took_s),
        tool_rate_bytes_per_s: (took_s > 0.0).then(|| walk.moved() / took_s),
        ..ToolReport::default()
    }
}

fn record(active: &ActiveTransfer, outcome: Outcome, error: Option<String>) -> TransferRecord {
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
