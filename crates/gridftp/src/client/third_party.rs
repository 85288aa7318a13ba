//! Third-party copies: the client only sends commands on two sessions.
//!
//! Uploads are transactions here too, with a stricter rule, since the client cannot close the data
//! connections. If the source rejects a file, the destination stores the bytes of the next file in
//! it. If the destination rejects a file, the next file gets its bytes. Therefore every file has a
//! temporary name. The client renames it only after success on both sides, also of all earlier
//! files. After a rejection both sessions are reopened, and all later files are repeated.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use super::channel::{active, all_addresses, all_passive, passive, passive_address};
use crate::{FtpCommand, FtpReply, Mode, Path, number};

/// A file to be copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyPair {
    /// Number chosen by the driver.
    pub transfer: u64,
    /// Path at the source.
    pub from: Path,
    /// Path at the destination.
    pub to: Path,
    /// Temporary path at the destination.
    pub temporary: Path,
    /// Size, if known, to check the result.
    pub size_bytes: Option<u64>,
}

/// One of the two sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionSide {
    /// Sends the files.
    Source,
    /// Receives the files.
    Destination,
}

/// Action for the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThirdPartyOutput {
    /// Pass this to [`Client::request`](super::Client::request) of this side, and its reply to
    /// [`ThirdParty::handle_reply`].
    Request {
        /// Side of the request.
        side: SessionSide,
        /// Number of the request.
        request: u64,
        /// The command.
        command: FtpCommand,
    },
    /// Close both sessions, open new ones with the same settings, and call
    /// [`ThirdParty::reopened`].
    Reopen,
    /// A file is complete, under its final name.
    Done {
        /// Number of the copy.
        transfer: u64,
    },
    /// A file failed.
    Failed {
        /// Number of the copy.
        transfer: u64,
        /// Description of the failure.
        reason: String,
        /// `true` if another attempt can succeed.
        again: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Passive,
    Active,
    Retrieve(u64),
    Store(u64),
    Size(u64),
    RenameFrom(u64),
    RenameTo(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChannelState {
    Closed,
    Requested,
    Open,
    Reopening,
}

#[derive(Debug)]
struct Active {
    pair: CopyPair,
    attempt: u32,
    started: bool,
    read: bool,
    written: bool,
    committing: bool,
}

/// Copies over one pair of sessions; both must be ready and have no other use.
#[derive(Debug)]
pub struct ThirdParty {
    mode: Mode,
    depth: usize,
    attempts: u32,
    destination: IpAddr,
    striped: bool,
    queue: VecDeque<(CopyPair, u32)>,
    active: BTreeMap<u64, Active>,
    next_key: u64,
    requests: BTreeMap<u64, Meaning>,
    next_request: u64,
    channel: ChannelState,
    outputs: VecDeque<ThirdPartyOutput>,
}

impl ThirdParty {
    /// Creates copies over two sessions that both use `mode`. Pipelines up to `depth` copies and
    /// makes at most `attempts` attempts of each.
    ///
    /// `destination` is the address of the destination's control connection. If `striped`, all data
    /// nodes of both servers move each file, in MODE E; both servers must support SPAS and SPOR.
    #[must_use]
    pub fn new(
        pairs: Vec<CopyPair>,
        mode: Mode,
        depth: usize,
        attempts: u32,
        destination: IpAddr,
        striped: bool,
    ) -> Self {
        let mut copies = Self {
            mode,
            // In MODE S every file has its own connection, so pipelining is impossible.
            depth: if mode == Mode::Stream {
                1
            } else {
                depth.max(1)
            },
            attempts: attempts.max(1),
            destination,
            striped: striped && mode == Mode::Extended,
            queue: pairs.into_iter().map(|pair| (pair, 0)).collect(),
            active: BTreeMap::new(),
            next_key: 0,
            requests: BTreeMap::new(),
            next_request: 0,
            channel: ChannelState::Closed,
            outputs: VecDeque::new(),
        };
        copies.pump();
        copies
    }

    /// Returns the next action for the driver. `None` and [`is_done`](Self::is_done): everything
    /// was reported.
    pub fn poll_output(&mut self) -> Option<ThirdPartyOutput> {
        self.outputs.pop_front()
    }

    /// Returns `true` if all copies are done or failed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.queue.is_empty() && self.active.is_empty()
    }

    /// Handles a reply to a request, including preliminary ones.
    pub fn handle_reply(&mut self, request: u64, reply: &FtpReply) {
        let Some(&meaning) = self.requests.get(&request) else {
            return;
        };
        if reply.is_preliminary() {
            if let Meaning::Retrieve(key) | Meaning::Store(key) = meaning
                && matches!(reply.code, 125 | 150)
                && let Some(active) = self.active.get_mut(&key)
            {
                active.started = true;
            }
            return;
        }
        self.requests.remove(&request);
        self.replied(meaning, reply);
        self.pump();
    }

    /// Handles a lost session; both must be reopened.
    pub fn lost(&mut self, reason: &str) {
        match self
            .active
            .iter()
            .find(|(_, active)| !active.committing)
            .map(|(&key, _)| key)
        {
            Some(key) => self.failed(key, reason, true),
            None => self.channel_failed(reason),
        }
    }

    /// Reports that both new sessions are ready.
    pub fn reopened(&mut self) {
        self.channel = ChannelState::Closed;
        self.pump();
    }

    fn replied(&mut self, meaning: Meaning, reply: &FtpReply) {
        let found = reply.is_success();
        match meaning {
            Meaning::Passive => {
                let command = if self.striped {
                    let addresses = all_addresses(reply, self.destination);
                    (!addresses.is_empty()).then_some(FtpCommand::Spor(addresses))
                } else {
                    passive_address(reply, self.destination).map(active)
                };
                match command {
                    Some(command) => self.request(SessionSide::Source, Meaning::Active, command),
                    None => self.channel_failed(&format!("cannot open data connections: {reply}")),
                }
            }
            Meaning::Active if found => self.channel = ChannelState::Open,
            Meaning::Active => {
                self.channel_failed(&format!("cannot open data connections: {reply}"))
            }
            Meaning::Retrieve(key) | Meaning::Store(key) if found => {
                if let Some(active) = self.active.get_mut(&key) {
                    match meaning {
                        Meaning::Retrieve(_) => active.read = true,
                        _ => active.written = true,
                    }
                }
                self.commit();
            }
            Meaning::Retrieve(key) | Meaning::Store(key) => {
                let started = self.active.get(&key).is_some_and(|active| active.started);
                self.failed(
                    key,
                    &reply.to_string(),
                    started || reply.is_transient_failure(),
                );
            }
            Meaning::Size(key) => self.sized(key, reply),
            Meaning::RenameFrom(key) if !reply.is_intermediate() => {
                // RNTO cannot succeed.
                self.unnamed(key, reply);
            }
            Meaning::RenameFrom(_) => {}
            Meaning::RenameTo(key) if found => {
                if let Some(active) = self.active.remove(&key) {
                    let transfer = active.pair.transfer;
                    self.outputs.push_back(ThirdPartyOutput::Done { transfer });
                }
            }
            Meaning::RenameTo(key) => self.unnamed(key, reply),
        }
    }

    fn unnamed(&mut self, key: u64, reply: &FtpReply) {
        if let Some(active) = self.active.remove(&key) {
            self.charge(
                active.pair,
                active.attempt,
                &format!("cannot rename: {reply}"),
                false,
            );
        }
    }

    fn request(&mut self, side: SessionSide, meaning: Meaning, command: FtpCommand) {
        let request = self.next_request;
        self.next_request += 1;
        self.requests.insert(request, meaning);
        self.outputs.push_back(ThirdPartyOutput::Request {
            side,
            request,
            command,
        });
    }

    fn pump(&mut self) {
        let running = self
            .active
            .values()
            .filter(|active| !active.committing)
            .count();
        if self.channel == ChannelState::Closed && running == 0 && !self.queue.is_empty() {
            self.channel = ChannelState::Requested;
            let command = match self.striped {
                true => all_passive(self.destination),
                false => passive(self.destination),
            };
            self.request(SessionSide::Destination, Meaning::Passive, command);
        }
        if self.channel != ChannelState::Open {
            return;
        }
        for _ in running..self.depth {
            let Some((pair, attempt)) = self.queue.pop_front() else {
                return;
            };
            let key = self.next_key;
            self.next_key += 1;
            let (temporary, from) = (pair.temporary.clone(), pair.from.clone());
            let active = Active {
                pair,
                attempt: attempt + 1,
                started: false,
                read: false,
                written: false,
                committing: false,
            };
            self.active.insert(key, active);
            self.request(
                SessionSide::Destination,
                Meaning::Store(key),
                FtpCommand::Stor(temporary),
            );
            self.request(
                SessionSide::Source,
                Meaning::Retrieve(key),
                FtpCommand::Retr(from),
            );
        }
    }

    /// Commits copies in order, after success on both sides.
    fn commit(&mut self) {
        let waiting = self
            .active
            .iter_mut()
            .filter(|(_, active)| !active.committing);
        let ready = waiting.take_while(|(_, active)| active.read && active.written);
        let commit = |(&key, active): (&u64, &mut Active)| {
            active.committing = true;
            (key, active.pair.temporary.clone())
        };
        for (key, temporary) in ready.map(commit).collect::<Vec<_>>() {
            if self.mode == Mode::Stream {
                self.channel = ChannelState::Closed;
            }
            self.request(
                SessionSide::Destination,
                Meaning::Size(key),
                FtpCommand::Size(temporary),
            );
        }
    }

    fn sized(&mut self, key: u64, reply: &FtpReply) {
        let Some(pair) = self.active.get(&key).map(|active| active.pair.clone()) else {
            return;
        };
        let found = reply
            .lines
            .last()
            .and_then(|text| number::<u64>(text.trim_ascii()));
        match (pair.size_bytes, found.filter(|_| reply.is_success())) {
            (Some(expected), Some(found)) if expected != found => {
                let reason = format!("expected {expected} bytes at the destination, found {found}");
                self.failed(key, &reason, true);
            }
            _ => {
                let (from, to) = (FtpCommand::Rnfr(pair.temporary), FtpCommand::Rnto(pair.to));
                self.request(SessionSide::Destination, Meaning::RenameFrom(key), from);
                self.request(SessionSide::Destination, Meaning::RenameTo(key), to);
            }
        }
    }

    fn channel_failed(&mut self, reason: &str) {
        if let Some((pair, attempt)) = self.queue.pop_front() {
            self.charge(pair, attempt + 1, reason, true);
        }
        self.reopen();
    }

    fn failed(&mut self, key: u64, reason: &str, again: bool) {
        if let Some(active) = self.active.remove(&key) {
            self.charge(active.pair, active.attempt, reason, again);
        }
        self.reopen();
    }

    fn charge(&mut self, pair: CopyPair, attempt: u32, reason: &str, again: bool) {
        if again && attempt < self.attempts {
            return self.queue.push_front((pair, attempt));
        }
        let (transfer, reason) = (pair.transfer, reason.to_owned());
        self.outputs.push_back(ThirdPartyOutput::Failed {
            transfer,
            reason,
            again,
        });
    }

    /// Voids everything in flight, including renames: their result is unknown, and repeating them
    /// is safe.
    fn reopen(&mut self) {
        for (_, active) in std::mem::take(&mut self.active).into_iter().rev() {
            self.queue.push_front((active.pair, active.attempt - 1));
        }
        self.requests.clear();
        let more = !self.queue.is_empty();
        if more && self.channel != ChannelState::Reopening {
            self.channel = ChannelState::Reopening;
            self.outputs
                .retain(|output| !matches!(output, ThirdPartyOutput::Request { .. }));
            self.outputs.push_back(ThirdPartyOutput::Reopen);
        }
    }
}
