//! State of a transfer and its data connections, and its start.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use super::{Server, ServerOutput, SessionState};
use crate::mode_e::{BlockReceiver, BlockSender};
use crate::{ByteRanges, DataOut, FtpReply, Mode, Path, StallTimer};

/// Format of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListFormat {
    /// Facts (MLSD, MLSR).
    Facts,
    /// Lines like `ls -l` (LIST).
    Long,
    /// Names without a directory, as Globus servers send them and gfal2 requires (NLST).
    Names,
}

/// Kind of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TransferKind {
    /// Sends a file, or this region of it.
    Send { region: Option<(u64, u64)> },
    /// Receives a file. Offsets count from `base`; `check` has a checksum algorithm and value.
    Receive {
        path: Path,
        base: u64,
        check: Option<(String, String)>,
    },
    /// Sends a listing.
    List(ListFormat),
}

/// State of the data connections.
#[derive(Debug, Default)]
pub(super) struct DataConnections {
    pub listens: bool,
    pub addresses: Vec<SocketAddr>,
    pub connections: BTreeSet<u64>,
    /// Connections that are not open yet.
    pub awaited: usize,
    pub sender: Option<BlockSender>,
    pub receiver: Option<BlockReceiver>,
    /// The connection of MODE S closed before its transfer was requested and without a byte, as for
    /// an empty file.
    pub ended: bool,
    /// `true` if a transfer has started on these connections.
    pub used: bool,
    /// `true` if bytes arrived before their transfer was requested.
    pub early: bool,
    /// `true` after a rejected upload; early bytes can belong to it.
    pub reply_error: bool,
}

impl DataConnections {
    pub fn listens(&mut self) {
        self.listens = true;
    }
}

/// A running transfer.
#[derive(Debug)]
pub(super) struct ServerTransfer {
    pub kind: TransferKind,
    pub started: bool,
    pub last: StallTimer,
    /// Time of the last marker; `None` for a transfer without markers.
    pub marked: Option<Duration>,
    pub bytes: u64,
    /// Ranges received since the last marker.
    pub fresh: ByteRanges,
    /// Ranges to send.
    pub ranges: VecDeque<Range<u64>>,
    /// Position of the next byte, in MODE S.
    pub position: u64,
    pub file: Option<u64>,
    /// Unsent lines of a listing.
    pub listing: Vec<u8>,
    pub listed_bytes: u64,
    pub more: bool,
    pub requested: bool,
    /// Connections that have nothing more to send.
    pub drained: BTreeSet<u64>,
    pub closing: bool,
}

impl ServerTransfer {
    pub fn new(kind: TransferKind, now: Duration) -> Self {
        Self {
            kind,
            started: false,
            last: StallTimer::new(now),
            marked: None,
            bytes: 0,
            fresh: ByteRanges::default(),
            ranges: VecDeque::new(),
            position: 0,
            file: None,
            listing: Vec::new(),
            listed_bytes: 0,
            more: false,
            requested: false,
            drained: BTreeSet::new(),
            closing: false,
        }
    }

    pub fn receives(&self) -> bool {
        matches!(self.kind, TransferKind::Receive { .. })
    }
}

impl Server {
    /// Waits for a data connection, or starts immediately on an existing one.
    pub(super) fn start(&mut self, now: Duration, transfer: ServerTransfer) {
        let receives = transfer.receives();
        self.state = SessionState::Transferring(transfer);
        let cached = !self.data.connections.is_empty();
        if self.settings.mode == Mode::Extended && receives && self.data.receiver.is_none() {
            let mut receiver = BlockReceiver::new(false, 1);
            let opened = self
                .data
                .connections
                .iter()
                .try_for_each(|&connection| receiver.connect(connection));
            self.data.receiver = opened.is_ok().then_some(receiver);
        }
        if self.data.ended && receives {
            self.open_transfer(now, 150);
            return self.complete();
        }
        if cached || self.data.listens && !self.data.ended {
            let code = if cached && self.data.used { 125 } else { 150 };
            return self.open_transfer(now, code);
        }
        let addresses = self.data.addresses.clone();
        if addresses.is_empty() {
            // The existing connections have closed since the request.
            return self.fail(&FtpReply::new(425, "Send PASV or PORT first."));
        }
        let max_connections = usize::from(self.policy.connections.max(1)) / addresses.len();
        let connections = match self.settings.mode {
            Mode::Stream => 1,
            Mode::Extended => self
                .settings
                .parallelism
                .min(u16::try_from(max_connections.max(1)).unwrap_or(u16::MAX)),
        };
        self.data.awaited = usize::from(connections) * addresses.len();
        self.outputs.push_back(ServerOutput::Connect {
            addresses,
            connections,
        });
    }

    /// Starts the data transfer once everything is ready.
    pub(super) fn open_transfer(&mut self, now: Duration, code: u16) {
        let text = if code == 125 {
            "Beginning transfer; reusing existing data connection."
        } else {
            "Beginning transfer."
        };
        self.reply(&FtpReply::new(code, text));
        self.data.early = false;
        self.data.used = true;
        let SessionState::Transferring(transfer) = &mut self.state else {
            return;
        };
        transfer.started = true;
        transfer.last.touch(now);
        if self.settings.mode == Mode::Stream {
            return;
        }
        if transfer.receives() {
            if let Some(receiver) = &mut self.data.receiver {
                receiver.start_transfer();
            }
            transfer.marked = Some(now);
            return self.performance(now);
        }
        let connections = self.data.connections.iter().copied();
        let sender = self
            .data
            .sender
            .get_or_insert_with(|| BlockSender::new(connections, self.policy.block_bytes));
        transfer.file = Some(match &transfer.kind {
            TransferKind::List(_) => sender.admit_growing(),
            kind => {
                let mut ranges = ByteRanges::default();
                for range in &transfer.ranges {
                    // Cannot fail, because the ranges come from a valid set.
                    let _ = ranges.insert(range.clone());
                }
                let base = if let TransferKind::Send {
                    region: Some((offset, _)),
                } = kind
                {
                    *offset
                } else {
                    0
                };
                sender.admit(&ranges, base)
            }
        });
    }
}

/// Returns the next data in MODE S.
pub(super) fn next_stream_chunk(
    transfer: &mut ServerTransfer,
    block_bytes: u64,
) -> Option<DataOut> {
    if transfer.closing {
        return None;
    }
    if !transfer.listing.is_empty() {
        return Some(DataOut::Bytes(std::mem::take(&mut transfer.listing)));
    }
    while let Some(range) = transfer.ranges.front_mut() {
        if range.is_empty() {
            transfer.ranges.pop_front();
            continue;
        }
        let offset = range.start;
        let bytes = (range.end - offset).min(block_bytes.max(1));
        range.start += bytes;
        return Some(DataOut::Payload {
            header: None,
            transfer: 0,
            offset,
            bytes,
        });
    }
    transfer.closing = true;
    Some(DataOut::Close)
}
