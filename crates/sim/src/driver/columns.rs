//! Transfers as columns, each with its start time, without interpreters: a million of them take a
//! few seconds.
//!
//! Each row is a transfer as in a plan, and uses the same driver. There are no steps, preparations
//! and samples. No two rows move the same file, so no file is cached.

mod rows;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use venturi_plan::{Endpoint, Header, Name, Via};

use super::Simulation;
use crate::world::{Assumptions, WorldError};
pub(super) use rows::Rows;

/// Maximum bytes of one transfer; beyond it, doubles do not count single bytes.
const MAX_BYTES: f64 = 9_007_199_254_740_992.0;

/// Common properties of transfers: host, call, source and destination.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferRow {
    /// The host that calls the mover.
    pub host: Name,
    /// Call of the header.
    pub call: Name,
    /// Source of the bytes.
    pub source: Endpoint,
    /// Service and service port for reading, if any.
    #[serde(default)]
    pub source_via: Option<Via>,
    /// Destination of the bytes.
    pub destination: Endpoint,
    /// Service and service port for writing, if any.
    #[serde(default)]
    pub destination_via: Option<Via>,
}

/// Transfers, one per row; columns of equal length, in any order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TransferColumns {
    /// Requested start in seconds, at least 0.
    pub start_s: Vec<f64>,
    /// Index of the route.
    pub route: Vec<u32>,
    /// Bytes, as whole numbers.
    pub bytes: Vec<f64>,
}

/// Results, in the order of the rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TransferResults {
    /// End of each transfer in seconds; NaN for a transfer that failed or exceeded its timeout.
    pub end_s: Vec<f64>,
    /// Bottleneck of each transfer for most of its time, as an index in `names`. Empty unless
    /// requested.
    pub bottleneck: Vec<u32>,
    /// Names of causes, as in `bottleneck` of a transfer record.
    pub names: Vec<Arc<str>>,
    /// Unknown costs, counted as 0: the call and the name of the cost.
    pub unknown: BTreeSet<(Name, &'static str)>,
    /// Maximum number of active transfers.
    pub peak_live: usize,
}

/// Simulate transfers on the testbed of a header.
///
/// # Errors
/// An invalid row or route, or an invalid testbed.
pub fn simulate(
    mut header: Header,
    assumptions: Assumptions,
    routes: &[TransferRow],
    columns: TransferColumns,
) -> Result<TransferResults, WorldError> {
    check(&columns, routes.len())?;
    header.measure.interval_s = None;
    let mut simulation = Simulation::new(header, Vec::new(), assumptions)?;
    simulation.lay_out(routes, columns)?;
    while simulation.step()? {}
    let rows = simulation.rows.take();
    Ok(rows.expect("they were laid out").into_moved())
}

fn check(columns: &TransferColumns, routes: usize) -> Result<(), WorldError> {
    let rows = columns
        .start_s
        .iter()
        .zip(&columns.route)
        .zip(&columns.bytes);
    for (row, ((&start_s, &route), &bytes)) in rows.enumerate() {
        let wrong = |column, expected, found: String| WorldError::Value {
            where_: format!("row {row}, {column}"),
            expected,
            found,
        };
        if !(start_s.is_finite() && start_s >= 0.0) {
            return Err(wrong("start_s", "seconds, at least 0", start_s.to_string()));
        }
        if route as usize >= routes {
            return Err(wrong("route", "an index in `routes`", route.to_string()));
        }
        if !(0.0..=MAX_BYTES).contains(&bytes) || bytes.fract() != 0.0 {
            let expected = "a whole number of bytes, 2^53 at most";
            return Err(wrong("bytes", expected, bytes.to_string()));
        }
    }
    Ok(())
}
