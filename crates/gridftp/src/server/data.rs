//! Data connections: how they open, what comes on them, what goes, and what their end means.

use std::net::IpAddr;
use std::time::Duration;

use super::listing::feed_listing;
use super::transfer::{Kind, next_of_stream};
use super::{Output, Refusal, Request, Server, State};
use crate::mode_e::{Chunk, Receiver, Taken};
use crate::{DataOut, Delivered, Delivery, Error, Mode, Reply};

impl Server {
    /// A data connection is open, under a number that none had before. False: it is not wanted, close it.
    pub fn data_opened(&mut self, now: Duration, connection: u64, from: IpAddr) -> bool {
        let own = from.to_canonical() == self.policy.peer.to_canonical();
        let wanted = (self.data.listens || self.data.awaited > 0)
            && (own || self.policy.third_party || self.data.awaited > 0)
            && self.data.connections.len() < usize::from(self.policy.connections);
        let taken = self.data.ended || !self.data.connections.is_empty();
        if !wanted || (self.chosen.mode == Mode::Stream && taken) {
            return false;
        }
        if let Some(receiver) = &mut self.data.receiver
            && receiver.connect(connection).is_err()
        {
            return false;
        }
        self.data.connections.insert(connection);
        self.data.awaited = self.data.awaited.saturating_sub(1);
        if self.data.awaited == 0
            && matches!(&self.state, State::Transferring(transfer) if !transfer.begun)
        {
            self.begin(now, 150);
        }
        self.touch(now);
        true
    }

    /// Bytes went to the socket of a data connection: one who takes them slowly does not stand still.
    pub fn data_sent(&mut self, now: Duration, bytes: u64) {
        self.touch(now);
        if let State::Transferring(transfer) = &mut self.state {
            transfer.last.bytes(now, bytes);
        }
    }

    /// The driver could not connect.
    pub fn connect_failed(&mut self, now: Duration) {
        self.touch(now);
        if matches!(self.state, State::Transferring(_)) {
            self.fail(&Reply::new(425, "Cannot open the data connection."));
        }
        self.pump(now);
    }

    /// A data connection has ended: cleanly, or by an error.
    pub fn data_closed(&mut self, now: Duration, connection: u64, cleanly: bool) {
        if !self.data.connections.remove(&connection) {
            return;
        }
        self.touch(now);
        let broken = match &mut self.data.receiver {
            Some(receiver) => receiver.disconnect(connection).is_err(),
            None => false,
        };
        let State::Transferring(transfer) = &self.state else {
            if self.data.connections.is_empty() {
                if self.chosen.mode == Mode::Stream && cleanly {
                    self.data.ended = true;
                } else {
                    self.drop_data();
                }
            }
            return;
        };
        let whole = match (self.chosen.mode, transfer.receives()) {
            (Mode::Stream, true) => cleanly,
            (Mode::Stream, false) => cleanly && transfer.closing,
            (Mode::Extended, true) if !broken && !self.data.connections.is_empty() => return,
            (Mode::Extended, _) => false,
        };
        if whole {
            self.complete();
        } else {
            self.fail(&Reply::new(
                426,
                "Data connection closed; transfer aborted.",
            ));
        }
        self.pump(now);
    }

    /// The driver cannot read or write the open file.
    pub fn file_failed(&mut self, now: Duration, refusal: Refusal) {
        if matches!(self.state, State::Transferring(_)) {
            self.fail(&refusal.reply());
        }
        self.pump(now);
    }

    /// Offers bytes of a data connection. To be called again with the rest until nothing is consumed.
    pub fn handle_data(&mut self, now: Duration, connection: u64, input: &[u8]) -> Delivered {
        let take = |receiver: &mut Receiver| receiver.handle_input(connection, input);
        let delivered = self.deliver(now, connection, input.len(), take);
        self.pump(now);
        delivered
    }

    /// Bytes of a file, and of nothing else, that come next on a data connection, as far as that is known. A driver may move some of them
    /// straight to where they belong, and tell so by [`handle_payload`](Self::handle_payload).
    #[must_use]
    pub fn payload_bytes(&self, connection: u64) -> u64 {
        match &self.state {
            State::Transferring(transfer)
                if transfer.begun
                    && transfer.receives()
                    && self.data.connections.contains(&connection) =>
            {
                match &self.data.receiver {
                    None => u64::MAX,
                    Some(receiver) => receiver.coming(connection).map_or(0, |(_, bytes)| bytes),
                }
            }
            _ => 0,
        }
    }

    /// Takes bytes that the driver has moved from a data connection without showing them, at most
    /// [`payload_bytes`](Self::payload_bytes). They belong where the answer says; nowhere, if there is no payload in it.
    pub fn handle_payload(&mut self, now: Duration, connection: u64, bytes: usize) -> Delivered {
        let take = |receiver: &mut Receiver| receiver.handle_payload(connection, bytes);
        let delivered = self.deliver(now, connection, bytes, take);
        self.pump(now);
        delivered
    }

