//! Handling of failures: cause, void transfers and retries.

use std::collections::BTreeSet;

use super::Tag;
use super::active::{AttemptState, TransferAttempt};
use super::channel::ChannelState;
use super::job::{ClientOutput, TransferDirection, TransferFailure, TransferJob};
use super::transfers::{ConnectionOwner, QueuedTransfer, Transfers};
use crate::{ByteRanges, FtpCommand, Mode};

impl Transfers {
    /// Handles an error of data connections: counts an attempt for the oldest running transfer, and
    /// voids all.
    pub fn blame(&mut self, reason: &str) {
        let oldest = self
            .active
            .iter()
            .find(|(_, active)| active.state == AttemptState::Running);
        match oldest.map(|(&key, _)| key) {
            Some(key) => self.failed(key, reason, true),
            None => self.drop_data(ChannelState::Closed, true),
        }
        if self.channel != ChannelState::Closed && self.channel != ChannelState::Draining {
            self.roll_back();
        }
    }

    /// Handles a stall: drops the data connections, so that the server must reply. Counts an
    /// attempt for the oldest transfer. Returns `false` if no data connection can be the cause.
    pub fn abandon_data(&mut self, reason: &str) -> bool {
        if matches!(self.channel, ChannelState::Open(_)) && self.running().next().is_some() {
            self.blame(reason);
            return true;
        }
        // In MODE S the server works on the oldest transfer and has finished those with a reply.
        let mut oldest = true;
        let stuck: Vec<u64> = self
            .active
            .iter()
            .filter(|(_, active)| active.state == AttemptState::Running)
            .filter(|(_, active)| std::mem::take(&mut oldest) || active.final_reply.is_some())
            .map(|(&key, _)| key)
            .filter(|&key| {
                self.owners
                    .values()
                    .any(|&owner| owner == ConnectionOwner::Of(key))
            })
            .collect();
        for &key in &stuck {
            if let Some(active) = self.active.get_mut(&key) {
                active.fault.get_or_insert_with(|| reason.to_owned());
            }
            self.close_link(key);
            self.finalize(key);
        }
        !stuck.is_empty()
    }

    /// Fails a transfer permanently, in any state, because the driver cannot continue.
    pub fn abandon(&mut self, transfer: u64, reason: &str) {
        let waits = |waiting: &QueuedTransfer| waiting.job.transfer() == transfer;
        if let Some(index) = self.queue.iter().position(waits) {
            if let Some(waiting) = self.queue.remove(index) {
                self.fail_permanently(waiting.job, reason, false, ByteRanges::default());
            }
        } else if let Some(key) = self.find_key(transfer) {
            self.abandon_active(key, reason);
        }
    }

    fn abandon_active(&mut self, key: u64, reason: &str) {
        let Some(active) = self.active.get_mut(&key) else {
            return;
        };
        let runs = active.state == AttemptState::Running;
        if active.final_reply.is_some() || !(runs || active.state == AttemptState::Void) {
            return self.failed(key, reason, false);
        }
        // The server waits, or will wait, for bytes that never arrive.
        active.final_failure = Some((reason.to_owned(), false));
        match self.mode {
            Mode::Stream => self.close_link(key),
            Mode::Extended if runs => self.roll_back(),
            Mode::Extended => {}
        }
    }

    /// Handles a failed transfer. If bytes were in flight, all running transfers are void.
    pub fn failed(&mut self, key: u64, reason: &str, again: bool) {
        if self.mode == Mode::Stream {
            self.close_link(key);
        }
        let Some(active) = self.active.get_mut(&key) else {
            return;
        };
        if self.mode == Mode::Stream && self.reports_times {
            active.keep_received();
        }
        let running = active.state == AttemptState::Running;
        let bytes_in_flight = active.started || active.file.is_some();
        let returned =
            active.started && matches!(&active.job, TransferJob::Put(put) if put.resumable);
        let retry = again && active.attempt < self.attempts && !returned;
        if active.final_reply.is_none() && (retry || self.mode == Mode::Extended) {
            // Its reply is pending and must not be matched to the next attempt or another transfer.
            active.state = AttemptState::Void;
            active.counted = true;
            active.final_failure = (!retry).then(|| (reason.to_owned(), again));
        } else if let Some(active) = self.active.remove(&key) {
            if retry {
                let waiting = QueuedTransfer {
                    attempt: active.attempt,
                    job: active.job,
                };
                self.queue.push_front(waiting);
            } else {
                let received = self.received(&active);
                self.fail_permanently(active.job, reason, again, received);
            }
        }
        if self.mode == Mode::Extended && running && bytes_in_flight {
            self.roll_back();
        }
    }

    /// Closes the data connection of a transfer in MODE S.
    fn close_link(&mut self, key: u64) {
        let found = self
            .owners
            .iter()
            .find(|(_, owner)| **owner == ConnectionOwner::Of(key));
        if let Some(connection) = found.map(|(&connection, _)| connection) {
            self.owners.remove(&connection);
            self.outputs.push(ClientOutput::CloseData { connection });
        }
    }

