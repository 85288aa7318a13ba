//! Results of the transfers of one route of a trial, if they are not recorded individually.

use std::collections::BTreeMap;
use std::sync::Arc;

use venturi_plan::{Outcome, Seconds, TransferRecord, Via};

use super::records::{RouteKey, RouteRecord};
use super::sketch::Sketch;

/// Counts, sums and the distribution of durations.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    outcomes: BTreeMap<Outcome, u64>,
    /// Number of good transfers, counted separately because nearly all are good.
    ok: u64,
    received_bytes: Option<u64>,
    wait_s: f64,
    duration_s: f64,
    sketch: Sketch,
    /// Minimum and maximum of starts, ends and durations.
    times: Option<Times>,
    /// Seconds by bottleneck.
    pub bottleneck_s: BTreeMap<Arc<str>, f64>,
    /// Duration of one transfer without load.
    unloaded_s: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    first_start_s: f64,
    last_end_s: f64,
    min_duration_s: f64,
    max_duration_s: f64,
}

/// Transfer that has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub outcome: Outcome,
    /// None for a sink.
    pub received_bytes: Option<u64>,
    pub intended_s: Option<f64>,
    /// None if it was never released.
    pub times_s: Option<(f64, f64)>,
}

impl RouteKey {
    /// Return the key of a transfer as recorded by an agent.
    pub fn of(record: &TransferRecord) -> Self {
        Self {
            call: record.call.clone(),
            source: record.source.storage().into(),
            source_via: text_of(record.source_via.as_ref()),
            destination: record.destination.storage().into(),
            destination_via: text_of(record.destination_via.as_ref()),
            files: record.files,
            size_bytes: record.requested_bytes.get(),
        }
    }
}

pub(super) fn text_of(via: Option<&Via>) -> Option<String> {
    via.map(|via| via.as_str().to_owned())
}

impl Ended {
    /// Return the counted part of a record.
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
    /// Create a tally of transfers with this duration without load.
    pub fn of_like(unloaded_s: f64) -> Self {
        Self {
            unloaded_s: Some(unloaded_s),
            ..Self::default()
        }
    }

    /// Add a transfer that has ended.
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
        self.wait_s += ended
            .intended_s
            .map_or(0.0, |intended_s| start_s - intended_s);
        self.duration_s += took_s;
        self.sketch.add(took_s);
        let times = self.times.get_or_insert(Times {
            first_start_s: start_s,
            last_end_s: end_s,
            min_duration_s: took_s,
            max_duration_s: took_s,
        });
        times.first_start_s = times.first_start_s.min(start_s);
        times.last_end_s = times.last_end_s.max(end_s);
        times.min_duration_s = times.min_duration_s.min(took_s);
        times.max_duration_s = times.max_duration_s.max(took_s);
    }

    /// Return whether all transfers are good.
    pub fn is_good(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// Convert the tally to a record.
    pub fn into_record(mut self, route_key: RouteKey) -> RouteRecord {
        if self.ok > 0 {
            self.outcomes.insert(Outcome::Ok, self.ok);
        }
        let transfers = self.outcomes.values().sum();
        let whole_s = self.duration_s;
        if whole_s > 0.0 {
            self.bottleneck_s.values_mut().for_each(|s| *s /= whole_s);
        } else {
            self.bottleneck_s.clear();
        }
        let quantile = |fraction| self.sketch.quantile(fraction);
        let quantiles = [0.5, 0.9, 0.95, 0.99].map(quantile);
        let (sketch_first, sketch_counts) = self.sketch.into_counts();
        RouteRecord {
            requested_bytes: route_key.size_bytes.saturating_mul(transfers),
            route_key,
            transfers,
            outcomes: self.outcomes,
            received_bytes: self.received_bytes,
            start_s: self.times.map(|times| times.first_start_s),
            end_s: self.times.map(|times| times.last_end_s),
            wait_s: self.wait_s,
            duration_s: self.duration_s,
            min_duration_s: self.times.map(|times| times.min_duration_s),
            max_duration_s: self.times.map(|times| times.max_duration_s),
            unloaded_s: self.unloaded_s,
            p50_s: quantiles[0],
            p90_s: quantiles[1],
            p95_s: quantiles[2],
            p99_s: quantiles[3],
            sketch_first,
            sketch_counts,
            bottleneck: self.bottleneck_s,
        }
    }
}
