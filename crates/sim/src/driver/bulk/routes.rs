//! Routes: bulk arrivals and their results.
//!
//! The bottleneck of a route is read when one of its flows starts and at each sample, and is assumed constant until
//! the next reading.

use std::sync::Arc;

use venturi_plan::{Arrival, Arrived, Bytes, Expect, OrDraw, Outcome, Seconds, Transfer, TrialRef};

use super::{BulkTransfers, NO_OWNER, TransferOwner};
use crate::driver::Simulation;
use crate::driver::ledger::Ledger;
use crate::driver::records::RouteKey;
use crate::driver::tally::{Ended, Tally, text_of};
use crate::fluid::{Bottleneck, FlowId};
use crate::world::{Amounts, LinkNumber, RouteQuery, Stage, Stages, WorldError};

/// Common properties and results of all transfers of a step.
#[derive(Debug)]
pub(super) struct BulkRoute {
    route_key: Option<RouteKey>,
    stages: Arc<Stages>,
    pub links: Box<[LinkNumber]>,
    pub loopback: Option<usize>,
    /// Number of the concurrent transfer.
    pub slot: u32,
    bytes: u64,
    /// Whether the arrived bytes are checked.
    counts: bool,
    limit: usize,
    tally: Tally,
    /// Seconds in each stage.
    pub spent_s: Box<[f64]>,
    moving: u32,
    latest: Option<FlowId>,
    /// Current bottleneck with its start, and flow-seconds of all bottlenecks.
    bottleneck: Option<Bottleneck>,
    since_s: f64,
    bottleneck_s: Vec<(Bottleneck, f64)>,
}

impl BulkRoute {
    /// Record a started flow of bytes, with its bottleneck if it is recorded.
    pub fn started(&mut self, now: f64, flow: FlowId, bottleneck: Option<Bottleneck>) {
        self.finalize(now);
        self.moving += 1;
        self.latest = Some(flow);
        self.bottleneck = bottleneck;
    }

    /// Record an ended flow of bytes.
    pub fn ended(&mut self, now: f64) {
        self.finalize(now);
        self.moving -= 1;
    }

    /// Add the time of the bottleneck until now.
    fn finalize(&mut self, now: f64) {
        if let Some(bottleneck) = self.bottleneck
            && self.moving > 0
        {
            let s = f64::from(self.moving) * (now - self.since_s);
            match self
                .bottleneck_s
                .iter_mut()
                .find(|(other, _)| *other == bottleneck)
            {
                Some((_, all)) => *all += s,
                None => self.bottleneck_s.push((bottleneck, s)),
            }
        }
        self.since_s = now;
    }

    /// Record an ended transfer, with the bytes that it moved.
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

impl BulkTransfers {
    /// Return the route of an arrival; [`NO_OWNER`] until it has one.
    fn known(&mut self, host: usize, of: Arrived) -> &mut u32 {
        if self.known.len() <= host {
            self.known.resize_with(host + 1, Vec::new);
        }
        let (routes, number) = (&mut self.known[host], of.number() as usize);
        if routes.len() <= number {
            routes.resize(number + 1, NO_OWNER);
        }
        &mut routes[number]
    }
}

impl Simulation {
    /// Start a transfer that arrives.
    pub(in crate::driver) fn arrive(
        &mut self,
        host: usize,
        arrival: Arrival,
    ) -> Result<(), WorldError> {
        let of = arrival.of;
        let mut route = *self.brief.known(host, of);
        if route == NO_OWNER {
            route = self.route(host, of)?;
            *self.brief.known(host, of) = route;
        }
        let known = &self.brief.routes[route as usize];
        let (stages, limit) = (known.stages.clone(), known.limit);
        let host = host as u32;
        self.start_bulk(TransferOwner::Route { route, host, of }, stages, limit)
    }

