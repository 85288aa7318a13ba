//! Requests other than transfers: commands and listings.

use std::sync::mpsc::Sender;
use std::time::Duration;

use venturi_gridftp::client::{Get, GetSource as What, TransferJob as Transfer};
use venturi_gridftp::{ByteRanges, FtpReply};

use super::FtpSession;
use crate::ftp::messages::{PendingRequest, RequestResult, SessionRequest};

/// Maximum size of a listing over a data connection, bytes.
const MAX_LISTING_BYTES: usize = 256 << 20;
/// Bit of listings in transfer numbers.
const LISTING: u64 = 1 << 63;

/// Listing over a data connection.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) result_sender: ResultSender,
    bytes: Vec<u8>,
    /// True if the listing exceeds the limit.
    too_long: bool,
}

/// Sender for the results of a request; dropping it reports a lost session.
#[derive(Debug)]
pub(super) struct ResultSender {
    tag: u64,
    sender: Sender<(u64, RequestResult)>,
    is_complete: bool,
}

impl ResultSender {
    /// Sends a result; the receiver can have gone.
    pub(super) fn send(&self, sender: RequestResult) {
        let _ = self.sender.send((self.tag, sender));
    }

    pub(super) fn end(mut self, reply: FtpReply) {
        self.send(RequestResult::Reply(reply));
        self.is_complete = true;
    }
}

impl Drop for ResultSender {
    fn drop(&mut self) {
        if !self.is_complete {
            self.send(RequestResult::Lost);
        }
    }
}

impl FtpSession<'_> {
    pub(super) fn request(&mut self, now: Duration, request: PendingRequest) {
        let number = self.next_request;
        self.next_request += 1;
        let result_sender = ResultSender {
            tag: request.tag,
            sender: request.sender,
            is_complete: false,
        };
        match request.request {
            SessionRequest::Command(command) => {
                self.pending_requests.insert(number, result_sender);
                self.client.request(now, number, command);
            }
            SessionRequest::Listing(path) => {
                let transfer = number | LISTING;
                let bytes = Vec::new();
                let listing = Listing {
                    result_sender,
                    bytes,
                    too_long: false,
                };
                self.listings.insert(transfer, listing);
                let get = Get {
                    transfer,
                    source: What::Directory,
                    path,
                    size_bytes: None,
                    present: ByteRanges::default(),
                    stat_after: false,
                };
                self.client.transfer(now, Transfer::Get(get));
            }
        }
    }
}

impl Listing {
    pub(super) fn take(&mut self, offset: u64, bytes: &[u8]) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(bytes.len());
        self.too_long |= end > MAX_LISTING_BYTES;
        if !self.too_long {
            self.bytes.resize(self.bytes.len().max(end), 0);
            self.bytes[start..end].copy_from_slice(bytes);
        }
    }

    pub(super) fn end(self) {
        if self.too_long {
            let found = "the directory listing is too long; copy the files in several parts";
            return self.result_sender.end(FtpReply::new(552, found));
        }
        for line in self.bytes.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !line.is_empty() {
                self.result_sender
                    .send(RequestResult::ListingLine(line.to_vec()));
            }
        }
        self.result_sender.end(FtpReply::new(226, "listed"));
    }
}
