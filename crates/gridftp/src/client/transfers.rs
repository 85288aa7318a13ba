//! Queued, running and committing transfers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use super::Tag;
use super::active::{AttemptState, TransferAttempt, TransferCommand};
use super::channel::{ChannelSpec, ChannelState};
use super::control::Group;
use super::job::{ClientOutput, Get, TransferDirection, TransferJob};
use super::settings::{ClientSettings, UploadMode};
use super::unmatched::UnmatchedConnections;
use crate::mode_e::{BlockReceiver, BlockSender};
use crate::{Features, FtpCommand, Mode, Path};

/// LIST option for names with a leading dot.
const LIST_ALL: &[u8] = b"-a";

/// Owner of a data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionOwner {
    /// One transfer, by its key, in MODE S.
    Of(u64),
    /// All transfers, at this data node, in MODE E.
    Stripe(u16),
}

#[derive(Debug)]
pub(super) struct QueuedTransfer {
    pub job: TransferJob,
    /// Attempts so far.
    pub attempt: u32,
}

pub(super) struct Transfers {
    pub mode: Mode,
    pub server: IpAddr,
    pub connections: u16,
    pub block_bytes: u64,
    pub depth: usize,
    pub attempts: u32,
    pub eager: bool,
    /// `true` if the server reads the ends of ranges as exclusive.
    pub exact: bool,
    /// `true` if the server verifies checksums.
    pub checks: bool,
    /// `true` if data connections can go to other hosts.
    pub has_data_nodes: bool,
    /// `true` if the server has machine-readable listings.
    pub lists: bool,
    /// `true` if the server has MFMT.
    pub supports_mfmt: bool,
    /// `true` if the server reports modification times.
    pub reports_times: bool,
    pub queue: VecDeque<QueuedTransfer>,
    pub active: BTreeMap<u64, TransferAttempt>,
    pub next_key: u64,
    pub channel: ChannelState,
    /// Channel number, from 1: replies to commands of an earlier channel can still arrive.
    pub channel_number: u64,
    /// Direction of data connections to open before the first transfer.
    pub prepared: Option<TransferDirection>,
    /// A data connection is lost: start nothing more on the others.
    pub broken: bool,
    /// New connections are needed: start nothing more on the old ones.
    pub outdated: bool,
    pub receiver: BlockReceiver,
    pub sender: BlockSender,
    /// Number in the receiver → key.
    pub slots: BTreeMap<u64, u64>,
    /// Number in the sender → key.
    pub files: BTreeMap<u64, u64>,
    /// Owners of data connections, by connection number.
    pub owners: BTreeMap<u64, ConnectionOwner>,
    /// `true` if files are striped over data nodes.
    pub striped: bool,
    pub stripes: u16,
    /// Address of the driver's listener, until sent to all data nodes.
    pub listening_at: Option<SocketAddr>,
    pub unmatched: UnmatchedConnections,
    pub commands: Vec<Group<Tag>>,
    pub outputs: Vec<ClientOutput>,
    pub voided: Option<BTreeSet<u64>>,
}

impl Transfers {
    pub fn new(settings: &ClientSettings) -> Self {
        Self {
            mode: settings.mode,
            server: settings.server,
            connections: settings.connections.max(1),
            block_bytes: settings.block_bytes.max(1),
            depth: settings.depth.max(1),
            attempts: settings.attempts.max(1),
            eager: false,
            exact: false,
            checks: false,
            has_data_nodes: true,
            lists: true,
            supports_mfmt: true,
            reports_times: false,
            queue: VecDeque::new(),
            active: BTreeMap::new(),
            next_key: 0,
            channel: ChannelState::Closed,
            channel_number: 0,
            prepared: None,
            broken: false,
            outdated: false,
            receiver: BlockReceiver::new(true, 1),
            sender: BlockSender::new([], 1),
            slots: BTreeMap::new(),
            files: BTreeMap::new(),
            owners: BTreeMap::new(),
            striped: false,
            stripes: 1,
            listening_at: None,
            unmatched: UnmatchedConnections::default(),
            commands: Vec::new(),
            outputs: Vec::new(),
            voided: None,
        }
    }

