//! Bytes over links in each interval of the plan, if transfers are not recorded individually. They
//! are recorded at the end of flows, not sampled.
//!
//! The bytes of a flow are spread evenly over its time. So sums are exact. The bytes of an interval
//! are exact while the rate of the flow is constant; otherwise they are smoothed over the time of
//! the flow. Between two events the ledger does no work, for any number of classes.

use venturi_plan::{Finding, Seconds};

use super::samples::{MAX_SAMPLES, Retained, thinned};
use crate::world::{LinkNumber, World};

/// Intervals of equal length, with their counts.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Start of the run.
    start_s: f64,
    requested_interval_s: f64,
    /// Requested interval times a power of two that limits the number of intervals.
    interval_s: f64,
    links: usize,
    hosts: usize,
    /// Bytes of payload over each link, then over the loopback of each host, interval by interval.
    bytes: Vec<f64>,
    /// Active transfers at the start of each interval.
    live: Vec<u64>,
    /// Current rate of each link in bytes/s, with its start.
    capacities: Vec<Vec<(f64, f64)>>,
}

impl Ledger {
    /// Create a ledger; `None` if the plan requests no samples.
    pub fn new(world: &World, hosts: usize, start_s: f64) -> Option<Self> {
        let measure = &world.header.measure;
        let interval_s = measure
            .interval_s
            .map(Seconds::get)
            .filter(|interval_s| *interval_s > 0.0)?;
        let capacity = |link: &crate::world::LinkInfo| vec![(0.0, link.payload_bytes_per_s)];
        Some(Self {
            start_s,
            requested_interval_s: interval_s,
            interval_s,
            links: world.links.len(),
            hosts,
            bytes: Vec::new(),
            live: Vec::new(),
            capacities: world.links.iter().map(capacity).collect(),
        })
    }

    /// Return the current time between two samples.
    pub fn interval_s(&self) -> f64 {
        self.interval_s
    }

    /// Record a changed rate of a link.
    pub fn changed(&mut self, now: f64, link: LinkNumber, bytes_per_s: f64) {
        self.capacities[link].push((now, bytes_per_s));
    }

    /// Record a transfer that has ended.
    pub fn lived(&mut self, start_s: f64, end_s: f64) {
        self.reach(end_s);
        let first = (start_s / self.interval_s).ceil() as usize;
        let past = (end_s / self.interval_s).ceil() as usize;
        // At most the number of intervals, [`MAX_SAMPLES`].
        for live in &mut self.live[first.min(past)..past] {
            *live += 1;
        }
    }

    /// Record bytes that moved over links, or within a host.
    pub fn moved(
        &mut self,
        bytes: f64,
        (start_s, end_s): (f64, f64),
        links: &[LinkNumber],
        loopback: Option<usize>,
    ) {
        self.reach(end_s);
        let own = loopback.map(|host| self.links + host);
        let (first, last) = (self.number_of(start_s), self.number_of(end_s));
        let took_s = end_s - start_s;
        for number in first..=last {
            let slice_start_s = start_s.max(number as f64 * self.interval_s);
            let until_s = end_s.min((number + 1) as f64 * self.interval_s);
            let fraction = if first == last {
                1.0
            } else {
                (until_s - slice_start_s).max(0.0) / took_s
            };
            let row = number * (self.links + self.hosts);
            for &column in links.iter().chain(&own) {
                self.bytes[row + column] += bytes * fraction;
            }
        }
    }

    fn number_of(&self, time_s: f64) -> usize {
        (time_s / self.interval_s) as usize
    }

    /// Extend the intervals up to this time.
    fn reach(&mut self, time_s: f64) {
        while self.number_of(time_s) >= MAX_SAMPLES {
            self.merge();
        }
        let needed = self.number_of(time_s) + 1;
        if needed > self.live.len() {
            self.live.resize(needed, 0);
            self.bytes.resize(needed * (self.links + self.hosts), 0.0);
        }
    }

    /// Merge pairs of intervals.
    fn merge(&mut self) {
        self.interval_s *= 2.0;
        let width = self.links + self.hosts;
        let rows = self.live.len();
        for row in 0..rows {
            for column in 0..width {
                let bytes = std::mem::take(&mut self.bytes[row * width + column]);
                self.bytes[row / 2 * width + column] += bytes;
            }
        }
        let retained = rows.div_ceil(2);
        self.bytes.truncate(retained * width);
        self.live = self.live.iter().step_by(2).copied().collect();
    }

    /// Return all counters at the start of each interval and at the end of the run, with the number
    /// of active transfers at these times.
    pub fn retained(&self, end_s: f64) -> Vec<(Retained, u64)> {
        let width = self.links + self.hosts;
        let mut sums = Retained::nothing(self.links, self.hosts);
        let mut retained = Vec::with_capacity(self.live.len() + 1);
        for (number, &live) in self.live.iter().enumerate() {
            let start_s = number as f64 * self.interval_s;
            if start_s >= self.start_s {
                sums.time_s = start_s;
                retained.push((sums.clone(), live));
            }
            let row = &self.bytes[number * width..(number + 1) * width];
            let (links, hosts) = row.split_at(self.links);
            for (link, &bytes) in links.iter().enumerate().filter(|(_, bytes)| **bytes > 0.0) {
                sums.payload[link] += bytes;
                let carries = self.mean_capacity(link, start_s, start_s + self.interval_s);
                if carries > 0.0 {
                    sums.busy_s[link] += bytes / carries;
                }
            }
            for (host, &bytes) in hosts.iter().enumerate() {
                sums.loopback[host] += bytes;
            }
        }
        if retained.last().is_none_or(|(last, _)| last.time_s < end_s) {
            sums.time_s = end_s;
            retained.push((sums, 0));
        }
        retained
    }

    /// Return the mean rate of a link in a period, in bytes/s.
    fn mean_capacity(&self, link: LinkNumber, from_s: f64, to_s: f64) -> f64 {
        let changes = &self.capacities[link];
        let ends = changes.iter().skip(1).map(|(at_s, _)| *at_s);
        let intervals = changes.iter().zip(ends.chain([f64::INFINITY]));
        let of = |(&(start_s, carries), end_s): (&(f64, f64), f64)| {
            carries * (end_s.min(to_s) - start_s.max(from_s)).max(0.0)
        };
        intervals.map(of).sum::<f64>() / (to_s - from_s)
    }

    /// Return a finding if there are fewer samples than requested.
    pub fn report_finding(&self, end_s: f64) -> Option<Finding> {
        let stride = (self.interval_s / self.requested_interval_s).round() as u64;
        (stride > 1).then(|| thinned(end_s, self.requested_interval_s, stride))
    }
}
