//! Transfers that come by the million and depend on none before them: a place in a table each, no record, no name, no walk of its own.
//!
//! They arrive at routes of a plan, which are counted (`brief/routes.rs`), or are rows of columns (`columns/rows.rs`). What they do is what
//! [`walk`](super::walk) does with others; tests hold the two against each other. Delays that follow each other are one event here.

mod account;
mod limits;
mod routes;

use std::collections::VecDeque;
use std::sync::Arc;

use venturi_plan::{Arrived, Outcome};

use super::Simulation;
use super::agenda::Event;
use crate::cost::scatter_factor;
use crate::fluid::FlowId;
use crate::world::{Error, Stage, Stages};
use account::Account;
use limits::Limits;
use routes::Route;

/// Flows of transfers that are told in brief have this bit in their tokens; the rest is the place in the table.
pub(super) const BRIEF: u64 = 1 << 63;

/// Number of a free place, and of no route.
const NOBODY: u32 = u32::MAX;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Brief {
    routes: Vec<Route>,
    /// Of each host: the routes by the numbers of what arrives.
    known: Vec<Vec<u32>>,
    live: Vec<Live>,
    free: Vec<u32>,
    begun: u64,
    limits: Limits,
    next_look: f64,
    pub departed: VecDeque<(usize, Arrived)>,
}

/// Where a transfer comes from, and who is told of its end.
#[derive(Debug, Clone, Copy)]
pub(super) enum Whose {
    /// It has arrived on this host, and is counted by its route.
    Route { route: u32, host: u32, of: Arrived },
    /// A row of columns.
    Row(u32),
}

/// A transfer under way.
#[derive(Debug)]
struct Live {
    number: u32,
    /// The stage that is to begin, or that flows.
    at: u32,
    whose: Whose,
    stages: Arc<Stages>,
    start_s: f64,
    since_s: f64,
    mark_s: f64,
    moved: f64,
    flow: Option<FlowId>,
    account: Option<Box<Account>>,
}

impl Live {
    fn new(whose: Whose, stages: Arc<Stages>, number: u32, now: f64) -> Self {
        Self {
            number,
            at: 0,
            whose,
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

impl Brief {
    pub fn count(&self) -> usize {
        self.live.len() - self.free.len()
    }

    /// Transfers so far, ended or not.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// When the next one is overdue.
    pub fn next_limit_s(&mut self) -> Option<f64> {
        self.next_limit().map(|(at_s, _)| at_s)
    }

    fn next_limit(&mut self) -> Option<(f64, u32)> {
        let live = &self.live;
        self.limits
            .next(|place, number| live[place as usize].number == number)
    }

    /// The number of a limit of time.
    pub fn limit(&mut self, timeout_s: f64) -> usize {
        self.limits.number_of(timeout_s)
    }

    fn add(&mut self, live: Live) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.live[place as usize] = live;
                place
            }
            None => {
                self.live.push(live);
                u32::try_from(self.live.len() - 1).expect("fewer than 2^32 transfers at a time")
            }
        }
    }

    /// A transfer under way, and the route by which it is counted.
    fn both(&mut self, place: u32) -> (&mut Live, Option<&mut Route>) {
        let live = &mut self.live[place as usize];
        let route = match live.whose {
            Whose::Route { route, .. } => Some(&mut self.routes[route as usize]),
            Whose::Row(_) => None,
        };
        (live, route)
    }
}

impl Simulation {
    /// A transfer begins.
    pub(super) fn begin_in_brief(
        &mut self,
        whose: Whose,
        stages: Arc<Stages>,
        limit: usize,
    ) -> Result<(), Error> {
        // Numbers come again after 2^32 transfers; nobody lives so long.
        let number = (self.brief.begun % u64::from(NOBODY)) as u32;
        self.brief.begun += 1;
        let mut live = Live::new(whose, stages, number, self.now);
        if matches!(whose, Whose::Row(_)) && self.world.assumptions.explain {
            live.account = Some(Box::default());
        }
        let place = self.brief.add(live);
        self.brief.limits.begin(limit, self.now, place, number);
        self.onward(place)
    }

