//! Sessions that are left behind. One that lost packets early, or waits for a retransmission, has hundreds of files asked for ahead when all
//! others are done. It passes them on and leaves, without waiting for what the server still sends.
//!
//! A file is with one session at a time, here too: it has one temporary file, comes under its name once, and what is interrupted meanwhile
//! goes on as ever. Where servers are slow, and not the way to one session, nobody gains: so no file is passed on twice.

use std::sync::atomic::Ordering;

use super::Session;
use crate::decision::Decision;
use crate::ftp::field::Left;
use crate::ftp::work::{Item, Job};

impl Session<'_> {
    /// Tells how it does, and whether it is left behind.
    pub(super) fn is_left_behind(&mut self) -> bool {
        let (now, held) = (self.now(), self.held());
        let standing = self.progress.stand(now, held);
        let idle = self.shared.field.tell(self.progress.key, standing);
        self.progress.pace = self.shared.field.pace(self.progress.key);
        let Some(idle) = idle.filter(|_| self.may_pass_on()) else {
            self.progress.look_away();
            return false;
        };
        let round_trip = self.shared.round_trip.get().copied().unwrap_or_default();
        let Some(rate) = self.progress.last_rate(now, round_trip) else {
            return false;
        };
        let came = |item| self.progress.came_of(item).min(item.bytes());
        let left = Left {
            items: self.items.len(),
            bytes: self.items.values().map(Item::bytes).sum(),
            came: self.items.values().map(came).sum(),
            rate,
        };
        let compared = left.compare(idle, round_trip);
        if let Some(compared) = compared {
            self.tell_behind(left.items, compared);
        }
        compared.is_some()
    }

    fn may_pass_on(&self) -> bool {
        let fresh = |item: &Item| !item.passed && !item.job.is_upload();
        !self.shared.order.fixed
            && !self.items.is_empty()
            && self.shared.queue.is_spent()
            && self.items.values().all(fresh)
    }

    fn tell_behind(&self, items: usize, (own_s, others_s): (f64, f64)) {
        let own = match own_s {
            own_s if own_s.is_finite() => format!("would take {own_s:.1} s for"),
            _ => "gets no byte of".into(),
        };
        self.shared.report.decision(&Decision {
            what: "passed_on",
            value: items as u64,
            reason: format!(
                "a session is left behind: it {own} the files that it has left, and sessions that have nothing to do take {others_s:.1} s: it leaves them to these"
            ),
        });
    }

    /// Gives what it has to others, and leaves. What came of it does not count.
    pub(super) fn pass_on(&mut self) {
        let mut whole = std::mem::take(&mut self.verifying);
        whole.append(&mut self.looking);
        // What came of one that goes on where it is stays.
        let rests = |item: &&Item| matches!(item.job, Job::Rest(_));
        let stays = self.items.values().filter(rests);
        let stays = stays.map(|item| self.progress.came_of(item)).sum::<u64>();
        let came = self.progress.came_of_all() - stays;
        let came = came + whole.values().map(Item::bytes).sum::<u64>();
        let moved_bytes = &self.shared.totals.moved_bytes;
        moved_bytes.fetch_sub(came, Ordering::Relaxed);
        let under_way = std::mem::take(&mut self.items).into_values();
        let items: Vec<Item> = under_way.chain(whole.into_values()).collect();
        for item in &items {
            self.writing.discard(item.number);
        }
        self.shared.queue.pass_on(items);
    }
}
