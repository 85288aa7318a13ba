//! What a client promises its driver.

use venturi_gridftp::client::{Job, Output, Purpose, Source, Upload};
use venturi_gridftp::mode_e::Header;
use venturi_gridftp::{ByteRanges, Command, DataOut, Delivery, Mode, Path};

use super::Session;

impl Session {
    pub(super) fn check_output(&mut self, output: Output) {
        if let Some(request) = self.asked(&output) {
            assert!(self.requests.contains(&request), "{output:?}");
        }
        match output {
            Output::Send(bytes) => self.check_commands(&bytes),
            Output::Listen => {
                assert_eq!(self.client.mode(), Mode::Extended);
                self.listens = true;
            }
            Output::Connect {
                connections,
                purpose,
                ..
            } => {
                let stream = self.client.mode() == Mode::Stream;
                assert_eq!(
                    connections,
                    if stream { 1 } else { self.settings.connections }
                );
                match purpose {
                    Purpose::Transfer(transfer) => {
                        assert!(stream && self.jobs.contains_key(&transfer));
                    }
                    Purpose::Stripe(stripe) => {
                        assert!(!stream && (stripe == 0 || self.settings.striped));
                    }
                }
                self.connects.extend((0..connections).map(|_| purpose));
            }
            Output::CloseData { connection } => drop(self.links.remove(&connection)),
            Output::DropData { .. } => {
                self.links.clear();
                self.connects.clear();
                self.listens = false;
                self.peer.data_dropped();
            }
            Output::Begun { transfer } => {
                self.assert_open(transfer);
                self.begun.insert(transfer);
                if matches!(&self.jobs[&transfer], Job::Get(get) if get.size_bytes.is_none()) {
                    self.moved.remove(&transfer);
                }
            }
            Output::Progress { transfer, .. } => self.assert_open(transfer),
            Output::Done { transfer, .. } => {
                self.assert_open(transfer);
                self.told.insert(transfer);
                self.check_done(transfer);
            }
            Output::Failed { transfer, failure } => {
                self.assert_open(transfer);
                self.told.insert(transfer);
                assert!(!failure.reason.is_empty());
                let here =
                    matches!(self.jobs[&transfer], Job::Get(_)) || failure.received.is_empty();
                assert!(here, "nothing is received of an upload");
            }
            Output::Answer { request, .. } => assert!(self.requests.remove(&request)),
            _ => {}
        }
    }

    fn assert_open(&self, transfer: u64) {
        let open = self.jobs.contains_key(&transfer) && !self.told.contains(&transfer);
        assert!(open, "transfer {transfer} is told of once, at its end");
    }

    fn check_commands(&mut self, bytes: &[u8]) {
        for command in self.peer.commands(bytes) {
            if let Command::Rnfr(path) = command {
                let eager = match self.settings.upload {
                    Some(upload) => upload == Upload::Eager,
                    None => self.client.features().is_globus(),
                };
                let shared = self.client.mode() == Mode::Extended;
                match self.there(&path) {
                    Some(size_bytes) => self.peer.check_there(&path, size_bytes),
                    None => self.peer.check_name(&path, shared, eager),
                }
            }
        }
    }

    /// The size of the file that was all at the server before, under this name.
    fn there(&self, path: &Path) -> Option<u64> {
        self.jobs.values().find_map(|job| match job {
            Job::Put(put) if put.temporary.as_ref() == Some(path) => {
                let is_there = put.size_bytes > 0 && put.present.prefix_bytes() >= put.size_bytes;
                is_there.then_some(put.size_bytes)
            }
            _ => None,
        })
    }

    /// Whoever is told that a file is done has been given all of it, or has given all of it.
    fn check_done(&mut self, transfer: u64) {
        let mut all = self.moved.remove(&transfer).unwrap_or_default();
        let nothing = ByteRanges::default();
        let (present, size) = match &self.jobs[&transfer] {
            Job::Get(get) if get.source == Source::File => match get.size_bytes {
                Some(size) => (&get.present, Some(size)),
                None => (&nothing, None),
            },
            Job::Put(put) => match put.part {
                Some(offset) => {
                    let expected = ByteRanges::of(offset..offset + put.size_bytes);
                    return assert_eq!(all, expected, "a part of transfer {transfer}");
                }
                None => (&put.present, Some(put.size_bytes)),
            },
            Job::Get(_) => return,
        };
        all.merge(present).expect("few ranges");
        let end = all.end();
        assert_eq!(all.prefix_bytes(), end, "a hole in transfer {transfer}");
        assert!(
            size.is_none_or(|size| size == end),
            "{end} bytes of transfer {transfer} instead of {size:?}"
        );
    }

    pub(super) fn check_delivery(&mut self, payload: Delivery) {
        self.assert_open(payload.transfer);
        let Job::Get(get) = &self.jobs[&payload.transfer] else {
            panic!("bytes for an upload");
        };
        let range = payload.offset..payload.offset + payload.bytes as u64;
        if get.source == Source::File {
            assert!(
                get.size_bytes.is_none_or(|size| range.end <= size),
                "beyond the end"
            );
        }
        self.note(payload.transfer, range);
    }

    fn note(&mut self, transfer: u64, range: std::ops::Range<u64>) {
        let moved: &mut ByteRanges = self.moved.entry(transfer).or_default();
        moved.insert(range).expect("few ranges");
    }

    pub(super) fn check_data(&mut self, connection: u64, out: &DataOut) {
        let DataOut::Payload {
            header,
            transfer,
            offset,
            bytes,
        } = *out
        else {
            return;
        };
        self.assert_open(transfer);
        let Job::Put(put) = &self.jobs[&transfer] else {
            panic!("bytes of a download");
        };
        let base = put.part.unwrap_or(0);
        assert!(
            0 < bytes
                && bytes <= self.settings.block_bytes
                && base <= offset
                && offset + bytes <= base + put.size_bytes
        );
        let stream = self.client.mode() == Mode::Stream;
        assert_eq!(header.is_none(), stream);
        assert!(
            !stream || self.links[&connection] == Purpose::Transfer(transfer),
            "its own connection"
        );
        if let Some(header) = header {
            let expected = Header {
                count: bytes,
                offset: offset - base,
                ..Header::default()
            };
            assert_eq!(Header::parse(&header), Ok(expected));
        }
        let waits = self.settings.upload == Some(Upload::Gated)
            || put.temporary.is_none() && put.part.is_none();
        assert!(
            stream || !waits || self.begun.contains(&transfer),
            "nothing before the server takes it"
        );
        self.note(transfer, offset..offset + bytes);
    }
}
