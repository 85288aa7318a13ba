//! Transfers: what is known of one and of its data connections, and how it begins on them.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use super::{Output, Server, State};
use crate::mode_e::{Receiver, Sender};
use crate::{ByteRanges, DataOut, LastMoved, Mode, Path, Reply};

/// How a directory is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// MLSD, MLSR.
    Facts,
    /// LIST.
    Long,
    /// NLST, with names alone as a server of the Globus toolkit tells them: gfal2 wants no directory before them.
    Names,
}

/// What is transferred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file, or this region of it.
    Send { region: Option<(u64, u64)> },
    /// A file, whose bytes count from `base`; verified by algorithm and value.
    Receive {
        path: Path,
        base: u64,
        check: Option<(String, String)>,
    },
    /// A directory.
    List(Style),
}

/// Data connections, and what is known of them.
#[derive(Debug, Default)]
pub(super) struct Data {
    pub listens: bool,
    pub addresses: Vec<SocketAddr>,
    pub connections: BTreeSet<u64>,
    /// Connections that are still to be opened.
    pub awaited: usize,
    pub sender: Option<Sender>,
    pub receiver: Option<Receiver>,
    /// The one of MODE S has ended before its transfer was asked for, without a byte: all of an empty file.
    pub ended: bool,
    /// Whether a transfer has begun on these connections.
    pub used: bool,
    /// Bytes came before they were asked for.
    pub early: bool,
    /// An upload was refused since; what is early may be its bytes.
    pub refused: bool,
}

impl Data {
    pub fn listens(&mut self) {
        self.listens = true;
    }
}

/// A transfer that goes on.
#[derive(Debug)]
pub(super) struct Transfer {
    pub kind: Kind,
    pub begun: bool,
    pub last: LastMoved,
    /// When a marker was sent; none: there are none.
    pub marked: Option<Duration>,
    pub bytes: u64,
    /// What has come since the last marker.
    pub fresh: ByteRanges,
    /// Ranges to send.
    pub pieces: VecDeque<Range<u64>>,
    /// Position of the next byte, in MODE S.
    pub position: u64,
    pub file: Option<u64>,
    /// Lines of a listing that are not sent.
    pub listing: Vec<u8>,
    pub listed_bytes: u64,
    pub more: bool,
    pub asked: bool,
    /// Connections that have nothing more to send.
    pub drained: BTreeSet<u64>,
    pub closing: bool,
}

impl Transfer {
    pub fn new(kind: Kind, now: Duration) -> Self {
        Self {
            kind,
            begun: false,
            last: LastMoved::new(now),
            marked: None,
            bytes: 0,
            fresh: ByteRanges::default(),
            pieces: VecDeque::new(),
            position: 0,
            file: None,
            listing: Vec::new(),
            listed_bytes: 0,
            more: false,
            asked: false,
            drained: BTreeSet::new(),
            closing: false,
        }
    }

    pub fn receives(&self) -> bool {
        matches!(self.kind, Kind::Receive { .. })
    }
}

impl Server {
    /// Waits for a data connection, or begins at once on one that is there.
    pub(super) fn start(&mut self, now: Duration, transfer: Transfer) {
        let receives = transfer.receives();
        self.state = State::Transferring(transfer);
        let cached = !self.data.connections.is_empty();
        if self.chosen.mode == Mode::Extended && receives && self.data.receiver.is_none() {
            let mut receiver = Receiver::new(false, 1);
            let opened = self
                .data
                .connections
                .iter()
                .try_for_each(|&connection| receiver.connect(connection));
            self.data.receiver = opened.is_ok().then_some(receiver);
        }
        if self.data.ended && receives {
            self.begin(now, 150);
            return self.complete();
        }
        if cached || self.data.listens && !self.data.ended {
            let code = if cached && self.data.used { 125 } else { 150 };
            return self.begin(now, code);
        }
        let addresses = self.data.addresses.clone();
        if addresses.is_empty() {
            // The connections that it was to have are gone since it was asked for.
            return self.fail(&Reply::new(425, "Send PASV or PORT first."));
        }
        let most = usize::from(self.policy.connections.max(1)) / addresses.len();
        let connections = match self.chosen.mode {
            Mode::Stream => 1,
            Mode::Extended => self
                .chosen
                .parallelism
                .min(u16::try_from(most.max(1)).unwrap_or(u16::MAX)),
        };
        self.data.awaited = usize::from(connections) * addresses.len();
        self.outputs.push_back(Output::Connect {
            addresses,
            connections,
        });
    }

    /// All is there: from here on bytes move.
    pub(super) fn begin(&mut self, now: Duration, code: u16) {
        let text = if code == 125 {
            "Beginning transfer; reusing existing data connection."
        } else {
            "Beginning transfer."
        };
        self.reply(&Reply::new(code, text));
        self.data.early = false;
        self.data.used = true;
        let State::Transferring(transfer) = &mut self.state else {
            return;
        };
        transfer.begun = true;
        transfer.last.touch(now);
        if self.chosen.mode == Mode::Stream {
            return;
        }
        if transfer.receives() {
            if let Some(receiver) = &mut self.data.receiver {
                receiver.begin();
            }
            transfer.marked = Some(now);
            return self.performance(now);
        }
        let connections = self.data.connections.iter().copied();
        let sender = self
            .data
            .sender
            .get_or_insert_with(|| Sender::new(connections, self.policy.block_bytes));
        transfer.file = Some(match &transfer.kind {
            Kind::List(_) => sender.admit_growing(),
            kind => {
                let mut ranges = ByteRanges::default();
                for piece in &transfer.pieces {
                    // They come from such a set.
                    let _ = ranges.insert(piece.clone());
                }
                let base = if let Kind::Send {
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

/// What comes next in MODE S.
pub(super) fn next_of_stream(transfer: &mut Transfer, block_bytes: u64) -> Option<DataOut> {
    if transfer.closing {
        return None;
    }
    if !transfer.listing.is_empty() {
        return Some(DataOut::Bytes(std::mem::take(&mut transfer.listing)));
    }
    while let Some(piece) = transfer.pieces.front_mut() {
        if piece.is_empty() {
            transfer.pieces.pop_front();
            continue;
        }
        let offset = piece.start;
        let bytes = (piece.end - offset).min(block_bytes.max(1));
        piece.start += bytes;
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
