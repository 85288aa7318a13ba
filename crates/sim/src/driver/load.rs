//! Load: one transfer with many clients that fetch again after each last byte.

use std::collections::BTreeMap;
use std::sync::Arc;

use venturi_plan::{Outcome, Scalar};

use super::Simulation;
use super::agenda::AgendaEvent;
use super::records::ToolReport;
use super::stage_runner::{Causes, Owner, StageRunner, add};
use super::transfers::{Id, TransferState};
use crate::world::{Amounts, WorldError};

/// Maximum number of clients of one load, to limit memory.
const MAX_CLIENTS: f64 = 1e6;

/// Clients and their completed fetches.
#[derive(Debug)]
pub(super) struct Load {
    started_s: f64,
    /// Latest start of a fetch, or the number of fetches of each client.
    duration_s: Option<f64>,
    fetches_each: Option<u64>,
    think_s: f64,
    /// Steady period, relative to the start.
    steady_s: Option<(f64, f64)>,
    object_bytes: u64,
    clients: Vec<Client>,
    left: usize,
    connections: u64,
    bytes: f64,
    steady_bytes: f64,
    steady_fetches: u64,
    /// Duration of each completed fetch, from its start to its last byte.
    latencies_s: Vec<f64>,
    causes: Causes,
}

#[derive(Debug, Default)]
struct Client {
    fetches: u64,
    started_s: f64,
    walk: Option<StageRunner>,
}

impl Simulation {
    pub(super) fn start_load(&mut self, id: Id) -> Result<(), WorldError> {
        let active = &self.active[&id];
        let call = &self.world.header.calls[&active.transfer.call];
        let option = |key: &str| call.options.get(key).and_then(Scalar::as_number);
        let clients = option("clients").unwrap_or(1.0);
        if !(1.0..=MAX_CLIENTS).contains(&clients) {
            return Err(WorldError::Value {
                where_: format!("calls.{}.options.clients", active.transfer.call),
                expected: "1 to 1000000 clients",
                found: clients.to_string(),
            });
        }
        let duration_s = option("duration_s");
        let fetches_each = option("fetches").map(|count| count as u64);
        let spread_s = option("spread_s").unwrap_or(0.0);
        let from_s = option("ramp_s").unwrap_or(0.0).max(spread_s);
        let source = &active.transfer.source;
        let set = self.world.header.dataset_of(source).zip(source.numbered());
        let object = set.map_or(active.transfer.bytes.get(), |(set, (_, index))| {
            set.sizes().of(index)
        });
        let load = Load {
            duration_s,
            fetches_each: fetches_each.or(duration_s.is_none().then_some(1)),
            think_s: option("think_s").unwrap_or(0.0),
            steady_s: duration_s
                .filter(|end_s| *end_s > from_s)
                .map(|end_s| (from_s, end_s)),
            object_bytes: object,
            ..Load::of(clients as usize, self.now)
        };
        for client in 0..load.clients.len() {
            let starts_s = self.now + spread_s * client as f64 / clients;
            self.agenda
                .put(starts_s, AgendaEvent::Fetch(id, client as u32));
        }
        self.active.get_mut(&id).expect("just released").phase =
            TransferState::Load(Box::new(load));
        Ok(())
    }

    /// Start the next fetch of a client, or end the client.
    pub(super) fn fetch(&mut self, id: Id, client: u32) -> Result<(), WorldError> {
        let now = self.now;
        let Some(load) = self.load(id) else {
            return Ok(()); // ended by its time limit
        };
        let own = &mut load.clients[client as usize];
        let late = load
            .duration_s
            .is_some_and(|duration_s| now >= load.started_s + duration_s);
        if late || load.fetches_each.is_some_and(|each| own.fetches >= each) {
            load.left -= 1;
            let over = load.left == 0;
            return if over {
                self.end_transfer(id, Outcome::Ok)
            } else {
                Ok(())
            };
        }
        own.started_s = now;
        load.connections += 1;
        let amounts = Amounts {
            first: 0,
            files: 1,
            bytes: load.object_bytes,
        };
        let walk = self.walk_of(id, amounts, None)?;
        self.load(id).expect("still there").clients[client as usize].walk = Some(walk);
        self.advance(Owner::Fetch(id, client))
    }

    /// Handle the last byte of a fetch.
    pub(super) fn fetched(&mut self, id: Id, client: u32) -> Result<(), WorldError> {
        let now = self.now;
        let taken = self
            .load(id)
            .and_then(|load| load.clients[client as usize].walk.take());
        let Some(walk) = taken else {
            return Ok(());
        };
        let bytes = self.load(id).map_or(0, |load| load.object_bytes);
        let source = self.active[&id].transfer.source.clone();
        self.delivered(&walk.route, &source, bytes);
        let load = self.load(id).expect("still there");
        load.count(client as usize, now, &walk);
        let next_s = now + load.think_s;
        self.agenda.put(next_s, AgendaEvent::Fetch(id, client));
        Ok(())
    }