    /// Applies the features of the server when the session is ready.
    pub fn ready(&mut self, settings: &ClientSettings, features: &Features) {
        self.mode = settings.mode;
        let upload = settings.upload.unwrap_or(if features.is_globus() {
            UploadMode::Eager
        } else {
            UploadMode::Gated
        });
        self.eager = upload == UploadMode::Eager;
        self.exact = features.is_globus();
        self.checks = features.has("SCKS");
        self.lists = features.lists();
        self.supports_mfmt = features.is_globus() || features.has("MFMT");
        self.reports_times = features.reports_times();
        self.has_data_nodes = features.has_data_nodes();
        self.striped = settings.striped
            && self.mode == Mode::Extended
            && features.has("SPAS")
            && features.has("SPOR");
        if self.mode == Mode::Stream && self.channel != ChannelState::Closed {
            self.drop_data(ChannelState::Closed, false);
        }
    }

    /// Opens data connections ahead of the first transfer.
    pub fn prepare(&mut self) {
        if let Some(direction) = self.prepared.take()
            && self.mode == Mode::Extended
            && self.channel == ChannelState::Closed
        {
            let striped = self.striped;
            self.open_channel(ChannelSpec { direction, striped });
        }
    }

    /// Sets the number of data connections.
    pub fn widen(&mut self, connections: u16) {
        self.connections = connections;
        self.outdated = self.channel != ChannelState::Closed;
    }

    pub fn len(&self) -> usize {
        self.queue.len() + self.active.len()
    }

    pub fn add(&mut self, job: TransferJob) {
        self.queue.push_back(QueuedTransfer { job, attempt: 0 });
    }

    pub fn submit(&mut self, group: Group<Tag>) {
        self.commands.push(group);
    }

    pub fn take_commands(&mut self) -> Vec<Group<Tag>> {
        std::mem::take(&mut self.commands)
    }

    pub fn take_outputs(&mut self) -> Vec<ClientOutput> {
        std::mem::take(&mut self.outputs)
    }

    /// Takes the transfers whose unsent commands must be retracted.
    pub fn take_voided(&mut self) -> Option<BTreeSet<u64>> {
        self.voided.take()
    }

    /// Starts transfers as far as possible.
    pub fn pump(&mut self) {
        if self.channel == ChannelState::Draining {
            let waits = |active: &TransferAttempt| {
                active.state == AttemptState::Void && active.final_reply.is_none()
            };
            if self.active.values().any(waits) {
                return;
            }
            self.requeue_void();
            self.channel = ChannelState::Closed;
        }
        // Each turn takes one job off the queue.
        while self.can_start()
            && let Some(waiting) = self.queue.pop_front()
        {
            self.start(waiting);
        }
    }

    pub fn is_pipelined(&self) -> bool {
        self.depth > 1
    }

    pub fn running(&self) -> impl Iterator<Item = &TransferAttempt> {
        self.active
            .values()
            .filter(|active| active.state == AttemptState::Running)
    }

    fn can_start(&mut self) -> bool {
        let Some(next) = self.queue.front().map(|waiting| &waiting.job) else {
            return false;
        };
        let running = self.running().count();
        let alone = next.is_exclusive() || self.running().any(|active| active.job.is_exclusive());
        if running >= self.depth || (alone && running > 0) {
            return false;
        }
        if self.mode == Mode::Stream {
            return !self.waits_for_unmatched();
        }
        if self.is_endangered(next) {
            return false;
        }
        let spec = ChannelSpec {
            direction: next.direction(),
            striped: self.striped && next.is_stripeable(),
        };
        match self.channel {
            ChannelState::Open(open) if open == spec && !self.broken && !self.outdated => true,
            ChannelState::Open(_) if running == 0 => {
                self.drop_data(ChannelState::Closed, self.broken);
                self.open_channel(spec);
                false
            }
            ChannelState::Closed => {
                self.open_channel(spec);
                false
            }
            _ => false,
        }
    }

