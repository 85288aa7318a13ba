//! Outages during a transfer: pause, continuation, and the timeout of a tool.
//!
//! A transfer whose route is cut is *paused*: its flow ends with the bytes so far, and a new flow
//! starts with the rest once a retransmitted packet gets through. The transfer fails if TCP or its
//! tool aborts before.

use std::sync::Arc;

use super::Simulation;
use super::agenda::AgendaEvent;
use super::stage_runner::{Owner, StageRunner};
use super::transfers::TransferState;
use crate::cost::{connects_after_s, resumes_after_s, stall_timeout_s, stops_connecting_after_s};
use crate::world::{LinkNumber, TransferRoute, WorldError};

/// Name of the cause for the time of a paused transfer.
const OUTAGE: &str = "outage";

/// Paused transfer.
#[derive(Debug, Clone, Copy)]
pub(super) struct PausedTransfer {
    /// Number of the pause, unique in the run.
    pub number: u64,
    pub since_s: f64,
    /// Name of the cause.
    pub why: &'static str,
    /// Remaining bytes of the current stage; none if the stage has not started.
    pub left: Option<f64>,
}

impl Simulation {
    /// Apply a planned change of a link.
    pub(super) fn change(&mut self, number: usize) -> Result<(), WorldError> {
        let header = self.world.header.clone();
        let Some(change) = header
            .network
            .as_ref()
            .and_then(|network| network.changes.get(number))
        else {
            return Ok(());
        };
        let link = self.world.link_named(&change.link)?;
        let was_up = self.world.links[link].is_up();
        let (resource, capacity) = self.world.change(link, &change.set)?;
        let is_up = self.world.links[link].is_up();
        if was_up && !is_up {
            self.links_down += 1;
            self.cut(link)?;
        }
        self.meters.capacity[link] = capacity;
        if let Some(ledger) = &mut self.ledger {
            ledger.changed(self.now, link, capacity);
        }
        let capacity = crate::fluid::Capacity::Constant(capacity);
        let changed = self.fluid.set_capacity(self.now, resource, capacity);
        changed.map_err(|source| self.wrong("a change of a link", source))?;
        if is_up && !was_up {
            self.links_down -= 1;
            self.restored(link);
        }
        Ok(())
    }

    /// Pause the transfers of a link that is down.
    fn cut(&mut self, link: LinkNumber) -> Result<(), WorldError> {
        let moves = |walk: &StageRunner| walk.is_moving() && walk.route.links.contains(&link);
        for owner in self.walking(moves) {
            let left = self.finish_stage(owner, true)?;
            self.paused(owner, OUTAGE, Some(left));
            self.stall(owner);
        }
        Ok(())
    }

    /// Schedule the transfers that a link has paused: they continue with the next retransmitted
    /// packet.
    fn restored(&mut self, link: LinkNumber) {
        let waits = |walk: &StageRunner| walk.paused.is_some() && walk.route.links.contains(&link);
        for owner in self.walking(waits) {
            let Some((paused, route, connected)) = self.paused_transfer(owner) else {
                continue;
            };
            if paused.why != OUTAGE || self.is_cut(&route) {
                continue;
            }
            let outage_s = self.now - paused.since_s;
            let after_s = if connected {
                resumes_after_s(outage_s, route.path.rtt_s)
            } else {
                connects_after_s(outage_s)
            };
            // A separate event aborts a transfer at its timeout.
            if let Some(after_s) = after_s {
                let at_s = (paused.since_s + after_s).max(self.now);
                self.agenda
                    .put(at_s, AgendaEvent::Resume(owner, paused.number));
            }
        }
    }

    /// Return whether no packet gets from one end of a route to the other.
    fn is_cut(&self, route: &TransferRoute) -> bool {
        route
            .links
            .iter()
            .any(|link| !self.world.links[*link].is_up())
    }

    /// Pause a stage that needs the network if its route is cut. Return whether it is.
    pub(super) fn pause_if_cut(&mut self, owner: Owner) -> bool {
        let route = self.walk(owner).map(|walk| walk.route.clone());
        let cut = route.is_some_and(|route| self.is_cut(&route));
        if cut {
            self.paused(owner, OUTAGE, None);
            self.stall(owner);
        }
        cut
    }

    /// Pause a transfer until an event with the number of its pause, which is returned.
    pub(super) fn paused(&mut self, owner: Owner, why: &'static str, left: Option<f64>) -> u64 {
        self.holds += 1;
        let (number, since_s) = (self.holds, self.now);
        if let Some(walk) = self.walk(owner) {
            walk.paused = Some(PausedTransfer {
                number,
                since_s,
                why,
                left,
            });
        }
        number
    }

    /// Schedule the abort by TCP or the tool.
    fn stall(&mut self, owner: Owner) {
        let Some((paused, route, connected)) = self.paused_transfer(owner) else {
            return;
        };
        let tcp_s = if connected {
            stall_timeout_s(route.path.rtt_s)
        } else {
            stops_connecting_after_s()
        };
        let tool_s = self
            .walk(owner)
            .and_then(|walk| walk.stages.stall_timeout_s);
        let vain_s = tool_s.map_or(tcp_s, |tool_s| tool_s.min(tcp_s));
        self.agenda
            .put(self.now + vain_s, AgendaEvent::Abort(owner, paused.number));
    }

    /// Continue a transfer at the end of the pause with this number.
    pub(super) fn resume(&mut self, owner: Owner, number: u64) -> Result<(), WorldError> {
        let Some((paused, route, _)) = self
            .paused_transfer(owner)
            .filter(|it| it.0.number == number)
        else {
            return Ok(()); // it has ended, or was held again
        };
        if paused.why == OUTAGE && self.is_cut(&route) {
            return Ok(()); // cut again before the packet was sent; the next end of the outage counts
        }
        self.finish_stage(owner, true)?;
        match paused.left {
            Some(left) => self.move_rest(owner, left),
            None => self.advance(owner),
        }
    }

    /// Abort the attempt by TCP or the tool, if the transfer is still paused.
    pub(super) fn abort(&mut self, owner: Owner, number: u64) -> Result<(), WorldError> {
        let Some((paused, ..)) = self
            .paused_transfer(owner)
            .filter(|it| it.0.number == number)
        else {
            return Ok(());
        };
        let waited_s = self.now - paused.since_s;
        self.break_off(owner)?;
        match owner {
            Owner::Transfer(id) => self.broke(id, waited_s),
            Owner::Fetch(id, client) => {
                self.fetch_broke(id, client);
                Ok(())
            }
        }
    }

    fn paused_transfer(
        &mut self,
        owner: Owner,
    ) -> Option<(PausedTransfer, Arc<TransferRoute>, bool)> {
        let walk = self.walk(owner)?;
        Some((walk.paused?, walk.route.clone(), walk.is_connected()))
    }

    /// Return the matching transfers, in order.
    fn walking(&self, such: impl Fn(&StageRunner) -> bool) -> Vec<Owner> {
        let mut owners = Vec::new();
        for (&id, active) in &self.active {
            match &active.phase {
                TransferState::Walking(walk) if such(walk) => owners.push(Owner::Transfer(id)),
                TransferState::Load(load) => {
                    let fetching = load.walks().filter(|(_, walk)| such(walk));
                    owners.extend(fetching.map(|(client, _)| Owner::Fetch(id, client)));
                }
                _ => {}
            }
        }
        owners
    }
}
