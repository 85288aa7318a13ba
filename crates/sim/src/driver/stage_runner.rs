//! Runs a transfer, or one fetch of a load, through the stages of its cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use venturi_plan::Outcome;

use super::agenda::AgendaEvent;
use super::meters::Times;
use super::outages::PausedTransfer;
use super::transfers::{Id, TransferState};
use super::{Purpose, Simulation};
use crate::cost::scatter_factor;
use crate::fluid::{Bottleneck, ClassId, FlowId, ResourceId};
use crate::world::{Stage, Stages, TransferRoute, WorldError};

/// Owner of a stage runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A transfer.
    Transfer(Id),
    /// A client of a load, with its current fetch.
    Fetch(Id, u32),
}

/// Cause of a wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cause {
    /// A stage that moves no bytes, or a cap.
    Named(&'static str),
    /// A shared resource.
    Shared(ResourceId),
}

impl Cause {
    /// Return the cause of a bottleneck, with the name of the cap.
    pub fn of(bottleneck: Bottleneck, cap: &'static str) -> Self {
        match bottleneck {
            Bottleneck::Cap => Self::Named(cap),
            Bottleneck::Resource(resource) => Self::Shared(resource),
        }
    }
}

/// Time by cause.
pub(super) type Causes = Vec<(Cause, f64)>;

/// Progress of a transfer through its stages.
#[derive(Debug)]
pub(super) struct StageRunner {
    pub route: Arc<TransferRoute>,
    pub stages: Arc<Stages>,
    at: usize,
    since_s: f64,
    mark_s: f64,
    flowing: Option<Flowing>,
    /// Bytes moved in completed stages.
    moved: f64,
    pub first_byte_s: Option<f64>,
    pub causes: Causes,
    /// Fixed duration of the movement, for any number of bytes.
    timed_s: Option<f64>,
    /// Current pause, if any.
    pub paused: Option<PausedTransfer>,
    /// Bytes of earlier attempts that need not be moved again.
    pub retained: f64,
}

/// Flow of the current stage.
#[derive(Debug)]
struct Flowing {
    token: u64,
    flow: FlowId,
    class: ClassId,
    bytes: f64,
    /// Bottleneck times of its class before the flow; none for CPU work.
    before: Option<Times>,
}

/// Byte limit of a transfer with a fixed duration: more than any network moves, and still exact to
/// the byte in a double.
pub(super) const ENDLESS_BYTES: f64 = 1e15;

impl StageRunner {
    pub fn new(
        route: Arc<TransferRoute>,
        stages: Arc<Stages>,
        now: f64,
        timed_s: Option<f64>,
    ) -> Self {
        Self {
            route,
            stages,
            at: 0,
            since_s: now,
            mark_s: now,
            flowing: None,
            moved: 0.0,
            first_byte_s: None,
            causes: Causes::new(),
            timed_s,
            paused: None,
            retained: 0.0,
        }
    }
}

impl Simulation {
    /// Start the current stage, and all stages that take no time.
    pub(super) fn advance(&mut self, owner: Owner) -> Result<(), WorldError> {
        loop {
            let now = self.now;
            let Some(walk) = self.walk(owner) else {
                return Ok(()); // ended by its time limit
            };
            walk.since_s = now;
            let Some(&stage) = walk.stages.stages.get(walk.at) else {
                return self.arrived(owner);
            };
            if self.links_down > 0 && stage.is_remote() && self.pause_if_cut(owner) {
                return Ok(());
            }
            let walk = self.walk(owner).expect("just seen");
            let until_s = match stage {
                Stage::Mark => {
                    walk.mark_s = now;
                    now
                }
                Stage::Wait { seconds, .. } => now + seconds,
                Stage::NotBefore { seconds, .. } => walk.mark_s + seconds,
                Stage::Work {
                    class,
                    core_s,
                    scatter: (scatter, axis),
                    ..
                } => {
                    let factor = scatter_factor(scatter, self.number_among(owner), axis);
                    return self.flow(owner, class, core_s * factor, false);
                }
                Stage::Bytes { bytes, .. } => match walk.start_bytes(bytes, now) {
                    StageWork::All => now,
                    StageWork::Part(rest) => return self.move_rest(owner, rest),
                    StageWork::Timed(timed_s) => {
                        self.agenda.put(now + timed_s, AgendaEvent::TimeOver(owner));
                        return self.move_rest(owner, ENDLESS_BYTES);
                    }
                },
            };
            if until_s > now {
                self.agenda.put(until_s, AgendaEvent::StageOver(owner));
                return Ok(());
            }
            walk.at += 1;
        }
    }