    /// Returns `true` if bytes in flight can damage the stored part of this file. They were sent
    /// before the server accepted their transfer, and after a rejection the server assigns them to
    /// the next file.
    fn is_endangered(&self, next: &TransferJob) -> bool {
        let Some(max_bytes) = next.max_foreign_bytes() else {
            return false;
        };
        self.active.values().any(|active| {
            active.file.is_some()
                && active.final_reply.is_none()
                && active.job.sent_bytes() > max_bytes
        })
    }

    fn start(&mut self, waiting: QueuedTransfer) {
        let QueuedTransfer { mut job, attempt } = waiting;
        let key = self.next_key;
        self.next_key += 1;
        if let Some(size) = job.named() {
            let active = TransferAttempt::awaiting_rename(job, attempt + 1);
            self.active.insert(key, active);
            self.commands
                .push(vec![(Tag::Transfer(key, TransferCommand::Size), size)]);
            return;
        }
        let mut group = Vec::new();
        let mut add = |part, command| group.push((Tag::Transfer(key, part), command));
        if self.mode == Mode::Stream {
            add(
                TransferCommand::Passive,
                super::channel::passive(self.server),
            );
        }
        if let Some(command) = job.restart(self.mode, self.exact) {
            add(TransferCommand::Restart, command);
        }
        if let TransferJob::Put(put) = &job
            && let Some((algorithm, value)) = put.checksum.clone().filter(|_| self.checks)
        {
            add(
                TransferCommand::Check,
                FtpCommand::Scks { algorithm, value },
            );
        }
        let mut command = job.command();
        if let (false, FtpCommand::Mlsd(Some(path))) = (self.lists, &command) {
            // The argument of LIST could be a pattern or an option.
            add(
                TransferCommand::ChangeDirectory,
                FtpCommand::Cwd(path.clone()),
            );
            command = FtpCommand::List(Path::new(LIST_ALL).ok());
        }
        add(TransferCommand::Transfer, command);
        if let TransferJob::Get(Get {
            stat_after: true,
            path,
            ..
        }) = &job
        {
            add(TransferCommand::Stat, FtpCommand::Mlst(Some(path.clone())));
        }
        self.commands.push(group);
        let eager = self.eager && !job.is_exclusive() && job.direction() == TransferDirection::Send;
        let ranges = match &job {
            TransferJob::Put(put) => put.present.missing(put.size_bytes).iter().collect(),
            TransferJob::Get(_) => VecDeque::new(),
        };
        let active = TransferAttempt {
            ranges,
            ..TransferAttempt::new(job, attempt + 1)
        };
        self.active.insert(key, active);
        if eager {
            self.admit(key);
        }
    }

    /// Passes a file to the sender.
    pub fn admit(&mut self, key: u64) {
        let Some(active) = self
            .active
            .get_mut(&key)
            .filter(|_| self.mode == Mode::Extended)
        else {
            return;
        };
        if let TransferJob::Put(put) = &active.job
            && active.file.is_none()
        {
            let file = self.sender.admit(&put.present.missing(put.size_bytes), 0);
            active.file = Some(file);
            self.files.insert(file, key);
        }
    }

    /// Returns `true` if the server has reported the start.
    pub fn has_started(&self, key: u64) -> bool {
        self.active.get(&key).is_some_and(|active| active.started)
    }

    /// Returns the key of a running transfer.
    pub fn find_key(&self, transfer: u64) -> Option<u64> {
        let found = self
            .active
            .iter()
            .find(|(_, active)| active.job.transfer() == transfer);
        found.map(|(&key, _)| key)
    }
}
