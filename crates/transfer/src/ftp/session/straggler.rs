//! Stragglers: a session that lost packets early, or waits for a retransmission, can have hundreds of files in its pipeline when all
//! others are idle. It returns them and ends, without waiting for the data that the server still sends.
//!
//! A file belongs to one session at a time: it has one temporary file, is renamed once, and can be resumed
//! as usual. If the server is slow, and not the path of one session, this gains nothing: so no file is returned twice.

use std::sync::atomic::Ordering;

use super::FtpSession;
use crate::decision::Decision;
use crate::ftp::session_stats::RemainingWork;
use crate::ftp::work::{FtpDirection, Item};

impl FtpSession<'_> {
    /// Records the progress, and returns true for a straggler.
    pub(super) fn is_straggler(&mut self) -> bool {
        let (now, assigned) = (self.now(), self.assigned());
        let progress = self.progress.advance(now, assigned);
        let idle = self.shared.stats.update(self.progress.key, progress);
        self.progress.pace = self.shared.stats.pace(self.progress.key);
        let Some(idle) = idle.filter(|_| self.may_reassign()) else {
            self.progress.reset_observation();
            return false;
        };
        let round_trip = self.shared.round_trip.get().copied().unwrap_or_default();
        let Some(rate) = self.progress.last_rate(now, round_trip) else {
            return false;
        };
        let received = |item| self.progress.received_of(item).min(item.bytes());
        let remaining = RemainingWork {
            items: self.items.len(),
            bytes: self.items.values().map(Item::bytes).sum(),
            received: self.items.values().map(received).sum(),
            rate,
        };
        let compared = remaining.compare(idle, round_trip);
        if let Some(compared) = compared {
            self.report_straggler(remaining.items, compared);
        }
        compared.is_some()
    }

    fn may_reassign(&self) -> bool {
        let fresh = |item: &Item| !item.passed && !item.job.is_upload();
        !self.shared.options.fixed
            && !self.items.is_empty()
            && self.shared.queue.is_drained()
            && self.items.values().all(fresh)
    }

    fn report_straggler(&self, items: usize, (own_s, others_s): (f64, f64)) {
        let own = match own_s {
            own_s if own_s.is_finite() => format!("needs {own_s:.1} s"),
            _ => "receives no data".into(),
        };
        self.shared.report.decision(&Decision {
            setting: "reassigned",
            value: items as u64,
            reason: format!(
                "straggler: {own} for its remaining files, idle sessions need {others_s:.1} s; files reassigned"
            ),
        });
    }

    /// Returns all items. Their received data does not count.
    pub(super) fn reassign(&mut self) {
        let mut whole = std::mem::take(&mut self.verifying);
        whole.append(&mut self.checking);
        // Data of resumed items stays.
        let rests = |item: &&Item| matches!(item.job, FtpDirection::Rest(_));
        let stays = self.items.values().filter(rests);
        let stays = stays
            .map(|item| self.progress.received_of(item))
            .sum::<u64>();
        let received = self.progress.received_total() - stays;
        let received = received + whole.values().map(Item::bytes).sum::<u64>();
        let moved_bytes = &self.shared.totals.moved_bytes;
        moved_bytes.fetch_sub(received, Ordering::Relaxed);
        let in_progress = std::mem::take(&mut self.items).into_values();
        let items: Vec<Item> = in_progress.chain(whole.into_values()).collect();
        for item in &items {
            self.writing.discard(item.number);
        }
        self.shared.queue.reassign(items);
    }
}
