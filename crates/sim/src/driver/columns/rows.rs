//! Rows of columns in the driver: they start transfers, and record their ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use venturi_plan::{Bytes, Endpoint, Name, Outcome, Seconds, TaskId, Transfer, Via};

use super::{TransferColumns, TransferResults, TransferRow};
use crate::driver::Simulation;
use crate::driver::bulk::TransferOwner;
use crate::world::{Amounts, RouteQuery, Stages, TransferRoute, World, WorldError};

/// Name of the bottleneck of a transfer that took no time.
const NOTHING: &str = "nothing";

/// Rows that run, with their results.
#[derive(Debug)]
pub(in crate::driver) struct Rows {
    columns: TransferColumns,
    routes: Vec<CachedRoute>,
    /// Rows by requested start, then by number.
    order: Vec<u32>,
    /// Number of started rows.
    started_rows: usize,
    ended: usize,
    moved: TransferResults,
    codes: BTreeMap<Arc<str>, u32>,
    /// Used instead of an actor's name.
    actor: Name,
}

/// Route of rows, computed once.
#[derive(Debug)]
struct CachedRoute {
    host: usize,
    transfer: Transfer,
    /// Route and timeout, for transfers that depend on no earlier transfer and so run in bulk.
    brief: Option<(Arc<TransferRoute>, usize)>,
}

impl Rows {
    fn new(routes: Vec<CachedRoute>, columns: TransferColumns, explains: bool) -> Self {
        let (rows, start_s) = (columns.start_s.len(), &columns.start_s);
        let mut order: Vec<u32> = (0..rows as u32).collect();
        // Sorting is fast for rows in order.
        order.sort_by(|&one, &other| start_s[one as usize].total_cmp(&start_s[other as usize]));
        let moved = TransferResults {
            end_s: vec![f64::NAN; rows],
            bottleneck: vec![0; if explains { rows } else { 0 }],
            ..TransferResults::default()
        };
        Self {
            columns,
            routes,
            order,
            started_rows: 0,
            ended: 0,
            moved,
            codes: BTreeMap::new(),
            actor: "columns".into(),
        }
    }

    /// Return the start of the next row.
    pub fn next_s(&self) -> Option<f64> {
        let row = *self.order.get(self.started_rows)?;
        Some(self.columns.start_s[row as usize])
    }

    pub fn are_over(&self) -> bool {
        self.ended == self.order.len()
    }

    pub fn into_moved(self) -> TransferResults {
        self.moved
    }

    /// Record unknown costs of a call.
    pub fn unknown(&mut self, call: &Name, stages: &Stages) {
        for what in &stages.unknown {
            self.moved.unknown.insert((call.clone(), what));
        }
    }

    /// Record an ended row, with the fraction of its time for each bottleneck.
    fn note(
        &mut self,
        row: usize,
        outcome: Outcome,
        now: f64,
        bottleneck: &BTreeMap<Arc<str>, f64>,
    ) {
        self.ended += 1;
        if outcome == Outcome::Ok {
            self.moved.end_s[row] = now;
        }
        if row < self.moved.bottleneck.len() {
            self.moved.bottleneck[row] = self.code(bottleneck);
        }
    }

    /// Return the index of the largest bottleneck; of equal ones, the first.
    fn code(&mut self, bottleneck: &BTreeMap<Arc<str>, f64>) -> u32 {
        // `max_by` returns the last of equal maxima.
        let most = bottleneck
            .iter()
            .rev()
            .max_by(|(_, one), (_, other)| one.total_cmp(other));
        let name = most.map_or(NOTHING, |(name, _)| name);
        if let Some(known) = self.codes.get(name) {
            return *known;
        }
        let (name, code): (Arc<str>, _) = (name.into(), self.codes.len() as u32);
        self.moved.names.push(name.clone());
        self.codes.insert(name, code);
        code
    }
}

impl Simulation {
    /// Prepare rows to run.
    pub(super) fn lay_out(
        &mut self,
        routes: &[TransferRow],
        columns: TransferColumns,
    ) -> Result<(), WorldError> {
        let known = routes.iter().enumerate();
        let known = known.map(|(number, transfer_row)| self.find(number, transfer_row));
        let known = known.collect::<Result<_, _>>()?;
        let explains = self.world.assumptions.explain;
        self.rows = Some(Rows::new(known, columns, explains));
        Ok(())
    }

