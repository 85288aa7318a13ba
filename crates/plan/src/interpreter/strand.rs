//! A place in a program where work goes on.

use std::ops::{Index, IndexMut};

use super::arrivals::Arrivals;
use super::barrier::{BarrierId, Place};
use crate::{Name, RepeatLimit, Seconds};

/// Names a strand while it lives; used again afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StrandId(usize);

#[derive(Debug)]
pub(super) struct Strand {
    pub actor: usize,
    /// The next step, in the actor's program.
    pub at: usize,
    pub parent: Option<StrandId>,
    /// Children that still run.
    pub children: usize,
    /// Whether it goes on when the last of them ends.
    pub joins: bool,
    /// How far it is with what arrives.
    pub arrivals: Option<Box<Arrivals>>,
    /// Whether it is an arrival itself.
    pub arrived: bool,
    /// Where its first transfer has to wait for the others.
    pub barrier: Option<Place>,
    /// `/` and the number of the child for each `parallel` around it, `+` and that of the arrival for each `arrivals`.
    pub path: Name,
    /// `.` and the number of the arrival for each `arrivals` around it.
    pub suffix: Name,
    /// When the next transfer should start.
    pub intended: Option<Seconds>,
    /// The `repeat`s around it, outermost first.
    pub rounds: Vec<Round>,
    /// How often time has passed or a task was carried out.
    pub work: u64,
    /// How often it has handed over to the driver.
    pub suspensions: u64,
    /// When a round of any `repeat` ended last, and `suspensions` then.
    round_ended: (Seconds, u64),
    idle_rounds: u64,
}

/// A `repeat` in which a strand is.
#[derive(Debug)]
pub(super) struct Round {
    pub limit: RepeatLimit,
    /// Rounds that are complete.
    pub done: u64,
    /// When this round began, and the strand's `work` then.
    pub began: Seconds,
    pub work: u64,
    /// Rounds one after the other without work or without time.
    pub idle: u64,
}

impl Round {
    pub fn may_begin(&self, now: Seconds) -> bool {
        match self.limit {
            RepeatLimit::Count(count) => self.done < count,
            RepeatLimit::Until(time) => now < time,
            RepeatLimit::For(duration) => duration > Seconds::ZERO,
        }
    }
}

impl Strand {
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

    /// A child of this strand, whose name is `id`. An `at` before the `parallel` is about the transfers in it.
    pub fn child(
        &self,
        id: StrandId,
        child: usize,
        at: usize,
        barrier: BarrierId,
        now: Seconds,
    ) -> Self {
        Self {
            at,
            parent: Some(id),
            barrier: Some(Place { barrier, child }),
            path: format!("{}/{child}", self.path).into(),
            suffix: self.suffix.clone(),
            intended: self.intended,
            ..Self::of_actor(self.actor, now)
        }
    }

    /// What has arrived in this strand, whose name is `id`, as number `number`.
    pub fn arrival(
        &self,
        id: StrandId,
        number: u64,
        at: usize,
        due: Seconds,
        now: Seconds,
    ) -> Self {
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

    /// Count a round. If more than `limit` of them in a row led nowhere, how many.
    pub fn end_round(&mut self, now: Seconds, limit: u64) -> Option<u64> {
        // In any loop: rounds in which the strand never let go, so that the driver would wait for ever.
        let (round_ended, suspensions) = self.round_ended;
        let idle = self.suspensions == suspensions && now <= round_ended;
        self.idle_rounds = if idle { self.idle_rounds + 1 } else { 0 };
        self.round_ended = (now, self.suspensions);
        let work = self.work;
        let round = self.rounds.last_mut()?;
        round.done += 1;
        if let RepeatLimit::Until(_) = round.limit {
            // Ends only with the time: rounds in which none passes (virtual time), or in which nothing can be done (a missing
            // tool in real time, thousands of times a second).
            let idle = work == round.work || now <= round.began;
            round.idle = if idle { round.idle + 1 } else { 0 };
        }
        (round.work, round.began) = (work, now);
        let idle_rounds = self.idle_rounds.max(round.idle);
        (idle_rounds > limit).then_some(idle_rounds)
    }
}

/// All strands that live.
#[derive(Debug, Default)]
pub(super) struct Strands {
    strands: Vec<Option<Strand>>,
    free: Vec<StrandId>,
}

impl Strands {
    pub fn insert(&mut self, strand: Strand) -> StrandId {
        if let Some(id) = self.free.pop() {
            self.strands[id.0] = Some(strand);
            return id;
        }
        self.strands.push(Some(strand));
        StrandId(self.strands.len() - 1)
    }

    pub fn remove(&mut self, id: StrandId) -> Strand {
        self.free.push(id);
        self.strands[id.0].take().expect(ALIVE)
    }

    /// As many as have lived at the same time.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.strands.len()
    }

    pub fn is_empty(&self) -> bool {
        self.free.len() == self.strands.len()
    }
}

/// A strand that waits is in exactly one list, and leaves it before it can end.
const ALIVE: &str = "only living strands are named";

impl Index<StrandId> for Strands {
    type Output = Strand;

    fn index(&self, id: StrandId) -> &Strand {
        self.strands[id.0].as_ref().expect(ALIVE)
    }
}

impl IndexMut<StrandId> for Strands {
    fn index_mut(&mut self, id: StrandId) -> &mut Strand {
        self.strands[id.0].as_mut().expect(ALIVE)
    }
}
