//! What becomes of a transfer: its replies, its end, its name, and what a failure voids.

use std::collections::BTreeSet;

use super::Tag;
use super::channel::Channel;
use super::job::{Direction, Failure, Job, Output};
use super::transfers::{Active, Part, State, Transfers, Waiting};
use crate::{ByteRanges, Command, Mode, Progress, Reply};

impl Transfers {
    /// A preliminary reply.
    pub fn noticed(&mut self, key: u64, part: Part, reply: &Reply) {
        let Some(active) = self.active.get_mut(&key) else {
            return;
        };
        if part != Part::Transfer || active.state != State::Running {
            return;
        }
        let transfer = active.job.transfer();
        if matches!(reply.code, 125 | 150) {
            if std::mem::replace(&mut active.begun, true) {
                return;
            }
            if active.job.direction() == Direction::Receive && self.mode == Mode::Extended {
                let slot = self.receiver.begin();
                active.slot = Some(slot);
                self.slots.insert(slot, key);
            }
            self.admit(key);
            self.outputs.push(Output::Begun { transfer });
        } else if let Ok(Some(progress)) = Progress::parse(reply) {
            // A marker that cannot be read says nothing of the transfer.
            self.outputs.push(Output::Progress { transfer, progress });
        }
    }

    /// A final reply.
    pub fn answered(&mut self, key: u64, part: Part, reply: Reply) {
        let Some(active) = self.active.get_mut(&key) else {
            return;
        };
        match part {
            Part::Passive => match super::channel::passive_address(&reply, self.server) {
                Some(address) => {
                    self.outputs.push(Output::Connect {
                        address,
                        connections: 1,
                        transfer: Some(active.job.transfer()),
                    });
                    self.addressed(key, address);
                }
                None => active.spoiled = Some(format!("no data connection: {reply}")),
            },
            Part::Restart if !reply.is_intermediate() => {
                active.spoiled = Some(format!("no restart: {reply}"));
                *active.job.present() = ByteRanges::default();
            }
            Part::Check if !reply.is_success() => self.checks = false,
            Part::Transfer => {
                active.answer = Some(reply);
                self.settle(key);
            }
            Part::Size => self.sized(key, &reply),
            Part::Modify => {
                active.state = State::Committing {
                    time_kept: reply.is_success(),
                }
            }
            Part::RenameTo => self.renamed(key, &reply),
            Part::Restart | Part::Check | Part::RenameFrom => {}
        }
    }

    /// A transfer that was asked for, but not written, and is void.
    pub fn retracted(&mut self, key: u64) {
        if let Some(active) = self.active.get_mut(&key) {
            active.answer = Some(Reply::new(500, "not asked"));
        }
    }

    /// Looks whether a transfer is at its end.
    pub fn settle(&mut self, key: u64) {
        if self.mode == Mode::Stream && self.is_astray(key) {
            return;
        }
        let Some(active) = self
            .active
            .get(&key)
            .filter(|active| active.state == State::Running)
        else {
            return;
        };
        let Some(reply) = &active.answer else {
            return;
        };
        if !reply.is_success() {
            // All that Globus servers say of a transfer whose data connections are gone.
            let plain = matches!(&reply.lines[..], [text] if text == b"Command failed");
            let gone = self.broken || plain;
            let lost = active.begun || active.spoiled.is_some();
            let again = gone || lost || reply.is_transient_failure();
            let reason = reply.to_string();
            self.failed(key, &reason, again);
            if gone && matches!(self.channel, Channel::Open(_)) {
                self.roll_back();
            }
            return;
        }
        if let Some(reason) = active.spoiled.clone() {
            return self.failed(key, &reason, true);
        }
        if !active.begun {
            return self.failed(
                key,
                "expected 125 or 150 before the end of a transfer",
                true,
            );
        }
        match &active.job {
            Job::Put(_) if !self.is_sent(active) => {
                self.failed(key, "the server was content before it had all bytes", true);
            }
            Job::Put(_) => self.commit(key),
            Job::Get(get) => {
                let Some(whole) = &active.whole else {
                    if self.is_lost() {
                        self.failed(
                            key,
                            "data connections closed before the end of the file",
                            true,
                        );
                    }
                    return;
                };
                let mut all = get.present.clone();
                let counted = all.merge(whole).is_ok();
                let end = all.end();
                let complete = counted && all.prefix_bytes() == end;
                if complete && get.expected_bytes().is_none_or(|size| size == end) {
                    self.done(key, true);
                } else {
                    let size = get.expected_bytes().unwrap_or(end);
                    let reason = format!(
                        "expected {size} bytes without a hole, found {}, the last at {end}",
                        all.total_bytes()
                    );
                    self.failed(key, &reason, true);
                }
            }
        }
    }

    fn is_sent(&self, active: &Active) -> bool {
        match self.mode {
            Mode::Stream => active.closed,
            Mode::Extended => active.file.is_some_and(|file| self.sender.is_sent(file)),
        }
    }

