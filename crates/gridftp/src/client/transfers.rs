//! Transfers that wait, that are asked for, and that are made final.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use super::Tag;
use super::active::{Active, Part, State};
use super::channel::{Channel, Way};
use super::control::Group;
use super::job::{Direction, Get, Job, Output};
use super::settings::{Settings, Upload};
use super::strays::Strays;
use crate::mode_e::{Receiver, Sender};
use crate::{Command, Features, Mode, Path};

/// Of LIST: names that begin with a dot, too.
const LIST_ALL: &[u8] = b"-a";

/// Whose a data connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    /// A transfer's, by its key, in MODE S.
    Of(u64),
    /// All transfers', to this data node of the server, in MODE E.
    Stripe(u16),
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub job: Job,
    /// How often it was tried.
    pub tries: u32,
}

pub(super) struct Transfers {
    pub mode: Mode,
    pub server: IpAddr,
    pub connections: u16,
    pub block_bytes: u64,
    pub depth: usize,
    pub attempts: u32,
    pub eager: bool,
    /// Whether the server reads the ends of ranges as exclusive.
    pub exact: bool,
    /// Whether the server checks checksums.
    pub checks: bool,
    /// Whether data connections may be those of other hosts.
    pub has_data_nodes: bool,
    /// Whether the server has listings for programs.
    pub lists: bool,
    /// Whether the server has MFMT.
    pub has_mfmt: bool,
    /// Whether the server tells when files were written to.
    pub tells_times: bool,
    pub queue: VecDeque<Waiting>,
    pub active: BTreeMap<u64, Active>,
    pub next_key: u64,
    pub channel: Channel,
    /// Which it is, from 1 on: answers to what was asked for an earlier one may still come.
    pub channel_number: u64,
    /// Data connections that are to be opened before there is a transfer.
    pub prepared: Option<Direction>,
    /// A data connection is gone: nothing more is begun on the others.
    pub broken: bool,
    /// Others are wanted: nothing more is begun on the ones that are there.
    pub outdated: bool,
    pub receiver: Receiver,
    pub sender: Sender,
    /// Number in the receiver → key.
    pub slots: BTreeMap<u64, u64>,
    /// Number in the sender → key.
    pub files: BTreeMap<u64, u64>,
    /// Data connections.
    pub links: BTreeMap<u64, Link>,
    /// Whether the data nodes of the server share each file, and how many they are.
    pub striped: bool,
    pub stripes: u16,
    /// Where the driver listens, until it is told to all data nodes.
    pub listening_at: Option<SocketAddr>,
    pub strays: Strays,
    pub commands: Vec<Group<Tag>>,
    pub outputs: Vec<Output>,
    pub voided: Option<BTreeSet<u64>>,
}

