//! Attempts of a transfer that broke: how many its tool makes, after which pauses, and what each begins with.

use venturi_plan::Outcome;

use super::Simulation;
use super::agenda::Event;
use super::transfers::{Id, Phase};
use super::walk::Owner;
use crate::world::Error;

/// What the time between two attempts is called.
const RETRY: &str = "retry";

impl Simulation {
    /// An attempt has ended without success: the next one, or the end of the transfer.
    pub(super) fn broke(&mut self, id: Id, waited_s: f64) -> Result<(), Error> {
        let Some(active) = self.active.get_mut(&id) else {
            return Ok(());
        };
        let Phase::Walking(walk) = &active.phase else {
            return Ok(());
        };
        active.broken += 1;
        let tries = &walk.stages.tries;
        if active.broken > tries.retries || walk.is_timed() {
            let attempts = active.broken;
            active.error = Some(format!(
                "nothing came for {waited_s} s and the attempt was given up, as all {attempts} were"
            ));
            return self.end_transfer(id, Outcome::Failed);
        }
        let pause_s = tries.pause_s(active.broken);
        let kept = if tries.resumes { walk.moved() } else { 0.0 };
        let amounts = active.amounts;
        let mut causes = walk.causes.clone();
        let mut next = self.walk_of(id, amounts, None)?;
        next.causes.append(&mut causes);
        next.kept = kept;
        self.active.get_mut(&id).expect("just seen").phase = Phase::Walking(next);
        let owner = Owner::Transfer(id);
        let number = self.hold(owner, RETRY, None);
        self.agenda
            .put(self.now + pause_s, Event::Resume(owner, number));
        Ok(())
    }
}
