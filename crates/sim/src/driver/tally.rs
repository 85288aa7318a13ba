//! What the transfers of one route of a trial came to, where they are not recorded each.

use std::collections::BTreeMap;
use std::sync::Arc;

use venturi_plan::{Outcome, Seconds, TransferRecord, Via};

use super::said::{Route, Way};
use super::sketch::Sketch;

/// Counts, sums and the distribution of durations.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    outcomes: BTreeMap<Outcome, u64>,
    /// Good ones, apart: nearly all are.
    ok: u64,
    received_bytes: Option<u64>,
    waited_s: f64,
    duration_s: f64,
    sketch: Sketch,
    /// Least and most of starts, ends and durations.
    times: Option<Times>,
    /// Seconds by what bound.
    pub bound_s: BTreeMap<Arc<str>, f64>,
    /// What one of them takes while nothing else moves.
    alone_s: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    first_start_s: f64,
    last_end_s: f64,
    shortest_s: f64,
    longest_s: f64,
}

/// A transfer that has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub outcome: Outcome,
    /// None of a sink.
    pub received_bytes: Option<u64>,
    pub intended_s: Option<f64>,
    /// None if it was never released.
    pub times_s: Option<(f64, f64)>,
}

impl Way {
    /// That of a transfer as an agent would record it.
    pub fn of(record: &TransferRecord) -> Self {
        Self {
            call: record.call.clone(),
            source: record.source.place().into(),
            source_via: text_of(record.source_via.as_ref()),
            destination: record.destination.place().into(),
            destination_via: text_of(record.destination_via.as_ref()),
            files: record.files,
            size_bytes: record.asked_bytes.get(),
        }
    }
}

pub(super) fn text_of(via: Option<&Via>) -> Option<String> {
    via.map(|via| via.as_str().to_owned())
}

impl Ended {
    /// What of a record counts here.
    pub fn of(record: &TransferRecord) -> Self {
        Self {
            outcome: record.outcome,
            received_bytes: record.received_bytes.map(|bytes| bytes.get()),
            intended_s: record.intended_s.map(Seconds::get),
            times_s: record
                .start_s
                .zip(record.end_s)
                .map(|(start, end)| (start.get(), end.get())),
        }
    }
}

impl Tally {
    /// Of transfers that all take so long while nothing else moves.
    pub fn of_like(alone_s: f64) -> Self {
        Self {
            alone_s: Some(alone_s),
            ..Self::default()
        }
    }

    /// One more transfer has ended.
    pub fn add(&mut self, ended: &Ended) {
        if ended.outcome == Outcome::Ok {
            self.ok += 1;
        } else {
            *self.outcomes.entry(ended.outcome).or_default() += 1;
        }
        if let Some(bytes) = ended.received_bytes {
            let before = self.received_bytes.unwrap_or(0);
            self.received_bytes = Some(before.saturating_add(bytes));
        }
        let Some((start_s, end_s)) = ended.times_s else {
            return;
        };
        let took_s = end_s - start_s;
        self.waited_s += ended
            .intended_s
            .map_or(0.0, |intended_s| start_s - intended_s);
        self.duration_s += took_s;
        self.sketch.add(took_s);
        let times = self.times.get_or_insert(Times {
            first_start_s: start_s,
            last_end_s: end_s,
            shortest_s: took_s,
            longest_s: took_s,
        });
        times.first_start_s = times.first_start_s.min(start_s);
        times.last_end_s = times.last_end_s.max(end_s);
        times.shortest_s = times.shortest_s.min(took_s);
        times.longest_s = times.longest_s.max(took_s);
    }

    /// Whether all of them are good.
    pub fn is_good(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// As it is written down.
    pub fn told(mut self, way: Way) -> Route {
        if self.ok > 0 {
            self.outcomes.insert(Outcome::Ok, self.ok);
        }
        let transfers = self.outcomes.values().sum();
        let whole_s = self.duration_s;
        if whole_s > 0.0 {
            self.bound_s.values_mut().for_each(|s| *s /= whole_s);
        } else {
            self.bound_s.clear();
        }
        let quantile = |share| self.sketch.quantile(share);
        let quantiles = [0.5, 0.9, 0.95, 0.99].map(quantile);
        let (sketch_first, sketch_counts) = self.sketch.into_counts();
        Route {
            asked_bytes: way.size_bytes.saturating_mul(transfers),
            way,
            transfers,
            outcomes: self.outcomes,
            received_bytes: self.received_bytes,
            start_s: self.times.map(|times| times.first_start_s),
            end_s: self.times.map(|times| times.last_end_s),
            waited_s: self.waited_s,
            duration_s: self.duration_s,
            shortest_s: self.times.map(|times| times.shortest_s),
            longest_s: self.times.map(|times| times.longest_s),
            alone_s: self.alone_s,
            p50_s: quantiles[0],
            p90_s: quantiles[1],
            p95_s: quantiles[2],
            p99_s: quantiles[3],
            sketch_first,
            sketch_counts,
            bound: self.bound_s,
        }
    }
}