    /// Handle an aborted fetch: the client requests again.
    pub(super) fn fetch_broke(&mut self, id: Id, client: u32) {
        let now = self.now;
        if let Some(load) = self.load(id) {
            load.clients[client as usize].walk = None;
            let next_s = now + load.think_s;
            self.agenda.put(next_s, AgendaEvent::Fetch(id, client));
        }
    }

    /// Return the report of the tool at its end.
    pub(super) fn finish_load(
        &mut self,
        id: Id,
        load: Load,
    ) -> Result<(ToolReport, BTreeMap<Arc<str>, f64>), WorldError> {
        // The timeout has stopped active fetches.
        debug_assert!(self.load(id).is_none());
        let whole_s = load.causes.iter().map(|(_, s)| s).sum();
        let bottleneck = self.fractions(&load.causes, whole_s);
        Ok((load.tool_report(self.now), bottleneck))
    }

    /// Return the clients with active fetches.
    pub(super) fn fetching(&mut self, id: Id) -> Vec<u32> {
        let Some(load) = self.load(id) else {
            return Vec::new();
        };
        load.walks().map(|(client, _)| client).collect()
    }

    pub(super) fn load(&mut self, id: Id) -> Option<&mut Load> {
        match &mut self.active.get_mut(&id)?.phase {
            TransferState::Load(load) => Some(load),
            _ => None,
        }
    }
}

impl Load {
    /// Create this number of clients that start now, without a completed fetch.
    fn of(clients: usize, started_s: f64) -> Self {
        Self {
            started_s,
            duration_s: None,
            fetches_each: None,
            think_s: 0.0,
            steady_s: None,
            object_bytes: 0,
            clients: std::iter::repeat_with(Client::default)
                .take(clients)
                .collect(),
            left: clients,
            connections: 0,
            bytes: 0.0,
            steady_bytes: 0.0,
            steady_fetches: 0,
            latencies_s: Vec::new(),
            causes: Causes::new(),
        }
    }

    /// Return the active fetches, by client.
    pub fn walks(&self) -> impl Iterator<Item = (u32, &StageRunner)> {
        let numbered = (0..).zip(&self.clients);
        numbered.filter_map(|(client, own)| Some((client, own.walk.as_ref()?)))
    }

    /// Return the current fetch of a client.
    pub fn walk(&mut self, client: u32) -> Option<&mut StageRunner> {
        self.clients[client as usize].walk.as_mut()
    }

    fn count(&mut self, client: usize, now: f64, walk: &StageRunner) {
        let own = &mut self.clients[client];
        let object_bytes = self.object_bytes as f64;
        let first_byte_s = walk.first_byte_s.unwrap_or(now);
        own.fetches += 1;
        self.bytes += object_bytes;
        self.latencies_s.push(now - own.started_s);
        for (cause, s) in &walk.causes {
            add(&mut self.causes, *cause, *s);
        }
        let Some((from_s, to_s)) = self
            .steady_s
            .map(|(from, to)| (self.started_s + from, self.started_s + to))
        else {
            return;
        };
        self.steady_fetches += u64::from(now > from_s && now <= to_s);
        // Bytes of a fetch are assumed to arrive evenly.
        let (first_s, last_s) = (first_byte_s.max(from_s), now.min(to_s));
        let took_s = now - first_byte_s;
        if took_s > 0.0 {
            self.steady_bytes += object_bytes * ((last_s - first_s) / took_s).clamp(0.0, 1.0);
        } else if now > from_s && now <= to_s {
            self.steady_bytes += object_bytes;
        }
    }

    fn tool_report(mut self, now: f64) -> ToolReport {
        let mut tool = BTreeMap::from([
            ("fetches", self.latencies_s.len() as f64),
            ("fetched_bytes", self.bytes),
            ("connections", self.connections as f64),
        ]);
        let mut rate = None;
        if let Some((from_s, to_s)) = self.steady_s {
            rate = Some(self.steady_bytes / (to_s - from_s));
            tool.extend([
                ("steady_start_s", from_s),
                ("steady_end_s", to_s),
                ("steady_fetches", self.steady_fetches as f64),
                ("steady_bytes", self.steady_bytes.round()),
            ]);
        }
        self.latencies_s.sort_by(f64::total_cmp);
        if let (Some(most), count) = (self.latencies_s.last(), self.latencies_s.len()) {
            let quantile = |fraction: f64| {
                self.latencies_s[((fraction * count as f64).ceil() as usize).clamp(1, count) - 1]
            };
            tool.extend([
                ("latency_p50_s", quantile(0.5)),
                ("latency_p90_s", quantile(0.9)),
                ("latency_p99_s", quantile(0.99)),
                (
                    "latency_mean_s",
                    self.latencies_s.iter().sum::<f64>() / count as f64,
                ),
                ("latency_max_s", *most),
            ]);
        }
        ToolReport {
            tool_bytes: Some(self.bytes as u64),
            tool_duration_s: Some(now - self.started_s),
            tool_rate_bytes_per_s: rate,
            tool: Some(tool),
            ..ToolReport::default()
        }
    }
}