    /// What became of `bytes` of a connection; `take` has the receiver take them, in MODE E.
    fn deliver(
        &mut self,
        now: Duration,
        connection: u64,
        bytes: usize,
        take: impl FnOnce(&mut Receiver) -> Result<Taken, Error>,
    ) -> Delivered {
        let nothing = Delivered {
            consumed: bytes,
            payload: None,
        };
        if bytes == 0 || !self.data.connections.contains(&connection) {
            return nothing;
        }
        let State::Transferring(transfer) = &mut self.state else {
            self.data.early = true;
            return Delivered::default();
        };
        let Kind::Receive { base, .. } = transfer.kind else {
            return nothing;
        };
        if !transfer.begun {
            self.data.early = true;
            return Delivered::default();
        }
        let taken = match &mut self.data.receiver {
            None => {
                let offset = transfer.position;
                transfer.position = offset.saturating_add(bytes as u64);
                Ok((bytes, Some((offset, bytes))))
            }
            Some(receiver) => take(receiver).map(|taken| {
                let payload = taken.payload.map(|payload| (payload.offset, payload.bytes));
                (taken.consumed, payload)
            }),
        };
        let Ok((consumed, payload)) = taken else {
            self.fail(&Reply::new(
                426,
                "Data connection is not in MODE E; transfer aborted.",
            ));
            return nothing;
        };
        if consumed > 0 {
            self.moved = now;
            transfer.last.bytes(now, consumed as u64);
        }
        let payload = match payload {
            None => None,
            Some((offset, bytes)) => {
                let noted = transfer
                    .fresh
                    .insert(offset..offset.saturating_add(bytes as u64))
                    .is_ok();
                // REST and ESTO may begin anywhere, the end of all that can be counted included.
                let end = base
                    .checked_add(offset)
                    .and_then(|start| start.checked_add(bytes as u64));
                let Some(end) = end.filter(|_| noted) else {
                    self.fail(&Reply::new(
                        426,
                        "Bytes are scattered too far; transfer aborted.",
                    ));
                    return nothing;
                };
                transfer.bytes += bytes as u64;
                Some(Delivery {
                    transfer: 0,
                    offset: end - bytes as u64,
                    bytes,
                })
            }
        };
        let whole = self
            .data
            .receiver
            .as_mut()
            .and_then(Receiver::poll_received)
            .is_some();
        if whole {
            self.complete();
        }
        Delivered { consumed, payload }
    }

    /// What a data connection is to send next, to be asked when all before is written. Nothing: ask again after the next
    /// input or answer.
    pub fn poll_data(&mut self, now: Duration, connection: u64) -> Option<DataOut> {
        let out = self.next_data(connection);
        if out.is_some() {
            self.touch(now);
        } else {
            self.pump(now);
        }
        out
    }

    fn next_data(&mut self, connection: u64) -> Option<DataOut> {
        let State::Transferring(transfer) = &mut self.state else {
            return None;
        };
        if !transfer.begun || transfer.receives() || !self.data.connections.contains(&connection) {
            return None;
        }
        if matches!(transfer.kind, Kind::List(_)) {
            feed_listing(transfer, self.data.sender.as_mut(), self.chosen.mode);
            if transfer.listing.is_empty() && transfer.more {
                if !std::mem::replace(&mut transfer.asked, true) {
                    self.outputs.push_back(Output::Ask(Request::More));
                }
                return None;
            }
        }
        let Some(sender) = &mut self.data.sender else {
            return next_of_stream(transfer, self.policy.block_bytes);
        };
        match sender.poll(connection) {
            Some(Chunk::End { header, .. }) => Some(DataOut::Bytes(header.to_vec())),
            Some(Chunk::Block {
                header,
                offset,
                bytes,
                ..
            }) => match transfer.kind {
                Kind::List(_) => {
                    // Held are the lines that were given to the sender and not asked for.
                    let count = usize::try_from(bytes)
                        .unwrap_or(usize::MAX)
                        .min(transfer.listing.len());
                    let lines: Vec<u8> = transfer.listing.drain(..count).collect();
                    transfer.listed_bytes += count as u64;
                    Some(DataOut::Bytes([&header[..], &lines].concat()))
                }
                _ => Some(DataOut::Payload {
                    header: Some(header),
                    transfer: 0,
                    offset,
                    bytes,
                }),
            },
            None => {
                transfer.drained.insert(connection);
                let sent = transfer.file.is_some_and(|file| sender.is_sent(file));
                if sent && transfer.drained.len() >= self.data.connections.len() {
                    self.complete();
                }
                None
            }
        }
    }
}