    fn fail_permanently(
        &mut self,
        job: TransferJob,
        reason: &str,
        again: bool,
        received: ByteRanges,
    ) {
        let transfer = job.transfer();
        // Keep files from before this session and files that the next attempt resumes.
        if let TransferJob::Put(put) = job
            && put.present.is_empty()
            && !(again && put.resumable)
            && let Some(temporary) = put.temporary
        {
            self.commands
                .push(vec![(Tag::Ignored, FtpCommand::Dele(temporary))]);
        }
        let failure = TransferFailure {
            reason: reason.to_owned(),
            again,
            changed: false,
            received,
        };
        self.outputs
            .push(ClientOutput::Failed { transfer, failure });
    }

    /// Fails a transfer whose source changed or is unreadable. The driver must check the source
    /// before it retries.
    pub fn changed(&mut self, key: u64, reason: &str) {
        if self.mode == Mode::Stream {
            self.close_link(key);
        }
        let Some(active) = self.active.remove(&key) else {
            return;
        };
        let failure = TransferFailure {
            reason: reason.to_owned(),
            again: true,
            changed: true,
            received: ByteRanges::default(),
        };
        let transfer = active.job.transfer();
        self.outputs
            .push(ClientOutput::Failed { transfer, failure });
        // Even if it seems complete: it can contain the end of another file.
        if self.mode == Mode::Extended {
            self.roll_back();
        }
    }

    /// Returns the received ranges of a download. In a pipeline over several connections they count
    /// only for complete files; before, their file is uncertain.
    fn received(&self, active: &TransferAttempt) -> ByteRanges {
        let TransferJob::Get(get) = &active.job else {
            return ByteRanges::default();
        };
        let mut ranges = get.present.clone();
        let start = get.present.prefix_bytes();
        let arrived = match (self.mode, active.slot) {
            (Mode::Stream, _) => Some(ByteRanges::from_range(start..start + active.position)),
            (Mode::Extended, Some(slot)) if self.connections == 1 || self.depth == 1 => {
                self.receiver.partial(slot).cloned()
            }
            _ => None,
        };
        let kept = arrived.is_none_or(|arrived| ranges.merge(&arrived).is_ok());
        if kept && get.base() == 0 {
            ranges
        } else {
            get.present.clone()
        }
    }

    pub fn roll_back(&mut self) {
        let mut voided = BTreeSet::new();
        for (&key, active) in &mut self.active {
            if active.state == AttemptState::Running {
                active.state = AttemptState::Void;
            }
            if active.state == AttemptState::Void {
                voided.insert(key);
            }
        }
        self.voided = Some(voided);
        self.drop_data(ChannelState::Draining, true);
    }

    /// Requeues void transfers at the front, in order, except for permanent failures.
    pub fn requeue_void(&mut self) {
        let keys: Vec<u64> = self
            .active
            .iter()
            .filter(|(_, active)| active.state == AttemptState::Void)
            .map(|(&key, _)| key)
            .collect();
        for key in keys.into_iter().rev() {
            if let Some(mut active) = self.active.remove(&key) {
                if let Some((reason, again)) = active.final_failure.take() {
                    let received = self.received(&active);
                    self.fail_permanently(active.job, &reason, again, received);
                    continue;
                }
                // This attempt does not count for transfers without fault.
                let attempt = active.attempt - u32::from(!active.counted);
                self.queue.push_front(QueuedTransfer {
                    attempt,
                    job: active.job,
                });
            }
        }
    }

    /// Handles a failure to open the data connections of the next transfers.
    pub fn channel_failed(&mut self, reason: &str) {
        self.drop_data(ChannelState::Closed, true);
        if let Some(mut waiting) = self.queue.pop_front() {
            waiting.attempt += 1;
            if waiting.attempt < self.attempts {
                self.queue.push_front(waiting);
            } else {
                let received = match &waiting.job {
                    TransferJob::Get(get) => get.present.clone(),
                    TransferJob::Put(_) => ByteRanges::default(),
                };
                let transfer = waiting.job.transfer();
                let failure = TransferFailure {
                    reason: reason.to_owned(),
                    again: true,
                    changed: false,
                    received,
                };
                self.outputs
                    .push(ClientOutput::Failed { transfer, failure });
            }
        }
    }

    /// Fails all transfers because the session has ended.
    pub fn fail_all(&mut self, reason: &str) -> Vec<ClientOutput> {
        let active = std::mem::take(&mut self.active).into_values();
        let lost: Vec<_> = active
            .map(|active| (self.received(&active), active.job))
            .collect();
        let queued = std::mem::take(&mut self.queue)
            .into_iter()
            .map(|mut waiting| (std::mem::take(waiting.job.present()), waiting.job));
        let mut outputs = self.take_outputs();
        outputs.extend(lost.into_iter().chain(queued).map(|(received, job)| {
            let received = if job.direction() == TransferDirection::Receive {
                received
            } else {
                ByteRanges::default()
            };
            let failure = TransferFailure {
                reason: reason.to_owned(),
                again: true,
                changed: false,
                received,
            };
            ClientOutput::Failed {
                transfer: job.transfer(),
                failure,
            }
        }));
        outputs
    }
}
