//! What a client promises its driver.

use venturi_gridftp::client::{
    ClientOutput, ConnectionPurpose, GetSource, TransferJob, UploadMode,
};
use venturi_gridftp::mode_e::BlockHeader;
use venturi_gridftp::{ByteRanges, DataOut, Delivery, FtpCommand, Mode, Path};

use super::FuzzSession;

impl FuzzSession {
    pub(super) fn check_output(&mut self, output: ClientOutput) {
        if let Some(request) = self.requested(&output) {
            assert!(self.requests.contains(&request), "{output:?}");
        }
        match output {
            ClientOutput::Send(bytes) => self.check_commands(&bytes),
            ClientOutput::Listen => {
                assert_eq!(self.client.mode(), Mode::Extended);
                self.listens = true;
            }
            ClientOutput::Connect {
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
                    ConnectionPurpose::Transfer(transfer) => {
                        assert!(stream && self.jobs.contains_key(&transfer));
                    }
                    ConnectionPurpose::Stripe(stripe) => {
                        assert!(!stream && (stripe == 0 || self.settings.striped));
                    }
                }
                self.connects.extend((0..connections).map(|_| purpose));
            }
            ClientOutput::CloseData { connection } => drop(self.links.remove(&connection)),
            ClientOutput::DropData { .. } => {
                self.links.clear();
                self.connects.clear();
                self.listens = false;
                self.peer.data_dropped();
            }
            ClientOutput::Started { transfer } => {
                self.assert_open(transfer);
                self.started.insert(transfer);
                if matches!(&self.jobs[&transfer], TransferJob::Get(get) if get.size_bytes.is_none())
                {
                    self.moved.remove(&transfer);
                }
            }
            ClientOutput::Progress { transfer, .. } => self.assert_open(transfer),
            ClientOutput::Done { transfer, .. } => {
                self.assert_open(transfer);
                self.reported.insert(transfer);
                self.check_done(transfer);
            }
            ClientOutput::Failed { transfer, failure } => {
                self.assert_open(transfer);
                self.reported.insert(transfer);
                assert!(!failure.reason.is_empty());
                let here = matches!(self.jobs[&transfer], TransferJob::Get(_))
                    || failure.received.is_empty();
                assert!(here, "nothing is received of an upload");
            }
            ClientOutput::Reply { request, .. } => assert!(self.requests.remove(&request)),
            _ => {}
        }
    }

    fn assert_open(&self, transfer: u64) {
        let open = self.jobs.contains_key(&transfer) && !self.reported.contains(&transfer);
        assert!(open, "transfer {transfer} is reported once, at its end");
    }

    fn check_commands(&mut self, bytes: &[u8]) {
        for command in self.peer.commands(bytes) {
            if let FtpCommand::Rnfr(path) = command {
                let eager = match self.settings.upload {
                    Some(upload) => upload == UploadMode::Eager,
                    None => self.client.features().is_globus(),
                };
                let is_shared_file = self.client.mode() == Mode::Extended;
                match self.there(&path) {
                    Some(size_bytes) => self.peer.check_exists(&path, size_bytes),
                    None => self.peer.check_name(&path, is_shared_file, eager),
                }
            }
        }
    }

    /// The size of the file that was all at the server before, under this name.
    fn there(&self, path: &Path) -> Option<u64> {
        self.jobs.values().find_map(|job| match job {
            TransferJob::Put(put) if put.temporary.as_ref() == Some(path) => {
                let exists = put.size_bytes > 0 && put.present.prefix_bytes() >= put.size_bytes;
                exists.then_some(put.size_bytes)
            }
            _ => None,
        })
    }

    /// Whoever is told that a file is done has been given all of it, or has given all of it.
    fn check_done(&mut self, transfer: u64) {
        let mut all = self.moved.remove(&transfer).unwrap_or_default();
        let nothing = ByteRanges::default();
        let (present, size) = match &self.jobs[&transfer] {
            TransferJob::Get(get) if get.source == GetSource::File => match get.size_bytes {
                Some(size) => (&get.present, Some(size)),
                None => (&nothing, None),
            },
            TransferJob::Put(put) => match put.part {
                Some(offset) => {
                    let expected = ByteRanges::from_range(offset..offset + put.size_bytes);
                    return assert_eq!(all, expected, "a part of transfer {transfer}");
                }
                None => (&put.present, Some(put.size_bytes)),
            },
            TransferJob::Get(_) => return,
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
        let TransferJob::Get(get) = &self.jobs[&payload.transfer] else {
            panic!("bytes for an upload");
        };
        let range = payload.offset..payload.offset + payload.bytes as u64;
        if get.source == GetSource::File {
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
        let TransferJob::Put(put) = &self.jobs[&transfer] else {
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
            !stream || self.links[&connection] == ConnectionPurpose::Transfer(transfer),
            "its own connection"
        );
        if let Some(header) = header {
            let expected = BlockHeader {
                count: bytes,
                offset: offset - base,
                ..BlockHeader::default()
            };
            assert_eq!(BlockHeader::parse(&header), Ok(expected));
        }
        let waits = self.settings.upload == Some(UploadMode::Gated)
            || put.temporary.is_none() && put.part.is_none();
        assert!(
            stream || !waits || self.started.contains(&transfer),
            "nothing before the server takes it"
        );
        self.note(transfer, offset..offset + bytes);
    }
}
