//! A position of execution in a program.

use std::ops::{Index, IndexMut};

use super::arrivals::Arrivals;
use super::barrier::{BarrierId, BarrierSlot};
use crate::{Name, RepeatLimit, Seconds};

/// Identifier of a live fiber; it is reused after the end of the fiber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FiberId(usize);

#[derive(Debug)]
pub(super) struct Fiber {
    pub actor: usize,
    /// Position of the next step in the program of the actor.
    pub at: usize,
    pub parent: Option<FiberId>,
    /// Number of running children.
    pub children: usize,
    /// Whether it continues after the end of the last child.
    pub joins: bool,
    /// Position in the arrivals.
    pub arrivals: Option<Box<Arrivals>>,
    /// Whether the fiber is an arrival.
    pub arrived: bool,
    /// Barrier of its first transfer.
    pub barrier: Option<BarrierSlot>,
    /// Path: `/` and the number of the child for each surrounding `parallel`, `+` and the number of
    /// the arrival for each surrounding `arrivals`.
    pub path: Name,
    /// `.` and the number of the arrival for each surrounding `arrivals`.
    pub suffix: Name,
    /// Intended start of the next transfer.
    pub intended: Option<Seconds>,
    /// Surrounding `repeat`s, the outermost first.
    pub rounds: Vec<Round>,
    /// Number of times that time has passed or a task has run.
    pub work: u64,
    /// Number of returns to the driver.
    pub suspensions: u64,
    /// Time of the latest end of a round of any `repeat`, and the value of `suspensions` at this
    /// time.
    round_ended: (Seconds, u64),
    idle_rounds: u64,
}

/// A `repeat` that contains a fiber.
#[derive(Debug)]
pub(super) struct Round {
    pub limit: RepeatLimit,
    /// Number of complete rounds.
    pub done: u64,
    /// Start of this round, and the value of `work` at this time.
    pub started: Seconds,
    pub work: u64,
    /// Number of consecutive rounds without work or without time.
    pub idle: u64,
}

impl Round {
    pub fn can_start(&self, now: Seconds) -> bool {
        match self.limit {
            RepeatLimit::Count(count) => self.done < count,
            RepeatLimit::Until(time) => now < time,
            RepeatLimit::For(duration) => duration > Seconds::ZERO,
        }
    }
}

impl Fiber {
    pub fn of_actor(actor: usize, now: Seconds) -> Self {
        Self {
            actor,
            at: 0,
            parent: None,
            children: 0,
            joins: false,
            arrivals: None,
            arrived: false,
            barrier: None,
            path: "".into(),
            suffix: "".into(),
            intended: None,
            rounds: Vec::new(),
            work: 0,
            suspensions: 0,
            round_ended: (now, 0),
            idle_rounds: 0,
        }
    }

    /// Return a child of this fiber, which has the identifier `id`. An `at` before the `parallel`
    /// applies to the transfers in it.
    pub fn child(
        &self,
        id: FiberId,
        child: usize,
        at: usize,
        barrier: BarrierId,
        now: Seconds,
    ) -> Self {
        Self {
            at,
            parent: Some(id),
            barrier: Some(BarrierSlot { barrier, child }),
            path: format!("{}/{child}", self.path).into(),
            suffix: self.suffix.clone(),
            intended: self.intended,
            ..Self::of_actor(self.actor, now)
        }
    }

    /// Return a fiber for arrival number `id` with the path `number`.
    pub fn arrival(&self, id: FiberId, number: u64, at: usize, due: Seconds, now: Seconds) -> Self {
        Self {
            at,
            parent: Some(id),
            arrived: true,
            path: format!("{}+{number}", self.path).into(),
            suffix: format!("{}.{number}", self.suffix).into(),
            intended: Some(due),
            ..Self::of_actor(self.actor, now)
        }
    }

    /// Count a round. Return the number of consecutive idle rounds if it exceeds `limit`.
    pub fn end_round(&mut self, now: Seconds, limit: u64) -> Option<u64> {
        // In any loop, count rounds without a return to the driver, because they would block it.
        let (round_ended, suspensions) = self.round_ended;
        let idle = self.suspensions == suspensions && now <= round_ended;
        self.idle_rounds = if idle { self.idle_rounds + 1 } else { 0 };
        self.round_ended = (now, self.suspensions);
        let work = self.work;
        let round = self.rounds.last_mut()?;
        round.done += 1;
        if let RepeatLimit::Until(_) = round.limit {
            // In loops with a time limit, count rounds without time (in virtual time) and rounds
            // without tasks (a missing tool in real time, thousands of times per second).
            let idle = work == round.work || now <= round.started;
            round.idle = if idle { round.idle + 1 } else { 0 };
        }
        (round.work, round.started) = (work, now);
        let idle_rounds = self.idle_rounds.max(round.idle);
        (idle_rounds > limit).then_some(idle_rounds)
    }
}

/// All live fibers.
#[derive(Debug, Default)]
pub(super) struct Fibers {
    fibers: Vec<Option<Fiber>>,
    free: Vec<FiberId>,
}

impl Fibers {
    pub fn insert(&mut self, fiber: Fiber) -> FiberId {
        if let Some(id) = self.free.pop() {
            self.fibers[id.0] = Some(fiber);
            return id;
        }
        self.fibers.push(Some(fiber));
        FiberId(self.fibers.len() - 1)
    }

    pub fn remove(&mut self, id: FiberId) -> Fiber {
        self.free.push(id);
        self.fibers[id.0].take().expect(ALIVE)
    }

    /// Maximum number of fibers that existed at the same time.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.fibers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.free.len() == self.fibers.len()
    }
}

/// A waiting fiber is in exactly one list, and leaves it before it can end.
const ALIVE: &str = "only live fibers have references";

impl Index<FiberId> for Fibers {
    type Output = Fiber;

    fn index(&self, id: FiberId) -> &Fiber {
        self.fibers[id.0].as_ref().expect(ALIVE)
    }
}

impl IndexMut<FiberId> for Fibers {
    fn index_mut(&mut self, id: FiberId) -> &mut Fiber {
        self.fibers[id.0].as_mut().expect(ALIVE)
    }
}
