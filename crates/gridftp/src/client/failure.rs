//! Who is to blame for a failure, what it voids, and what is done again.

use std::collections::BTreeSet;

use super::Tag;
use super::active::{Active, State};
use super::channel::Channel;
use super::job::{Direction, Failure, Job, Output};
use super::transfers::{Link, Transfers, Waiting};
use crate::{ByteRanges, Command, Mode};

impl Transfers {
    /// Data connections, or their bytes, are wrong: the oldest transfer that runs is charged, and all are void.
    pub fn blame(&mut self, reason: &str) {
        let oldest = self
            .active
            .iter()
            .find(|(_, active)| active.state == State::Running);
        match oldest.map(|(&key, _)| key) {
            Some(key) => self.failed(key, reason, true),
            None => self.drop_data(Channel::Closed, true),
        }
        if self.channel != Channel::Closed && self.channel != Channel::Draining {
            self.roll_back();
        }
    }

    /// Nothing moves. Without data connections the server has to answer what it waits in, and the oldest transfer is
    /// charged. False: it is not they that it waits for.
    pub fn give_up_data(&mut self, reason: &str) -> bool {
        if matches!(self.channel, Channel::Open(_)) && self.running().next().is_some() {
            self.blame(reason);
            return true;
        }
        // A server of MODE S is at the oldest, and has done with those that it has answered.
        let mut oldest = true;
        let stuck: Vec<u64> = self
            .active
            .iter()
            .filter(|(_, active)| active.state == State::Running)
            .filter(|(_, active)| std::mem::take(&mut oldest) || active.answer.is_some())
            .map(|(&key, _)| key)
            .filter(|&key| self.links.values().any(|&link| link == Link::Of(key)))
            .collect();
        for &key in &stuck {
            if let Some(active) = self.active.get_mut(&key) {
                active.spoiled.get_or_insert_with(|| reason.to_owned());
            }
            self.close_link(key);
            self.settle(key);
        }
        !stuck.is_empty()
    }

    /// The driver cannot go on with a transfer: it has failed for good, wherever it is.
    pub fn abandon(&mut self, transfer: u64, reason: &str) {
        let waits = |waiting: &Waiting| waiting.job.transfer() == transfer;
        if let Some(index) = self.queue.iter().position(waits) {
            if let Some(waiting) = self.queue.remove(index) {
                self.give_up(waiting.job, reason, false, ByteRanges::default());
            }
        } else if let Some(key) = self.key_of(transfer) {
            self.abandon_active(key, reason);
        }
    }

    fn abandon_active(&mut self, key: u64, reason: &str) {
        let Some(active) = self.active.get_mut(&key) else {
            return;
        };
        let runs = active.state == State::Running;
        if active.answer.is_some() || !(runs || active.state == State::Void) {
            return self.failed(key, reason, false);
        }
        // The server is, or will be, at it, and waits for bytes that do not come.
        active.over = Some((reason.to_owned(), false));
        match self.mode {
            Mode::Stream => self.close_link(key),
            Mode::Extended if runs => self.roll_back(),
            Mode::Extended => {}
        }
    }

    /// One transfer has failed; where bytes were on their way, all that run are void.
    pub fn failed(&mut self, key: u64, reason: &str, again: bool) {
        if self.mode == Mode::Stream {
            self.close_link(key);
        }
        let Some(active) = self.active.get_mut(&key) else {
            return;
        };
        if self.mode == Mode::Stream && self.tells_times {
            active.go_on();
        }
        let running = active.state == State::Running;
        let bytes_on_the_way = active.begun || active.file.is_some();
        let given_back = active.begun && matches!(&active.job, Job::Put(put) if put.goes_on);
        let retry = again && active.tries < self.attempts && !given_back;
        if active.answer.is_none() && (retry || self.mode == Mode::Extended) {
            // Its answer is still to come, and may not meet its next try, or another transfer.
            active.state = State::Void;
            active.charged = true;
            active.over = (!retry).then(|| (reason.to_owned(), again));
        } else if let Some(active) = self.active.remove(&key) {
            if retry {
                let waiting = Waiting {
                    tries: active.tries,
                    job: active.job,
                };
                self.queue.push_front(waiting);
            } else {
                let received = self.received(&active);
                self.give_up(active.job, reason, again, received);
            }
        }
        if self.mode == Mode::Extended && running && bytes_on_the_way {
            self.roll_back();
        }
    }

    /// The data connection of a transfer in MODE S has no use any more.
    fn close_link(&mut self, key: u64) {
        let found = self.links.iter().find(|(_, link)| **link == Link::Of(key));
        if let Some(connection) = found.map(|(&connection, _)| connection) {
            self.links.remove(&connection);
            self.outputs.push(Output::CloseData { connection });
        }
    }

