//! Captures of links: the thread of the network makes records of packets, another writes them to the file.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use venturi_plan::{Event, Name};

use super::clock::Clock;
use super::machine;
use super::output::{Broken, Outbox};
use super::report;
use crate::model::Sent;
use crate::packet::{VNET_BYTES, cut, finish_checksum};
use crate::pcap;
use crate::protocol::Record;

/// Records are handed over in pieces of about this size.
const BLOCK_BYTES: usize = 256 * 1024;
/// Blocks that may wait for a slow disk; beyond it packets are left out, and counted.
const WAITING_BLOCKS: usize = 256;
/// virtio-net, IP and TCP headers at their longest; even, as checksums go by pairs of bytes.
const HEADERS_BYTES: usize = VNET_BYTES + 60 + 60;

/// A capture that is going on.
#[derive(Debug)]
pub(crate) struct Capture {
    snap_bytes: u32,
    block: Block,
    written: u64,
    missed: u64,
    pieces: SyncSender<Piece>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    packets: u64,
}

#[derive(Debug)]
enum Piece {
    Block(Vec<u8>),
    End { packets: u64, missed: u64 },
}

/// What the writing thread has to know.
struct Destination {
    link: Name,
    path: PathBuf,
    clock: Clock,
    outbox: Outbox,
}

impl Capture {
    pub(crate) fn start(
        link: Name,
        path: PathBuf,
        snap_bytes: Option<u32>,
        clock: Clock,
        outbox: Outbox,
    ) -> io::Result<Self> {
        let (pieces, theirs) = sync_channel(WAITING_BLOCKS);
        let file = Destination {
            link,
            path,
            clock,
            outbox,
        };
        let thread = std::thread::Builder::new()
            .name("capture".into())
            .spawn(move || {
                machine::ordinary();
                let _ = file.write(&theirs); // nobody to tell it to
            })?;
        let snap_bytes = snap_bytes.unwrap_or(pcap::WHOLE_BYTES);
        Ok(Self {
            snap_bytes,
            block: Block {
                bytes: pcap::file_header(snap_bytes).to_vec(),
                packets: 0,
            },
            written: 0,
            missed: 0,
            pieces,
            thread,
        })
    }

    /// Adds segments as they are on a wire: each by itself, its checksums whole. `bytes` is their packet.
    pub(crate) fn add(&mut self, sent: &Sent, bytes: &[u8], clock: &Clock) {
        let chunk = sent.chunk;
        for index in 0..chunk.count {
            let behind = u64::from(chunk.count - 1 - index);
            let unix_ns = clock.unix_ns(sent.end_ns.saturating_sub(behind * sent.spacing_ns));
            if chunk.shape.segments == 1 {
                // Only the headers are copied to be changed; those are at most this long.
                let (headers, payload) = bytes.split_at(bytes.len().min(HEADERS_BYTES));
                let mut own = [0; HEADERS_BYTES];
                let own = &mut own[..headers.len()];
                own.copy_from_slice(headers);
                self.push(unix_ns, own, payload);
            } else {
                let mut part = cut(bytes, chunk.first + index, 1);
                let payload = part.payload.clone();
                self.push(unix_ns, part.headers_mut(), &bytes[payload]);
            }
        }
        if self.block.bytes.len() >= BLOCK_BYTES {
            self.flush();
        }
    }

    fn push(&mut self, unix_ns: u64, headers: &mut [u8], payload: &[u8]) {
        finish_checksum(headers, payload);
        let pieces = [&headers[VNET_BYTES..], payload];
        pcap::push_packet(&mut self.block.bytes, unix_ns, pieces, self.snap_bytes);
        self.block.packets += 1;
    }

    /// Hands over what there is.
    pub(crate) fn flush(&mut self) {
        if self.block.bytes.is_empty() {
            return;
        }
        let block = std::mem::take(&mut self.block);
        // Records are whole within a block: a file without some blocks can still be read.
        match self.pieces.try_send(Piece::Block(block.bytes)) {
            Ok(()) => self.written += block.packets,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.missed += block.packets;
            }
        }
    }

    /// Ends it. The file is whole, and `capture` with `ended` told, when the thread that is returned has ended.
    pub(crate) fn finish(mut self) -> JoinHandle<()> {
        self.flush();
        let (packets, missed) = (self.written, self.missed);
        let _ = self.pieces.send(Piece::End { packets, missed }); // a writer that failed has said so
        self.thread
    }
}

impl Destination {
    fn write(self, pieces: &Receiver<Piece>) -> Result<(), Broken> {
        let mut file = match File::create(&self.path) {
            Ok(file) => file,
            Err(error) => return self.doubt(&self.path, &error.to_string()),
        };
        self.tell("begun", json!({}))?;
        while let Ok(piece) = pieces.recv() {
            match piece {
                Piece::Block(bytes) => {
                    if let Err(error) = file.write_all(&bytes) {
                        return self.doubt(&self.path, &error.to_string());
                    }
                }
                Piece::End { packets, missed } => {
                    if missed > 0 {
                        let evidence =
                            format!("{missed} packets passed faster than they could be written");
                        self.doubt(&self.path, &evidence)?;
                    }
                    return self.tell("ended", json!({"packets": packets, "missed": missed}));
                }
            }
        }
        Ok(())
    }

    fn tell(&self, state: &str, more: Value) -> Result<(), Broken> {
        let mut detail = json!({"link": &*self.link, "path": self.path, "state": state});
        if let (Value::Object(detail), Value::Object(more)) = (&mut detail, more) {
            detail.extend(more);
        }
        let Value::Object(detail) = detail else {
            unreachable!("it was made as one just now")
        };
        self.outbox.send(Record::Event(Event {
            time_s: self.clock.run_s(self.clock.now_ns()),
            kind: "capture".into(),
            detail: detail.into_iter().collect(),
        }))
    }

    fn doubt(&self, path: &Path, found: &str) -> Result<(), Broken> {
        let evidence = format!("{}: {found}", path.display());
        let finding = report::capture_incomplete(&self.link, evidence);
        self.outbox.send(Record::Finding(finding))
    }
}
