//! Copies between two servers, whose bytes pass by the client: nothing but commands on two sessions.
//!
//! The rule of uploads holds here too, and harder: the client cannot close the data connections. If the source refuses a file, the
//! destination takes the bytes of the next for it; if the destination refuses one, the next takes its bytes. So every
//! file is written under a temporary name, and gets its own only when both sides are content with it and with all before it.
//! After a refusal both sessions are opened anew, and everything behind it is done again.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use super::channel::{active, all_addresses, all_passive, passive, passive_address};
use crate::{Command, Mode, Path, Reply, number};

/// A file to be copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The driver's number for it.
    pub transfer: u64,
    /// Path at the source.
    pub from: Path,
    /// Path at the destination.
    pub to: Path,
    /// Path at the destination until all of it is there.
    pub temporary: Path,
    /// Its size, where it is known; what arrived is compared with it.
    pub size_bytes: Option<u64>,
}

/// One of the two sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It has the files.
    Source,
    /// It gets them.
    Destination,
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThirdPartyOutput {
    /// Pass this to [`Client::request`](super::Client::request) of this side, and its reply to
    /// [`ThirdParty::handle_reply`].
    Request {
        /// Which session.
        side: Side,
        /// Number of the request.
        request: u64,
        /// The command.
        command: Command,
    },
    /// Close both sessions, open new ones with the same settings, and say [`ThirdParty::reopened`].
    Reopen,
    /// A file is there, under its name.
    Done {
        /// Which.
        transfer: u64,
    },
    /// A file is not.
    Failed {
        /// Which.
        transfer: u64,
        /// Why.
        reason: String,
        /// Whether another try may succeed.
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
enum Channel {
    Closed,
    Asked,
    Open,
    Reopening,
}

#[derive(Debug)]
struct Active {
    pair: Pair,
    tries: u32,
    begun: bool,
    read: bool,
    written: bool,
    committing: bool,
}

/// The copies of one pair of sessions, both of which are ready and used for nothing else.
#[derive(Debug)]
pub struct ThirdParty {
    mode: Mode,
    depth: usize,
    attempts: u32,
    destination: IpAddr,
    striped: bool,
    queue: VecDeque<(Pair, u32)>,
    active: BTreeMap<u64, Active>,
    next_key: u64,
    requests: BTreeMap<u64, Meaning>,
    next_request: u64,
    channel: Channel,
    outputs: VecDeque<ThirdPartyOutput>,
}

impl ThirdParty {
    /// Copies in `mode`, which both sessions have, `depth` ahead. `destination` is the address of its control connection. Where it is
    /// `striped` all data nodes of both move each file, in MODE E; both must know of SPAS and SPOR.
    #[must_use]
    pub fn new(
        pairs: Vec<Pair>,
        mode: Mode,
        depth: usize,
        attempts: u32,
        destination: IpAddr,
        striped: bool,
    ) -> Self {
        let mut copies = Self {
            mode,
            // In MODE S every file has its own connection: there is nothing to pipeline on.
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
            channel: Channel::Closed,
            outputs: VecDeque::new(),
        };
        copies.pump();
        copies
    }

    /// What the driver is to do next; when there is nothing and [`is_done`](Self::is_done), all is told.
    pub fn poll_output(&mut self) -> Option<ThirdPartyOutput> {
        self.outputs.pop_front()
    }

    /// Whether all copies are done or failed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.queue.is_empty() && self.active.is_empty()
    }

    /// Takes a reply to a request, preliminary ones too.
    pub fn handle_reply(&mut self, request: u64, reply: &Reply) {
        let Some(&meaning) = self.requests.get(&request) else {
            return;
        };
        if reply.is_preliminary() {
            if let Meaning::Retrieve(key) | Meaning::Store(key) = meaning
                && matches!(reply.code, 125 | 150)
                && let Some(active) = self.active.get_mut(&key)
            {
                active.begun = true;
            }
            return;
        }
        self.requests.remove(&request);
        self.answered(meaning, reply);
        self.pump();
    }

    /// A session has ended by itself; both are to be opened anew.
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

    /// Both sessions are new, and ready.
    pub fn reopened(&mut self) {
        self.channel = Channel::Closed;
        self.pump();
    }

    fn answered(&mut self, meaning: Meaning, reply: &Reply) {
        let found = reply.is_success();
        match meaning {
            Meaning::Passive => {
                let command = if self.striped {
                    let addresses = all_addresses(reply, self.destination);
                    (!addresses.is_empty()).then_some(Command::Spor(addresses))
                } else {
                    passive_address(reply, self.destination).map(active)
                };
                match command {
                    Some(command) => self.request(Side::Source, Meaning::Active, command),
                    None => self.channel_failed(&format!("no data connections: {reply}")),
                }
            }
            Meaning::Active if found => self.channel = Channel::Open,
            Meaning::Active => self.channel_failed(&format!("no data connections: {reply}")),
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
                let begun = self.active.get(&key).is_some_and(|active| active.begun);
                self.failed(
                    key,
                    &reply.to_string(),
                    begun || reply.is_transient_failure(),
                );
            }
            Meaning::Size(key) => self.sized(key, reply),
            Meaning::RenameFrom(key) if !reply.is_intermediate() => {
                // Whatever is said to RNTO: it has nothing to name.
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

    fn unnamed(&mut self, key: u64, reply: &Reply) {
        if let Some(active) = self.active.remove(&key) {
            self.charge(
                active.pair,
                active.tries,
                &format!("no name: {reply}"),
                false,
            );
        }
    }

    fn request(&mut self, side: Side, meaning: Meaning, command: Command) {
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
        if self.channel == Channel::Closed && running == 0 && !self.queue.is_empty() {
            self.channel = Channel::Asked;
            let command = match self.striped {
                true => all_passive(self.destination),
                false => passive(self.destination),
            };
            self.request(Side::Destination, Meaning::Passive, command);
        }
        if self.channel != Channel::Open {
            return;
        }
        for _ in running..self.depth {
            let Some((pair, tries)) = self.queue.pop_front() else {
                return;
            };
            let key = self.next_key;
            self.next_key += 1;
            let (temporary, from) = (pair.temporary.clone(), pair.from.clone());
            let active = Active {
                pair,
                tries: tries + 1,
                begun: false,
                read: false,
                written: false,
                committing: false,
            };
            self.active.insert(key, active);
            self.request(
                Side::Destination,
                Meaning::Store(key),
                Command::Stor(temporary),
            );
            self.request(Side::Source, Meaning::Retrieve(key), Command::Retr(from));
        }
    }

    /// Commits copies in their order, as far as both sides are content.
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
                self.channel = Channel::Closed;
            }
            self.request(
                Side::Destination,
                Meaning::Size(key),
                Command::Size(temporary),
            );
        }
    }

    fn sized(&mut self, key: u64, reply: &Reply) {
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
                let (from, to) = (Command::Rnfr(pair.temporary), Command::Rnto(pair.to));
                self.request(Side::Destination, Meaning::RenameFrom(key), from);
                self.request(Side::Destination, Meaning::RenameTo(key), to);
            }
        }
    }

    fn channel_failed(&mut self, reason: &str) {
        if let Some((pair, tries)) = self.queue.pop_front() {
            self.charge(pair, tries + 1, reason, true);
        }
        self.reopen();
    }

    fn failed(&mut self, key: u64, reason: &str, again: bool) {
        if let Some(active) = self.active.remove(&key) {
            self.charge(active.pair, active.tries, reason, again);
        }
        self.reopen();
    }

    fn charge(&mut self, pair: Pair, tries: u32, reason: &str, again: bool) {
        if again && tries < self.attempts {
            return self.queue.push_front((pair, tries));
        }
        let (transfer, reason) = (pair.transfer, reason.to_owned());
        self.outputs.push_back(ThirdPartyOutput::Failed {
            transfer,
            reason,
            again,
        });
    }

    /// What is on its way is void, renames included: whether they were carried out is unknown, and doing it again is safe.
    fn reopen(&mut self) {
        for (_, active) in std::mem::take(&mut self.active).into_iter().rev() {
            self.queue.push_front((active.pair, active.tries - 1));
        }
        self.requests.clear();
        let more = !self.queue.is_empty();
        if more && self.channel != Channel::Reopening {
            self.channel = Channel::Reopening;
            self.outputs
                .retain(|output| !matches!(output, ThirdPartyOutput::Request { .. }));
            self.outputs.push_back(ThirdPartyOutput::Reopen);
        }
    }
}
