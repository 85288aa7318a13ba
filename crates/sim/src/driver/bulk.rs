//! Bulk transfers: millions of transfers that do not depend on earlier transfers. Each has a slot
//! in a table, but no record, no name and no stage runner.
//!
//! They arrive at routes of a plan, which are counted (`bulk/routes.rs`), or are rows of columns
//! (`columns/rows.rs`). They follow the same rules as other transfers in
//! [`stage_runner`](super::stage_runner); tests compare the two. Consecutive delays are one event.

mod account;
mod limits;
mod routes;

use std::collections::VecDeque;
use std::sync::Arc;

use venturi_plan::{Arrived, Outcome};

use super::Simulation;
use super::agenda::AgendaEvent;
use crate::cost::scatter_factor;
use crate::fluid::FlowId;
use crate::world::{Stage, Stages, WorldError};
use account::Account;
use limits::Limits;
use routes::BulkRoute;

/// Bit in the tokens of flows of bulk transfers; the rest of the token is the slot in the table.
pub(super) const BRIEF: u64 = 1 << 63;

/// Number of a free slot, and of no route.
const NO_OWNER: u32 = u32::MAX;

/// All bulk transfers.
#[derive(Debug, Default)]
pub(super) struct BulkTransfers {
    routes: Vec<BulkRoute>,
    /// For each host: the routes by the numbers of arrivals.
    known: Vec<Vec<u32>>,
    live: Vec<Live>,
    free: Vec<u32>,
    started: u64,
    limits: Limits,
    next_check: f64,
    pub departed: VecDeque<(usize, Arrived)>,
}

/// Origin of a transfer, which is notified of its end.
#[derive(Debug, Clone, Copy)]
pub(super) enum TransferOwner {
    /// A transfer that arrived on this host and is counted by its route.
    Route { route: u32, host: u32, of: Arrived },
    /// A row of columns.
    Row(u32),
}

/// An active transfer.
#[derive(Debug)]
struct Live {
    number: u32,
    /// The stage that starts next, or that is active.
    at: u32,
    owner: TransferOwner,
    stages: Arc<Stages>,
    start_s: f64,
    since_s: f64,
    mark_s: f64,
    moved: f64,
    flow: Option<FlowId>,
    account: Option<Box<Account>>,
}

impl Live {
    fn new(owner: TransferOwner, stages: Arc<Stages>, number: u32, now: f64) -> Self {
        Self {
            number,
            at: 0,
            owner,
            stages,
            start_s: now,
            since_s: now,
            mark_s: now,
            moved: 0.0,
            flow: None,
            account: None,
        }
    }
}

impl BulkTransfers {
    pub fn count(&self) -> usize {
        self.live.len() - self.free.len()
    }

    /// Return the number of started transfers.
    pub fn started(&self) -> u64 {
        self.started
    }

    /// Return the time of the next timeout.
    pub fn next_limit_s(&mut self) -> Option<f64> {
        self.next_limit().map(|(at_s, _)| at_s)
    }

    fn next_limit(&mut self) -> Option<(f64, u32)> {
        let live = &self.live;
        self.limits
            .next(|index, number| live[index as usize].number == number)
    }

    /// Return the number of a timeout.
    pub fn limit(&mut self, timeout_s: f64) -> usize {
        self.limits.number_of(timeout_s)
    }

    fn add(&mut self, live: Live) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.live[index as usize] = live;
                index
            }
            None => {
                self.live.push(live);
                u32::try_from(self.live.len() - 1).expect("fewer than 2^32 transfers at a time")
            }
        }
    }

    /// Return an active transfer, and the route that counts it.
    fn both(&mut self, index: u32) -> (&mut Live, Option<&mut BulkRoute>) {
        let live = &mut self.live[index as usize];
        let route = match live.owner {
            TransferOwner::Route { route, .. } => Some(&mut self.routes[route as usize]),
            TransferOwner::Row(_) => None,
        };
        (live, route)
    }
}

impl Simulation {
    /// Start a transfer.
    pub(super) fn start_bulk(
        &mut self,
        owner: TransferOwner,
        stages: Arc<Stages>,
        limit: usize,
    ) -> Result<(), WorldError> {
        // Numbers repeat after 2^32 transfers; no transfer lives that long.
        let number = (self.brief.started % u64::from(NO_OWNER)) as u32;
        self.brief.started += 1;
        let mut live = Live::new(owner, stages, number, self.now);
        if matches!(owner, TransferOwner::Row(_)) && self.world.assumptions.explain {
            live.account = Some(Box::default());
        }
        let index = self.brief.add(live);
        self.brief
            .limits
            .start_entry(limit, self.now, index, number);
        self.onward(index)
    }

    /// Continue a transfer after its delay; ignored if the transfer has ended.
    pub(super) fn awake(&mut self, index: u32, number: u32) -> Result<(), WorldError> {
        if self.brief.live[index as usize].number != number {
            return Ok(());
        }
        self.onward(index)
    }