    fn give_up(&mut self, job: Job, reason: &str, again: bool, received: ByteRanges) {
        let transfer = job.transfer();
        // What the server had before this session is not its to take away, nor what the next try goes on with.
        if let Job::Put(put) = job
            && put.present.is_empty()
            && !(again && put.goes_on)
            && let Some(temporary) = put.temporary
        {
            self.commands
                .push(vec![(Tag::Unheard, Command::Dele(temporary))]);
        }
        let failure = Failure {
            reason: reason.to_owned(),
            again,
            changed: false,
            received,
        };
        self.outputs.push(Output::Failed { transfer, failure });
    }

    /// What is read is not what it was said to be, or cannot be read: the driver is to see to that before anything of it is asked for again.
    pub fn changed(&mut self, key: u64, reason: &str) {
        if self.mode == Mode::Stream {
            self.close_link(key);
        }
        let Some(active) = self.active.remove(&key) else {
            return;
        };
        let failure = Failure {
            reason: reason.to_owned(),
            again: true,
            changed: true,
            received: ByteRanges::default(),
        };
        let transfer = active.job.transfer();
        self.outputs.push(Output::Failed { transfer, failure });
        // Even where it seems whole: it may have had the end of another.
        if self.mode == Mode::Extended {
            self.roll_back();
        }
    }

    /// What a download has. Bytes of a pipeline over several connections count only when the file is whole: not until then
    /// is it sure whose they are.
    fn received(&self, active: &Active) -> ByteRanges {
        let Job::Get(get) = &active.job else {
            return ByteRanges::default();
        };
        let mut ranges = get.present.clone();
        let start = get.present.prefix_bytes();
        let came = match (self.mode, active.slot) {
            (Mode::Stream, _) => Some(ByteRanges::of(start..start + active.position)),
            (Mode::Extended, Some(slot)) if self.connections == 1 || self.depth == 1 => {
                self.receiver.partial(slot).cloned()
            }
            _ => None,
        };
        let kept = came.is_none_or(|came| ranges.merge(&came).is_ok());
        if kept && get.base() == 0 {
            ranges
        } else {
            get.present.clone()
        }
    }

    pub fn roll_back(&mut self) {
        let mut voided = BTreeSet::new();
        for (&key, active) in &mut self.active {
            if active.state == State::Running {
                active.state = State::Void;
            }
            if active.state == State::Void {
                voided.insert(key);
            }
        }
        self.voided = Some(voided);
        self.drop_data(Channel::Draining, true);
    }

    /// Puts what was void back in front, in its order, but for what has failed for good.
    pub fn requeue_void(&mut self) {
        let keys: Vec<u64> = self
            .active
            .iter()
            .filter(|(_, active)| active.state == State::Void)
            .map(|(&key, _)| key)
            .collect();
        for key in keys.into_iter().rev() {
            if let Some(mut active) = self.active.remove(&key) {
                if let Some((reason, again)) = active.over.take() {
                    let received = self.received(&active);
                    self.give_up(active.job, &reason, again, received);
                    continue;
                }
                // For who is not to blame this was no try.
                let tries = active.tries - u32::from(!active.charged);
                self.queue.push_front(Waiting {
                    tries,
                    job: active.job,
                });
            }
        }
    }

    /// The pipeline of the next transfers cannot be opened.
    pub fn channel_failed(&mut self, reason: &str) {
        self.drop_data(Channel::Closed, true);
        if let Some(mut waiting) = self.queue.pop_front() {
            waiting.tries += 1;
            if waiting.tries < self.attempts {
                self.queue.push_front(waiting);
            } else {
                let received = match &waiting.job {
                    Job::Get(get) => get.present.clone(),
                    Job::Put(_) => ByteRanges::default(),
                };
                let transfer = waiting.job.transfer();
                let failure = Failure {
                    reason: reason.to_owned(),
                    again: true,
                    changed: false,
                    received,
                };
                self.outputs.push(Output::Failed { transfer, failure });
            }
        }
    }

    /// The session is over.
    pub fn fail_all(&mut self, reason: &str) -> Vec<Output> {
        let active = std::mem::take(&mut self.active).into_values();
        let lost: Vec<_> = active
            .map(|active| (self.received(&active), active.job))
            .collect();
        let queued = std::mem::take(&mut self.queue)
            .into_iter()
            .map(|mut waiting| (std::mem::take(waiting.job.present()), waiting.job));
        let mut outputs = self.take_outputs();
        outputs.extend(lost.into_iter().chain(queued).map(|(received, job)| {
            let received = if job.direction() == Direction::Receive {
                received
            } else {
                ByteRanges::default()
            };
            let failure = Failure {
                reason: reason.to_owned(),
                again: true,
                changed: false,
                received,
            };
            Output::Failed {
                transfer: job.transfer(),
                failure,
            }
        }));
        outputs
    }
}