    /// Return the index among the transfers that are released together.
    fn number_among(&self, owner: Owner) -> u32 {
        match owner {
            Owner::Transfer(id) => self
                .active
                .get(&id)
                .map_or(0, |active| active.transfer.slot),
            Owner::Fetch(_, client) => client,
        }
    }

    /// Continue after the end of the current stage.
    pub(super) fn stage_over(&mut self, owner: Owner) -> Result<(), WorldError> {
        self.finish_stage(owner, false)?;
        if let Some(walk) = self.walk(owner) {
            walk.at += 1;
        }
        self.advance(owner)
    }

    /// End a transfer after its fixed duration.
    pub(super) fn time_over(&mut self, owner: Owner) -> Result<(), WorldError> {
        if self.walk(owner).is_none() {
            return Ok(());
        }
        self.finish_stage(owner, true)?;
        self.arrived(owner)
    }

    /// Stop a transfer in its current stage.
    pub(super) fn break_off(&mut self, owner: Owner) -> Result<(), WorldError> {
        self.finish_stage(owner, true).map(|_| ())
    }

    /// Start to move bytes of the current stage.
    pub(super) fn move_rest(&mut self, owner: Owner, bytes: f64) -> Result<(), WorldError> {
        let now = self.now;
        let Some(walk) = self.walk(owner) else {
            return Ok(());
        };
        walk.since_s = now;
        match walk.stages.stages.get(walk.at) {
            Some(&Stage::Bytes { class, .. }) => self.flow(owner, class, bytes, true),
            _ => self.advance(owner),
        }
    }

    fn flow(
        &mut self,
        owner: Owner,
        class: ClassId,
        bytes: f64,
        metered: bool,
    ) -> Result<(), WorldError> {
        let token = self.next_token;
        self.next_token += 1;
        let flow = self
            .fluid
            .start(self.now, class, bytes, token)
            .map_err(|source| self.wrong("a flow", source))?;
        self.moving.insert(token, Purpose::Of(owner));
        let route = self.walk(owner).expect("it goes on").route.clone();
        let mut before = None;
        if metered {
            self.note_change();
            let loopback = route
                .loopback
                .as_ref()
                .and_then(|name| self.number_of(name));
            before = Some(
                self.meters
                    .start_entry(token, flow, class, &route.links, loopback),
            );
        }
        let flowing = Flowing {
            token,
            flow,
            class,
            bytes,
            before,
        };
        self.walk(owner).expect("it goes on").flowing = Some(flowing);
        Ok(())
    }

    /// Record the time of the current stage and return its remaining bytes. `early`: the stage is
    /// cut off.
    pub(super) fn finish_stage(&mut self, owner: Owner, early: bool) -> Result<f64, WorldError> {
        let now = self.now;
        let Some(walk) = self.walk(owner) else {
            return Ok(0.0);
        };
        if let Some(paused) = walk.paused.take() {
            add(
                &mut walk.causes,
                Cause::Named(paused.why),
                now - paused.since_s,
            );
            return Ok(paused.left.unwrap_or(0.0));
        }
        let took_s = now - walk.since_s;
        let stage = walk.stages.stages.get(walk.at).copied();
        let flowing = walk.flowing.take();
        let (left, times) = match &flowing {
            Some(flowing) => self.finish_flow(flowing, early)?,
            None => (0.0, None),
        };
        let walk = self.walk(owner).expect("just seen");
        match stage {
            Some(
                Stage::Wait { why, .. } | Stage::NotBefore { why, .. } | Stage::Work { why, .. },
            ) => {
                add(&mut walk.causes, Cause::Named(why), took_s);
            }
            Some(Stage::Bytes { cap, .. }) => {
                let moved = flowing.map_or(0.0, |flowing| flowing.bytes) - left;
                walk.moved += moved;
                let (route, since_s) = (walk.route.clone(), walk.since_s);
                for (bottleneck, s) in times.into_iter().flatten() {
                    add(&mut walk.causes, Cause::of(bottleneck, cap), s);
                }
                let host = route.loopback.as_ref();
                let host = host.and_then(|name| self.number_of(name));
                if let Some(ledger) = &mut self.ledger {
                    ledger.moved(moved, (since_s, now), &route.links, host);
                }
            }
            Some(Stage::Mark) | None => {}
        }
        Ok(left)
    }

