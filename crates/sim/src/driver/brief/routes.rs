//! Routes: what arrives there in brief, and what it has come to.
//!
//! What bound the bytes of a route is looked at when a flow of it begins and at each sample, and taken to hold until the next look.

use std::sync::Arc;

use venturi_plan::{Arrival, Arrived, Bytes, Expect, OrDraw, Outcome, Seconds, Transfer, TrialRef};

use super::{Brief, NOBODY, Whose};
use crate::driver::Simulation;
use crate::driver::ledger::Ledger;
use crate::driver::said::Way;
use crate::driver::tally::{Ended, Tally, text_of};
use crate::fluid::{Bound, FlowId};
use crate::world::{Amounts, Ask, Error, LinkNumber, Stage, Stages};

/// What all transfers of a step have in common, and what they have come to.
#[derive(Debug)]
pub(super) struct Route {
    way: Option<Way>,
    stages: Arc<Stages>,
    pub links: Box<[LinkNumber]>,
    pub loopback: Option<usize>,
    /// Number of the concurrent transfer.
    pub slot: u32,
    bytes: u64,
    /// Whether somebody looks at what arrived.
    counts: bool,
    limit: usize,
    tally: Tally,
    /// Seconds in each stage.
    pub spent_s: Box<[f64]>,
    moving: u32,
    latest: Option<FlowId>,
    /// What bound since when, and what has bound for how many flow-seconds.
    bound: Option<Bound>,
    since_s: f64,
    bound_s: Vec<(Bound, f64)>,
}

impl Route {
    /// A flow of bytes has begun; what binds it, if that counts.
    pub fn begun(&mut self, now: f64, flow: FlowId, bound: Option<Bound>) {
        self.settle(now);
        self.moving += 1;
        self.latest = Some(flow);
        self.bound = bound;
    }

    /// A flow of bytes has ended.
    pub fn ended(&mut self, now: f64) {
        self.settle(now);
        self.moving -= 1;
    }

    /// What has bound until now.
    fn settle(&mut self, now: f64) {
        if let Some(bound) = self.bound
            && self.moving > 0
        {
            let s = f64::from(self.moving) * (now - self.since_s);
            match self.bound_s.iter_mut().find(|(other, _)| *other == bound) {
                Some((_, all)) => *all += s,
                None => self.bound_s.push((bound, s)),
            }
        }
        self.since_s = now;
    }

    /// A transfer has ended, having moved so much.
    pub fn count(&mut self, outcome: Outcome, (start_s, end_s): (f64, f64), moved: f64) {
        let moved = if outcome == Outcome::Ok {
            self.bytes
        } else {
            moved as u64
        };
        self.tally.add(&Ended {
            outcome,
            received_bytes: self.counts.then_some(moved),
            intended_s: Some(start_s),
            times_s: Some((start_s, end_s)),
        });
    }
}

impl Brief {
    /// The route of what arrives; [`NOBODY`] until it has one.
    fn known(&mut self, host: usize, of: Arrived) -> &mut u32 {
        if self.known.len() <= host {
            self.known.resize_with(host + 1, Vec::new);
        }
        let (routes, number) = (&mut self.known[host], of.number() as usize);
        if routes.len() <= number {
            routes.resize(number + 1, NOBODY);
        }
        &mut routes[number]
    }
}

impl Simulation {
    /// A transfer arrives.
    pub(in crate::driver) fn arrive(&mut self, host: usize, arrival: Arrival) -> Result<(), Error> {
        let of = arrival.of;
        let mut route = *self.brief.known(host, of);
        if route == NOBODY {
            route = self.route(host, of)?;
            *self.brief.known(host, of) = route;
        }
        let known = &self.brief.routes[route as usize];
        let (stages, limit) = (known.stages.clone(), known.limit);
        let host = host as u32;
        self.begin_in_brief(Whose::Route { route, host, of }, stages, limit)
    }

    /// What is arriving there for the first time.
    fn route(&mut self, host: usize, of: Arrived) -> Result<u32, Error> {
        let (transfer, trial) = self.arriving(host, of);
        let route = self.route_of(host, &transfer)?;
        let number = self.brief.routes.len();
        self.brief.routes.push(route);
        let open = trial.and_then(|trial| self.hosts[host].trials.get_mut(&trial));
        if let Some(open) = open {
            open.brief.push(number);
        }
        Ok(u32::try_from(number).expect("fewer than 2^32 steps"))
    }