impl Transfers {
    pub fn new(settings: &Settings) -> Self {
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
            has_mfmt: true,
            tells_times: false,
            queue: VecDeque::new(),
            active: BTreeMap::new(),
            next_key: 0,
            channel: Channel::Closed,
            channel_number: 0,
            prepared: None,
            broken: false,
            outdated: false,
            receiver: Receiver::new(true, 1),
            sender: Sender::new([], 1),
            slots: BTreeMap::new(),
            files: BTreeMap::new(),
            links: BTreeMap::new(),
            striped: false,
            stripes: 1,
            listening_at: None,
            strays: Strays::default(),
            commands: Vec::new(),
            outputs: Vec::new(),
            voided: None,
        }
    }

    /// The session is ready; what the server is has been learned.
    pub fn ready(&mut self, settings: &Settings, features: &Features) {
        self.mode = settings.mode;
        let upload = settings.upload.unwrap_or(if features.is_globus() {
            Upload::Eager
        } else {
            Upload::Gated
        });
        self.eager = upload == Upload::Eager;
        self.exact = features.is_globus();
        self.checks = features.has("SCKS");
        self.lists = features.lists();
        self.has_mfmt = features.is_globus() || features.has("MFMT");
        self.tells_times = features.tells_times();
        self.has_data_nodes = features.has_data_nodes();
        self.striped = settings.striped
            && self.mode == Mode::Extended
            && features.has("SPAS")
            && features.has("SPOR");
        if self.mode == Mode::Stream && self.channel != Channel::Closed {
            self.drop_data(Channel::Closed, false);
        }
    }

    /// Opens data connections ahead of the first transfer.
    pub fn prepare(&mut self) {
        if let Some(direction) = self.prepared.take()
            && self.mode == Mode::Extended
            && self.channel == Channel::Closed
        {
            let striped = self.striped;
            self.open_channel(Way { direction, striped });
        }
    }

    /// So many data connections from now on.
    pub fn widen(&mut self, connections: u16) {
        self.connections = connections;
        self.outdated = self.channel != Channel::Closed;
    }

    pub fn len(&self) -> usize {
        self.queue.len() + self.active.len()
    }

    pub fn add(&mut self, job: Job) {
        self.queue.push_back(Waiting { job, tries: 0 });
    }

    pub fn submit(&mut self, group: Group<Tag>) {
        self.commands.push(group);
    }

    pub fn take_commands(&mut self) -> Vec<Group<Tag>> {
        std::mem::take(&mut self.commands)
    }

    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Transfers whose commands are to be taken back as far as they are not written.
    pub fn take_voided(&mut self) -> Option<BTreeSet<u64>> {
        self.voided.take()
    }

    /// Begins what can be begun.
    pub fn pump(&mut self) {
        if self.channel == Channel::Draining {
            let waits = |active: &Active| active.state == State::Void && active.answer.is_none();
            if self.active.values().any(waits) {
                return;
            }
            self.requeue_void();
            self.channel = Channel::Closed;
        }
        // Each turn takes one job off the queue.
        while self.may_begin()
            && let Some(waiting) = self.queue.pop_front()
        {
            self.begin(waiting);
        }
    }

    pub fn is_pipelined(&self) -> bool {
        self.depth > 1
    }

    pub fn running(&self) -> impl Iterator<Item = &Active> {
        self.active
            .values()
            .filter(|active| active.state == State::Running)
    }

    fn may_begin(&mut self) -> bool {
        let Some(next) = self.queue.front().map(|waiting| &waiting.job) else {
            return false;
        };
        let running = self.running().count();
        let alone = next.is_alone() || self.running().any(|active| active.job.is_alone());
        if running >= self.depth || (alone && running > 0) {
            return false;
        }
        if self.mode == Mode::Stream {
            return !self.waits_for_strays();
        }
        if self.is_endangered(next) {
            return false;
        }
        let way = Way {
            direction: next.direction(),
            striped: self.striped && next.is_shared(),
        };
        match self.channel {
            Channel::Open(open) if open == way && !self.broken && !self.outdated => true,
            Channel::Open(_) if running == 0 => {
                self.drop_data(Channel::Closed, self.broken);
                self.open_channel(way);
                false
            }
            Channel::Closed => {
                self.open_channel(way);
                false
            }
            _ => false,
        }
    }

    /// Whether bytes that are on their way could do harm to what is at the server of this file already: they were sent before the server took
    /// their transfer, and one that refuses it takes them for those of the next.
    fn is_endangered(&self, next: &Job) -> bool {
        let Some(most) = next.bears_bytes() else {
            return false;
        };
        self.active.values().any(|active| {
            active.file.is_some() && active.answer.is_none() && active.job.sent_bytes() > most
        })
    }

    fn begin(&mut self, waiting: Waiting) {
        let Waiting { mut job, tries } = waiting;
        let key = self.next_key;
        self.next_key += 1;
        if let Some(size) = job.named() {
            let active = Active::there(job, tries + 1);
            self.active.insert(key, active);
            self.commands
                .push(vec![(Tag::Transfer(key, Part::Size), size)]);
            return;
        }
        let mut group = Vec::new();
        let mut add = |part, command| group.push((Tag::Transfer(key, part), command));
        if self.mode == Mode::Stream {
            add(Part::Passive, super::channel::passive(self.server));
        }
        if let Some(command) = job.restart(self.mode, self.exact) {
            add(Part::Restart, command);
        }
        if let Job::Put(put) = &job
            && let Some((algorithm, value)) = put.checksum.clone().filter(|_| self.checks)
        {
            add(Part::Check, Command::Scks { algorithm, value });
        }
        let mut command = job.command();
        if let (false, Command::Mlsd(Some(path))) = (self.lists, &command) {
            // A path behind LIST may be a pattern, or an option.
            add(Part::Enter, Command::Cwd(path.clone()));
            command = Command::List(Path::new(LIST_ALL).ok());
        }
        add(Part::Transfer, command);
        if let Job::Get(Get {
            see: true, path, ..
        }) = &job
        {
            add(Part::Look, Command::Mlst(Some(path.clone())));
        }
        self.commands.push(group);
        let eager = self.eager && !job.is_alone() && job.direction() == Direction::Send;
        let pieces = match &job {
            Job::Put(put) => put.present.missing(put.size_bytes).iter().collect(),
            Job::Get(_) => VecDeque::new(),
        };
        let active = Active {
            pieces,
            ..Active::new(job, tries + 1)
        };
        self.active.insert(key, active);
        if eager {
            self.admit(key);
        }
    }

    /// Gives a file to the sender.
    pub fn admit(&mut self, key: u64) {
        let Some(active) = self
            .active
            .get_mut(&key)
            .filter(|_| self.mode == Mode::Extended)
        else {
            return;
        };
        if let Job::Put(put) = &active.job
            && active.file.is_none()
        {
            let file = self.sender.admit(&put.present.missing(put.size_bytes), 0);
            active.file = Some(file);
            self.files.insert(file, key);
        }
    }

    /// Whether the server has said that it begins.
    pub fn has_begun(&self, key: u64) -> bool {
        self.active.get(&key).is_some_and(|active| active.begun)
    }

    /// The key of a transfer that runs.
    pub fn key_of(&self, transfer: u64) -> Option<u64> {
        let found = self
            .active
            .iter()
            .find(|(_, active)| active.job.transfer() == transfer);
        found.map(|(&key, _)| key)
    }
}
