//! One link: a drop-tail queue before a transmitter, then loss, then propagation.
//!
//! Virtual time: when a run of segments enters, the end of its transmission is known (`free_ps` and
//! the rate), so no stepping is needed. The *queue* has the unsent runs with this time; the
//! *flight* has the runs in flight with their arrival times. [`LinkState::advance`] moves runs from
//! the queue to the flight. It works lazily and in order, at the arrival of the next run, a sample
//! or a change. Loss, jitter and counting happen there, so they do not depend on the times of
//! calls.
//!
//! Serialisation is exact: times of the transmitter are in picoseconds (one byte at 10 Gb/s takes
//! 800), and the remainder is carried over.

use std::collections::VecDeque;

use venturi_plan::{Link, LinkSet};

use super::chunk::Chunk;
use super::jitter::Jitter;
use super::loss::LossProcess;
use super::next_event::NEVER;
use super::random::Random;

pub(crate) const PS_PER_NS: u64 = 1000;
const PS_PER_S: f64 = 1e12;
const NS_PER_S: f64 = 1e9;
const BITS_PER_BYTE: f64 = 8.0;

/// A packet on a longer path is late by up to this fraction of the delay …
const DETOUR_FRACTION: f64 = 0.1;
/// … or by the serialisation time of this number of packets, if this is longer.
const DETOUR_PACKETS: f64 = 16.0;

/// Sent and dropped segments of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LinkCounters {
    /// Packets (segments) that were sent and not lost.
    pub packets: u64,
    /// Their bytes: IP and overhead.
    pub bytes: u64,
    /// Packets that found the queue full.
    pub queue_drops: u64,
    /// Packets that were sent and lost.
    pub loss_drops: u64,
    /// Packets that arrived while the link was down, or were in its queue when it went down.
    pub outage_drops: u64,
    /// Maximum number of bytes in the queue, including the packet in transmission, since the last
    /// reset.
    pub queue_high_bytes: u64,
    /// Transmission time, in ps.
    pub busy_ps: u64,
}

/// Output of a link other than arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Dropped(Chunk),
    /// Passed the capture point: sent and not lost.
    Sent(SentRun),
}

/// A run of segments that has left the transmitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentRun {
    /// The segments.
    pub chunk: Chunk,
    /// Time at which the last bit of the run left.
    pub end_ns: u64,
    /// Time from the end of one segment to the end of the next.
    pub spacing_ns: u64,
}

/// A run of segments in the queue.
#[derive(Debug, Clone, Copy)]
struct Queued {
    chunk: Chunk,
    /// Time at which its last bit leaves.
    end_ps: u64,
    /// Transmission time of the run.
    busy_ps: u64,
    /// Time from the end of its first segment to the end of its last.
    span_ps: u64,
}

/// A run of segments in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    pub(crate) chunk: Chunk,
    /// Arrival time of its last segment.
    pub(crate) due_ns: u64,
    /// Time from the first to the last segment.
    pub(crate) span_ns: u64,
}

#[derive(Debug)]
pub(crate) struct LinkState {
    ps_per_byte: f64,
    delay_ns: u64,
    queue_bytes: u64,
    overhead_bytes: u32,
    up: bool,
    /// Maximum backlog that admits another segment.
    limit_ps: u64,
    /// End of the transmission of all admitted runs.
    free_ps: u64,
    /// Fraction of a picosecond that is missing in `free_ps`.
    rest_ps: f64,
    queue: VecDeque<Queued>,
    flight: VecDeque<InFlight>,
    /// Segments on a longer path; later segments can overtake them.
    strays: Vec<InFlight>,
    latest_due_ns: u64,
    loss: LossProcess,
    jitter: Jitter,
    reorder_probability: f64,
    /// Number of segments before the next one on a longer path.
    reorder_gap: u64,
    reorder: Random,
    counters: LinkCounters,
    pub(crate) captured: bool,
}

