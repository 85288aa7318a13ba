//! A transfer, or one fetch of a load, on its way through the stages of its cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use venturi_plan::Outcome;

use super::agenda::Event;
use super::meters::Times;
use super::outages::Hold;
use super::transfers::{Id, Phase};
use super::{Purpose, Simulation};
use crate::cost::scatter_factor;
use crate::fluid::{Bound, ClassId, FlowId, ResourceId};
use crate::world::{Error, Passage, Stage, Stages};

/// Who walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A transfer.
    Transfer(Id),
    /// A client of a load, with its present fetch.
    Fetch(Id, u32),
}

/// What something waited for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cause {
    /// A stage that moves no bytes, or a cap.
    Named(&'static str),
    /// A resource that it shared.
    Shared(ResourceId),
}

impl Cause {
    /// Of bytes that are capped by this.
    pub fn of(bound: Bound, cap: &'static str) -> Self {
        match bound {
            Bound::Cap => Self::Named(cap),
            Bound::Resource(resource) => Self::Shared(resource),
        }
    }
}

/// How much time went to what.
pub(super) type Causes = Vec<(Cause, f64)>;

/// How far it is.
#[derive(Debug)]
pub(super) struct Walk {
    pub passage: Arc<Passage>,
    pub stages: Arc<Stages>,
    at: usize,
    since_s: f64,
    mark_s: f64,
    flowing: Option<Flowing>,
    /// Bytes that have passed in stages that are over.
    moved: f64,
    pub first_byte_s: Option<f64>,
    pub causes: Causes,
    /// It moves bytes for so long, however many these are.
    timed_s: Option<f64>,
    /// Why it stands still, if it does.
    pub hold: Option<Hold>,
    /// Bytes that an earlier attempt has left behind, and that need not be moved again.
    pub kept: f64,
}

/// A flow of the present stage.
#[derive(Debug)]
struct Flowing {
    token: u64,
    flow: FlowId,
    class: ClassId,
    bytes: f64,
    /// What had bound its class before; none of work.
    before: Option<Times>,
}

/// What a transfer that runs for a time may move: more than any network does, and counted to the byte.
pub(super) const ENDLESS_BYTES: f64 = 1e15;

impl Walk {
    pub fn new(passage: Arc<Passage>, stages: Arc<Stages>, now: f64, timed_s: Option<f64>) -> Self {
        Self {
            passage,
            stages,
            at: 0,
            since_s: now,
            mark_s: now,
            flowing: None,
            moved: 0.0,
            first_byte_s: None,
            causes: Causes::new(),
            timed_s,
            hold: None,
            kept: 0.0,
        }
    }
}

impl Simulation {
    /// Begins the present stage, and all that take no time.
    pub(super) fn go_on(&mut self, owner: Owner) -> Result<(), Error> {
        loop {
            let now = self.now;
            let Some(walk) = self.walk(owner) else {
                return Ok(()); // ended by its time limit
            };
            walk.since_s = now;
            let Some(&stage) = walk.stages.stages.get(walk.at) else {
                return self.arrived(owner);
            };
            if self.links_down > 0 && stage.is_remote() && self.stand_still_if_cut(owner) {
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
                Stage::Bytes { bytes, .. } => match walk.begin_bytes(bytes, now) {
                    Begun::All => now,
                    Begun::Part(rest) => return self.move_rest(owner, rest),
                    Begun::Timed(timed_s) => {
                        self.agenda.put(now + timed_s, Event::TimeOver(owner));
                        return self.move_rest(owner, ENDLESS_BYTES);
                    }
                },
            };
            if until_s > now {
                self.agenda.put(until_s, Event::StageOver(owner));
                return Ok(());
            }
            walk.at += 1;
        }
    }

    /// Which of those that are released together it is.
    fn number_among(&self, owner: Owner) -> u32 {
        match owner {
            Owner::Transfer(id) => self
                .active
                .get(&id)
                .map_or(0, |active| active.transfer.slot),
            Owner::Fetch(_, client) => client,
        }
    }

    /// The present stage is over.
    pub(super) fn stage_over(&mut self, owner: Owner) -> Result<(), Error> {
        self.settle_stage(owner, false)?;
        if let Some(walk) = self.walk(owner) {
            walk.at += 1;
        }
        self.go_on(owner)
    }

    /// The time of a walk that was given one is over.
    pub(super) fn time_over(&mut self, owner: Owner) -> Result<(), Error> {
        if self.walk(owner).is_none() {
            return Ok(());
        }
        self.settle_stage(owner, true)?;
        self.arrived(owner)
    }

    /// Ends a walk wherever it is.
    pub(super) fn break_off(&mut self, owner: Owner) -> Result<(), Error> {
        self.settle_stage(owner, true).map(|_| ())
    }

    /// Moves bytes of the present stage.
    pub(super) fn move_rest(&mut self, owner: Owner, bytes: f64) -> Result<(), Error> {
        let now = self.now;
        let Some(walk) = self.walk(owner) else {
            return Ok(());
        };
        walk.since_s = now;
        match walk.stages.stages.get(walk.at) {
            Some(&Stage::Bytes { class, .. }) => self.flow(owner, class, bytes, true),
            _ => self.go_on(owner),
        }
    }

