//! Data connections: how they are opened, what comes on them, what goes, and what their end means.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::job::{Direction, Get, Job, Output, Source};
use super::transfers::{Active, State, Transfers};
use super::{Client, Tag};
use crate::address::{Passive, parse_extended, parse_host_port};
use crate::mode_e::{Chunk, Payload, Receiver, Sender, Taken};
use crate::{ByteRanges, Command, DataOut, Delivered, Delivery, Error, Mode, Reply};

/// The data connections of a pipeline in MODE E.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// There are none.
    Closed,
    /// The driver is to say where it listens.
    Listening,
    /// The server is to answer PORT or PASV.
    Asked(Direction),
    /// The driver opens them.
    Connecting,
    /// They serve this direction, or will when the server opens them.
    Open(Direction),
    /// They are dropped; answers to what was asked on them are still to come.
    Draining,
}

/// The command that asks where to connect to.
pub(super) fn passive(server: IpAddr) -> Command {
    if server.is_ipv4() {
        Command::Pasv
    } else {
        Command::Epsv(None)
    }
}

/// What it is answered with: `227 text (h1,…,p2)` or `229 text (|||port|)`. Some servers leave the brackets out.
pub(super) fn passive_address(reply: &Reply, server: IpAddr) -> Option<SocketAddr> {
    let text = reply.lines.last()?;
    let inside = match text.iter().position(|&byte| byte == b'(') {
        Some(begin) => text[begin + 1..].split(|&byte| byte == b')').next()?,
        None => text
            .rsplit(|&byte| byte == b' ')
            .find(|word| word.contains(&b','))?,
    };
    let passive = match reply.code {
        227 => Passive::Full(SocketAddr::V4(parse_host_port(inside).ok()?)),
        229 => parse_extended(inside).ok()?,
        _ => return None,
    };
    Some(passive.resolve(server))
}

impl Client {
    /// The driver listens here for data connections, as it was told to.
    pub fn listening(&mut self, now: Duration, address: SocketAddr) {
        self.moved = self.moved.max(now);
        self.transfers.listening(address);
        self.pump();
    }

    /// The driver cannot listen, or not connect; in MODE S for this transfer.
    pub fn connect_failed(&mut self, now: Duration, transfer: Option<u64>, reason: &str) {
        self.moved = self.moved.max(now);
        match transfer {
            Some(transfer) => self.transfers.connected(transfer, Err(reason)),
            None => self.transfers.channel_failed(reason),
        }
        self.pump();
    }

    /// A data connection is open, under a number that none had before; in MODE S for this transfer. False: it is not wanted
    /// any more, close it.
    pub fn data_opened(&mut self, now: Duration, connection: u64, transfer: Option<u64>) -> bool {
        self.moved = self.moved.max(now);
        self.transfers.opened(connection, transfer);
        self.pump();
        self.transfers.links.contains_key(&connection)
    }

    /// A data connection has ended: cleanly, or by an error.
    pub fn data_closed(&mut self, now: Duration, connection: u64, cleanly: bool) {
        self.moved = self.moved.max(now);
        self.transfers.closed(connection, cleanly);
        self.pump();
    }

    /// Offers bytes of a data connection. To be called again with the rest until nothing is consumed.
    pub fn handle_data(&mut self, now: Duration, connection: u64, input: &[u8]) -> Delivered {
        let take = |receiver: &mut Receiver| receiver.handle_input(connection, input);
        let delivered = self.transfers.deliver(connection, input.len(), take);
        self.delivered(now, delivered)
    }

    /// A transfer of a file, and how many bytes of that, and of nothing else, come next on a data connection, where that is known. A driver
    /// may move some of them straight to where they belong, and tell so by [`handle_payload`](Self::handle_payload).
    #[must_use]
    pub fn coming(&self, connection: u64) -> Option<(u64, u64)> {
        self.transfers.coming(connection)
    }

    /// Takes bytes that the driver has moved from a data connection without showing them, at most what is
    /// [`coming`](Self::coming). They belong where the answer says; nowhere, if there is no payload in it.
    pub fn handle_payload(&mut self, now: Duration, connection: u64, bytes: usize) -> Delivered {
        let take = |receiver: &mut Receiver| receiver.handle_payload(connection, bytes);
        let delivered = self.transfers.deliver(connection, bytes, take);
        self.delivered(now, delivered)
    }

    fn delivered(&mut self, now: Duration, delivered: Delivered) -> Delivered {
        if delivered.consumed > 0 {
            self.moved = self.moved.max(now);
        }
        self.pump();
        delivered
    }

    /// What a data connection is to send next. Nothing: ask again after the next input on the control connection.
    pub fn poll_data(&mut self, now: Duration, connection: u64) -> Option<DataOut> {
        let out = self.transfers.send(connection);
        if out.is_some() {
            self.moved = self.moved.max(now);
        }
        out
    }
}

