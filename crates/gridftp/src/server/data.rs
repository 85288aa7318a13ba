//! Data connections of a server.

use std::net::IpAddr;
use std::time::Duration;

use super::listing::feed_listing;
use super::transfer::{TransferKind, next_stream_chunk};
use super::{DriverRequest, GlobusError, Server, ServerOutput, SessionState};
use crate::mode_e::{BlockReceiver, OutgoingBlock, ReceiveResult};
use crate::{DataOut, Delivery, DeliveryResult, FtpError, FtpReply, Mode};

impl Server {
    /// Reports an open data connection with a new number. Returns `false` if the driver must close
    /// it.
    pub fn data_opened(&mut self, now: Duration, connection: u64, from: IpAddr) -> bool {
        let from_peer = from.to_canonical() == self.policy.peer.to_canonical();
        let selected = (self.data.listens || self.data.awaited > 0)
            && (from_peer || self.policy.third_party || self.data.awaited > 0)
            && self.data.connections.len() < usize::from(self.policy.connections);
        let taken = self.data.ended || !self.data.connections.is_empty();
        if !selected || (self.settings.mode == Mode::Stream && taken) {
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
            && matches!(&self.state, SessionState::Transferring(transfer) if !transfer.started)
        {
            self.open_transfer(now, 150);
        }
        self.touch(now);
        true
    }

    /// Reports bytes written to a data connection: a slow client is not stalled.
    pub fn data_sent(&mut self, now: Duration, bytes: u64) {
        self.touch(now);
        if let SessionState::Transferring(transfer) = &mut self.state {
            transfer.last.bytes(now, bytes);
        }
    }

    /// Reports that the driver could not connect.
    pub fn connect_failed(&mut self, now: Duration) {
        self.touch(now);
        if matches!(self.state, SessionState::Transferring(_)) {
            self.fail(&FtpReply::new(425, "Cannot open the data connection."));
        }
        self.pump(now);
    }

    /// Reports the end of a data connection, clean or by an error.
    pub fn data_closed(&mut self, now: Duration, connection: u64, cleanly: bool) {
        if !self.data.connections.remove(&connection) {
            return;
        }
        self.touch(now);
        let broken = match &mut self.data.receiver {
            Some(receiver) => receiver.disconnect(connection).is_err(),
            None => false,
        };
        let SessionState::Transferring(transfer) = &self.state else {
            if self.data.connections.is_empty() {
                if self.settings.mode == Mode::Stream && cleanly {
                    self.data.ended = true;
                } else {
                    self.drop_data();
                }
            }
            return;
        };
        let complete_file = match (self.settings.mode, transfer.receives()) {
            (Mode::Stream, true) => cleanly,
            (Mode::Stream, false) => cleanly && transfer.closing,
            (Mode::Extended, true) if !broken && !self.data.connections.is_empty() => return,
            (Mode::Extended, _) => false,
        };
        if complete_file {
            self.complete();
        } else {
            self.fail(&FtpReply::new(
                426,
                "Data connection closed; transfer aborted.",
            ));
        }
        self.pump(now);
    }

    /// Reports that the driver cannot read or write the open file.
    pub fn file_failed(&mut self, now: Duration, error: GlobusError) {
        if matches!(self.state, SessionState::Transferring(_)) {
            self.fail(&error.reply());
        }
        self.pump(now);
    }

    /// Offers bytes of a data connection. Call it again with the rest until nothing is consumed.
    pub fn handle_data(&mut self, now: Duration, connection: u64, input: &[u8]) -> DeliveryResult {
        let take = |receiver: &mut BlockReceiver| receiver.handle_input(connection, input);
        let delivered = self.deliver(now, connection, input.len(), take);
        self.pump(now);
        delivered
    }

    /// Returns the number of payload bytes that come next on a data connection, if known. A driver
    /// can move them directly to the file and report it with
    /// [`handle_payload`](Self::handle_payload).
    #[must_use]
    pub fn payload_bytes(&self, connection: u64) -> u64 {
        match &self.state {
            SessionState::Transferring(transfer)
                if transfer.started
                    && transfer.receives()
                    && self.data.connections.contains(&connection) =>
            {
                match &self.data.receiver {
                    None => u64::MAX,
                    Some(receiver) => receiver
                        .next_payload(connection)
                        .map_or(0, |(_, bytes)| bytes),
                }
            }
            _ => 0,
        }
    }

    /// Handles bytes that the driver has moved directly, at most
    /// [`payload_bytes`](Self::payload_bytes). The result gives their position; without a payload,
    /// discard them.
    pub fn handle_payload(
        &mut self,
        now: Duration,
        connection: u64,
        bytes: usize,
    ) -> DeliveryResult {
        let take = |receiver: &mut BlockReceiver| receiver.handle_payload(connection, bytes);
        let delivered = self.deliver(now, connection, bytes, take);
        self.pump(now);
        delivered
    }

    /// Handles `bytes` of a connection; `take` passes them to the receiver, in MODE E.
    fn deliver(
        &mut self,
        now: Duration,
        connection: u64,
        bytes: usize,
        take: impl FnOnce(&mut BlockReceiver) -> Result<ReceiveResult, FtpError>,
    ) -> DeliveryResult {
        let nothing = DeliveryResult {
            consumed: bytes,
            payload: None,
        };
        if bytes == 0 || !self.data.connections.contains(&connection) {
            return nothing;
        }
        let SessionState::Transferring(transfer) = &mut self.state else {
            self.data.early = true;
            return DeliveryResult::default();
        };
        let TransferKind::Receive { base, .. } = transfer.kind else {
            return nothing;
        };
        if !transfer.started {
            self.data.early = true;
            return DeliveryResult::default();
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
            self.fail(&FtpReply::new(
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
                // REST and ESTO can start at any offset, up to the largest number.
                let end = base
                    .checked_add(offset)
                    .and_then(|start| start.checked_add(bytes as u64));
                let Some(end) = end.filter(|_| noted) else {
                    self.fail(&FtpReply::new(
                        426,
                        "Too many separate byte ranges; transfer aborted.",
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
        let complete_file = self
            .data
            .receiver
            .as_mut()
            .and_then(BlockReceiver::poll_received)
            .is_some();
        if complete_file {
            self.complete();
        }
        DeliveryResult { consumed, payload }
    }

    /// Returns the next data to send, after all earlier data is written. `None`: call again after
    /// the next input or response.
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
        let SessionState::Transferring(transfer) = &mut self.state else {
            return None;
        };
        if !transfer.started || transfer.receives() || !self.data.connections.contains(&connection)
        {
            return None;
        }
        if matches!(transfer.kind, TransferKind::List(_)) {
            feed_listing(transfer, self.data.sender.as_mut(), self.settings.mode);
            if transfer.listing.is_empty() && transfer.more {
                if !std::mem::replace(&mut transfer.requested, true) {
                    self.outputs
                        .push_back(ServerOutput::Request(DriverRequest::More));
                }
                return None;
            }
        }
        let Some(sender) = &mut self.data.sender else {
            return next_stream_chunk(transfer, self.policy.block_bytes);
        };
        match sender.poll(connection) {
            Some(OutgoingBlock::End { header, .. }) => Some(DataOut::Bytes(header.to_vec())),
            Some(OutgoingBlock::Block {
                header,
                offset,
                bytes,
                ..
            }) => match transfer.kind {
                TransferKind::List(_) => {
                    // The buffer holds the lines that the sender has and the driver has not polled.
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