impl LinkState {
    pub(crate) fn new(name: &str, link: &Link, seed: u64) -> Self {
        let random = |purpose| Random::new(seed, name, purpose);
        let mut reorder = random("reorder");
        let mut state = Self {
            ps_per_byte: ps_per_byte(link.rate_bit_per_s),
            delay_ns: nanoseconds(link.delay_s.get()),
            queue_bytes: link.queue_bytes.get(),
            overhead_bytes: link.overhead_bytes,
            up: link.up,
            limit_ps: 0,
            free_ps: 0,
            rest_ps: 0.0,
            queue: VecDeque::new(),
            flight: VecDeque::new(),
            strays: Vec::new(),
            latest_due_ns: 0,
            loss: LossProcess::new(link.loss, random("loss")),
            jitter: Jitter::new(link.jitter_s.get() * NS_PER_S, random("jitter")),
            reorder_probability: link.reorder_probability,
            reorder_gap: reorder.failures_before(link.reorder_probability),
            reorder,
            counters: LinkCounters::default(),
            captured: false,
        };
        state.limit_ps = state.serialisation_ps(state.queue_bytes);
        state
    }

    /// Return the time of the next event on this link, in ns, or [`NEVER`].
    #[inline]
    pub(crate) fn due_ns(&self) -> u64 {
        let queued = self.queue.front().map_or(NEVER, |head| {
            let end_ns = head.end_ps.div_ceil(PS_PER_NS);
            // With jitter, the arrival time is unknown before its draw.
            if self.jitter.is_none() {
                end_ns.saturating_add(self.delay_ns).max(self.latest_due_ns)
            } else {
                end_ns
            }
        });
        let in_flight = self.flight.front().map_or(queued, |head| head.due_ns);
        self.strays
            .iter()
            .map(|stray| stray.due_ns)
            .fold(in_flight.min(queued), u64::min)
    }

    /// Add a run of segments to the queue; its last segment enters now, and its first one entered
    /// `span_ns` ago.
    pub(crate) fn enqueue(
        &mut self,
        now_ns: u64,
        span_ns: u64,
        chunk: Chunk,
        fates: &mut impl Extend<Fate>,
    ) {
        if !self.up {
            self.counters.outage_drops += u64::from(chunk.count);
            fates.extend([Fate::Dropped(chunk)]);
            return;
        }
        let arrival = Arrival {
            last_ps: now_ns * PS_PER_NS,
            span_ps: if chunk.count > 1 {
                span_ns * PS_PER_NS
            } else {
                0
            },
            chunk,
        };
        let backlog_ps = self.free_ps.saturating_sub(arrival.first_ps());
        let cost_ps = self.serialisation_ps(chunk.wire_bytes(self.overhead_bytes));
        if backlog_ps.saturating_add(cost_ps) <= self.limit_ps {
            self.admit(&arrival);
        } else {
            self.admit_some(&arrival, fates);
        }
        let backlog_ps = self.free_ps.saturating_sub(arrival.last_ps);
        self.note_backlog(backlog_ps);
    }

    /// Admit segments one by one if the queue may not have capacity for all. A segment is admitted
    /// if the backlog is at most the limit.
    fn admit_some(&mut self, arrival: &Arrival, fates: &mut impl Extend<Fate>) {
        let chunk = arrival.chunk;
        let mut free_ps = self.free_ps;
        let mut run = 0; // first segment of the current run
        let mut admitted = None; // whether the current run is admitted
        for index in 0..=chunk.count {
            let fits = (index < chunk.count).then(|| {
                let at_ps = arrival.at_ps(index);
                let fits = free_ps.saturating_sub(at_ps) <= self.limit_ps;
                if fits {
                    let bytes = chunk.segment_wire_bytes(index, self.overhead_bytes);
                    free_ps = free_ps.max(at_ps) + self.serialisation_ps(bytes);
                }
                fits
            });
            if fits == admitted {
                continue;
            }
            match admitted {
                Some(true) => self.admit(&arrival.part(run, index - run)),
                Some(false) => {
                    self.counters.queue_drops += u64::from(index - run);
                    fates.extend([Fate::Dropped(chunk.part(run, index - run))]);
                }
                None => {}
            }
            (run, admitted) = (index, fits);
        }
    }