impl Transfers {
    pub fn open_channel(&mut self, direction: Direction) {
        match direction {
            Direction::Receive => {
                self.channel = Channel::Listening;
                self.outputs.push(Output::Listen);
            }
            Direction::Send => {
                self.channel = Channel::Asked(direction);
                self.submit(vec![(Tag::Channel, passive(self.server))]);
            }
        }
    }

    pub fn drop_data(&mut self, then: Channel) {
        self.outputs.push(Output::DropData);
        self.channel = then;
        self.broken = false;
        self.links.clear();
        self.slots.clear();
        self.files.clear();
    }

    fn listening(&mut self, address: SocketAddr) {
        if self.channel == Channel::Listening {
            self.channel = Channel::Asked(Direction::Receive);
            let command = match address {
                SocketAddr::V4(address) => Command::Port(address),
                SocketAddr::V6(_) => Command::Eprt(address),
            };
            self.submit(vec![(Tag::Channel, command)]);
        }
    }

    pub fn channel_answered(&mut self, reply: &Reply) {
        match self.channel {
            Channel::Asked(Direction::Receive) if reply.is_success() => {
                self.receiver = Receiver::new(self.is_pipelined());
                self.channel = Channel::Open(Direction::Receive);
            }
            Channel::Asked(Direction::Send) if reply.is_success() => {
                let Some(address) = passive_address(reply, self.server) else {
                    return self.channel_failed(&format!("no address: {reply}"));
                };
                self.channel = Channel::Connecting;
                let connections = self.connections;
                self.outputs.push(Output::Connect {
                    address,
                    connections,
                    transfer: None,
                });
            }
            Channel::Asked(_) => self.channel_failed(&format!("no data connections: {reply}")),
            _ => {}
        }
    }

    fn opened(&mut self, connection: u64, transfer: Option<u64>) {
        match (self.channel, transfer) {
            (_, Some(transfer)) => self.connected(transfer, Ok(connection)),
            (Channel::Connecting, None) => {
                self.links.insert(connection, 0);
                if self.links.len() == usize::from(self.connections) {
                    self.sender = Sender::new(self.links.keys().copied(), self.block_bytes);
                    self.channel = Channel::Open(Direction::Send);
                }
            }
            (Channel::Open(Direction::Receive), None) => {
                self.links.insert(connection, 0);
                if let Err(error) = self.receiver.connect(connection) {
                    self.blame(&error.to_string());
                }
            }
            _ => {}
        }
    }

    /// Whether what was to come on data connections cannot come any more.
    pub fn is_lost(&self) -> bool {
        self.mode == Mode::Extended && self.broken && self.receiver.connections() == 0
    }

    fn closed(&mut self, connection: u64, cleanly: bool) {
        let Some(key) = self.links.remove(&connection) else {
            return;
        };
        if self.mode == Mode::Stream {
            return self.stream_closed(key, cleanly);
        }
        self.broken = true;
        match self.channel {
            Channel::Connecting => self.channel_failed("a data connection closed"),
            Channel::Open(Direction::Receive) => {
                // The reply of the server says better why; without one, the last connection that closes does.
                let _ = self.receiver.disconnect(connection);
                if self.is_lost() {
                    let keys: Vec<u64> = self.active.keys().copied().collect();
                    keys.into_iter().for_each(|key| self.settle(key));
                }
            }
            _ => {}
        }
    }

    fn stream_closed(&mut self, key: u64, cleanly: bool) {
        let Some(active) = self.active.get_mut(&key) else {
            return;
        };
        if !cleanly {
            active
                .spoiled
                .get_or_insert_with(|| "the data connection broke".to_owned());
        }
        if let Job::Get(get) = &active.job {
            let start = get.present.prefix_bytes();
            active.whole = Some(ByteRanges::of(start..start + active.position));
        }
        self.settle(key);
    }

    fn coming(&self, connection: u64) -> Option<(u64, u64)> {
        let link = self.links.get(&connection)?;
        let (key, bytes) = match self.mode {
            Mode::Stream => (link, u64::MAX),
            Mode::Extended => {
                let (slot, bytes) = self.receiver.coming(connection)?;
                (self.slots.get(&slot)?, bytes)
            }
        };
        let active = self.active.get(key)?;
        let Job::Get(get) = &active.job else {
            return None;
        };
        let is_file = matches!(get.source, Source::File | Source::Region { .. });
        if !is_file || !active.begun || active.spoiled.is_some() || active.state != State::Running {
            return None;
        }
        let left = get.expected_bytes().filter(|_| self.mode == Mode::Stream);
        let gone = get.present.prefix_bytes() + active.position;
        let bytes = left.map_or(bytes, |size| size.saturating_sub(gone));
        Some((get.transfer, bytes))
    }

