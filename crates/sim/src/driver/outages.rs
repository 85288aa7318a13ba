//! Outages as who moves bytes sees them: what stands still, when it goes on, and when a tool has had enough.
//!
//! A walk whose way is cut is *held*: its flow ends, with what has passed, and a new one begins with the rest once a packet that is sent again
//! gets through. It breaks if TCP or its tool gives up before.

use std::sync::Arc;

use super::Simulation;
use super::agenda::Event;
use super::transfers::Phase;
use super::walk::{Owner, Walk};
use crate::cost::{connects_after_s, gives_up_after_s, resumes_after_s, stops_connecting_after_s};
use crate::world::{Error, LinkNumber, Passage};

/// What a held walk spends its time on.
const OUTAGE: &str = "outage";

/// A walk that stands still.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hold {
    /// Tells it from others of the run.
    pub number: u64,
    pub since_s: f64,
    /// What for, as its time is called.
    pub why: &'static str,
    /// Bytes of the present stage that have not passed; none where the stage has not begun.
    pub left: Option<f64>,
}

impl Simulation {
    /// A link becomes different, as planned.
    pub(super) fn change(&mut self, number: usize) -> Result<(), Error> {
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
            self.mended(link);
        }
        Ok(())
    }

    /// A link is down: what moves over it stands still.
    fn cut(&mut self, link: LinkNumber) -> Result<(), Error> {
        let moves = |walk: &Walk| walk.is_moving() && walk.passage.links.contains(&link);
        for owner in self.walking(moves) {
            let left = self.settle_stage(owner, true)?;
            self.hold(owner, OUTAGE, Some(left));
            self.wait_in_vain(owner);
        }
        Ok(())
    }

    /// A link is up again: who was held by it goes on with the next packet that is sent again.
    fn mended(&mut self, link: LinkNumber) {
        let waits = |walk: &Walk| walk.hold.is_some() && walk.passage.links.contains(&link);
        for owner in self.walking(waits) {
            let Some((hold, passage, connected)) = self.held(owner) else {
                continue;
            };
            if hold.why != OUTAGE || self.is_cut(&passage) {
                continue;
            }
            let outage_s = self.now - hold.since_s;
            let after_s = if connected {
                resumes_after_s(outage_s, passage.path.rtt_s)
            } else {
                connects_after_s(outage_s)
            };
            // Who has given up is told so by an event of its own.
            if let Some(after_s) = after_s {
                let at_s = (hold.since_s + after_s).max(self.now);
                self.agenda.put(at_s, Event::Resume(owner, hold.number));
            }
        }
    }

    /// Whether nothing gets from one end of a passage to the other.
    fn is_cut(&self, passage: &Passage) -> bool {
        passage
            .links
            .iter()
            .any(|link| !self.world.links[*link].is_up())
    }

    /// A stage that needs the network does not begin while that is cut; whether it is.
    pub(super) fn stand_still_if_cut(&mut self, owner: Owner) -> bool {
        let passage = self.walk(owner).map(|walk| walk.passage.clone());
        let cut = passage.is_some_and(|passage| self.is_cut(&passage));
        if cut {
            self.hold(owner, OUTAGE, None);
            self.wait_in_vain(owner);
        }
        cut
    }

    /// A walk does nothing until it is told to go on by the number of its hold.
    pub(super) fn hold(&mut self, owner: Owner, why: &'static str, left: Option<f64>) -> u64 {
        self.holds += 1;
        let (number, since_s) = (self.holds, self.now);
        if let Some(walk) = self.walk(owner) {
            walk.hold = Some(Hold {
                number,
                since_s,
                why,
                left,
            });
        }
        number
    }

    /// Puts down when TCP or the tool will give up.
    fn wait_in_vain(&mut self, owner: Owner) {
        let Some((hold, passage, connected)) = self.held(owner) else {
            return;
        };
        let tcp_s = if connected {
            gives_up_after_s(passage.path.rtt_s)
        } else {
            stops_connecting_after_s()
        };
        let tool_s = self.walk(owner).and_then(|walk| walk.stages.patience_s);
        let vain_s = tool_s.map_or(tcp_s, |tool_s| tool_s.min(tcp_s));
        self.agenda
            .put(self.now + vain_s, Event::GiveUp(owner, hold.number));
    }

    /// The hold of this number is over: the walk goes on where it stood.
    pub(super) fn resume(&mut self, owner: Owner, number: u64) -> Result<(), Error> {
        let Some((hold, passage, _)) = self.held(owner).filter(|it| it.0.number == number) else {
            return Ok(()); // it has ended, or was held again
        };
        if hold.why == OUTAGE && self.is_cut(&passage) {
            return Ok(()); // cut again before the packet was sent; the next end of the outage counts
        }
        self.settle_stage(owner, true)?;
        match hold.left {
            Some(left) => self.move_rest(owner, left),
            None => self.go_on(owner),
        }
    }

    /// TCP or the tool gives up, if the walk is still held.
    pub(super) fn give_up(&mut self, owner: Owner, number: u64) -> Result<(), Error> {
        let Some((hold, ..)) = self.held(owner).filter(|it| it.0.number == number) else {
            return Ok(());
        };
        let waited_s = self.now - hold.since_s;
        self.break_off(owner)?;
        match owner {
            Owner::Transfer(id) => self.broke(id, waited_s),
            Owner::Fetch(id, client) => {
                self.fetch_broke(id, client);
                Ok(())
            }
        }
    }

    fn held(&mut self, owner: Owner) -> Option<(Hold, Arc<Passage>, bool)> {
        let walk = self.walk(owner)?;
        Some((walk.hold?, walk.passage.clone(), walk.is_connected()))
    }

    /// Who walks and is such, in order.
    fn walking(&self, such: impl Fn(&Walk) -> bool) -> Vec<Owner> {
        let mut owners = Vec::new();
        for (&id, active) in &self.active {
            match &active.phase {
                Phase::Walking(walk) if such(walk) => owners.push(Owner::Transfer(id)),
                Phase::Load(load) => {
                    let fetching = load.walks().filter(|(_, walk)| such(walk));
                    owners.extend(fetching.map(|(client, _)| Owner::Fetch(id, client)));
                }
                _ => {}
            }
        }
        owners
    }
}
