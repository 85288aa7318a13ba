//! Transfers: from the command, over data connections, to the last reply.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use super::commands::{Notation, Purpose};
use super::{Answer, Output, Refusal, Request, Server, State};
use crate::mode_e::{Receiver, Sender};
use crate::{ByteRanges, Command, DataOut, Mode, Partial, Path, Reply, Restart};

/// How a directory is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// MLSD, MLSR.
    Facts,
    /// LIST.
    Long,
    /// NLST.
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
    /// When bytes last moved.
    pub moved: Duration,
    pub marked: Option<(Duration, Duration)>,
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
    fn new(kind: Kind, now: Duration) -> Self {
        Self {
            kind,
            begun: false,
            moved: now,
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

    pub fn next_marker(&self) -> Option<Duration> {
        self.marked.map(|(last, interval)| last + interval)
    }

    pub fn receives(&self) -> bool {
        matches!(self.kind, Kind::Receive { .. })
    }
}

impl Server {
    pub(super) fn listen(&mut self, notation: Notation) {
        self.drop_data();
        self.ask(Purpose::Listening(notation), Request::Listen);
    }

    pub(super) fn connect_later(&mut self, addresses: Vec<SocketAddr>) {
        self.drop_data();
        if addresses.iter().all(|&address| self.may_connect(address)) {
            self.data.addresses = addresses;
            self.reply(&Reply::new(200, "PORT Command successful."));
        } else {
            self.reply(&Reply::new(
                504,
                "Data goes to the host of the control connection, from port 1024 on.",
            ));
        }
    }

    pub(super) fn begin_transfer(&mut self, now: Duration, command: Command) {
        let restart = self.chosen.restart.take();
        let check = self.chosen.check.take();
        let here = self.chosen.directory.clone();
        let recursive = matches!(command, Command::Mlsr(_));
        let keeps = restart.is_some() || matches!(command, Command::Esto { .. });
        let (kind, path) = match command {
            Command::Retr(path) => (Kind::Send { region: None }, path),
            Command::Eret {
                part: Partial::Region { offset, length },
                path,
            } => (
                Kind::Send {
                    region: Some((offset, length)),
                },
                path,
            ),
            Command::Stor(path) => (
                Kind::Receive {
                    path: path.clone(),
                    base: 0,
                    check,
                },
                path,
            ),
            Command::Esto { offset, path } => (
                Kind::Receive {
                    path: path.clone(),
                    base: offset,
                    check,
                },
                path,
            ),
            Command::Mlsd(path) | Command::Mlsr(path) => {
                (Kind::List(Style::Facts), path.unwrap_or(here))
            }
            Command::List(path) => (Kind::List(Style::Long), path.unwrap_or(here)),
            Command::Nlst(path) => (Kind::List(Style::Names), path.unwrap_or(here)),
            _ => return self.reply(&Reply::new(502, "Command not implemented.")),
        };
        let receives = matches!(kind, Kind::Receive { .. });
        if let Err(reply) = self.may_transfer(receives) {
            return self.refuse_transfer(receives, &reply);
        }
        self.chosen.restart = restart;
        self.touch(now);
        match path.normalised(&self.chosen.directory) {
            Err(error) => self.refuse_transfer(receives, &Reply::new(553, error.to_string())),
            Ok(path) => match kind {
                Kind::Send { .. } => self.ask(Purpose::Open(kind), Request::Read(path)),
                Kind::List(_) => self.ask(Purpose::Open(kind), Request::List { path, recursive }),
                Kind::Receive { base, check, .. } => {
                    let truncate = !keeps;
                    let kind = Kind::Receive {
                        path: path.clone(),
                        base,
                        check,
                    };
                    self.ask(Purpose::Open(kind), Request::Write { path, truncate });
                }
            },
        }
    }
    /// Whether there is a data connection for it, or a way to one.
    fn may_transfer(&self, receives: bool) -> Result<(), Reply> {
        let data = &self.data;
        if receives && !self.policy.writes {
            return Err(Refusal::Denied.reply());
        }
        if data.refused && data.early {
            return Err(Reply::new(
                425,
                "Bytes of a refused file are on the data connections; send PASV again.",
            ));
        }
        match self.chosen.mode {
            Mode::Extended
                if receives && data.listens || !receives && !data.addresses.is_empty() =>
            {
                Ok(())
            }
            Mode::Extended if data.listens || !data.addresses.is_empty() => Err(Reply::new(
                500,
                "In MODE E the sender of data connects; send PASV to store, PORT to retrieve.",
            )),
            Mode::Stream if data.listens || !data.addresses.is_empty() => Ok(()),
            _ => Err(Reply::new(425, "Send PASV or PORT first.")),
        }
    }

    /// An upload that is refused may have its bytes on the way already. Where the client did not wait, they would be taken
    /// for those of its next file: then the connections are dropped, and the next ones fail instead of lying.
    fn refuse_transfer(&mut self, receives: bool, reply: &Reply) {
        self.reply(reply);
        if receives && self.chosen.mode == Mode::Extended {
            self.data.refused = true;
            if self.data.early || self.lines.has_line() {
                self.drop_data();
            }
        }
    }

    /// The driver has opened what is transferred, or finished it.
    pub(super) fn transfer_answered(&mut self, now: Duration, purpose: Purpose, answer: Answer) {
        match (purpose, answer) {
            (Purpose::Open(Kind::Send { region }), Answer::Size(size)) => {
                let mut transfer = Transfer::new(Kind::Send { region }, now);
                let ranges = self.ranges_to_send(region, size, &mut transfer);
                transfer.pieces = ranges.iter().collect();
                self.start(now, transfer);
            }
            (Purpose::Open(kind @ Kind::Receive { .. }), Answer::Done) => {
                let mut transfer = Transfer::new(kind, now);
                if let Some(Restart::Offset(offset)) = self.chosen.restart.take() {
                    transfer.position = offset;
                }
                self.start(now, transfer);
            }
            (Purpose::Open(kind @ Kind::List(_)), Answer::Entries { entries, more }) => {
                let mut transfer = Transfer::new(kind, now);
                self.take_entries(&mut transfer, &entries, more);
                self.start(now, transfer);
            }
            (Purpose::Open(kind), answer) => {
                let refusal = match answer {
                    Answer::Refused(refusal) => refusal,
                    _ => Refusal::Internal,
                };
                self.refuse_transfer(matches!(kind, Kind::Receive { .. }), &refusal.reply());
            }
            (Purpose::Finish(path, Some((algorithm, value))), Answer::Done) => {
                let request = Request::Checksum {
                    algorithm,
                    offset: 0,
                    length: None,
                    path,
                };
                self.ask(Purpose::Verify(value), request);
            }
            (Purpose::Finish(_, None), Answer::Done) => {
                self.reply(&Reply::new(226, "Transfer Complete."))
            }
            (Purpose::Verify(expected), Answer::Checksum(found)) => {
                self.verified(&expected, &found)
            }
            (Purpose::Finish(..) | Purpose::Verify(_), answer) => {
                self.drop_data();
                self.refused(&answer);
            }
            (_, answer) => self.refused(&answer),
        }
    }

    fn verified(&mut self, expected: &str, found: &str) {
        if expected.eq_ignore_ascii_case(found) {
            return self.reply(&Reply::new(226, "Transfer Complete."));
        }
        // What follows on the data connections cannot be trusted to be the next file.
        self.drop_data();
        let lines = [
            "GlobusError: v=1 c=INCORRECT_CHECKSUM".to_owned(),
            format!("GridFTP-Computed-Checksum: {found}"),
            format!("GridFTP-Expected-Checksum: {expected}"),
        ];
        self.reply(&Reply::block(550, lines.map(String::into_bytes).to_vec()));
    }

    /// What of a file is to be sent. Blocks of a region count from its start.
    fn ranges_to_send(
        &mut self,
        region: Option<(u64, u64)>,
        size: u64,
        transfer: &mut Transfer,
    ) -> ByteRanges {
        let (start, length) = region.unwrap_or((0, size));
        let end = start.saturating_add(length).min(size);
        transfer.position = start;
        match self.chosen.restart.take() {
            None => ByteRanges::of(start..end),
            Some(Restart::Offset(offset)) => ByteRanges::of(start.saturating_add(offset)..end),
            Some(Restart::Ranges(present)) if region.is_none() => present.missing(size),
            Some(Restart::Ranges(_)) => ByteRanges::of(start..end),
        }
    }

    /// Waits for a data connection, or begins at once on one that is there.
    fn start(&mut self, now: Duration, transfer: Transfer) {
        let receives = transfer.receives();
        self.state = State::Transferring(transfer);
        let cached = !self.data.connections.is_empty();
        if self.chosen.mode == Mode::Extended && receives && self.data.receiver.is_none() {
            let mut receiver = Receiver::new(false);
            let opened = self
                .data
                .connections
                .iter()
                .try_for_each(|&connection| receiver.connect(connection));
            self.data.receiver = opened.is_ok().then_some(receiver);
        }
        if cached || self.data.listens {
            let code = if cached && self.data.used { 125 } else { 150 };
            return self.begin(now, code);
        }
        let addresses = self.data.addresses.clone();
        let most = usize::from(self.policy.connections.max(1)) / addresses.len().max(1);
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
        transfer.moved = now;
        if self.chosen.mode == Mode::Stream {
            return;
        }
        if transfer.receives() {
            if let Some(receiver) = &mut self.data.receiver {
                receiver.begin();
            }
            transfer.marked = Some((now, self.chosen.marker_interval));
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