    fn flow(
        &mut self,
        owner: Owner,
        class: ClassId,
        bytes: f64,
        metered: bool,
    ) -> Result<(), Error> {
        let token = self.next_token;
        self.next_token += 1;
        let flow = self
            .fluid
            .start(self.now, class, bytes, token)
            .map_err(|source| self.wrong("a flow", source))?;
        self.moving.insert(token, Purpose::Of(owner));
        let passage = self.walk(owner).expect("it goes on").passage.clone();
        let mut before = None;
        if metered {
            self.note_change();
            let loopback = passage
                .loopback
                .as_ref()
                .and_then(|name| self.number_of(name));
            before = Some(
                self.meters
                    .begin(token, flow, class, &passage.links, loopback),
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

    /// Writes down what the present stage took; `early`: it is cut off. What is left of its bytes.
    pub(super) fn settle_stage(&mut self, owner: Owner, early: bool) -> Result<f64, Error> {
        let now = self.now;
        let Some(walk) = self.walk(owner) else {
            return Ok(0.0);
        };
        if let Some(hold) = walk.hold.take() {
            add(&mut walk.causes, Cause::Named(hold.why), now - hold.since_s);
            return Ok(hold.left.unwrap_or(0.0));
        }
        let took_s = now - walk.since_s;
        let stage = walk.stages.stages.get(walk.at).copied();
        let flowing = walk.flowing.take();
        let (left, times) = match &flowing {
            Some(flowing) => self.end_flow(flowing, early)?,
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
                let (passage, since_s) = (walk.passage.clone(), walk.since_s);
                for (bound, s) in times.into_iter().flatten() {
                    add(&mut walk.causes, Cause::of(bound, cap), s);
                }
                let host = passage.loopback.as_ref();
                let host = host.and_then(|name| self.number_of(name));
                if let Some(ledger) = &mut self.ledger {
                    ledger.moved(moved, (since_s, now), &passage.links, host);
                }
            }
            Some(Stage::Mark) | None => {}
        }
        Ok(left)
    }

    /// Takes a flow out: what is left of its bytes if it is stopped `early`, and what bound it for how long if that was noted.
    fn end_flow(&mut self, flowing: &Flowing, early: bool) -> Result<(f64, Option<Times>), Error> {
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

    /// The walk of an owner; none if it has ended.
    pub(super) fn walk(&mut self, owner: Owner) -> Option<&mut Walk> {
        match owner {
            Owner::Transfer(id) => match &mut self.active.get_mut(&id)?.phase {
                Phase::Walking(walk) => Some(walk),
                _ => None,
            },
            Owner::Fetch(id, client) => self.load(id)?.walk(client),
        }
    }

    /// It has come to its end.
    fn arrived(&mut self, owner: Owner) -> Result<(), Error> {
        match owner {
            Owner::Transfer(id) => self.end_transfer(id, Outcome::Ok),
            Owner::Fetch(id, client) => self.fetched(id, client),
        }
    }

    /// Shares of a time, by name.
    pub(super) fn shares(&self, causes: &Causes, whole_s: f64) -> BTreeMap<Arc<str>, f64> {
        let mut shares = BTreeMap::new();
        if whole_s <= 0.0 || !self.world.assumptions.explain {
            return shares;
        }
        for (cause, s) in causes {
            let name = match cause {
                Cause::Named(name) => Arc::from(*name),
                Cause::Shared(resource) => self.world.name_of(*resource),
            };
            *shares.entry(name).or_default() += s / whole_s;
        }
        shares
    }
}

/// What is to be moved of a stage that begins.
enum Begun {
    /// Nothing: an earlier attempt has moved it.
    All,
    /// So many bytes.
    Part(f64),
    /// Whatever passes in so many seconds.
    Timed(f64),
}

impl Walk {
    fn begin_bytes(&mut self, bytes: f64, now: f64) -> Begun {
        self.first_byte_s.get_or_insert(now);
        if let Some(timed_s) = self.timed_s {
            return Begun::Timed(timed_s);
        }
        let kept = self.kept.min(bytes);
        self.kept -= kept;
        self.moved += kept;
        if kept < bytes {
            Begun::Part(bytes - kept)
        } else {
            Begun::All
        }
    }

    /// Whether a flow of bytes is under way.
    pub fn is_moving(&self) -> bool {
        self.flowing.as_ref().is_some_and(|it| it.before.is_some())
    }

    /// Whether it goes on for a time, however many bytes that is.
    pub fn is_timed(&self) -> bool {
        self.timed_s.is_some()
    }

    /// Whether packets have gone there and back.
    pub fn is_connected(&self) -> bool {
        let left = self.hold.and_then(|hold| hold.left);
        left.is_some() || self.stages.stages[..self.at].iter().any(Stage::is_remote)
    }

    /// Bytes that have passed, in earlier attempts too as far as they count; whole once it has arrived.
    pub fn moved(&self) -> f64 {
        self.moved + self.kept
    }
}

/// Adds to what a cause has taken.
pub(super) fn add(causes: &mut Causes, cause: Cause, s: f64) {
    if s <= 0.0 {
        return;
    }
    match causes.iter_mut().find(|(other, _)| *other == cause) {
        Some((_, all)) => *all += s,
        None => causes.push((cause, s)),
    }
}
