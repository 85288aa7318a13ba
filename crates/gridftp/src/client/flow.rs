//! Data received and sent on data connections.

use std::time::Duration;

use super::Client;
use super::active::{AttemptState, TransferAttempt};
use super::channel::{ChannelSpec, ChannelState};
use super::job::{Get, TransferDirection, TransferJob};
use super::transfers::{ConnectionOwner, Transfers};
use crate::mode_e::{BlockReceiver, OutgoingBlock, Payload, ReceiveResult};
use crate::{ByteRanges, DataOut, Delivery, DeliveryResult, FtpError, Mode};

impl Client {
    /// Offers bytes of a data connection. Call it again with the rest until nothing is consumed.
    pub fn handle_data(&mut self, now: Duration, connection: u64, input: &[u8]) -> DeliveryResult {
        let take = |receiver: &mut BlockReceiver| receiver.handle_input(connection, input);
        let delivered = self.transfers.deliver(connection, input.len(), take);
        self.delivered(now, delivered)
    }

    /// Returns the transfer and number of payload bytes that come next on a data connection, if
    /// known. A driver can move them directly to the file and report it with
    /// [`handle_payload`](Self::handle_payload).
    #[must_use]
    pub fn next_payload(&self, connection: u64) -> Option<(u64, u64)> {
        self.transfers.next_payload(connection)
    }

    /// Handles bytes that the driver has moved directly, at most
    /// [`next_payload`](Self::next_payload). The result gives their position; without a payload,
    /// discard them.
    pub fn handle_payload(
        &mut self,
        now: Duration,
        connection: u64,
        bytes: usize,
    ) -> DeliveryResult {
        let take = |receiver: &mut BlockReceiver| receiver.handle_payload(connection, bytes);
        let delivered = self.transfers.deliver(connection, bytes, take);
        self.delivered(now, delivered)
    }

    fn delivered(&mut self, now: Duration, delivered: DeliveryResult) -> DeliveryResult {
        if delivered.consumed > 0 {
            self.moved = self.moved.max(now);
        }
        self.pump();
        delivered
    }

    /// Returns the next data to send on a data connection. `None`: call again after the next input
    /// on the control connection.
    pub fn poll_data(&mut self, now: Duration, connection: u64) -> Option<DataOut> {
        let out = self.transfers.send(connection);
        if out.is_some() {
            self.moved = self.moved.max(now);
        }
        out
    }
}

impl Transfers {
    fn next_payload(&self, connection: u64) -> Option<(u64, u64)> {
        let owner = self.owners.get(&connection)?;
        let (key, bytes) = match owner {
            ConnectionOwner::Of(key) => (key, u64::MAX),
            ConnectionOwner::Stripe(_) => {
                let (slot, bytes) = self.receiver.next_payload(connection)?;
                (self.slots.get(&slot)?, bytes)
            }
        };
        let active = self.active.get(key)?;
        let TransferJob::Get(get) = &active.job else {
            return None;
        };
        if !active.job.is_file()
            || !active.started
            || active.fault.is_some()
            || active.state != AttemptState::Running
        {
            return None;
        }
        let remaining = get.expected_bytes().filter(|_| self.mode == Mode::Stream);
        let consumed_end = get.present.prefix_bytes() + active.position;
        let bytes = remaining.map_or(bytes, |size| size.saturating_sub(consumed_end));
        Some((get.transfer, bytes))
    }

    /// Handles `bytes` of a connection; `take` passes them to the receiver, in MODE E.
    fn deliver(
        &mut self,
        connection: u64,
        bytes: usize,
        take: impl FnOnce(&mut BlockReceiver) -> Result<ReceiveResult, FtpError>,
    ) -> DeliveryResult {
        let nothing = DeliveryResult {
            consumed: bytes,
            payload: None,
        };
        match self.owners.get(&connection) {
            None => nothing,
            Some(&ConnectionOwner::Of(key)) => self.deliver_stream(key, bytes).unwrap_or(nothing),
            Some(ConnectionOwner::Stripe(_)) => {
                let taken = match take(&mut self.receiver) {
                    Ok(taken) => taken,
                    Err(error) => {
                        self.blame(&error.to_string());
                        return nothing;
                    }
                };
                let payload = match taken.payload.map(|payload| self.locate(payload)) {
                    Some(None) => return nothing,
                    Some(located) => located,
                    None => None,
                };
                self.collect_received();
                DeliveryResult {
                    consumed: taken.consumed,
                    payload,
                }
            }
        }
    }

    fn deliver_stream(&mut self, key: u64, bytes: usize) -> Option<DeliveryResult> {
        let active = self.active.get_mut(&key)?;
        if !active.started && active.fault.is_none() {
            // The start of the transfer shows if the server honours REST.
            return Some(DeliveryResult::default());
        }
        let TransferJob::Get(get) = &active.job else {
            return None;
        };
        let offset = get.present.prefix_bytes() + active.position;
        if let Err(reason) = fits(get, offset, bytes) {
            active.fault.get_or_insert(reason);
            let present = active.job.present();
            if !present.is_empty() {
                // The server may have ignored REST and sent the whole file.
                *present = ByteRanges::default();
                active.position = 0;
            }
            return None;
        }
        if active.fault.is_some() || bytes == 0 {
            return None;
        }
        active.position += bytes as u64;
        let (transfer, offset) = (get.transfer, get.base() + offset);
        let payload = Some(Delivery {
            transfer,
            offset,
            bytes,
        });
        Some(DeliveryResult {
            consumed: bytes,
            payload,
        })
    }

    /// Returns the file position of a payload; `None` if it belongs to no transfer.
    fn locate(&mut self, payload: Payload) -> Option<Delivery> {
        let key = *self.slots.get(&payload.transfer)?;
        let Some(TransferAttempt {
            job: TransferJob::Get(get),
            state: AttemptState::Running,
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
                active.received_ranges = Some(received.ranges);
            }
            self.finalize(key);
        }
    }

    fn send(&mut self, connection: u64) -> Option<DataOut> {
        if let ConnectionOwner::Of(key) = *self.owners.get(&connection)? {
            return self.send_stream(key);
        }
        let ChannelState::Open(ChannelSpec {
            direction: TransferDirection::Send,
            ..
        }) = self.channel
        else {
            return None;
        };
        match self.sender.poll(connection)? {
            OutgoingBlock::End { header, .. } => Some(DataOut::Bytes(header.to_vec())),
            OutgoingBlock::Block {
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
        let max_bytes = self.block_bytes;
        let active = self.active.get_mut(&key)?;
        if active.closed || active.job.direction() == TransferDirection::Receive {
            return None;
        }
        let Some(range) = active.ranges.front_mut() else {
            active.closed = true;
            return Some(DataOut::Close);
        };
        let offset = range.start;
        let bytes = (range.end - offset).min(max_bytes);
        range.start += bytes;
        if range.is_empty() {
            active.ranges.pop_front();
        }
        Some(DataOut::Payload {
            header: None,
            transfer: active.job.transfer(),
            offset: active.job.base().checked_add(offset)?,
            bytes,
        })
    }
}

/// Checks that the server sends no more than the known size.
fn fits(get: &Get, offset: u64, bytes: usize) -> Result<(), String> {
    let end = offset.saturating_add(bytes as u64);
    match get.expected_bytes() {
        Some(size) if end > size => Err(format!(
            "expected {size} bytes, found a byte at position {}",
            end - 1
        )),
        _ => Ok(()),
    }
}
