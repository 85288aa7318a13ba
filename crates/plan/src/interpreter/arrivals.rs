//! Open loops: when the next arrival is due, and what it is to the strand in which it arrives.
//!
//! Time is stretched so that the rate is 1 in it (the integral of the rate is the clock): gaps are added there, and a place in it is
//! turned back into a time of the run. Exact for a rate that is a line between its points; exponential gaps give the Poisson process of
//! that rate (Çinlar, *Introduction to Stochastic Processes*, 1975, section 4.7).

use super::strand::{Strand, StrandId};
use super::streams::MAX_SECONDS;
use super::{Flow, Interpreter, MAX_IDLE_ROUNDS};
use crate::{Error, OrDraw, Seconds};

/// Most arrivals that a rate may add up to: far beyond any use, and an end.
const MAX_ARRIVALS: f64 = 1e12;

/// When arrivals are due.
#[derive(Debug, Clone)]
pub(super) struct Rates {
    /// Time and rate.
    points: Vec<(f64, f64)>,
    gap: OrDraw<f64>,
    first: OrDraw<f64>,
}

/// How far an open loop is.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// The stretch between two points in which the next one is due.
    stretch: usize,
    /// Arrivals that the rate adds up to from the beginning of the stretch to it.
    within: f64,
    /// Arrivals in a row at one and the same time, and that time.
    idle: u64,
    due: f64,
}

impl Rates {
    /// What is expected and what was found if these cannot be.
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

    /// Arrivals that the rate adds up to between two points.
    fn area(&self, stretch: usize) -> f64 {
        let [(from, low), (to, high)] = [self.points[stretch], self.points[stretch + 1]];
        (to - from) * (low + high) / 2.0
    }

    /// When so many have arrived since the beginning of the stretch.
    fn time(&self, stretch: usize, within: f64) -> f64 {
        let [(from, low), (to, high)] = [self.points[stretch], self.points[stretch + 1]];
        let slope = (high - low) / (to - from);
        // Solves low·x + slope·x²/2 = within, in the form that does not cancel where the slope is small.
        let root = (low * low + 2.0 * slope * within).max(0.0).sqrt();
        let after = if within > 0.0 {
            2.0 * within / (low + root)
        } else {
            0.0
        };
        (from + after).min(to)
    }
}

impl Arrivals {
    fn new() -> Self {
        Self {
            stretch: 0,
            within: 0.0,
            idle: 0,
            due: f64::NEG_INFINITY,
        }
    }

    /// Go on to the next one; none if there is none any more.
    fn advance(&mut self, gap: f64, rates: &Rates) -> Option<f64> {
        self.within += gap;
        while self.stretch + 1 < rates.points.len() {
            let area = rates.area(self.stretch);
            if self.within < area {
                let due = rates.time(self.stretch, self.within);
                self.idle = if due > self.due { 0 } else { self.idle + 1 };
                // Rounding at the ends of stretches must not turn time back.
                self.due = due.max(self.due);
                return Some(self.due);
            }
            self.within -= area;
            self.stretch += 1;
        }
        None
    }
}

impl Interpreter {
    /// Let arrive what is due, and sleep until the next one; behind the last, wait for all to end.
    pub(super) fn arrivals(
        &mut self,
        id: StrandId,
        rates: &Rates,
        next: usize,
        now: Seconds,
    ) -> Result<Flow, Error> {
        let mut arrivals = match self.strands[id].arrivals.take() {
            Some(arrivals) => {
                self.arrive(id, Seconds::new(arrivals.due), now);
                arrivals
            }
            None => Arrivals::new(),
        };
        loop {
            let begun = arrivals.due > f64::NEG_INFINITY;
            let gap = self.draw(id, if begun { &rates.gap } else { &rates.first });
            let Some(due) = arrivals.advance(gap, rates) else {
                return Ok(self.end_arrivals(id, next));
            };
            if arrivals.idle > MAX_IDLE_ROUNDS {
                let actor = self.actor_of(id).program.actor.as_ref().into();
                let rounds = arrivals.idle;
                return Err(Error::EndlessLoop { actor, rounds });
            }
            let due = Seconds::new(due);
            if due > now {
                let at = self.strands[id].at;
                let flow = self.sleep_until(id, due, now);
                // Back to this step when it is time.
                self.strands[id].at = at;
                self.strands[id].arrivals = Some(arrivals);
                return Ok(flow);
            }
            self.arrive(id, due, now);
        }
    }

    /// Nothing arrives any more: go on once all that has arrived is at its end.
    pub(super) fn end_arrivals(&mut self, id: StrandId, next: usize) -> Flow {
        let strand = &mut self.strands[id];
        strand.arrivals = None;
        // An `at` before it was about none of them.
        strand.intended = None;
        if strand.children == 0 {
            return Flow::Jump(next);
        }
        strand.at = next;
        strand.joins = true;
        Flow::Wait
    }

    fn arrive(&mut self, id: StrandId, due: Seconds, now: Seconds) {
        let actor = self.strands[id].actor;
        let number = self.actors[actor]
            .streams
            .next_arrival(&self.strands[id].path);
        let parent = &mut self.strands[id];
        parent.children += 1;
        let child: Strand = parent.arrival(id, number, parent.at + 1, due, now);
        let child = self.strands.insert(child);
        self.ready.push_back(child);
    }
}

#[cfg(test)]
mod tests;