    /// Add a run to the queue, in parts that take at most its grain each.
    fn admit(&mut self, arrival: &Arrival) {
        let chunk = arrival.chunk;
        let segment_ps = self.serialisation_ps(chunk.segment_wire_bytes(0, self.overhead_bytes));
        let max = u16::try_from(chunk.grain_ps() / segment_ps.max(1))
            .unwrap_or(u16::MAX)
            .max(1);
        let mut done = 0;
        while done < chunk.count {
            let count = max.min(chunk.count - done);
            self.admit_part(&arrival.part(done, count));
            done += count;
        }
    }

    fn admit_part(&mut self, arrival: &Arrival) {
        let chunk = arrival.chunk;
        let overhead = self.overhead_bytes;
        let bytes = chunk.wire_bytes(overhead);
        let last = chunk.segment_wire_bytes(chunk.count - 1, overhead);
        let first = chunk.segment_wire_bytes(0, overhead);
        // If segments arrive slowly, the first ones are sent while later ones are still arriving.
        let head_start_ps = arrival.span_ps.min(self.serialisation_ps(bytes - last));
        let start_ps = self
            .free_ps
            .max(arrival.last_ps.saturating_sub(head_start_ps));
        if start_ps > self.free_ps {
            self.rest_ps = 0.0; // the transmitter was idle, so its time restarts
        }
        let busy_ps = self.transmission_ps(bytes);
        let end_ps = start_ps.saturating_add(busy_ps);
        let first_end_ps = self.free_ps.max(arrival.first_ps()) + self.serialisation_ps(first);
        self.free_ps = end_ps;
        self.queue.push_back(Queued {
            chunk,
            end_ps,
            busy_ps,
            span_ps: if chunk.count > 1 {
                end_ps.saturating_sub(first_end_ps)
            } else {
                0
            },
        });
    }

