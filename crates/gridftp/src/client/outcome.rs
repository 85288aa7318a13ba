//! What becomes of a transfer: its replies, its end, its name.

use super::Tag;
use super::active::{Active, Part, State};
use super::channel::Channel;
use super::job::{Direction, Job, Output, Purpose};
use super::transfers::Transfers;
use crate::timestamp::write_timestamp;
use crate::{ByteRanges, Command, Entry, Mode, Path, Progress, Reply};

/// What a server answers that could not go on with a transfer for its own part (RFC 959, section 4.2.1): it cannot read the file, or has seen
/// that it was changed.
const GIVEN_UP: u16 = 451;

impl Transfers {
    /// A preliminary reply.
    pub fn noticed(&mut self, key: u64, part: Part, reply: &Reply) {
        let Some(active) = self.active.get_mut(&key) else {
            return;
        };
        if part != Part::Transfer {
            return;
        }
        let transfer = active.job.transfer();
        if matches!(reply.code, 125 | 150) {
            if std::mem::replace(&mut active.begun, true) || active.state != State::Running {
                return;
            }
            if active.job.direction() == Direction::Receive && self.mode == Mode::Extended {
                let slot = self.receiver.begin();
                active.slot = Some(slot);
                self.slots.insert(slot, key);
            }
            self.admit(key);
            self.outputs.push(Output::Begun { transfer });
        } else if active.state == State::Running
            && let Ok(Some(progress)) = Progress::parse(reply)
        {
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
                Some(mut address) => {
                    if !self.has_data_nodes {
                        address.set_ip(self.server);
                    }
                    self.outputs.push(Output::Connect {
                        address,
                        connections: 1,
                        purpose: Purpose::Transfer(active.job.transfer()),
                    });
                    self.addressed(key, address);
                }
                None => active.spoiled = Some(format!("no data connection: {reply}")),
            },
            Part::Restart if !reply.is_intermediate() => {
                active.spoiled = Some(format!("no restart: {reply}"));
                *active.job.present() = ByteRanges::default();
            }
            // Whatever is listed, it is another one.
            Part::Enter if !reply.is_success() => active.spoiled = Some(reply.to_string()),
            Part::Check if !reply.is_success() => self.checks = false,
            Part::Transfer => {
                active.answer = Some(reply);
                self.settle(key);
            }
            Part::Look => {
                active.seen = Some(reply);
                self.settle(key);
            }
            Part::Size => self.sized(key, &reply),
            Part::See => self.seen(key, &reply),
            Part::Modify => {
                active.state = State::Committing {
                    time_kept: reply.is_success(),
                }
            }
            Part::RenameFrom if !reply.is_intermediate() => {
                // Whatever is said to RNTO: it has nothing to name.
                active.spoiled = Some(format!("no name: {reply}"));
            }
            Part::RenameTo => self.renamed(key, &reply),
            Part::Enter | Part::Restart | Part::Check | Part::RenameFrom => {}
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
        if self.mode == Mode::Stream && (self.is_astray(key) || self.begins_anew(key)) {
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
        if let Some((reason, again)) = active.over.clone() {
            return self.failed(key, &reason, again);
        }
        if reply.code == GIVEN_UP
            && active.begun
            && matches!(active.job, Job::Get(_))
            && active.job.is_file()
        {
            let reason = reply.to_string();
            return self.changed(key, &reason);
        }
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
                    if get.see && active.seen.is_none() {
                        return;
                    }
                    self.done(key, true);
                } else {
                    let size = get.expected_bytes().unwrap_or(end);
                    let reason = format!(
                        "expected {size} bytes without a hole, found {}, the last at {end}",
                        all.total_bytes()
                    );
                    // Blocks end where the file does; a stream may have been cut on its way.
                    if complete && self.mode == Mode::Extended {
                        self.changed(key, &reason);
                    } else {
                        self.failed(key, &reason, true);
                    }
                }
            }
        }
    }

    /// Has an upload that was to go on in MODE S begin anew, where a server has refused it: some take files whole or not at all (ProFTPD, unless
    /// `AllowStoreRestart`), and may not write into one that is there (`AllowOverwrite`).
    fn begins_anew(&mut self, key: u64) -> bool {
        let Some(active) = self.active.get_mut(&key) else {
            return false;
        };
        let refused = active.answer.as_ref().filter(|reply| {
            let counts = active.state == State::Running && active.over.is_none();
            counts && !active.begun && !reply.is_success()
        });
        let (Some(reply), Job::Put(put)) = (refused, &mut active.job) else {
            return false;
        };
        let Some(temporary) = put.temporary.clone().filter(|_| !put.present.is_empty()) else {
            return false;
        };
        put.present = ByteRanges::default();
        let reason = reply.to_string();
        self.commands
            .push(vec![(Tag::Unheard, Command::Dele(temporary))]);
        self.failed(key, &reason, true);
        true
    }

    fn is_sent(&self, active: &Active) -> bool {
        match self.mode {
            Mode::Stream => active.closed,
            Mode::Extended => active.file.is_some_and(|file| self.sender.is_sent(file)),
        }
    }

    /// All bytes are there, as the server says. In MODE S it can only know that the connection has ended, and of what was there before
    /// nothing: the size tells.
    fn commit(&mut self, key: u64) {
        let Some(active) = self.active.get_mut(&key) else {
            return;
        };
        let Job::Put(put) = &active.job else {
            return;
        };
        if put.part.is_some() {
            return self.done(key, true);
        }
        if self.mode == Mode::Extended && put.present.is_empty() {
            return self.name(key);
        }
        let path = put.temporary.as_ref().unwrap_or(&put.path).clone();
        active.state = State::Committing { time_kept: false };
        self.commands
            .push(vec![(Tag::Transfer(key, Part::Size), Command::Size(path))]);
    }

    fn sized(&mut self, key: u64, reply: &Reply) {
        let Some(active) = self.active.get(&key) else {
            return;
        };
        let Job::Put(put) = &active.job else {
            return;
        };
        match reply.size_bytes() {
            Some(size) if size != put.size_bytes => {
                let reason = format!(
                    "expected {} bytes at the server, found {size}",
                    put.size_bytes
                );
                // What is there will not be other the next time.
                let again = !active.job.is_there();
                self.failed(key, &reason, again);
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
            group.extend(
                modify(at, time_s, self.has_mfmt)
                    .map(|command| (Tag::Transfer(key, Part::Modify), command)),
            );
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
        let Some(active) = self.active.get(&key) else {
            return;
        };
        let State::Committing { time_kept } = active.state else {
            return;
        };
        match active.spoiled.clone() {
            None if reply.is_success() => self.done(key, time_kept),
            None => self.failed(key, &format!("no name: {reply}"), false),
            Some(reason) => self.unnamed(key, &reason),
        }
    }

    /// There was nothing to name. A session that was lost may have done it: then it is there under its name, of its size and its time.
    fn unnamed(&mut self, key: u64, reason: &str) {
        match self.active.get(&key).map(|active| &active.job) {
            Some(job @ Job::Put(put)) if job.is_there() && put.modify_s.is_some() => {
                let command = Command::Mlst(Some(put.path.clone()));
                self.commands
                    .push(vec![(Tag::Transfer(key, Part::See), command)]);
            }
            _ => self.failed(key, reason, false),
        }
    }

    fn seen(&mut self, key: u64, reply: &Reply) {
        let Some(active) = self.active.get(&key) else {
            return;
        };
        let Job::Put(put) = &active.job else {
            return;
        };
        let line = reply.lines.get(1);
        let found = line.and_then(|line| Entry::parse(line.trim_ascii_start()).ok());
        let is_it = found.filter(|_| reply.is_success()).is_some_and(|found| {
            found.size_bytes == Some(put.size_bytes) && found.modify_s == put.modify_s
        });
        if is_it {
            return self.done(key, true);
        }
        let reason = active.spoiled.clone().unwrap_or_default();
        self.failed(key, &reason, false);
    }

    fn done(&mut self, key: u64, time_kept: bool) {
        if let Some(active) = self.active.remove(&key) {
            let transfer = active.job.transfer();
            let seen = active.seen;
            self.outputs
                .extend(seen.map(|reply| Output::Seen { transfer, reply }));
            self.outputs.push(Output::Done {
                transfer,
                time_kept,
            });
        }
    }
}

/// The command that sets a time. Servers without MFMT may have MDTM with two arguments, as vsftpd has; others take both for a path, which is not there.
fn modify(path: &Path, time_s: i64, has_mfmt: bool) -> Option<Command> {
    if has_mfmt {
        let path = path.clone();
        return Some(Command::Mfmt { time_s, path });
    }
    let both = [write_timestamp(time_s).as_bytes(), b" ", path.as_bytes()].concat();
    Path::new(both).ok().map(Command::Mdtm)
}
