//! Open loops: times of arrivals, and their relation to fibers.
//!
//! Gaps are added in a transformed time with rate 1, the integral of the rate. Each sum is then
//! converted back to a time of the run. This is exact for a rate with linear interpolation.
//! Exponential gaps give the Poisson process of this rate (Çinlar, *Introduction to Stochastic
//! Processes*, 1975, section 4.7).

use super::fiber::{Fiber, FiberId};
use super::program::Op;
use super::streams::{Drawn, MAX_SECONDS};
use super::{Flow, Interpreter, MAX_IDLE_ROUNDS, TrialRef};
use crate::{Draw, DrawStream, Error, Name, OrDraw, Seconds, TransferStep};

/// Maximum number of arrivals of a rate, far above any use.
const MAX_ARRIVALS: f64 = 1e12;

/// Rate of arrivals over time.
#[derive(Debug, Clone)]
pub(super) struct Rates {
    /// Times and rates.
    points: Vec<(f64, f64)>,
    gap: OrDraw<f64>,
    first: OrDraw<f64>,
}

/// Position in an open loop.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Index of the interval between two points that contains the next arrival.
    interval: usize,
    /// Integral of the rate from the start of the interval to the next arrival.
    offset: f64,
    /// Number of consecutive arrivals at the same time.
    idle: u64,
    due: f64,
    /// Stream of its gaps, which has no other user at the same time.
    lent: Option<Lent>,
}

/// A lent stream of the actor.
#[derive(Debug)]
struct Lent {
    name: Name,
    stream: DrawStream,
    draw: Draw,
}

impl Rates {
    /// The expected and the found value if the points are invalid.
    pub fn new(
        points: Vec<(Seconds, f64)>,
        gap: OrDraw<f64>,
        first: Option<OrDraw<f64>>,
    ) -> Result<Self, (&'static str, String)> {
        if let OrDraw::Fixed(gap) = gap
            && !(gap > 0.0 && gap.is_finite())
        {
            return Err(("a gap above 0", gap.to_string()));
        }
        let first = first.unwrap_or_else(|| gap.clone());
        if let OrDraw::Fixed(first) = first
            && !(first >= 0.0 && first.is_finite())
        {
            return Err(("a first gap of at least 0", first.to_string()));
        }
        let points: Vec<_> = points
            .iter()
            .map(|(time, rate)| (time.get(), *rate))
            .collect();
        if points.len() < 2 {
            return Err((
                "two points of `rate_per_s` or more",
                points.len().to_string(),
            ));
        }
        let fits = |&(time, rate): &(f64, f64)| {
            (0.0..=MAX_SECONDS).contains(&time) && (0.0..=MAX_ARRIVALS).contains(&rate)
        };
        if let Some((time, rate)) = points.iter().find(|point| !fits(point)) {
            let expected = "times from 0 to 1e10 and rates from 0 to 1e12";
            return Err((expected, format!("{rate} at {time}")));
        }
        if let Some(pair) = points.windows(2).find(|pair| pair[0].0 > pair[1].0) {
            return Err((
                "times that rise",
                format!("{} after {}", pair[1].0, pair[0].0),
            ));
        }
        let rates = Self { points, gap, first };
        let all: f64 = (0..rates.points.len() - 1).map(|it| rates.area(it)).sum();
        if all > MAX_ARRIVALS {
            return Err(("at most 1e12 arrivals in all", all.to_string()));
        }
        Ok(rates)
    }

    /// Return the integral of the rate between two points.
    fn area(&self, interval: usize) -> f64 {
        let [(from, low), (to, high)] = [self.points[interval], self.points[interval + 1]];
        (to - from) * (low + high) / 2.0
    }

    /// Return the time when the integral of the rate since the start of the interval reaches
    /// `offset`.
    fn time(&self, interval: usize, offset: f64) -> f64 {
        let [(from, low), (to, high)] = [self.points[interval], self.points[interval + 1]];
        let slope = (high - low) / (to - from);
        // Solves low·x + slope·x²/2 = offset, without cancellation for small slopes.
        let root = (low * low + 2.0 * slope * offset).max(0.0).sqrt();
        let after = if offset > 0.0 {
            2.0 * offset / (low + root)
        } else {
            0.0
        };
        (from + after).min(to)
    }
}

impl Arrivals {
    fn new() -> Self {
        Self {
            interval: 0,
            offset: 0.0,
            idle: 0,
            due: f64::NEG_INFINITY,
            lent: None,
        }
    }

    /// Advance to the next arrival and return its time; none after the last.
    fn advance(&mut self, gap: f64, rates: &Rates) -> Option<f64> {
        self.offset += gap;
        while self.interval + 1 < rates.points.len() {
            let area = rates.area(self.interval);
            if self.offset < area {
                let due = rates.time(self.interval, self.offset);
                self.idle = if due > self.due { 0 } else { self.idle + 1 };
                // Rounding at the ends of intervals must not decrease the time.
                self.due = due.max(self.due);
                return Some(self.due);
            }
            self.offset -= area;
            self.interval += 1;
        }
        None
    }
}

/// A transfer that arrives in compact form: start it now, and call [`Interpreter::depart`] at its
/// end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Position in the open loop.
    pub of: Arrived,
    /// Intended start.
    pub due: Seconds,
}

/// Position of an arrived transfer in an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    fiber: FiberId,
    actor: usize,
    at: usize,
    number: u32,
}

impl Arrived {
    /// Return the number of the transfer among the compact transfers of the host, from 0. It is
    /// equal for all arrivals at this position.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.number
    }
}

