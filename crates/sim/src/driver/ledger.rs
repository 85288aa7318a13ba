//! What passed over links in each interval of the plan, where transfers are not recorded each: written down as they end, not looked at in time.
//!
//! The bytes of a flow are spread evenly over the time in which they moved. So sums are exact, and so is the share of each interval while the
//! rate of the flow does not change; else it is smoothed over the time of the flow, no farther. Nothing has to be done between two events,
//! however many classes move.

use venturi_plan::{Finding, Seconds};

use super::samples::{Kept, MOST_SAMPLES, thinned};
use crate::world::{LinkNumber, World};

/// Intervals of equal length, and what happened in each.
#[derive(Debug)]
pub(super) struct Ledger {
    /// When the run begins.
    start_s: f64,
    asked_interval_s: f64,
    /// Longer than asked for, by a power of two, where there would be too many.
    interval_s: f64,
    links: usize,
    hosts: usize,
    /// Bytes of payload over each link, then over the loopback of each host, interval by interval.
    bytes: Vec<f64>,
    /// Transfers under way at the beginning of each interval.
    live: Vec<u64>,
    /// What each link carries, in bytes/s, from when on.
    capacities: Vec<Vec<(f64, f64)>>,
}

impl Ledger {
    /// None if the plan asks for no samples.
    pub fn new(world: &World, hosts: usize, start_s: f64) -> Option<Self> {
        let measure = &world.header.measure;
        let interval_s = measure
            .interval_s
            .map(Seconds::get)
            .filter(|interval_s| *interval_s > 0.0)?;
        let capacity = |link: &crate::world::LinkInfo| vec![(0.0, link.payload_bytes_per_s)];
        Some(Self {
            start_s,
            asked_interval_s: interval_s,
            interval_s,
            links: world.links.len(),
            hosts,
            bytes: Vec::new(),
            live: Vec::new(),
            capacities: world.links.iter().map(capacity).collect(),
        })
    }

    /// Time between two samples, as it is now.
    pub fn interval_s(&self) -> f64 {
        self.interval_s
    }

    /// A link carries something else from now on.
    pub fn changed(&mut self, now: f64, link: LinkNumber, bytes_per_s: f64) {
        self.capacities[link].push((now, bytes_per_s));
    }

    /// A transfer has ended.
    pub fn lived(&mut self, start_s: f64, end_s: f64) {
        self.reach(end_s);
        let first = (start_s / self.interval_s).ceil() as usize;
        let past = (end_s / self.interval_s).ceil() as usize;
        // At most as many as there are intervals, [`MOST_SAMPLES`].
        for live in &mut self.live[first.min(past)..past] {
            *live += 1;
        }
    }

    /// Bytes have moved over links, or within a host.
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
            let begin_s = start_s.max(number as f64 * self.interval_s);
            let until_s = end_s.min((number + 1) as f64 * self.interval_s);
            let share = if first == last {
                1.0
            } else {
                (until_s - begin_s).max(0.0) / took_s
            };
            let row = number * (self.links + self.hosts);
            for &column in links.iter().chain(&own) {
                self.bytes[row + column] += bytes * share;
            }
        }
    }

    fn number_of(&self, time_s: f64) -> usize {
        (time_s / self.interval_s) as usize
    }

    /// Have an interval for this time.
    fn reach(&mut self, time_s: f64) {
        while self.number_of(time_s) >= MOST_SAMPLES {
            self.merge();
        }
        let needed = self.number_of(time_s) + 1;
        if needed > self.live.len() {
            self.live.resize(needed, 0);
            self.bytes.resize(needed * (self.links + self.hosts), 0.0);
        }
    }

    /// Two intervals become one.
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
        let kept = rows.div_ceil(2);
        self.bytes.truncate(kept * width);
        self.live = self.live.iter().step_by(2).copied().collect();
    }

    /// All counters at the beginning of each interval, and at the end of the run; with the transfers that were under way then.
    pub fn kept(&self, end_s: f64) -> Vec<(Kept, u64)> {
        let width = self.links + self.hosts;
        let mut sums = Kept::nothing(self.links, self.hosts);
        let mut kept = Vec::with_capacity(self.live.len() + 1);
        for (number, &live) in self.live.iter().enumerate() {
            let begin_s = number as f64 * self.interval_s;
            if begin_s >= self.start_s {
                sums.time_s = begin_s;
                kept.push((sums.clone(), live));
            }
            let row = &self.bytes[number * width..(number + 1) * width];
            let (links, hosts) = row.split_at(self.links);
            for (link, &bytes) in links.iter().enumerate().filter(|(_, bytes)| **bytes > 0.0) {
                sums.payload[link] += bytes;
                let carries = self.mean_capacity(link, begin_s, begin_s + self.interval_s);
                if carries > 0.0 {
                    sums.busy_s[link] += bytes / carries;
                }
            }
            for (host, &bytes) in hosts.iter().enumerate() {
                sums.loopback[host] += bytes;
            }
        }
        if kept.last().is_none_or(|(last, _)| last.time_s < end_s) {
            sums.time_s = end_s;
            kept.push((sums, 0));
        }
        kept
    }

    /// What a link carries on average in a stretch of time, in bytes/s.
    fn mean_capacity(&self, link: LinkNumber, from_s: f64, to_s: f64) -> f64 {
        let changes = &self.capacities[link];
        let ends = changes.iter().skip(1).map(|(at_s, _)| *at_s);
        let stretches = changes.iter().zip(ends.chain([f64::INFINITY]));
        let of = |(&(begin_s, carries), end_s): (&(f64, f64), f64)| {
            carries * (end_s.min(to_s) - begin_s.max(from_s)).max(0.0)
        };
        stretches.map(of).sum::<f64>() / (to_s - from_s)
    }

    /// What has to be said if samples are fewer than asked for.
    pub fn doubt(&self, end_s: f64) -> Option<Finding> {
        let stride = (self.interval_s / self.asked_interval_s).round() as u64;
        (stride > 1).then(|| thinned(end_s, self.asked_interval_s, stride))
    }
}
