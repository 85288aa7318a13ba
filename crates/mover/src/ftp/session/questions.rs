//! What is asked of a server besides transfers: commands and listings.

use std::sync::mpsc::Sender;
use std::time::Duration;

use venturi_gridftp::client::{Get, Job as Transfer, Source as What};
use venturi_gridftp::{ByteRanges, Reply};

use super::Session;
use crate::ftp::messages::{Answer, Ask, Question};

/// Most bytes of a listing that comes over a data connection.
const MOST_LISTING_BYTES: usize = 256 << 20;
/// In the numbers of transfers that are listings.
const LISTING: u64 = 1 << 63;

/// A listing that comes over a data connection.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) asker: Asker,
    bytes: Vec<u8>,
    /// It would need more memory than a listing may have.
    too_long: bool,
}

/// Whoever waits for an answer; if none comes the session is lost.
#[derive(Debug)]
pub(super) struct Asker {
    tag: u64,
    answer: Sender<(u64, Answer)>,
    answered: bool,
}

impl Asker {
    /// Tells an answer. Who does not wait any more needs none.
    pub(super) fn tell(&self, answer: Answer) {
        let _ = self.answer.send((self.tag, answer));
    }

    pub(super) fn end(mut self, reply: Reply) {
        self.tell(Answer::Reply(reply));
        self.answered = true;
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if !self.answered {
            self.tell(Answer::Lost);
        }
    }
}

impl Session<'_> {
    pub(super) fn ask(&mut self, now: Duration, ask: Ask) {
        let number = self.next_request;
        self.next_request += 1;
        let asker = Asker {
            tag: ask.tag,
            answer: ask.answer,
            answered: false,
        };
        match ask.question {
            Question::Command(command) => {
                self.asked.insert(number, asker);
                self.client.request(now, number, command);
            }
            Question::Listing(path) => {
                let transfer = number | LISTING;
                let bytes = Vec::new();
                let listing = Listing {
                    asker,
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
                    see: false,
                };
                self.client.transfer(now, Transfer::Get(get));
            }
        }
    }
}

impl Listing {
    pub(super) fn take(&mut self, offset: u64, bytes: &[u8]) {
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = begin.saturating_add(bytes.len());
        self.too_long |= end > MOST_LISTING_BYTES;
        if !self.too_long {
            self.bytes.resize(self.bytes.len().max(end), 0);
            self.bytes[begin..end].copy_from_slice(bytes);
        }
    }

    pub(super) fn end(self) {
        if self.too_long {
            let found = "the listing of the directory is too long; copy what is in it in parts";
            return self.asker.end(Reply::new(552, found));
        }
        for line in self.bytes.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !line.is_empty() {
                self.asker.tell(Answer::Line(line.to_vec()));
            }
        }
        self.asker.end(Reply::new(226, "listed"));
    }
}
