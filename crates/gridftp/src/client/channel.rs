//! Data connections: how they are opened, and what their end means.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::job::{Direction, Job, Output, Purpose};
use super::transfers::{Link, Transfers};
use super::{Client, Tag};
use crate::address::{MAX_STRIPES, Passive, parse_either, parse_extended, parse_host_port};
use crate::mode_e::{Receiver, Sender};
use crate::{ByteRanges, Command, Family, Mode, Reply};

/// What data connections in MODE E are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub direction: Direction,
    /// Whether all data nodes of the server have some.
    pub striped: bool,
}

/// The data connections of a pipeline in MODE E.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// There are none.
    Closed,
    /// The driver is to say where it listens.
    Listening(Way),
    /// The server is to answer PORT or PASV.
    Asked(Way),
    /// The driver opens them.
    Connecting(Way),
    /// They serve this direction, or will when the server opens them. One that takes commands ahead may still have to answer PORT.
    Open(Way),
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

/// The same of all data nodes of a server.
pub(super) fn all_passive(server: IpAddr) -> Command {
    Command::Spas(server.is_ipv6().then_some(Family::V6))
}

/// The command that says where to connect to.
pub(super) fn active(address: SocketAddr) -> Command {
    match address {
        SocketAddr::V4(address) => Command::Port(address),
        SocketAddr::V6(_) => Command::Eprt(address),
    }
}

/// What PASV is answered with: `227 text (h1,…,p2)` or `229 text (|||port|)`. Some servers leave the brackets out.
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

/// Where all data nodes of a server listen: `229-text`, a line for each, `229 End`. Of a server with one it may be what PASV says.
pub(super) fn all_addresses(reply: &Reply, server: IpAddr) -> Vec<SocketAddr> {
    let listed = reply.lines.get(1..reply.lines.len().saturating_sub(1));
    let read = |line: &Vec<u8>| {
        let address = parse_either(line.trim_ascii()).ok()?;
        Some(Passive::Full(address).resolve(server))
    };
    match listed {
        Some(lines) if !lines.is_empty() => lines.iter().map(read).collect::<Option<_>>(),
        _ => passive_address(reply, server).map(|address| vec![address]),
    }
    .filter(|addresses: &Vec<_>| addresses.len() <= MAX_STRIPES)
    .unwrap_or_default()
}

impl Client {
    /// The driver listens here for data connections, as it was told to.
    pub fn listening(&mut self, now: Duration, address: SocketAddr) {
        self.moved = self.moved.max(now);
        self.transfers.listening(address);
        self.pump();
    }

    /// The driver cannot listen, or not connect for what it was to.
    pub fn connect_failed(&mut self, now: Duration, purpose: Purpose, reason: &str) {
        self.moved = self.moved.max(now);
        match purpose {
            Purpose::Transfer(transfer) => self.transfers.connected(transfer, Err(reason)),
            Purpose::Stripe(_) => self.transfers.channel_failed(reason),
        }
        self.pump();
    }

    /// A data connection is open, under a number that none had before. False: it is not wanted any more, close it.
    pub fn data_opened(&mut self, now: Duration, connection: u64, purpose: Purpose) -> bool {
        self.moved = self.moved.max(now);
        self.transfers.opened(connection, purpose);
        self.pump();
        self.transfers.links.contains_key(&connection)
    }

    /// A data connection has ended: cleanly, or by an error.
    pub fn data_closed(&mut self, now: Duration, connection: u64, cleanly: bool) {
        self.moved = self.moved.max(now);
        self.transfers.closed(connection, cleanly);
        self.pump();
    }
}

impl Transfers {
    pub fn open_channel(&mut self, way: Way) {
        self.stripes = 1;
        self.channel_number += 1;
        match way.direction {
            Direction::Receive => {
                self.channel = Channel::Listening(way);
                self.outputs.push(Output::Listen);
            }
            Direction::Send => {
                self.channel = Channel::Asked(way);
                let command = if way.striped {
                    all_passive(self.server)
                } else {
                    passive(self.server)
                };
                self.ask(command);
            }
        }
    }

    /// Asks something for the channel that is being opened.
    fn ask(&mut self, command: Command) {
        self.submit(vec![(Tag::Channel(self.channel_number), command)]);
    }