    /// Remove a flow. Return the remaining bytes if it is stopped `early`, and its bottleneck times
    /// if they were recorded.
    fn finish_flow(
        &mut self,
        flowing: &Flowing,
        early: bool,
    ) -> Result<(f64, Option<Times>), WorldError> {
        let mut left = 0.0;
        if early && self.moving.remove(&flowing.token).is_some() {
            left = self
                .fluid
                .stop(self.now, flowing.flow)
                .map_err(|source| self.wrong("the end of a flow", source))?;
        }
        let before = flowing.before.as_ref();
        let times = before.map(|before| self.meters.end(flowing.token, flowing.class, before));
        Ok((left, times))
    }

    /// Return the stage runner of an owner; none if it has ended.
    pub(super) fn walk(&mut self, owner: Owner) -> Option<&mut StageRunner> {
        match owner {
            Owner::Transfer(id) => match &mut self.active.get_mut(&id)?.phase {
                TransferState::Walking(walk) => Some(walk),
                _ => None,
            },
            Owner::Fetch(id, client) => self.load(id)?.walk(client),
        }
    }

    /// Handle the end of the last stage.
    fn arrived(&mut self, owner: Owner) -> Result<(), WorldError> {
        match owner {
            Owner::Transfer(id) => self.end_transfer(id, Outcome::Ok),
            Owner::Fetch(id, client) => self.fetched(id, client),
        }
    }

    /// Return the fractions of a time, by name of the cause.
    pub(super) fn fractions(&self, causes: &Causes, whole_s: f64) -> BTreeMap<Arc<str>, f64> {
        let mut fractions = BTreeMap::new();
        if whole_s <= 0.0 || !self.world.assumptions.explain {
            return fractions;
        }
        for (cause, s) in causes {
            let name = match cause {
                Cause::Named(name) => Arc::from(*name),
                Cause::Shared(resource) => self.world.name_of(*resource),
            };
            *fractions.entry(name).or_default() += s / whole_s;
        }
        fractions
    }
}

/// Work of a stage that starts.
enum StageWork {
    /// An earlier attempt has moved all bytes.
    All,
    /// This number of bytes.
    Part(f64),
    /// Any bytes within this number of seconds.
    Timed(f64),
}

impl StageRunner {
    fn start_bytes(&mut self, bytes: f64, now: f64) -> StageWork {
        self.first_byte_s.get_or_insert(now);
        if let Some(timed_s) = self.timed_s {
            return StageWork::Timed(timed_s);
        }
        let retained = self.retained.min(bytes);
        self.retained -= retained;
        self.moved += retained;
        if retained < bytes {
            StageWork::Part(bytes - retained)
        } else {
            StageWork::All
        }
    }

    /// Return whether a flow of bytes is active.
    pub fn is_moving(&self) -> bool {
        self.flowing.as_ref().is_some_and(|it| it.before.is_some())
    }

    /// Return whether it has a fixed duration, with any number of bytes.
    pub fn is_timed(&self) -> bool {
        self.timed_s.is_some()
    }

    /// Return whether packets have made a round trip.
    pub fn is_connected(&self) -> bool {
        let left = self.paused.and_then(|paused| paused.left);
        left.is_some() || self.stages.stages[..self.at].iter().any(Stage::is_remote)
    }

    /// Return the moved bytes, including those of earlier attempts that count; at the end, all
    /// bytes.
    pub fn moved(&self) -> f64 {
        self.moved + self.retained
    }
}

/// Add time to a cause.
pub(super) fn add(causes: &mut Causes, cause: Cause, s: f64) {
    if s <= 0.0 {
        return;
    }
    match causes.iter_mut().find(|(other, _)| *other == cause) {
        Some((_, all)) => *all += s,
        None => causes.push((cause, s)),
    }
}