    /// Create the route of a first arrival.
    fn route(&mut self, host: usize, of: Arrived) -> Result<u32, WorldError> {
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
        let fixed = "transfers with draws are not summarised";
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

    fn route_of(&mut self, host: usize, transfer: &Transfer) -> Result<BulkRoute, WorldError> {
        let amounts = Amounts {
            first: 0,
            files: transfer.files,
            bytes: transfer.bytes.get(),
        };
        let query = RouteQuery {
            host: &self.hosts[host].name,
            transfer,
            process: None,
            warm: self.world.memories.holds(&transfer.source, transfer.files),
            cached: false,
        };
        let (route, stages) = self
            .route_cache
            .of(&self.world, &mut self.fluid, &query, amounts)?;
        self.report_unknown(host, &transfer.call, &stages);
        let call = &self.world.header.calls[&transfer.call];
        let loopback = route.loopback.as_ref();
        Ok(BulkRoute {
            route_key: Some(route_key(transfer)),
            spent_s: vec![0.0; stages.stages.len()].into(),
            tally: Tally::of_like(stages.unloaded_s),
            stages,
            links: route.links.clone().into(),
            loopback: loopback.and_then(|name| self.number_of(name)),
            slot: transfer.slot,
            bytes: amounts.bytes,
            counts: call.expect == Expect::Destination,
            limit: self.brief.limit(call.timeout_s.get()),
            moving: 0,
            latest: None,
            bottleneck: None,
            since_s: self.now,
            bottleneck_s: Vec::new(),
        })
    }

    /// Read the bottlenecks of flows now, if a reading is due before `time_s`.
    pub(in crate::driver) fn look(&mut self, time_s: f64) {
        let Some(interval_s) = self.ledger.as_ref().map(Ledger::interval_s) else {
            return;
        };
        if self.brief.next_check > time_s || !self.world.assumptions.explain {
            return;
        }
        // Nothing changes before `time_s`, so one reading replaces several.
        let at_s = (time_s / interval_s).floor() * interval_s;
        self.brief.next_check = at_s + interval_s;
        let routes = self.brief.routes.iter_mut();
        for route in routes.filter(|route| route.moving > 0) {
            route.finalize(at_s.max(route.since_s));
            if let Some(bottleneck) = route
                .latest
                .and_then(|flow| self.fluid.bottleneck(flow).ok())
            {
                route.bottleneck = Some(bottleneck);
            }
        }
    }

    /// Return the results of the transfers of a route, when its trial is over.
    pub(in crate::driver) fn bulk_tallies(&mut self, routes: &[usize]) -> Vec<(RouteKey, Tally)> {
        let mut reported = Vec::with_capacity(routes.len());
        for &number in routes {
            let route = &mut self.brief.routes[number];
            let Some(route_key) = route.route_key.take() else {
                continue;
            };
            let mut tally = std::mem::take(&mut route.tally);
            let bottleneck_s = std::mem::take(&mut route.bottleneck_s);
            if self.world.assumptions.explain {
                for (stage, &s) in route.stages.stages.iter().zip(&route.spent_s) {
                    if let Some(why) = stage.name().filter(|_| s > 0.0) {
                        *tally.bottleneck_s.entry(why.into()).or_default() += s;
                    }
                }
                for (bottleneck, s) in bottleneck_s {
                    let name = match bottleneck {
                        Bottleneck::Resource(resource) => self.world.name_of(resource),
                        Bottleneck::Cap => cap_of(&route.stages).into(),
                    };
                    *tally.bottleneck_s.entry(name).or_default() += s;
                }
            }
            reported.push((route_key, tally));
        }
        reported
    }

    /// Report the end of a transfer to the interpreter.
    pub(in crate::driver) fn depart(&mut self, host: usize, of: Arrived) -> Result<(), WorldError> {
        let now = Seconds::new(self.now);
        self.hosts[host].interpreter.depart(now, of);
        self.obey(host)
    }
}

fn route_key(transfer: &Transfer) -> RouteKey {
    RouteKey {
        call: transfer.call.clone(),
        source: transfer.source.storage().into(),
        source_via: text_of(transfer.source_via.as_ref()),
        destination: transfer.destination.storage().into(),
        destination_via: text_of(transfer.destination_via.as_ref()),
        files: transfer.files,
        size_bytes: transfer.bytes.get(),
    }
}

/// Return the cap of the bytes.
fn cap_of(stages: &Stages) -> &'static str {
    let cap = |stage: &Stage| match *stage {
        Stage::Bytes { cap, .. } => Some(cap),
        _ => None,
    };
    stages.stages.iter().find_map(cap).unwrap_or("nothing")
}
