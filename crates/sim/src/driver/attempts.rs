//! Attempts of a failed transfer: their number, the pauses between them, and their first byte.

use venturi_plan::Outcome;

use super::Simulation;
use super::agenda::AgendaEvent;
use super::stage_runner::Owner;
use super::transfers::{Id, TransferState};
use crate::world::WorldError;

/// Name of the time between two attempts.
const RETRY: &str = "retry";

impl Simulation {
    /// Handle a failed attempt: start the next one, or end the transfer.
    pub(super) fn broke(&mut self, id: Id, waited_s: f64) -> Result<(), WorldError> {
        let Some(active) = self.active.get_mut(&id) else {
            return Ok(());
        };
        let TransferState::Walking(walk) = &active.phase else {
            return Ok(());
        };
        active.broken += 1;
        let retry_rule = &walk.stages.retry_rule;
        if active.broken > retry_rule.retries || walk.is_timed() {
            let attempts = active.broken;
            active.error = Some(format!(
                "no bytes arrived for {waited_s} s; failed attempts: {attempts}"
            ));
            return self.end_transfer(id, Outcome::Failed);
        }
        let pause_s = retry_rule.pause_s(active.broken);
        let retained = if retry_rule.resumes {
            walk.moved()
        } else {
            0.0
        };
        let amounts = active.amounts;
        let mut causes = walk.causes.clone();
        let mut next = self.walk_of(id, amounts, None)?;
        next.causes.append(&mut causes);
        next.retained = retained;
        self.active.get_mut(&id).expect("just seen").phase = TransferState::Walking(next);
        let owner = Owner::Transfer(id);
        let number = self.paused(owner, RETRY, None);
        self.agenda
            .put(self.now + pause_s, AgendaEvent::Resume(owner, number));
        Ok(())
    }
}