    fn arriving(&self, host: usize, of: Arrived) -> (Transfer, Option<TrialRef>) {
        let arriving = self.hosts[host].interpreter.arriving(of);
        let (step, trial, _) = arriving.expect("it has just arrived");
        let fixed = "what is drawn is not told in brief";
        let (OrDraw::Fixed(source), OrDraw::Fixed(destination), OrDraw::Fixed(bytes)) =
            (&step.source, &step.destination, &step.bytes)
        else {
            unreachable!("{fixed}");
        };
        let transfer = Transfer {
            call: step.call.clone(),
            slot: step.slot,
            source: source.clone(),
            source_via: step.source_via.clone(),
            destination: destination.clone(),
            destination_via: step.destination_via.clone(),
            files: step.files,
            bytes: Bytes::new(bytes.get()),
            offset_bytes: None,
            keep: step.keep,
            labels: step.labels.clone(),
        };
        (transfer, trial.cloned())
    }

    fn route_of(&mut self, host: usize, transfer: &Transfer) -> Result<Route, Error> {
        let amounts = Amounts {
            first: 0,
            files: transfer.files,
            bytes: transfer.bytes.get(),
        };
        let ask = Ask {
            host: &self.hosts[host].name,
            transfer,
            process: None,
            warm: self.world.memories.holds(&transfer.source, transfer.files),
            cached: false,
        };
        let (passage, stages) = self
            .courses
            .of(&self.world, &mut self.fluid, &ask, amounts)?;
        self.tell_unknown(host, &transfer.call, &stages);
        let call = &self.world.header.calls[&transfer.call];
        let loopback = passage.loopback.as_ref();
        Ok(Route {
            way: Some(way_of(transfer)),
            spent_s: vec![0.0; stages.stages.len()].into(),
            tally: Tally::of_like(stages.alone_s),
            stages,
            links: passage.links.clone().into(),
            loopback: loopback.and_then(|name| self.number_of(name)),
            slot: transfer.slot,
            bytes: amounts.bytes,
            counts: call.expect == Expect::Destination,
            limit: self.brief.limit(call.timeout_s.get()),
            moving: 0,
            latest: None,
            bound: None,
            since_s: self.now,
            bound_s: Vec::new(),
        })
    }

    /// What binds flows now, if it is time to look before `time_s`.
    pub(in crate::driver) fn look(&mut self, time_s: f64) {
        let Some(interval_s) = self.ledger.as_ref().map(Ledger::interval_s) else {
            return;
        };
        if self.brief.next_look > time_s || !self.world.assumptions.explain {
            return;
        }
        // Nothing changes before `time_s`: one look is as good as several.
        let at_s = (time_s / interval_s).floor() * interval_s;
        self.brief.next_look = at_s + interval_s;
        let routes = self.brief.routes.iter_mut();
        for route in routes.filter(|route| route.moving > 0) {
            route.settle(at_s.max(route.since_s));
            if let Some(bound) = route.latest.and_then(|flow| self.fluid.bound(flow).ok()) {
                route.bound = Some(bound);
            }
        }
    }

    /// What the transfers of a route have come to, when its trial is over.
    pub(in crate::driver) fn told_in_brief(&mut self, routes: &[usize]) -> Vec<(Way, Tally)> {
        let mut told = Vec::with_capacity(routes.len());
        for &number in routes {
            let route = &mut self.brief.routes[number];
            let Some(way) = route.way.take() else {
                continue;
            };
            let mut tally = std::mem::take(&mut route.tally);
            let bound_s = std::mem::take(&mut route.bound_s);
            if self.world.assumptions.explain {
                for (stage, &s) in route.stages.stages.iter().zip(&route.spent_s) {
                    if let Some(why) = stage.name().filter(|_| s > 0.0) {
                        *tally.bound_s.entry(why.into()).or_default() += s;
                    }
                }
                for (bound, s) in bound_s {
                    let name = match bound {
                        Bound::Resource(resource) => self.world.name_of(resource),
                        Bound::Cap => cap_of(&route.stages).into(),
                    };
                    *tally.bound_s.entry(name).or_default() += s;
                }
            }
            told.push((way, tally));
        }
        told
    }

    /// The interpreter learns that a transfer has ended.
    pub(in crate::driver) fn depart(&mut self, host: usize, of: Arrived) -> Result<(), Error> {
        let now = Seconds::new(self.now);
        self.hosts[host].interpreter.depart(now, of);
        self.obey(host)
    }
}

fn way_of(transfer: &Transfer) -> Way {
    Way {
        call: transfer.call.clone(),
        source: transfer.source.place().into(),
        source_via: text_of(transfer.source_via.as_ref()),
        destination: transfer.destination.place().into(),
        destination_via: text_of(transfer.destination_via.as_ref()),
        files: transfer.files,
        size_bytes: transfer.bytes.get(),
    }
}

/// What the bytes are capped by.
fn cap_of(stages: &Stages) -> &'static str {
    let cap = |stage: &Stage| match *stage {
        Stage::Bytes { cap, .. } => Some(cap),
        _ => None,
    };
    stages.stages.iter().find_map(cap).unwrap_or("nothing")
}
