//! Transfers given as columns, each at its time, without interpreters: a million of them take a few seconds.
//!
//! Each is what a transfer of a plan is, and goes through the same driver. What takes a plan is left out: steps, preparations and samples.
//! No two rows move the same file, so that none is in a cache.

mod rows;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use venturi_plan::{Endpoint, Header, Name, Via};

use super::Simulation;
use crate::world::{Assumptions, Error};
pub(super) use rows::Rows;

/// Bytes of one transfer: beyond, doubles do not count single ones.
const MOST_BYTES: f64 = 9_007_199_254_740_992.0;

/// From where to where, and how: what transfers have in common.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// The host that calls the mover.
    pub host: Name,
    /// Which call of the header.
    pub call: Name,
    /// Where the bytes come from.
    pub source: Endpoint,
    /// The service and door through which they are read, if any.
    #[serde(default)]
    pub source_via: Option<Via>,
    /// Where they go to.
    pub destination: Endpoint,
    /// The service and door through which they are written, if any.
    #[serde(default)]
    pub destination_via: Option<Via>,
}

/// Transfers, a row each; columns of one length, in any order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Columns {
    /// When it is asked for. Seconds from 0 on.
    pub start_s: Vec<f64>,
    /// Number of its way.
    pub way: Vec<u32>,
    /// Whole numbers of bytes.
    pub bytes: Vec<f64>,
}

/// What came of them, in the order of the rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Moved {
    /// When each ended. Seconds; not a number of one that failed, or took longer than its call may.
    pub end_s: Vec<f64>,
    /// What bound each for most of its time: a number in `names`. Empty unless asked for.
    pub bound: Vec<u32>,
    /// Causes, as `bound` of a transfer's record has them.
    pub names: Vec<Arc<str>>,
    /// Costs that nobody knows and that count nothing: the call, and what.
    pub unknown: BTreeSet<(Name, &'static str)>,
    /// Transfers at once at most.
    pub peak_live: usize,
}

/// Carry transfers out on the testbed of a header.
///
/// # Errors
/// Where a row or a way is none that there can be, or the testbed is wrong.
pub fn carry_out(
    mut header: Header,
    assumptions: Assumptions,
    ways: &[Way],
    columns: Columns,
) -> Result<Moved, Error> {
    check(&columns, ways.len())?;
    header.measure.interval_s = None;
    let mut simulation = Simulation::new(header, Vec::new(), assumptions)?;
    simulation.lay_out(ways, columns)?;
    while simulation.step()? {}
    let rows = simulation.rows.take();
    Ok(rows.expect("they were laid out").into_moved())
}

fn check(columns: &Columns, ways: usize) -> Result<(), Error> {
    let rows = columns.start_s.iter().zip(&columns.way).zip(&columns.bytes);
    for (row, ((&start_s, &way), &bytes)) in rows.enumerate() {
        let wrong = |column, expected, found: String| Error::Value {
            where_: format!("row {row}, {column}"),
            expected,
            found,
        };
        if !(start_s.is_finite() && start_s >= 0.0) {
            return Err(wrong("start_s", "seconds from 0 on", start_s.to_string()));
        }
        if way as usize >= ways {
            return Err(wrong("way", "the number of a way", way.to_string()));
        }
        if !(0.0..=MOST_BYTES).contains(&bytes) || bytes.fract() != 0.0 {
            let expected = "a whole number of bytes, 2^53 at most";
            return Err(wrong("bytes", expected, bytes.to_string()));
        }
    }
    Ok(())
}
