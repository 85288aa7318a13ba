//! Open loops: when the next arrival is due, and what it is to the strand in which it arrives.
//!
//! Time is stretched so that the rate is 1 in it (the integral of the rate is the clock): gaps are added there, and a place in it is
//! turned back into a time of the run. Exact for a rate that is a line between its points; exponential gaps give the Poisson process of
//! that rate (Çinlar, *Introduction to Stochastic Processes*, 1975, section 4.7).

use super::program::Op;
use super::strand::{Strand, StrandId};
use super::streams::{Drawn, MAX_SECONDS};
use super::{Flow, Interpreter, MAX_IDLE_ROUNDS, TrialRef};
use crate::{Draw, DrawStream, Error, Name, OrDraw, Seconds, TransferStep};

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
    /// Where its gaps are drawn from: nobody else does so while it lives.
    lent: Option<Lent>,
}

/// A stream of the actor, on loan.
#[derive(Debug)]
struct Lent {
    name: Name,
    stream: DrawStream,
    draw: Draw,
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
            lent: None,
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

/// A transfer that has arrived and is told in brief: it is to begin now, and answered by [`Interpreter::depart`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Where.
    pub of: Arrived,
    /// When it should begin.
    pub due: Seconds,
}

/// The place of an open loop in which something has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    strand: StrandId,
    actor: usize,
    at: usize,
    number: u32,
}

impl Arrived {
    /// Number of the transfer among those of the host that are told in brief, from 0: the same for all that arrive there.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.number
    }
}

/// What is told in brief.
impl Interpreter {
    /// Tell in brief what arrives, where a step `arrivals` yields one and the same transfer and `alike` says that one is as good as another:
    /// by [`poll_arrival`](Self::poll_arrival), without a task and a destination of its own each. For a driver to which names of files mean
    /// nothing; what arrives when is the same.
    #[must_use]
    pub fn brief(mut self, alike: impl Fn(&TransferStep) -> bool) -> Self {
        let mut numbers = 0_u32..;
        for actor in &mut self.actors {
            actor.program.abbreviate(&alike, &mut numbers);
        }
        self
    }

    /// The next transfer that is told in brief, if any; after all outputs.
    #[must_use]
    pub fn poll_arrival(&mut self) -> Option<Arrival> {
        self.arrived.pop_front()
    }

    /// What arrives there: the transfer, the trial it is part of, and the name of the actor.
    #[must_use]
    pub fn arriving(&self, of: Arrived) -> Option<(&TransferStep, Option<&TrialRef>, &Name)> {
        let actor = self.actors.get(of.actor)?;
        match actor.program.ops.get(of.at)? {
            Op::Transfer(step) => Some((step, actor.trial.as_ref(), &actor.program.actor)),
            _ => None,
        }
    }

    /// A transfer that was told in brief has ended.
    pub fn depart(&mut self, now: Seconds, of: Arrived) {
        if self.failed {
            return;
        }
        let parent = &mut self.strands[of.strand];
        parent.work += 1;
        parent.children = parent
            .children
            .checked_sub(1)
            .expect("what departs has arrived, and departs once");
        if parent.children == 0 && std::mem::take(&mut parent.joins) {
            self.ready.push_back(of.strand);
            self.run_ready(now);
        }
    }
}

impl Interpreter {
    /// Let arrive what is due, and sleep until the next one; behind the last, wait for all to end.
    pub(super) fn arrivals(
        &mut self,
        id: StrandId,
        rates: &Rates,
        brief: Option<u32>,
        next: usize,
        now: Seconds,
    ) -> Result<Flow, Error> {
        let mut arrivals = match self.strands[id].arrivals.take() {
            Some(arrivals) => {
                self.arrive(id, brief, Seconds::new(arrivals.due), now);
                arrivals
            }
            None => Box::new(Arrivals::new()),
        };
        loop {
            let begun = arrivals.due > f64::NEG_INFINITY;
            let gap = if begun {
                self.gap(id, &mut arrivals, &rates.gap)
            } else {
                self.draw(id, &rates.first)
            };
            let Some(due) = arrivals.advance(gap, rates) else {
                self.strands[id].arrivals = Some(arrivals);
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
            self.arrive(id, brief, due, now);
        }
    }

    /// The next gap.
    fn gap(&mut self, id: StrandId, arrivals: &mut Arrivals, gap: &OrDraw<f64>) -> f64 {
        let name = match gap {
            OrDraw::Fixed(gap) => return *gap,
            OrDraw::Draw(name) => &name.draw,
        };
        let lent = arrivals.lent.get_or_insert_with(|| {
            let strand = &self.strands[id];
            Lent {
                name: name.clone(),
                stream: self.actors[strand.actor].streams.lend(&strand.path, name),
                draw: self.draws[name].clone(),
            }
        });
        let drawn = lent.draw.value(lent.stream.next_bits());
        f64::from_scalar(&drawn).expect("compiling admits a draw only where all of its values fit")
    }

    /// Nothing arrives any more: go on once all that has arrived is at its end.
    pub(super) fn end_arrivals(&mut self, id: StrandId, next: usize) -> Flow {
        let strand = &mut self.strands[id];
        if let Some(lent) = strand.arrivals.take().and_then(|it| it.lent) {
            let streams = &mut self.actors[strand.actor].streams;
            streams.take_back(&strand.path, &lent.name, lent.stream);
        }
        // An `at` before it was about none of them.
        strand.intended = None;
        if strand.children == 0 {
            return Flow::Jump(next);
        }
        strand.at = next;
        strand.joins = true;
        Flow::Wait
    }

    fn arrive(&mut self, id: StrandId, brief: Option<u32>, due: Seconds, now: Seconds) {
        let actor = self.strands[id].actor;
        if let Some(number) = brief {
            let parent = &mut self.strands[id];
            parent.children += 1;
            let of = Arrived {
                strand: id,
                actor,
                at: parent.at + 1,
                number,
            };
            self.arrived.push_back(Arrival { of, due });
            return;
        }
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