    /// Advance through the stages until one takes time.
    fn onward(&mut self, index: u32) -> Result<(), WorldError> {
        let now = self.now;
        let (live, mut route) = self.brief.both(index);
        let mut at_s = now;
        loop {
            let at = live.at as usize;
            let stage = live.stages.stages.get(at);
            let until_s = match stage {
                Some(Stage::Mark) => {
                    live.mark_s = at_s;
                    at_s
                }
                Some(Stage::Wait { seconds, .. }) => at_s + seconds,
                Some(Stage::NotBefore { seconds, .. }) => at_s.max(live.mark_s + seconds),
                Some(&stage) if at_s <= now => return self.flow_in_brief(index, stage),
                None if at_s <= now => return self.end_bulk(index, Outcome::Ok),
                // These stages start when the delays before them have ended.
                _ => break,
            };
            if let Some(route) = &mut route {
                route.spent_s[at] += until_s - at_s;
            }
            if let (Some(account), Some(stage)) = (&mut live.account, stage) {
                account.spent(stage, until_s - at_s);
            }
            at_s = until_s;
            live.at += 1;
        }
        let number = live.number;
        live.since_s = at_s;
        self.agenda.put(at_s, AgendaEvent::Onward(index, number));
        Ok(())
    }

    fn flow_in_brief(&mut self, index: u32, stage: Stage) -> Result<(), WorldError> {
        let now = self.now;
        let (live, route) = self.brief.both(index);
        live.since_s = now;
        let (class, amount, moves) = match stage {
            Stage::Work {
                class,
                core_s,
                scatter: (scatter, axis),
                ..
            } => {
                let slot = route.as_ref().map_or(0, |route| route.slot);
                (class, core_s * scatter_factor(scatter, slot, axis), false)
            }
            Stage::Bytes { class, bytes, .. } => (class, bytes, true),
            _ => unreachable!("other stages are delays"),
        };
        let token = BRIEF | u64::from(index);
        let flow = self.fluid.start(now, class, amount, token);
        let flow = flow.map_err(|source| WorldError::Solver {
            what: "a flow".into(),
            time_s: now,
            source,
        })?;
        live.flow = Some(flow);
        if let Some(account) = live.account.as_mut().filter(|_| moves) {
            account.before = self.meters.start_entry(token, flow, class, &[], None);
        }
        if let Some(route) = route.filter(|_| moves) {
            let explains = self.world.assumptions.explain;
            let bottleneck = explains.then(|| self.fluid.bottleneck(flow).ok()).flatten();
            route.started(now, flow, bottleneck);
        }
        Ok(())
    }

    /// Continue a transfer after its flow has ended.
    pub(super) fn flowed(&mut self, index: u32) -> Result<(), WorldError> {
        self.finalize_bulk(index, 0.0);
        self.brief.live[index as usize].at += 1;
        self.onward(index)
    }

    /// Record the time of the current flow and its remaining bytes.
    fn finalize_bulk(&mut self, index: u32, left: f64) {
        let now = self.now;
        let (live, route) = self.brief.both(index);
        live.flow = None;
        let at = live.at as usize;
        if let (Some(account), Some(stage)) = (&mut live.account, live.stages.stages.get(at)) {
            account.spent(stage, now - live.since_s);
            if let &Stage::Bytes { class, cap, .. } = stage {
                let token = BRIEF | u64::from(index);
                let times = self.meters.end(token, class, &account.before);
                account.moved(cap, times);
            }
        }
        let Some(route) = route else {
            return;
        };
        route.spent_s[at] += now - live.since_s;
        if let Some(&Stage::Bytes { bytes, .. }) = live.stages.stages.get(at) {
            let moved = bytes - left;
            route.ended(now);
            live.moved += moved;
            if let Some(ledger) = &mut self.ledger {
                ledger.moved(moved, (live.since_s, now), &route.links, route.loopback);
            }
        }
    }

    /// End one transfer that exceeds its timeout. Return false if there is none.
    pub(super) fn end_overdue(&mut self) -> Result<bool, WorldError> {
        let overdue = self.brief.next_limit();
        let Some((_, index)) = overdue.filter(|(at_s, _)| *at_s <= self.now) else {
            return Ok(false);
        };
        let (live, route) = self.brief.both(index);
        if let Some(flow) = live.flow {
            let left = self.fluid.stop(self.now, flow);
            let left = left.map_err(|source| self.wrong("the end of a flow", source))?;
            self.finalize_bulk(index, left);
        } else if let Some(route) = route.filter(|_| live.at > 0) {
            // Subtract the part of the delay that has not passed.
            route.spent_s[live.at as usize - 1] -= live.since_s - self.now;
        }
        self.end_bulk(index, Outcome::Timeout)?;
        Ok(true)
    }

    fn end_bulk(&mut self, index: u32, outcome: Outcome) -> Result<(), WorldError> {
        let now = self.now;
        let (live, route) = self.brief.both(index);
        live.number = NO_OWNER;
        let (owner, start_s) = (live.owner, live.start_s);
        let account = live.account.take();
        if let Some(route) = route {
            route.count(outcome, (start_s, now), live.moved);
            if let Some(ledger) = &mut self.ledger {
                ledger.lived(start_s, now);
            }
        }
        self.brief.free.push(index);
        match owner {
            TransferOwner::Route { host, of, .. } => {
                self.brief.departed.push_back((host as usize, of))
            }
            TransferOwner::Row(row) => {
                let causes = account.map(|it| it.causes).unwrap_or_default();
                let bottleneck = self.fractions(&causes, now - start_s);
                self.note_row(row, outcome, &bottleneck);
            }
        }
        Ok(())
    }
}
