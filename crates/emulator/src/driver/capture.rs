//! Captures of links: the network thread creates records of packets, and another thread writes them
//! to the file.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use venturi_plan::{AgentEvent, Name};

use super::clock::ModelClock;
use super::machine;
use super::output::{Broken, Outbox};
use super::report;
use crate::model::SentRun;
use crate::packet::{VNET_BYTES, cut, finish_checksum};
use crate::pcap;
use crate::protocol::EmulatorRecord;

/// Approximate size of the blocks of records that are passed to the writing thread.
const BLOCK_BYTES: usize = 256 * 1024;
/// Maximum number of blocks that wait for a slow disk; further packets are dropped from the capture
/// and counted.
const WAITING_BLOCKS: usize = 256;
/// Maximum length of virtio-net, IP and TCP headers; even, because checksums use pairs of bytes.
const HEADERS_BYTES: usize = VNET_BYTES + 60 + 60;

/// A capture in progress.
#[derive(Debug)]
pub(crate) struct LinkCapture {
    snap_bytes: u32,
    block: Block,
    written: u64,
    missed: u64,
    blocks: SyncSender<CaptureBlock>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    packets: u64,
}

#[derive(Debug)]
enum CaptureBlock {
    Block(Vec<u8>),
    End { packets: u64, missed: u64 },
}

/// Data of the writing thread.
struct Destination {
    link: Name,
    path: PathBuf,
    clock: ModelClock,
    outbox: Outbox,
}

impl LinkCapture {
    pub(crate) fn start(
        link: Name,
        path: PathBuf,
        snap_bytes: Option<u32>,
        clock: ModelClock,
        outbox: Outbox,
    ) -> io::Result<Self> {
        let (blocks, theirs) = sync_channel(WAITING_BLOCKS);
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
                let _ = file.write(&theirs); // no recipient for an error
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
            blocks,
            thread,
        })
    }

    /// Add segments as on a link: each as a separate packet with complete checksums. `bytes` is their packet.
    pub(crate) fn add(&mut self, sent: &SentRun, bytes: &[u8], clock: &ModelClock) {
        let chunk = sent.chunk;
        for index in 0..chunk.count {
            let behind = u64::from(chunk.count - 1 - index);
            let unix_ns = clock.unix_ns(sent.end_ns.saturating_sub(behind * sent.spacing_ns));
            if chunk.shape.segments == 1 {
                // Only the headers are copied, because they change; they have at most this length.
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
        let blocks = [&headers[VNET_BYTES..], payload];
        pcap::push_packet(&mut self.block.bytes, unix_ns, blocks, self.snap_bytes);
        self.block.packets += 1;
    }

    /// Send the current block.
    pub(crate) fn flush(&mut self) {
        if self.block.bytes.is_empty() {
            return;
        }
        let block = std::mem::take(&mut self.block);
        // Blocks contain complete records, so a file with missing blocks is readable.
        match self.blocks.try_send(CaptureBlock::Block(block.bytes)) {
            Ok(()) => self.written += block.packets,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.missed += block.packets;
            }
        }
    }

    /// End the capture. When the returned thread has ended, the file is complete, and `capture`
    /// with `ended` is reported.
    pub(crate) fn finish(mut self) -> JoinHandle<()> {
        self.flush();
        let (packets, missed) = (self.written, self.missed);
        let _ = self.blocks.send(CaptureBlock::End { packets, missed }); // a failed writer has reported its error
        self.thread
    }
}

impl Destination {
    fn write(self, blocks: &Receiver<CaptureBlock>) -> Result<(), Broken> {
        let mut file = match File::create(&self.path) {
            Ok(file) => file,
            Err(error) => return self.report_finding(&self.path, &error.to_string()),
        };
        self.report("begun", json!({}))?;
        while let Ok(block) = blocks.recv() {
            match block {
                CaptureBlock::Block(bytes) => {
                    if let Err(error) = file.write_all(&bytes) {
                        return self.report_finding(&self.path, &error.to_string());
                    }
                }
                CaptureBlock::End { packets, missed } => {
                    if missed > 0 {
                        let evidence = format!(
                            "{missed} packets are missing because writing was slower than the \
                             traffic"
                        );
                        self.report_finding(&self.path, &evidence)?;
                    }
                    return self.report("ended", json!({"packets": packets, "missed": missed}));
                }
            }
        }
        Ok(())
    }

    fn report(&self, state: &str, more: Value) -> Result<(), Broken> {
        let mut detail = json!({"link": &*self.link, "path": self.path, "state": state});
        if let (Value::Object(detail), Value::Object(more)) = (&mut detail, more) {
            detail.extend(more);
        }
        let Value::Object(detail) = detail else {
            unreachable!("it was made as one just now")
        };
        self.outbox.send(EmulatorRecord::Event(AgentEvent {
            time_s: self.clock.run_s(self.clock.now_ns()),
            kind: "capture".into(),
            detail: detail.into_iter().collect(),
        }))
    }

    fn report_finding(&self, path: &Path, found: &str) -> Result<(), Broken> {
        let evidence = format!("{}: {found}", path.display());
        let finding = report::capture_incomplete(&self.link, evidence);
        self.outbox.send(EmulatorRecord::Finding(finding))
    }
}