    /// What became of `bytes` of a connection; `take` has the receiver take them, in MODE E.
    fn deliver(
        &mut self,
        connection: u64,
        bytes: usize,
        take: impl FnOnce(&mut Receiver) -> Result<Taken, Error>,
    ) -> Delivered {
        let nothing = Delivered {
            consumed: bytes,
            payload: None,
        };
        match (self.mode, self.links.get(&connection)) {
            (_, None) => nothing,
            (Mode::Stream, Some(&key)) => self.deliver_stream(key, bytes).unwrap_or(nothing),
            (Mode::Extended, Some(_)) => {
                let taken = match take(&mut self.receiver) {
                    Ok(taken) => taken,
                    Err(error) => {
                        self.blame(&error.to_string());
                        return nothing;
                    }
                };
                let payload = match taken.payload.map(|payload| self.place(payload)) {
                    Some(None) => return nothing,
                    Some(placed) => placed,
                    None => None,
                };
                self.collect_received();
                Delivered {
                    consumed: taken.consumed,
                    payload,
                }
            }
        }
    }

    fn deliver_stream(&mut self, key: u64, bytes: usize) -> Option<Delivered> {
        let active = self.active.get_mut(&key)?;
        if !active.begun && active.spoiled.is_none() {
            // Whether the server goes on where it was asked to is known when it begins.
            return Some(Delivered::default());
        }
        let Job::Get(get) = &active.job else {
            return None;
        };
        let offset = get.present.prefix_bytes() + active.position;
        if let Err(reason) = fits(get, offset, bytes) {
            active.spoiled.get_or_insert(reason);
        }
        if active.spoiled.is_some() || bytes == 0 {
            return None;
        }
        active.position += bytes as u64;
        let (transfer, offset) = (get.transfer, get.base() + offset);
        let payload = Some(Delivery {
            transfer,
            offset,
            bytes,
        });
        Some(Delivered {
            consumed: bytes,
            payload,
        })
    }

    /// Whose bytes these are; nothing if they cannot be anybody's.
    fn place(&mut self, payload: Payload) -> Option<Delivery> {
        let key = *self.slots.get(&payload.transfer)?;
        let Some(Active {
            job: Job::Get(get),
            state: State::Running,
            ..
        }) = self.active.get(&key)
        else {
            return None;
        };
        if let Err(reason) = fits(get, payload.offset, payload.bytes) {
            self.failed(key, &reason, true);
            return None;
        }
        let offset = get.base().checked_add(payload.offset)?;
        Some(Delivery {
            transfer: get.transfer,
            offset,
            bytes: payload.bytes,
        })
    }

    fn collect_received(&mut self) {
        while let Some(received) = self.receiver.poll_received() {
            let Some(key) = self.slots.remove(&received.transfer) else {
                continue;
            };
            if let Some(active) = self.active.get_mut(&key) {
                active.whole = Some(received.ranges);
            }
            self.settle(key);
        }
    }

    fn send(&mut self, connection: u64) -> Option<DataOut> {
        let link = *self.links.get(&connection)?;
        if self.mode == Mode::Stream {
            return self.send_stream(link);
        }
        if self.channel != Channel::Open(Direction::Send) {
            return None;
        }
        match self.sender.poll(connection)? {
            Chunk::End { header, .. } => Some(DataOut::Bytes(header.to_vec())),
            Chunk::Block {
                header,
                file,
                offset,
                bytes,
            } => {
                let key = self.files.get(&file)?;
                let job = &self.active.get(key)?.job;
                Some(DataOut::Payload {
                    header: Some(header),
                    transfer: job.transfer(),
                    offset: job.base().checked_add(offset)?,
                    bytes,
                })
            }
        }
    }

    fn send_stream(&mut self, key: u64) -> Option<DataOut> {
        let most = self.block_bytes;
        let active = self.active.get_mut(&key)?;
        if active.closed || active.job.direction() == Direction::Receive {
            return None;
        }
        let Some(piece) = active.pieces.front_mut() else {
            active.closed = true;
            return Some(DataOut::Close);
        };
        let offset = piece.start;
        let bytes = (piece.end - offset).min(most);
        piece.start += bytes;
        if piece.is_empty() {
            active.pieces.pop_front();
        }
        Some(DataOut::Payload {
            header: None,
            transfer: active.job.transfer(),
            offset: active.job.base().checked_add(offset)?,
            bytes,
        })
    }
}

/// A server may not send more than it is known to have.
fn fits(get: &Get, offset: u64, bytes: usize) -> Result<(), String> {
    let end = offset.saturating_add(bytes as u64);
    match get.expected_bytes() {
        Some(size) if end > size => Err(format!("expected {size} bytes, found one at {}", end - 1)),
        _ => Ok(()),
    }
}
