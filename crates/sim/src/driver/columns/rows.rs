//! The rows of columns in the driver: where transfers come from, and what is noted of their ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use venturi_plan::{Bytes, Endpoint, Name, Outcome, Seconds, Task, Transfer, Via};

use super::{Columns, Moved, Way};
use crate::driver::Simulation;
use crate::driver::brief::Whose;
use crate::world::{Amounts, Ask, Error, Passage, Stages, World};

/// What took no time was bound by nothing.
const NOTHING: &str = "nothing";

/// Rows that are carried out, and what has come of them.
#[derive(Debug)]
pub(in crate::driver) struct Rows {
    columns: Columns,
    ways: Vec<Known>,
    /// Rows by the time at which they are asked for, and of one time by their number.
    order: Vec<u32>,
    /// Of these, those that were asked for.
    asked: usize,
    ended: usize,
    moved: Moved,
    codes: BTreeMap<Arc<str>, u32>,
    /// In place of an actor's name.
    actor: Name,
}

/// A way as it was found, once.
#[derive(Debug)]
struct Known {
    host: usize,
    transfer: Transfer,
    /// Where a transfer depends on none before it, and so is told in brief: what its bytes cross, and its limit of time.
    brief: Option<(Arc<Passage>, usize)>,
}

impl Rows {
    fn new(ways: Vec<Known>, columns: Columns, explains: bool) -> Self {
        let (rows, start_s) = (columns.start_s.len(), &columns.start_s);
        let mut order: Vec<u32> = (0..rows as u32).collect();
        // What is in order already is seen to be so at once.
        order.sort_by(|&one, &other| start_s[one as usize].total_cmp(&start_s[other as usize]));
        let moved = Moved {
            end_s: vec![f64::NAN; rows],
            bound: vec![0; if explains { rows } else { 0 }],
            ..Moved::default()
        };
        Self {
            columns,
            ways,
            order,
            asked: 0,
            ended: 0,
            moved,
            codes: BTreeMap::new(),
            actor: "columns".into(),
        }
    }

    /// When the next one is asked for.
    pub fn next_s(&self) -> Option<f64> {
        let row = *self.order.get(self.asked)?;
        Some(self.columns.start_s[row as usize])
    }

    pub fn are_over(&self) -> bool {
        self.ended == self.order.len()
    }

    pub fn into_moved(self) -> Moved {
        self.moved
    }

    /// Costs of a call that nobody knows.
    pub fn unknown(&mut self, call: &Name, stages: &Stages) {
        for what in &stages.unknown {
            self.moved.unknown.insert((call.clone(), what));
        }
    }

    /// A row has ended; shares of its time by what bound it.
    fn note(&mut self, row: usize, outcome: Outcome, now: f64, bound: &BTreeMap<Arc<str>, f64>) {
        self.ended += 1;
        if outcome == Outcome::Ok {
            self.moved.end_s[row] = now;
        }
        if row < self.moved.bound.len() {
            self.moved.bound[row] = self.code(bound);
        }
    }

