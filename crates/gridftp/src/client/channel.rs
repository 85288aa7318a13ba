//! Opening and closing of data connections.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::job::{ClientOutput, ConnectionPurpose, TransferDirection, TransferJob};
use super::transfers::{ConnectionOwner, Transfers};
use super::{Client, Tag};
use crate::address::{MAX_STRIPES, Passive, parse_either, parse_extended, parse_host_port};
use crate::mode_e::{BlockReceiver, BlockSender};
use crate::{ByteRanges, Family, FtpCommand, FtpReply, Mode};

/// Use of data connections in MODE E.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChannelSpec {
    pub direction: TransferDirection,
    /// `true` if all data nodes of the server take part.
    pub striped: bool,
}

/// The data connections of a pipeline in MODE E.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChannelState {
    /// There are none.
    Closed,
    /// The driver opens a listener.
    Listening(ChannelSpec),
    /// The reply to PORT or PASV is pending.
    Requested(ChannelSpec),
    /// The driver opens them.
    Connecting(ChannelSpec),
    /// Open for this direction, or about to be opened by the server. With pipelining, the reply to
    /// PORT can still be pending.
    Open(ChannelSpec),
    /// Dropped; replies to earlier commands are pending.
    Draining,
}

/// Returns the command for a passive address.
pub(super) fn passive(server: IpAddr) -> FtpCommand {
    if server.is_ipv4() {
        FtpCommand::Pasv
    } else {
        FtpCommand::Epsv(None)
    }
}

/// Returns the command for the passive addresses of all data nodes.
pub(super) fn all_passive(server: IpAddr) -> FtpCommand {
    FtpCommand::Spas(server.is_ipv6().then_some(Family::V6))
}

/// Returns the command that sends an active address.
pub(super) fn active(address: SocketAddr) -> FtpCommand {
    match address {
        SocketAddr::V4(address) => FtpCommand::Port(address),
        SocketAddr::V6(_) => FtpCommand::Eprt(address),
    }
}