    /// The delay of a transfer is over; of none that has ended meanwhile.
    pub(super) fn awake(&mut self, place: u32, number: u32) -> Result<(), Error> {
        if self.brief.live[place as usize].number != number {
            return Ok(());
        }
        self.onward(place)
    }

    /// Goes through stages until there is something to wait for.
    fn onward(&mut self, place: u32) -> Result<(), Error> {
        let now = self.now;
        let (live, mut route) = self.brief.both(place);
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
                Some(&stage) if at_s <= now => return self.flow_in_brief(place, stage),
                None if at_s <= now => return self.end_in_brief(place, Outcome::Ok),
                // These begin when the delays before them are over.
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
        self.agenda.put(at_s, Event::Onward(place, number));
        Ok(())
    }

    fn flow_in_brief(&mut self, place: u32, stage: Stage) -> Result<(), Error> {
        let now = self.now;
        let (live, route) = self.brief.both(place);
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
        let token = BRIEF | u64::from(place);
        let flow = self.fluid.start(now, class, amount, token);
        let flow = flow.map_err(|source| Error::Solver {
            what: "a flow".into(),
            time_s: now,
            source,
        })?;
        live.flow = Some(flow);
        if let Some(account) = live.account.as_mut().filter(|_| moves) {
            account.before = self.meters.begin(token, flow, class, &[], None);
        }
        if let Some(route) = route.filter(|_| moves) {
            let explains = self.world.assumptions.explain;
            let bound = explains.then(|| self.fluid.bound(flow).ok()).flatten();
            route.begun(now, flow, bound);
        }
        Ok(())
    }

    /// The flow of a transfer has come to its end.
    pub(super) fn flowed(&mut self, place: u32) -> Result<(), Error> {
        self.settle_in_brief(place, 0.0);
        self.brief.live[place as usize].at += 1;
        self.onward(place)
    }

    /// Writes down what the present flow took; so much of it is left.
    fn settle_in_brief(&mut self, place: u32, left: f64) {
        let now = self.now;
        let (live, route) = self.brief.both(place);
        live.flow = None;
        let at = live.at as usize;
        if let (Some(account), Some(stage)) = (&mut live.account, live.stages.stages.get(at)) {
            account.spent(stage, now - live.since_s);
            if let &Stage::Bytes { class, cap, .. } = stage {
                let token = BRIEF | u64::from(place);
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

    /// Ends one that took longer than it may; false: none does.
    pub(super) fn end_overdue(&mut self) -> Result<bool, Error> {
        let overdue = self.brief.next_limit();
        let Some((_, place)) = overdue.filter(|(at_s, _)| *at_s <= self.now) else {
            return Ok(false);
        };
        let (live, route) = self.brief.both(place);
        if let Some(flow) = live.flow {
            let left = self.fluid.stop(self.now, flow);
            let left = left.map_err(|source| self.wrong("the end of a flow", source))?;
            self.settle_in_brief(place, left);
        } else if let Some(route) = route.filter(|_| live.at > 0) {
            // Of the delays that were taken to pass, some have not.
            route.spent_s[live.at as usize - 1] -= live.since_s - self.now;
        }
        self.end_in_brief(place, Outcome::Timeout)?;
        Ok(true)
    }

    fn end_in_brief(&mut self, place: u32, outcome: Outcome) -> Result<(), Error> {
        let now = self.now;
        let (live, route) = self.brief.both(place);
        live.number = NOBODY;
        let (whose, start_s) = (live.whose, live.start_s);
        let account = live.account.take();
        if let Some(route) = route {
            route.count(outcome, (start_s, now), live.moved);
            if let Some(ledger) = &mut self.ledger {
                ledger.lived(start_s, now);
            }
        }
        self.brief.free.push(place);
        match whose {
            Whose::Route { host, of, .. } => self.brief.departed.push_back((host as usize, of)),
            Whose::Row(row) => {
                let causes = account.map(|it| it.causes).unwrap_or_default();
                let bound = self.shares(&causes, now - start_s);
                self.note_row(row, outcome, &bound);
            }
        }
        Ok(())
    }
}