    /// The number of what took the most time; of equal ones the first.
    fn code(&mut self, bound: &BTreeMap<Arc<str>, f64>) -> u32 {
        // Of the largest, `max_by` takes the last.
        let most = bound
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
    /// Rows are to be carried out.
    pub(super) fn lay_out(&mut self, ways: &[Way], columns: Columns) -> Result<(), Error> {
        let known = ways.iter().enumerate();
        let known = known.map(|(number, way)| self.find(number, way));
        let known = known.collect::<Result<_, _>>()?;
        let explains = self.world.assumptions.explain;
        self.rows = Some(Rows::new(known, columns, explains));
        Ok(())
    }

    fn find(&mut self, number: usize, way: &Way) -> Result<Known, Error> {
        check(&self.world, number, way)?;
        let host = self.number_of(&way.host).expect("just looked at");
        let transfer = transfer_of(way);
        let vias = [&way.source_via, &way.destination_via];
        if !self.world.go_alike(&way.call, vias) {
            return Ok(Known {
                host,
                transfer,
                brief: None,
            });
        }
        let ask = Ask {
            host: &way.host,
            transfer: &transfer,
            process: None,
            warm: false,
            cached: false,
        };
        let passage = self.courses.passage(&self.world, &ask)?;
        let timeout_s = self.world.header.calls[&way.call].timeout_s.get();
        let brief = Some((passage, self.brief.limit(timeout_s)));
        Ok(Known {
            host,
            transfer,
            brief,
        })
    }

    /// Begins a row that is due; false: none is.
    pub(in crate::driver) fn ask_for_row(&mut self) -> Result<bool, Error> {
        let under_way = self.brief.count() + self.active.len();
        let Some(rows) = &mut self.rows else {
            return Ok(false);
        };
        if rows.next_s().is_none_or(|start_s| start_s > self.now) {
            return Ok(false);
        }
        let row = rows.order[rows.asked];
        rows.asked += 1;
        rows.moved.peak_live = rows.moved.peak_live.max(under_way + 1);
        let bytes = rows.columns.bytes[row as usize] as u64;
        let known = &rows.ways[rows.columns.way[row as usize] as usize];
        let Some((passage, limit)) = &known.brief else {
            self.ask_one_by_one(row, bytes)?;
            return Ok(true);
        };
        let amounts = Amounts {
            first: 0,
            files: 1,
            bytes,
        };
        let (world, transfer, limit) = (&self.world, &known.transfer, *limit);
        let stages = world.stages(&mut self.fluid, transfer, passage, amounts)?;
        if !stages.unknown.is_empty() {
            let call = transfer.call.clone();
            rows.unknown(&call, &stages);
        }
        self.begin_in_brief(Whose::Row(row), Arc::new(stages), limit)?;
        Ok(true)
    }

    /// A row begins that may depend on others: as a transfer of a plan does.
    fn ask_one_by_one(&mut self, row: u32, bytes: u64) -> Result<(), Error> {
        let rows = self.rows.as_ref().expect("this is one of them");
        let (actor, task) = (rows.actor.clone(), Task::numbered(u64::from(row)));
        let known = &rows.ways[rows.columns.way[row as usize] as usize];
        let (host, mut transfer) = (known.host, known.transfer.clone());
        transfer.bytes = Bytes::new(bytes);
        transfer.source = own_file(&transfer.source, row);
        let intended = Some(Seconds::new(self.now));
        self.arm((host, task), None, actor, transfer, intended);
        self.release(host, &[task])
    }

    /// Writes down that a row has ended; shares of its time by what bound it.
    pub(in crate::driver) fn note_row(
        &mut self,
        row: u32,
        outcome: Outcome,
        bound: &BTreeMap<Arc<str>, f64>,
    ) {
        let rows = self.rows.as_mut().expect("this is one of them");
        rows.note(row as usize, outcome, self.now, bound);
    }
}

fn check(world: &World, number: usize, way: &Way) -> Result<(), Error> {
    let unknown = |key: &str, expected, found: &str| Error::Unknown {
        where_: format!("ways[{number}].{key}"),
        expected,
        found: found.into(),
    };
    if !world.header.hosts.contains_key(&way.host) {
        return Err(unknown("host", "a host of the header", &way.host));
    }
    if !world.header.calls.contains_key(&way.call) {
        return Err(unknown("call", "a call of the header", &way.call));
    }
    for (key, via) in [
        ("source_via", &way.source_via),
        ("destination_via", &way.destination_via),
    ] {
        let service = via.as_ref().map(Via::service);
        if let Some(name) = service.filter(|name| !world.header.services.contains_key(*name)) {
            return Err(unknown(key, "a service of the header", name));
        }
    }
    Ok(())
}

fn transfer_of(way: &Way) -> Transfer {
    Transfer {
        call: way.call.clone(),
        slot: 0,
        source: way.source.clone(),
        source_via: way.source_via.clone(),
        destination: way.destination.clone(),
        destination_via: way.destination_via.clone(),
        files: 1,
        bytes: Bytes::new(0),
        offset_bytes: None,
        keep: false,
        labels: BTreeMap::new(),
    }
}

/// A file that no other row reads: caches tell files apart by their names.
fn own_file(source: &Endpoint, row: u32) -> Endpoint {
    let own = format!("{source}.{row}");
    own.parse().unwrap_or_else(|_| source.clone()) // what is built in has no files
}