/// Reads a PASV or EPSV reply: `227 text (h1,…,p2)` or `229 text (|||port|)`. Some servers omit the
/// brackets.
pub(super) fn passive_address(reply: &FtpReply, server: IpAddr) -> Option<SocketAddr> {
    let text = reply.lines.last()?;
    let inside = match text.iter().position(|&byte| byte == b'(') {
        Some(start) => text[start + 1..].split(|&byte| byte == b')').next()?,
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

/// Reads a SPAS reply: `229-text`, one line per data node, `229 End`. A server with one node may
/// send a PASV reply.
pub(super) fn all_addresses(reply: &FtpReply, server: IpAddr) -> Vec<SocketAddr> {
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
    /// Reports the address of the driver's listener.
    pub fn listening(&mut self, now: Duration, address: SocketAddr) {
        self.moved = self.moved.max(now);
        self.transfers.listening(address);
        self.pump();
    }

    /// Reports that the driver cannot listen or connect.
    pub fn connect_failed(&mut self, now: Duration, purpose: ConnectionPurpose, reason: &str) {
        self.moved = self.moved.max(now);
        match purpose {
            ConnectionPurpose::Transfer(transfer) => {
                self.transfers.connected(transfer, Err(reason))
            }
            ConnectionPurpose::Stripe(_) => self.transfers.channel_failed(reason),
        }
        self.pump();
    }

    /// Reports an open data connection with a new number. Returns `false` if the driver must close
    /// it.
    pub fn data_opened(
        &mut self,
        now: Duration,
        connection: u64,
        purpose: ConnectionPurpose,
    ) -> bool {
        self.moved = self.moved.max(now);
        self.transfers.opened(connection, purpose);
        self.pump();
        self.transfers.owners.contains_key(&connection)
    }

    /// Reports the end of a data connection, clean or by an error.
    pub fn data_closed(&mut self, now: Duration, connection: u64, cleanly: bool) {
        self.moved = self.moved.max(now);
        self.transfers.closed(connection, cleanly);
        self.pump();
    }
}

impl Transfers {
    pub fn open_channel(&mut self, spec: ChannelSpec) {
        self.stripes = 1;
        self.channel_number += 1;
        match spec.direction {
            TransferDirection::Receive => {
                self.channel = ChannelState::Listening(spec);
                self.outputs.push(ClientOutput::Listen);
            }
            TransferDirection::Send => {
                self.channel = ChannelState::Requested(spec);
                let command = if spec.striped {
                    all_passive(self.server)
                } else {
                    passive(self.server)
                };
                self.send_channel_command(command);
            }
        }
    }

    /// Sends a command for the channel that is being opened.
    fn send_channel_command(&mut self, command: FtpCommand) {
        self.submit(vec![(Tag::Channel(self.channel_number), command)]);
    }

    pub fn drop_data(&mut self, then: ChannelState, faulty: bool) {
        self.outputs.push(ClientOutput::DropData { faulty });
        self.channel = then;
        self.broken = false;
        self.outdated = false;
        self.listening_at = None;
        self.owners.clear();
        self.slots.clear();
        self.files.clear();
    }

    fn listening(&mut self, address: SocketAddr) {
        if let ChannelState::Listening(spec) = self.channel {
            self.channel = ChannelState::Requested(spec);
            if spec.striped {
                // The number of data nodes is known from their passive addresses.
                self.listening_at = Some(address);
                self.send_channel_command(all_passive(self.server));
            } else {
                self.send_channel_command(active(address));
                // A server that pipelines gets file commands directly after it.
                if self.is_pipelined() {
                    self.receive(spec);
                }
            }
        }
    }

    /// Prepares to receive files.
    fn receive(&mut self, spec: ChannelSpec) {
        self.receiver = BlockReceiver::new(self.is_pipelined(), self.stripes);
        self.channel = ChannelState::Open(spec);
    }

    pub fn channel_replied(&mut self, number: u64, reply: &FtpReply) {
        // The reply belongs to an earlier channel.
        if number != self.channel_number {
            return;
        }
        match self.channel {
            ChannelState::Requested(_) | ChannelState::Open(_) if !reply.is_success() => {
                let reason = format!("cannot open data connections: {reply}");
                if self.running().next().is_some() {
                    self.blame(&reason);
                } else {
                    self.channel_failed(&reason);
                }
            }
            ChannelState::Requested(spec) if spec.direction == TransferDirection::Receive => {
                let Some(address) = self.listening_at.take() else {
                    return self.receive(spec);
                };
                let count = all_addresses(reply, self.server).len();
                if count == 0 {
                    return self.channel_failed(&format!("expected an address, found: {reply}"));
                }
                self.set_data_nodes(count);
                // All data nodes connect to the same port.
                self.send_channel_command(FtpCommand::Spor(vec![address; count]));
            }
            ChannelState::Requested(spec) => {
                let addresses = if spec.striped {
                    all_addresses(reply, self.server)
                } else {
                    passive_address(reply, self.server).into_iter().collect()
                };
                if addresses.is_empty() {
                    return self.channel_failed(&format!("expected an address, found: {reply}"));
                }
                if spec.striped {
                    self.set_data_nodes(addresses.len());
                }
                self.channel = ChannelState::Connecting(spec);
                let connections = self.connections;
                let connect = (0..)
                    .zip(addresses)
                    .map(|(stripe, address)| ClientOutput::Connect {
                        address,
                        connections,
                        purpose: ConnectionPurpose::Stripe(stripe),
                    });
                self.outputs.extend(connect);
            }
            _ => {}
        }
    }

    /// Sets the number of data nodes.
    fn set_data_nodes(&mut self, count: usize) {
        self.stripes = u16::try_from(count).unwrap_or(u16::MAX);
        self.outputs.push(ClientOutput::DataNodes(self.stripes));
    }

    fn opened(&mut self, connection: u64, purpose: ConnectionPurpose) {
        match (self.channel, purpose) {
            (_, ConnectionPurpose::Transfer(transfer)) => self.connected(transfer, Ok(connection)),
            (ChannelState::Connecting(spec), ConnectionPurpose::Stripe(stripe)) => {
                self.owners
                    .insert(connection, ConnectionOwner::Stripe(stripe));
                if self.owners.len() == usize::from(self.connections) * usize::from(self.stripes) {
                    let stripe = |(&connection, owner): (&u64, &ConnectionOwner)| match *owner {
                        ConnectionOwner::Stripe(stripe) => Some((connection, stripe)),
                        ConnectionOwner::Of(_) => None,
                    };
                    let stripes = self.owners.iter().filter_map(stripe);
                    self.sender = BlockSender::striped(stripes, self.block_bytes);
                    self.channel = ChannelState::Open(spec);
                }
            }
            (ChannelState::Open(spec), ConnectionPurpose::Stripe(stripe))
                if spec.direction == TransferDirection::Receive =>
            {
                self.owners
                    .insert(connection, ConnectionOwner::Stripe(stripe));
                if let Err(error) = self.receiver.connect(connection) {
                    self.blame(&error.to_string());
                }
            }
            _ => {}
        }
    }

    /// Returns `true` if the remaining data can no longer arrive.
    pub fn is_lost(&self) -> bool {
        self.mode == Mode::Extended && self.broken && self.receiver.connections() == 0
    }

    fn closed(&mut self, connection: u64, cleanly: bool) {
        let Some(owner) = self.owners.remove(&connection) else {
            return;
        };
        if let ConnectionOwner::Of(key) = owner {
            return self.stream_closed(key, cleanly);
        }
        self.broken = true;
        match self.channel {
            ChannelState::Connecting(_) => {
                self.channel_failed("a data connection closed while others opened")
            }
            ChannelState::Open(spec) if spec.direction == TransferDirection::Receive => {
                // The server's reply has a better reason; without a reply, the last closed
                // connection counts.
                let _ = self.receiver.disconnect(connection);
                if self.is_lost() {
                    let keys: Vec<u64> = self.active.keys().copied().collect();
                    keys.into_iter().for_each(|key| self.finalize(key));
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
                .fault
                .get_or_insert_with(|| "the data connection broke".to_owned());
        }
        if let TransferJob::Get(get) = &active.job {
            let start = get.present.prefix_bytes();
            active.received_ranges = Some(ByteRanges::from_range(start..start + active.position));
        }
        self.finalize(key);
    }
}