    fn find(
        &mut self,
        number: usize,
        transfer_row: &TransferRow,
    ) -> Result<CachedRoute, WorldError> {
        check(&self.world, number, transfer_row)?;
        let host = self.number_of(&transfer_row.host).expect("just looked at");
        let transfer = transfer_of(transfer_row);
        let vias = [&transfer_row.source_via, &transfer_row.destination_via];
        if !self.world.are_equivalent(&transfer_row.call, vias) {
            return Ok(CachedRoute {
                host,
                transfer,
                brief: None,
            });
        }
        let query = RouteQuery {
            host: &transfer_row.host,
            transfer: &transfer,
            process: None,
            warm: false,
            cached: false,
        };
        let route = self.route_cache.route(&self.world, &query)?;
        let timeout_s = self.world.header.calls[&transfer_row.call].timeout_s.get();
        let brief = Some((route, self.brief.limit(timeout_s)));
        Ok(CachedRoute {
            host,
            transfer,
            brief,
        })
    }

    /// Start a due row. Return false if there is none.
    pub(in crate::driver) fn start_next_row(&mut self) -> Result<bool, WorldError> {
        let in_flight = self.brief.count() + self.active.len();
        let Some(rows) = &mut self.rows else {
            return Ok(false);
        };
        if rows.next_s().is_none_or(|start_s| start_s > self.now) {
            return Ok(false);
        }
        let row = rows.order[rows.started_rows];
        rows.started_rows += 1;
        rows.moved.peak_live = rows.moved.peak_live.max(in_flight + 1);
        let bytes = rows.columns.bytes[row as usize] as u64;
        let known = &rows.routes[rows.columns.route[row as usize] as usize];
        let Some((route, limit)) = &known.brief else {
            self.start_row(row, bytes)?;
            return Ok(true);
        };
        let amounts = Amounts {
            first: 0,
            files: 1,
            bytes,
        };
        let (world, transfer, limit) = (&self.world, &known.transfer, *limit);
        let stages = world.stages(&mut self.fluid, transfer, route, amounts)?;
        if !stages.unknown.is_empty() {
            let call = transfer.call.clone();
            rows.unknown(&call, &stages);
        }
        self.start_bulk(TransferOwner::Row(row), Arc::new(stages), limit)?;
        Ok(true)
    }

    /// Start a row that may depend on others, in the same way as a transfer of a plan.
    fn start_row(&mut self, row: u32, bytes: u64) -> Result<(), WorldError> {
        let rows = self.rows.as_ref().expect("this is one of them");
        let (actor, task) = (rows.actor.clone(), TaskId::numbered(u64::from(row)));
        let known = &rows.routes[rows.columns.route[row as usize] as usize];
        let (host, mut transfer) = (known.host, known.transfer.clone());
        transfer.bytes = Bytes::new(bytes);
        transfer.source = unique_file(&transfer.source, row);
        let intended = Some(Seconds::new(self.now));
        self.arm((host, task), None, actor, transfer, intended);
        self.release(host, &[task])
    }

    /// Record the end of a row; with the fraction of its time for each bottleneck.
    pub(in crate::driver) fn note_row(
        &mut self,
        row: u32,
        outcome: Outcome,
        bottleneck: &BTreeMap<Arc<str>, f64>,
    ) {
        let rows = self.rows.as_mut().expect("this is one of them");
        rows.note(row as usize, outcome, self.now, bottleneck);
    }
}

fn check(world: &World, number: usize, transfer_row: &TransferRow) -> Result<(), WorldError> {
    let unknown = |key: &str, expected, found: &str| WorldError::Unknown {
        where_: format!("routes[{number}].{key}"),
        expected,
        found: found.into(),
    };
    if !world.header.hosts.contains_key(&transfer_row.host) {
        return Err(unknown("host", "a host of the header", &transfer_row.host));
    }
    if !world.header.calls.contains_key(&transfer_row.call) {
        return Err(unknown("call", "a call of the header", &transfer_row.call));
    }
    for (key, via) in [
        ("source_via", &transfer_row.source_via),
        ("destination_via", &transfer_row.destination_via),
    ] {
        let service = via.as_ref().map(Via::service);
        if let Some(name) = service.filter(|name| !world.header.services.contains_key(*name)) {
            return Err(unknown(key, "a service of the header", name));
        }
    }
    Ok(())
}

fn transfer_of(transfer_row: &TransferRow) -> Transfer {
    Transfer {
        call: transfer_row.call.clone(),
        slot: 0,
        source: transfer_row.source.clone(),
        source_via: transfer_row.source_via.clone(),
        destination: transfer_row.destination.clone(),
        destination_via: transfer_row.destination_via.clone(),
        files: 1,
        bytes: Bytes::new(0),
        offset_bytes: None,
        keep: false,
        labels: BTreeMap::new(),
    }
}

/// Return a file that no other row reads, because caches identify files by name.
fn unique_file(source: &Endpoint, row: u32) -> Endpoint {
    let own = format!("{source}.{row}");
    own.parse().unwrap_or_else(|_| source.clone()) // what is built in has no files
}