    /// Return the whole picoseconds for this number of bytes; the rest is kept for the next call.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "not negative, and far below 2^53"
    )]
    fn transmission_ps(&mut self, bytes: u64) -> u64 {
        let exact = bytes as f64 * self.ps_per_byte + self.rest_ps;
        self.rest_ps = exact.fract();
        exact as u64
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "not negative; a queue that takes longer than 2^64 ps to send is never full"
    )]
    fn serialisation_ps(&self, bytes: u64) -> u64 {
        (bytes as f64 * self.ps_per_byte) as u64
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "not negative, and bytes in a queue are far below 2^53"
    )]
    fn note_backlog(&mut self, backlog_ps: u64) {
        let bytes = (backlog_ps as f64 / self.ps_per_byte) as u64;
        self.counters.queue_high_bytes = self.counters.queue_high_bytes.max(bytes);
    }

    /// Move the runs that the transmitter has finished by now to the flight.
    pub(crate) fn advance(&mut self, now_ns: u64, fates: &mut impl Extend<Fate>) {
        let now_ps = now_ns.saturating_mul(PS_PER_NS);
        while let Some(head) = self.queue.front().copied()
            && head.end_ps <= now_ps
        {
            self.queue.pop_front();
            self.send(&head, fates);
        }
    }

    fn send(&mut self, sent: &Queued, fates: &mut impl Extend<Fate>) {
        self.counters.busy_ps += sent.busy_ps;
        let end_ns = sent.end_ps.div_ceil(PS_PER_NS);
        let due_ns = self.arrival_ns(end_ns);
        let chunk = sent.chunk;
        // Time between two segments, so that a run after a lost segment has the remaining span.
        let spacing_ps = sent.span_ps / u64::from(chunk.count.max(2) - 1);
        let mut done = 0;
        while done < chunk.count {
            let passed = self.loss.pass(chunk.count - done);
            if passed > 0 {
                let span_ps = sent.span_ps - spacing_ps * u64::from(done);
                let run = InFlight {
                    chunk: chunk.part(done, passed),
                    due_ns,
                    span_ns: if passed > 1 || done + passed < chunk.count {
                        span_ps / PS_PER_NS
                    } else {
                        0
                    },
                };
                if self.captured {
                    let behind_ps = spacing_ps * u64::from(chunk.count - done - passed);
                    fates.extend([Fate::Sent(SentRun {
                        chunk: run.chunk,
                        end_ns: (sent.end_ps - behind_ps).div_ceil(PS_PER_NS),
                        spacing_ns: spacing_ps / PS_PER_NS,
                    })]);
                }
                self.launch(run);
                done += passed;
            }
            if done < chunk.count {
                self.counters.loss_drops += 1;
                fates.extend([Fate::Dropped(chunk.part(done, 1))]);
                done += 1;
            }
        }
    }

    /// Return the arrival time of a run whose last bit leaves at `end_ns`. Packets keep their
    /// order, despite jitter or a change of the delay.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a delay in ns is far below 2^53, and negative ones are cut off"
    )]
    fn arrival_ns(&mut self, end_ns: u64) -> u64 {
        let delay_ns = if self.jitter.is_none() {
            self.delay_ns
        } else {
            (self.delay_ns as f64 + self.jitter.at(end_ns)).max(0.0) as u64
        };
        let due_ns = end_ns.saturating_add(delay_ns).max(self.latest_due_ns);
        self.latest_due_ns = due_ns;
        due_ns
    }

    /// Add a run that was not lost to the flight.
    fn launch(&mut self, run: InFlight) {
        self.counters.packets += u64::from(run.chunk.count);
        self.counters.bytes += run.chunk.wire_bytes(self.overhead_bytes);
        if self.reorder_gap >= u64::from(run.chunk.count) {
            self.reorder_gap = self.reorder_gap.saturating_sub(u64::from(run.chunk.count));
            self.flight.push_back(run);
        } else {
            self.launch_astray(run);
        }
    }

    /// Add a run to the flight; some of its segments take a longer path.
    fn launch_astray(&mut self, run: InFlight) {
        let mut done = 0;
        while done < run.chunk.count {
            let left = run.chunk.count - done;
            let straight = u16::try_from(self.reorder_gap).map_or(left, |gap| gap.min(left));
            if straight > 0 {
                let chunk = run.chunk.part(done, straight);
                self.flight.push_back(InFlight { chunk, ..run });
                self.reorder_gap -= u64::from(straight);
                done += straight;
            }
            if done < run.chunk.count {
                let chunk = run.chunk.part(done, 1);
                let due_ns = run.due_ns + self.detour_ns(&chunk);
                self.strays.push(InFlight {
                    chunk,
                    due_ns,
                    span_ns: 0,
                });
                self.reorder_gap = self.reorder.failures_before(self.reorder_probability);
                done += 1;
            }
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "not negative, and far below 2^53"
    )]
    fn detour_ns(&mut self, chunk: &Chunk) -> u64 {
        let packet_ns =
            self.ps_per_byte * chunk.wire_bytes(self.overhead_bytes) as f64 / PS_PER_NS as f64;
        let max_ns = (self.delay_ns as f64 * DETOUR_FRACTION).max(packet_ns * DETOUR_PACKETS);
        (self.reorder.unit() * max_ns) as u64
    }

    /// Return the next run that has arrived by now.
    #[inline]
    pub(crate) fn arrive(&mut self, now_ns: u64) -> Option<InFlight> {
        if !self.strays.is_empty() {
            return self.arrive_with_strays(now_ns);
        }
        self.flight_head(now_ns)
    }

    #[inline]
    fn flight_head(&mut self, now_ns: u64) -> Option<InFlight> {
        if self.flight.front()?.due_ns <= now_ns {
            self.flight.pop_front()
        } else {
            None
        }
    }

    fn arrive_with_strays(&mut self, now_ns: u64) -> Option<InFlight> {
        let (index, stray) = self
            .strays
            .iter()
            .enumerate()
            .min_by_key(|(_, stray)| stray.due_ns)?;
        let head_ns = self.flight.front().map_or(NEVER, |head| head.due_ns);
        if head_ns <= stray.due_ns {
            self.flight_head(now_ns)
        } else if stray.due_ns <= now_ns {
            Some(self.strays.remove(index))
        } else {
            None
        }
    }

    /// Extend `chunk`, which has arrived, by subsequent runs that have arrived, too, and continue
    /// it.
    #[inline]
    pub(crate) fn join_arrived(&mut self, now_ns: u64, chunk: &mut Chunk) {
        while let Some(next) = self.flight.front()
            && next.due_ns <= now_ns
            && chunk.join(&next.chunk)
        {
            self.flight.pop_front();
        }
    }

    /// Change the link now. This does not affect sent packets.
    pub(crate) fn change(&mut self, now_ns: u64, set: &LinkSet, fates: &mut impl Extend<Fate>) {
        self.advance(now_ns, fates);
        if let Some(rate) = set.rate_bit_per_s {
            self.change_rate(now_ns, ps_per_byte(rate));
        }
        if let Some(delay) = set.delay_s {
            self.delay_ns = nanoseconds(delay.get());
        }
        if let Some(jitter) = set.jitter_s {
            self.jitter.change(jitter.get() * NS_PER_S);
        }
        if let Some(queue) = set.queue_bytes {
            self.queue_bytes = queue.get();
        }
        if let Some(loss) = set.loss {
            self.loss.change(loss);
        }
        if let Some(probability) = set.reorder_probability {
            self.reorder_probability = probability;
            self.reorder_gap = self.reorder.failures_before(probability);
        }
        if let Some(up) = set.up {
            self.change_up(now_ns, up, fates);
        }
        self.limit_ps = self.serialisation_ps(self.queue_bytes);
    }

    /// Apply a new rate to unsent bytes, including those of the current packet.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "times within a queue are not negative and far below 2^53"
    )]
    fn change_rate(&mut self, now_ns: u64, ps_per_byte: f64) {
        let now_ps = now_ns * PS_PER_NS;
        let factor = ps_per_byte / self.ps_per_byte;
        let moved = |time_ps: u64| match time_ps.checked_sub(now_ps) {
            Some(left_ps) => now_ps.saturating_add((left_ps as f64 * factor) as u64),
            None => time_ps,
        };
        self.ps_per_byte = ps_per_byte;
        self.free_ps = moved(self.free_ps);
        for old in std::mem::take(&mut self.queue) {
            let start_ps = moved(old.end_ps - old.busy_ps);
            let end_ps = moved(old.end_ps);
            let first_end_ps = moved(old.end_ps - old.span_ps);
            self.requeue(&Queued {
                chunk: old.chunk,
                end_ps,
                busy_ps: end_ps - start_ps,
                span_ps: end_ps - first_end_ps,
            });
        }
    }

    /// Requeue a run whose times have changed, because it may take longer than its grain now.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a fraction of a queueing time"
    )]
    fn requeue(&mut self, run: &Queued) {
        let max = u64::from(run.chunk.count) * run.chunk.grain_ps() / run.busy_ps.max(1);
        let max = u16::try_from(max).unwrap_or(u16::MAX).max(1);
        let start_ps = run.end_ps - run.busy_ps;
        let total = run.chunk.wire_bytes(self.overhead_bytes) as f64;
        let (mut done, mut sent, mut busy_start_ps) = (0, 0, start_ps);
        while done < run.chunk.count {
            let chunk = run.chunk.part(done, max.min(run.chunk.count - done));
            done += chunk.count;
            sent += chunk.wire_bytes(self.overhead_bytes);
            let end_ps = if done == run.chunk.count {
                run.end_ps
            } else {
                start_ps + (run.busy_ps as f64 * (sent as f64 / total)) as u64
            };
            let busy_ps = end_ps - busy_start_ps;
            self.queue.push_back(Queued {
                chunk,
                end_ps,
                busy_ps,
                span_ps: if chunk.count == run.chunk.count {
                    run.span_ps
                } else {
                    busy_ps - busy_ps / u64::from(chunk.count)
                },
            });
            busy_start_ps = end_ps;
        }
    }

    /// Start or end an outage. It drops the queue; packets in flight arrive.
    fn change_up(&mut self, now_ns: u64, up: bool, fates: &mut impl Extend<Fate>) {
        self.up = up;
        if up {
            return;
        }
        let now_ps = now_ns * PS_PER_NS;
        for run in self.queue.drain(..) {
            self.counters.outage_drops += u64::from(run.chunk.count);
            // The packet in transmission kept the transmitter busy until now.
            let start_ps = run.end_ps - run.busy_ps;
            self.counters.busy_ps += now_ps.saturating_sub(start_ps);
            fates.extend([Fate::Dropped(run.chunk)]);
        }
        self.free_ps = self.free_ps.min(now_ps);
    }

    /// Return the counters as of the latest advance of the link.
    pub(crate) fn counters(&self, now_ns: u64) -> LinkCounters {
        let mut counters = self.counters;
        if let Some(head) = self.queue.front() {
            let start_ps = head.end_ps - head.busy_ps;
            counters.busy_ps += (now_ns * PS_PER_NS).saturating_sub(start_ps);
        }
        counters
    }

    /// Reset the high-water mark to the current length of the queue.
    pub(crate) fn restart_high_water(&mut self, now_ns: u64) {
        self.counters.queue_high_bytes = 0;
        self.note_backlog(self.free_ps.saturating_sub(now_ns * PS_PER_NS));
    }

    /// Return the number of segments on the link, in its queue or in flight.
    #[cfg(test)]
    pub(crate) fn undelivered(&self) -> u64 {
        let queued = self.queue.iter().map(|run| run.chunk);
        let in_flight = self.flight.iter().chain(&self.strays).map(|run| run.chunk);
        queued
            .chain(in_flight)
            .map(|chunk| u64::from(chunk.count))
            .sum()
    }
}