    pub fn drop_data(&mut self, then: Channel, faulty: bool) {
        self.outputs.push(Output::DropData { faulty });
        self.channel = then;
        self.broken = false;
        self.outdated = false;
        self.listening_at = None;
        self.links.clear();
        self.slots.clear();
        self.files.clear();
    }

    fn listening(&mut self, address: SocketAddr) {
        if let Channel::Listening(way) = self.channel {
            self.channel = Channel::Asked(way);
            if way.striped {
                // How many data nodes there are is known from where they would listen.
                self.listening_at = Some(address);
                self.ask(all_passive(self.server));
            } else {
                self.ask(active(address));
                // Who takes commands ahead is asked for files behind it.
                if self.is_pipelined() {
                    self.receive(way);
                }
            }
        }
    }

    /// Files of the server may come.
    fn receive(&mut self, way: Way) {
        self.receiver = Receiver::new(self.is_pipelined(), self.stripes);
        self.channel = Channel::Open(way);
    }

    pub fn channel_answered(&mut self, number: u64, reply: &Reply) {
        // Of an earlier one that is not wanted any more.
        if number != self.channel_number {
            return;
        }
        match self.channel {
            Channel::Asked(_) | Channel::Open(_) if !reply.is_success() => {
                let reason = format!("no data connections: {reply}");
                if self.running().next().is_some() {
                    self.blame(&reason);
                } else {
                    self.channel_failed(&reason);
                }
            }
            Channel::Asked(way) if way.direction == Direction::Receive => {
                let Some(address) = self.listening_at.take() else {
                    return self.receive(way);
                };
                let count = all_addresses(reply, self.server).len();
                if count == 0 {
                    return self.channel_failed(&format!("no address: {reply}"));
                }
                self.know_nodes(count);
                // All of them come to the one port.
                self.ask(Command::Spor(vec![address; count]));
            }
            Channel::Asked(way) => {
                let addresses = if way.striped {
                    all_addresses(reply, self.server)
                } else {
                    passive_address(reply, self.server).into_iter().collect()
                };
                if addresses.is_empty() {
                    return self.channel_failed(&format!("no address: {reply}"));
                }
                if way.striped {
                    self.know_nodes(addresses.len());
                }
                self.channel = Channel::Connecting(way);
                let connections = self.connections;
                let connect = (0..)
                    .zip(addresses)
                    .map(|(stripe, address)| Output::Connect {
                        address,
                        connections,
                        purpose: Purpose::Stripe(stripe),
                    });
                self.outputs.extend(connect);
            }
            _ => {}
        }
    }

    /// So many data nodes have their part in each file.
    fn know_nodes(&mut self, count: usize) {
        self.stripes = u16::try_from(count).unwrap_or(u16::MAX);
        self.outputs.push(Output::DataNodes(self.stripes));
    }

    fn opened(&mut self, connection: u64, purpose: Purpose) {
        match (self.channel, purpose) {
            (_, Purpose::Transfer(transfer)) => self.connected(transfer, Ok(connection)),
            (Channel::Connecting(way), Purpose::Stripe(stripe)) => {
                self.links.insert(connection, Link::Stripe(stripe));
                if self.links.len() == usize::from(self.connections) * usize::from(self.stripes) {
                    let stripe = |(&connection, link): (&u64, &Link)| match *link {
                        Link::Stripe(stripe) => Some((connection, stripe)),
                        Link::Of(_) => None,
                    };
                    let stripes = self.links.iter().filter_map(stripe);
                    self.sender = Sender::striped(stripes, self.block_bytes);
                    self.channel = Channel::Open(way);
                }
            }
            (Channel::Open(way), Purpose::Stripe(stripe))
                if way.direction == Direction::Receive =>
            {
                self.links.insert(connection, Link::Stripe(stripe));
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
        let Some(link) = self.links.remove(&connection) else {
            return;
        };
        if let Link::Of(key) = link {
            return self.stream_closed(key, cleanly);
        }
        self.broken = true;
        match self.channel {
            Channel::Connecting(_) => self.channel_failed("a data connection closed"),
            Channel::Open(way) if way.direction == Direction::Receive => {
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
}
