//! What comes on data connections, and what goes.

use std::time::Duration;

use super::Client;
use super::active::{Active, State};
use super::channel::{Channel, Way};
use super::job::{Direction, Get, Job};
use super::transfers::{Link, Transfers};
use crate::mode_e::{Chunk, Payload, Receiver, Taken};
use crate::{ByteRanges, DataOut, Delivered, Delivery, Error, Mode};

impl Client {
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
    fn coming(&self, connection: u64) -> Option<(u64, u64)> {
        let link = self.links.get(&connection)?;
        let (key, bytes) = match link {
            Link::Of(key) => (key, u64::MAX),
            Link::Stripe(_) => {
                let (slot, bytes) = self.receiver.coming(connection)?;
                (self.slots.get(&slot)?, bytes)
            }
        };
        let active = self.active.get(key)?;
        let Job::Get(get) = &active.job else {
            return None;
        };
        if !active.job.is_file()
            || !active.begun
            || active.spoiled.is_some()
            || active.state != State::Running
        {
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
        match self.links.get(&connection) {
            None => nothing,
            Some(&Link::Of(key)) => self.deliver_stream(key, bytes).unwrap_or(nothing),
            Some(Link::Stripe(_)) => {
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
            let present = active.job.present();
            if !present.is_empty() {
                // It may have sent all of it, wherever it was asked to go on.
                *present = ByteRanges::default();
                active.position = 0;
            }
            return None;
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
        if let Link::Of(key) = *self.links.get(&connection)? {
            return self.send_stream(key);
        }
        let Channel::Open(Way {
            direction: Direction::Send,
            ..
        }) = self.channel
        else {
            return None;
        };
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