/// Compact form.
impl Interpreter {
    /// Report arrivals in compact form if a step `arrivals` always yields the same transfer and
    /// `alike` accepts that its transfers are interchangeable. [`poll_arrival`](Self::poll_arrival)
    /// then returns them, without a separate task and destination for each. This is for drivers
    /// that ignore names of files; the times of arrivals are the same.
    #[must_use]
    pub fn brief(mut self, alike: impl Fn(&TransferStep) -> bool) -> Self {
        let mut numbers = 0_u32..;
        for actor in &mut self.actors {
            actor.program.abbreviate(&alike, &mut numbers);
        }
        self
    }

    /// Return the next compact arrival, if any; call it after all outputs.
    #[must_use]
    pub fn poll_arrival(&mut self) -> Option<Arrival> {
        self.arrived.pop_front()
    }

    /// Return the transfer at this position, its trial, and the name of the actor.
    #[must_use]
    pub fn arriving(&self, of: Arrived) -> Option<(&TransferStep, Option<&TrialRef>, &Name)> {
        let actor = self.actors.get(of.actor)?;
        match actor.program.ops.get(of.at)? {
            Op::Transfer(step) => {
                let trial = actor.trial.as_ref().map(|compiled| &compiled.trial);
                Some((step, trial, &actor.program.actor))
            }
            _ => None,
        }
    }

    /// Report the end of a compact transfer.
    pub fn depart(&mut self, now: Seconds, of: Arrived) {
        if self.failed {
            return;
        }
        let parent = &mut self.fibers[of.fiber];
        parent.work += 1;
        parent.children = parent
            .children
            .checked_sub(1)
            .expect("a transfer departs once, after it has arrived");
        if parent.children == 0 && std::mem::take(&mut parent.joins) {
            self.ready.push_back(of.fiber);
            self.run_ready(now);
        }
    }
}

impl Interpreter {
    /// Start due arrivals, and sleep until the next one; after the last, wait for all to end.
    pub(super) fn arrivals(
        &mut self,
        id: FiberId,
        rates: &Rates,
        brief: Option<u32>,
        next: usize,
        now: Seconds,
    ) -> Result<Flow, Error> {
        let mut arrivals = match self.fibers[id].arrivals.take() {
            Some(arrivals) => {
                self.arrive(id, brief, Seconds::new(arrivals.due), now);
                arrivals
            }
            None => Box::new(Arrivals::new()),
        };
        loop {
            let started = arrivals.due > f64::NEG_INFINITY;
            let gap = if started {
                self.gap(id, &mut arrivals, &rates.gap)
            } else {
                self.draw(id, &rates.first)
            };
            let Some(due) = arrivals.advance(gap, rates) else {
                self.fibers[id].arrivals = Some(arrivals);
                return Ok(self.end_arrivals(id, next));
            };
            if arrivals.idle > MAX_IDLE_ROUNDS {
                let actor = self.actor_of(id).program.actor.as_ref().into();
                let rounds = arrivals.idle;
                return Err(Error::EndlessLoop { actor, rounds });
            }
            let due = Seconds::new(due);
            if due > now {
                let at = self.fibers[id].at;
                let flow = self.sleep_until(id, due, now);
                // Return to this step at the next arrival.
                self.fibers[id].at = at;
                self.fibers[id].arrivals = Some(arrivals);
                return Ok(flow);
            }
            self.arrive(id, brief, due, now);
        }
    }

    /// Return the next gap.
    fn gap(&mut self, id: FiberId, arrivals: &mut Arrivals, gap: &OrDraw<f64>) -> f64 {
        let name = match gap {
            OrDraw::Fixed(gap) => return *gap,
            OrDraw::Draw(name) => &name.draw,
        };
        let lent = arrivals.lent.get_or_insert_with(|| {
            let fiber = &self.fibers[id];
            Lent {
                name: name.clone(),
                stream: self.actors[fiber.actor].streams.lend(&fiber.path, name),
                draw: self.draws[name].clone(),
            }
        });
        let drawn = lent.draw.value(lent.stream.next_bits());
        f64::from_scalar(&drawn).expect("compiling admits a draw only where all of its values fit")
    }

    /// After the last arrival: continue when all arrivals have ended.
    pub(super) fn end_arrivals(&mut self, id: FiberId, next: usize) -> Flow {
        let fiber = &mut self.fibers[id];
        if let Some(lent) = fiber.arrivals.take().and_then(|it| it.lent) {
            let streams = &mut self.actors[fiber.actor].streams;
            streams.return_stream(&fiber.path, &lent.name, lent.stream);
        }
        // An `at` before it does not apply to arrivals.
        fiber.intended = None;
        if fiber.children == 0 {
            return Flow::Jump(next);
        }
        fiber.at = next;
        fiber.joins = true;
        Flow::Wait
    }

    fn arrive(&mut self, id: FiberId, brief: Option<u32>, due: Seconds, now: Seconds) {
        let actor = self.fibers[id].actor;
        if let Some(number) = brief {
            let parent = &mut self.fibers[id];
            parent.children += 1;
            let of = Arrived {
                fiber: id,
                actor,
                at: parent.at + 1,
                number,
            };
            self.arrived.push_back(Arrival { of, due });
            return;
        }
        let number = self.actors[actor]
            .streams
            .next_arrival(&self.fibers[id].path);
        let parent = &mut self.fibers[id];
        parent.children += 1;
        let child: Fiber = parent.arrival(id, number, parent.at + 1, due, now);
        let child = self.fibers.insert(child);
        self.ready.push_back(child);
    }
}

#[cfg(test)]
mod tests;
