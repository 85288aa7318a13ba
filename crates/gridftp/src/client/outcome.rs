//! Completion of a transfer: replies, checks and rename.

use super::Tag;
use super::active::{AttemptState, TransferAttempt, TransferCommand};
use super::channel::ChannelState;
use super::job::{ClientOutput, ConnectionPurpose, TransferDirection, TransferJob};
use super::transfers::Transfers;
use crate::timestamp::write_timestamp;
use crate::{ByteRanges, FtpCommand, FtpReply, ListEntry, Mode, Path, ProgressMarker};

/// Code for a local error of the server (RFC 959, section 4.2.1): the file is unreadable or has
/// changed.
const LOCAL_ERROR: u16 = 451;

impl Transfers {
    /// Handles a preliminary reply.
    pub fn preliminary_reply(&mut self, key: u64, part: TransferCommand, reply: &FtpReply) {
        let Some(active) = self.active.get_mut(&key) else {
            return;
        };
        if part != TransferCommand::Transfer {
            return;
        }
        let transfer = active.job.transfer();
        if matches!(reply.code, 125 | 150) {
            if std::mem::replace(&mut active.started, true) || active.state != AttemptState::Running
            {
                return;
            }
            if active.job.direction() == TransferDirection::Receive && self.mode == Mode::Extended {
                let slot = self.receiver.start_transfer();
                active.slot = Some(slot);
                self.slots.insert(slot, key);
            }
            self.admit(key);
            self.outputs.push(ClientOutput::Started { transfer });
        } else if active.state == AttemptState::Running
            && let Ok(Some(progress)) = ProgressMarker::parse(reply)
        {
            // Ignore an unreadable marker.
            self.outputs
                .push(ClientOutput::Progress { transfer, progress });
        }
    }

    /// Handles a final reply.
    pub fn replied(&mut self, key: u64, part: TransferCommand, reply: FtpReply) {
        let Some(active) = self.active.get_mut(&key) else {
            return;
        };
        match part {
            TransferCommand::Passive => {
                match super::channel::passive_address(&reply, self.server) {
                    Some(mut address) => {
                        if !self.has_data_nodes {
                            address.set_ip(self.server);
                        }
                        self.outputs.push(ClientOutput::Connect {
                            address,
                            connections: 1,
                            purpose: ConnectionPurpose::Transfer(active.job.transfer()),
                        });
                        self.addressed(key, address);
                    }
                    None => active.fault = Some(format!("cannot open a data connection: {reply}")),
                }
            }
            TransferCommand::Restart if !reply.is_intermediate() => {
                active.fault = Some(format!("cannot restart: {reply}"));
                *active.job.present() = ByteRanges::default();
            }
            // A later LIST would list another directory.
            TransferCommand::ChangeDirectory if !reply.is_success() => {
                active.fault = Some(reply.to_string())
            }
            TransferCommand::Check if !reply.is_success() => self.checks = false,
            TransferCommand::Transfer => {
                active.final_reply = Some(reply);
                self.finalize(key);
            }
            TransferCommand::Stat => {
                active.seen = Some(reply);
                self.finalize(key);
            }
            TransferCommand::Size => self.sized(key, &reply),
            TransferCommand::StatFinal => self.seen(key, &reply),
            TransferCommand::Modify => {
                active.state = AttemptState::Committing {
                    time_kept: reply.is_success(),
                }
            }
            TransferCommand::RenameFrom if !reply.is_intermediate() => {
                // RNTO cannot succeed.
                active.fault = Some(format!("cannot rename: {reply}"));
            }
            TransferCommand::RenameTo => self.renamed(key, &reply),
            TransferCommand::ChangeDirectory
            | TransferCommand::Restart
            | TransferCommand::Check
            | TransferCommand::RenameFrom => {}
        }
    }

    /// Handles a retracted command: it was not sent.
    pub fn retracted(&mut self, key: u64) {
        if let Some(active) = self.active.get_mut(&key) {
            active.final_reply = Some(FtpReply::new(500, "not sent"));
        }
    }