/// A run of segments that arrives at a queue.
struct Arrival {
    /// Arrival time of the last segment.
    last_ps: u64,
    /// Time from the first to the last segment.
    span_ps: u64,
    chunk: Chunk,
}

impl Arrival {
    fn first_ps(&self) -> u64 {
        self.last_ps.saturating_sub(self.span_ps)
    }

    /// Return the arrival time of a segment; segments are evenly spaced between the first and the
    /// last.
    fn at_ps(&self, index: u16) -> u64 {
        match self.chunk.count {
            0 | 1 => self.last_ps,
            count => self.first_ps() + self.span_ps * u64::from(index) / u64::from(count - 1),
        }
    }

    fn part(&self, skip: u16, count: u16) -> Self {
        let last_ps = self.at_ps(skip + count - 1);
        Self {
            last_ps,
            span_ps: last_ps - self.at_ps(skip),
            chunk: self.chunk.part(skip, count),
        }
    }
}

fn ps_per_byte(rate_bit_per_s: f64) -> f64 {
    BITS_PER_BYTE * PS_PER_S / rate_bit_per_s
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "delays were checked: not negative and below 2^53 ns"
)]
pub(crate) fn nanoseconds(seconds: f64) -> u64 {
    (seconds * NS_PER_S).round() as u64
}