    /// All bytes are there, as the server says. In MODE S it can only know that the connection has ended: its size tells.
    fn commit(&mut self, key: u64) {
        let Some(active) = self.active.get_mut(&key) else {
            return;
        };
        let Job::Put(put) = &active.job else {
            return;
        };
        if self.mode == Mode::Extended {
            return self.name(key);
        }
        let path = put.temporary.as_ref().unwrap_or(&put.path).clone();
        active.state = State::Committing { time_kept: false };
        self.commands
            .push(vec![(Tag::Transfer(key, Part::Size), Command::Size(path))]);
    }

    fn sized(&mut self, key: u64, reply: &Reply) {
        let Some(Active {
            job: Job::Put(put), ..
        }) = self.active.get(&key)
        else {
            return;
        };
        let found = reply
            .lines
            .last()
            .and_then(|text| crate::number::<u64>(text.trim_ascii()));
        match found.filter(|_| reply.is_success()) {
            Some(size) if size != put.size_bytes => {
                let reason = format!(
                    "expected {} bytes at the server, found {size}",
                    put.size_bytes
                );
                self.failed(key, &reason, true);
            }
            // A server without SIZE cannot be asked.
            _ => self.name(key),
        }
    }

    /// Gives a file its name. All before it in the pipeline went well: a failure would have voided it.
    fn name(&mut self, key: u64) {
        let Some(active) = self.active.get_mut(&key) else {
            return;
        };
        let Job::Put(put) = &active.job else {
            return;
        };
        let mut group = Vec::new();
        let at = put.temporary.as_ref().unwrap_or(&put.path);
        if let Some(time_s) = put.modify_s {
            let path = at.clone();
            group.push((
                Tag::Transfer(key, Part::Modify),
                Command::Mfmt { time_s, path },
            ));
        }
        if let Some(temporary) = put.temporary.clone() {
            group.push((
                Tag::Transfer(key, Part::RenameFrom),
                Command::Rnfr(temporary),
            ));
            let to = Command::Rnto(put.path.clone());
            group.push((Tag::Transfer(key, Part::RenameTo), to));
        } else if put.modify_s.is_some() {
            // The rename tells when all is over; without one, a reply that is sure to come does.
            group.push((Tag::Transfer(key, Part::RenameTo), Command::Noop));
        }
        active.state = State::Committing {
            time_kept: put.modify_s.is_none(),
        };
        if group.is_empty() {
            return self.done(key, true);
        }
        self.commands.push(group);
    }

    fn renamed(&mut self, key: u64, reply: &Reply) {
        let time_kept = match self.active.get(&key).map(|active| active.state) {
            Some(State::Committing { time_kept }) => time_kept,
            _ => return,
        };
        if reply.is_success() {
            self.done(key, time_kept);
        } else {
            self.failed(key, &format!("no name: {reply}"), false);
        }
    }

    fn done(&mut self, key: u64, time_kept: bool) {
        if let Some(active) = self.active.remove(&key) {
            let transfer = active.job.transfer();
            self.outputs.push(Output::Done {
                transfer,
                time_kept,
            });
        }
    }

    /// Data connections, or their bytes, are wrong: the oldest transfer that runs is charged, and all are void.
    pub fn blame(&mut self, reason: &str) {
        let oldest = self
            .active
            .iter()
            .find(|(_, active)| active.state == State::Running);
        match oldest.map(|(&key, _)| key) {
            Some(key) => self.failed(key, reason, true),
            None => self.drop_data(Channel::Closed),
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
        // A server of MODE S is at the oldest.
        let mut running = self.active.iter_mut();
        let oldest = running.find(|(_, active)| active.state == State::Running);
        match oldest {
            Some((&key, active)) if self.links.values().any(|link| *link == key) => {
                active.spoiled.get_or_insert_with(|| reason.to_owned());
                self.close_link(key);
                self.settle(key);
                true
            }
            _ => false,
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
        let running = active.state == State::Running;
        let bytes_on_the_way = active.begun || active.file.is_some();
        let retry = again && active.tries < self.attempts;
        if retry && active.answer.is_none() {
            // Its answer is still to come, and may not meet its next try.
            active.state = State::Void;
            active.charged = true;
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
        let found = self.links.iter().find(|(_, link)| **link == key);
        if let Some(connection) = found.map(|(&connection, _)| connection) {
            self.links.remove(&connection);
            self.outputs.push(Output::CloseData { connection });
        }
    }

    fn give_up(&mut self, job: Job, reason: &str, again: bool, received: ByteRanges) {
        let transfer = job.transfer();
        if let Job::Put(put) = job
            && let Some(temporary) = put.temporary
        {
            self.commands
                .push(vec![(Tag::Unheard, Command::Dele(temporary))]);
        }
        let failure = Failure {
            reason: reason.to_owned(),
            again,
            received,
        };
        self.outputs.push(Output::Failed { transfer, failure });
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

    fn roll_back(&mut self) {
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
        self.drop_data(Channel::Draining);
    }

    /// Puts what was void back in front, in its order.
    pub(super) fn requeue_void(&mut self) {
        let keys: Vec<u64> = self
            .active
            .iter()
            .filter(|(_, active)| active.state == State::Void)
            .map(|(&key, _)| key)
            .collect();
        for key in keys.into_iter().rev() {
            if let Some(active) = self.active.remove(&key) {
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
        self.drop_data(Channel::Closed);
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