    /// Completes a transfer if all results are known.
    pub fn finalize(&mut self, key: u64) {
        if self.mode == Mode::Stream && (self.is_mismatched(key) || self.restarts_upload(key)) {
            return;
        }
        let Some(active) = self
            .active
            .get(&key)
            .filter(|active| active.state == AttemptState::Running)
        else {
            return;
        };
        let Some(reply) = &active.final_reply else {
            return;
        };
        if let Some((reason, again)) = active.final_failure.clone() {
            return self.failed(key, &reason, again);
        }
        if reply.code == LOCAL_ERROR
            && active.started
            && matches!(active.job, TransferJob::Get(_))
            && active.job.is_file()
        {
            let reason = reply.to_string();
            return self.changed(key, &reason);
        }
        if !reply.is_success() {
            // Globus servers send only this text if the data connections are gone.
            let plain = matches!(&reply.lines[..], [text] if text == b"Command failed");
            let consumed_end = self.broken || plain;
            let lost = active.started || active.fault.is_some();
            let again = consumed_end || lost || reply.is_transient_failure();
            let reason = reply.to_string();
            self.failed(key, &reason, again);
            if consumed_end && matches!(self.channel, ChannelState::Open(_)) {
                self.roll_back();
            }
            return;
        }
        if let Some(reason) = active.fault.clone() {
            return self.failed(key, &reason, true);
        }
        match &active.job {
            TransferJob::Put(_) if !self.is_sent(active) => {
                self.failed(
                    key,
                    "the server reported success before it had all bytes",
                    true,
                );
            }
            TransferJob::Put(_) => self.commit(key),
            TransferJob::Get(get) => {
                let Some(received_ranges) = &active.received_ranges else {
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
                let counted = all.merge(received_ranges).is_ok();
                let end = all.end();
                let complete = counted && all.prefix_bytes() == end;
                if complete && get.expected_bytes().is_none_or(|size| size == end) {
                    if get.stat_after && active.seen.is_none() {
                        return;
                    }
                    self.done(key, true);
                } else {
                    let size = get.expected_bytes().unwrap_or(end);
                    let reason = format!(
                        "expected {size} contiguous bytes, found {} up to position {end}",
                        all.total_bytes()
                    );
                    // In MODE E the end is explicit; a stream can be truncated.
                    if complete && self.mode == Mode::Extended {
                        self.changed(key, &reason);
                    } else {
                        self.failed(key, &reason, true);
                    }
                }
            }
        }
    }

    /// Restarts a rejected resume of an upload in MODE S from the beginning of the file. Some
    /// servers do not resume (ProFTPD without `AllowStoreRestart`) or overwrite (`AllowOverwrite`).
    fn restarts_upload(&mut self, key: u64) -> bool {
        let Some(active) = self.active.get_mut(&key) else {
            return false;
        };
        let rejected = active.final_reply.as_ref().filter(|reply| {
            let counts = active.state == AttemptState::Running && active.final_failure.is_none();
            counts && !active.started && !reply.is_success()
        });
        let (Some(reply), TransferJob::Put(put)) = (rejected, &mut active.job) else {
            return false;
        };
        let Some(temporary) = put.temporary.clone().filter(|_| !put.present.is_empty()) else {
            return false;
        };
        put.present = ByteRanges::default();
        let reason = reply.to_string();
        self.commands
            .push(vec![(Tag::Ignored, FtpCommand::Dele(temporary))]);
        self.failed(key, &reason, true);
        true
    }

    fn is_sent(&self, active: &TransferAttempt) -> bool {
        match self.mode {
            Mode::Stream => active.closed,
            Mode::Extended => active.file.is_some_and(|file| self.sender.is_sent(file)),
        }
    }

    /// Commits an upload after success. In MODE S the server only knows that the connection closed,
    /// so the client checks the size.
    fn commit(&mut self, key: u64) {
        let Some(active) = self.active.get_mut(&key) else {
            return;
        };
        let TransferJob::Put(put) = &active.job else {
            return;
        };
        if put.part.is_some() {
            return self.done(key, true);
        }
        if self.mode == Mode::Extended && put.present.is_empty() {
            return self.name(key);
        }
        let path = put.temporary.as_ref().unwrap_or(&put.path).clone();
        active.state = AttemptState::Committing { time_kept: false };
        self.commands.push(vec![(
            Tag::Transfer(key, TransferCommand::Size),
            FtpCommand::Size(path),
        )]);
    }

    fn sized(&mut self, key: u64, reply: &FtpReply) {
        let Some(active) = self.active.get(&key) else {
            return;
        };
        let TransferJob::Put(put) = &active.job else {
            return;
        };
        match reply.size_bytes() {
            Some(size) if size != put.size_bytes => {
                let reason = format!(
                    "expected {} bytes at the server, found {size}",
                    put.size_bytes
                );
                // Another attempt would find the same bytes.
                let again = !active.job.is_complete_at_server();
                self.failed(key, &reason, again);
            }
            // A server without SIZE cannot report it.
            _ => self.name(key),
        }
    }

    /// Renames a file. All earlier transfers of the pipeline succeeded; a failure would have voided
    /// this one.
    fn name(&mut self, key: u64) {
        let Some(active) = self.active.get_mut(&key) else {
            return;
        };
        let TransferJob::Put(put) = &active.job else {
            return;
        };
        let mut group = Vec::new();
        let at = put.temporary.as_ref().unwrap_or(&put.path);
        if let Some(time_s) = put.modify_s {
            group.extend(
                modify(at, time_s, self.supports_mfmt)
                    .map(|command| (Tag::Transfer(key, TransferCommand::Modify), command)),
            );
        }
        if let Some(temporary) = put.temporary.clone() {
            group.push((
                Tag::Transfer(key, TransferCommand::RenameFrom),
                FtpCommand::Rnfr(temporary),
            ));
            let to = FtpCommand::Rnto(put.path.clone());
            group.push((Tag::Transfer(key, TransferCommand::RenameTo), to));
        } else if put.modify_s.is_some() {
            // The reply to the rename ends the transfer; without a rename, NOOP does.
            group.push((
                Tag::Transfer(key, TransferCommand::RenameTo),
                FtpCommand::Noop,
            ));
        }
        active.state = AttemptState::Committing {
            time_kept: put.modify_s.is_none(),
        };
        if group.is_empty() {
            return self.done(key, true);
        }
        self.commands.push(group);
    }

    fn renamed(&mut self, key: u64, reply: &FtpReply) {
        let Some(active) = self.active.get(&key) else {
            return;
        };
        let AttemptState::Committing { time_kept } = active.state else {
            return;
        };
        match active.fault.clone() {
            None if reply.is_success() => self.done(key, time_kept),
            None => self.failed(key, &format!("cannot rename: {reply}"), false),
            Some(reason) => self.unnamed(key, &reason),
        }
    }

    /// Handles a missing source of a rename. A lost session may have renamed it: then the final
    /// name has its size and time.
    fn unnamed(&mut self, key: u64, reason: &str) {
        match self.active.get(&key).map(|active| &active.job) {
            Some(job @ TransferJob::Put(put))
                if job.is_complete_at_server() && put.modify_s.is_some() =>
            {
                let command = FtpCommand::Mlst(Some(put.path.clone()));
                self.commands.push(vec![(
                    Tag::Transfer(key, TransferCommand::StatFinal),
                    command,
                )]);
            }
            _ => self.failed(key, reason, false),
        }
    }

    fn seen(&mut self, key: u64, reply: &FtpReply) {
        let Some(active) = self.active.get(&key) else {
            return;
        };
        let TransferJob::Put(put) = &active.job else {
            return;
        };
        let line = reply.lines.get(1);
        let found = line.and_then(|line| ListEntry::parse(line.trim_ascii_start()).ok());
        let is_same = found.filter(|_| reply.is_success()).is_some_and(|found| {
            found.size_bytes == Some(put.size_bytes) && found.modify_s == put.modify_s
        });
        if is_same {
            return self.done(key, true);
        }
        let reason = active.fault.clone().unwrap_or_default();
        self.failed(key, &reason, false);
    }

    fn done(&mut self, key: u64, time_kept: bool) {
        if let Some(active) = self.active.remove(&key) {
            let transfer = active.job.transfer();
            let seen = active.seen;
            self.outputs
                .extend(seen.map(|reply| ClientOutput::FileInfo { transfer, reply }));
            self.outputs.push(ClientOutput::Done {
                transfer,
                time_kept,
            });
        }
    }
}

/// Returns the command that sets a modification time. Servers without MFMT may support MDTM with
/// two arguments (vsftpd); others treat both as a path that does not exist.
fn modify(path: &Path, time_s: i64, supports_mfmt: bool) -> Option<FtpCommand> {
    if supports_mfmt {
        let path = path.clone();
        return Some(FtpCommand::Mfmt { time_s, path });
    }
    let both = [write_timestamp(time_s).as_bytes(), b" ", path.as_bytes()].concat();
    Path::new(both).ok().map(FtpCommand::Mdtm)
}
