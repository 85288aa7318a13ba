//! Items of a session: take, start, complete, and compare with the replies of the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;

use venturi_gridftp::client::{
    Get, GetSource as What, Put, TransferFailure, TransferJob as Transfer,
};
use venturi_gridftp::{ByteRanges, FtpCommand, FtpReply, Path as RemotePath};

use super::FtpSession;
use crate::decision::Decision;
use crate::ftp::MAX_SESSIONS_PER_ITEM;
use crate::ftp::failures;
use crate::ftp::files::Source;
use crate::ftp::files::UploadTask;
use crate::ftp::queue::SessionCapacity;
use crate::ftp::size_estimate::{WIDE_BYTES, wide_streams};
use crate::ftp::upload::{chmod, differs};
use crate::ftp::verify;
use crate::ftp::work::{FtpDirection, Item};

impl FtpSession<'_> {
    /// Takes items up to the capacity of the session.
    pub(super) fn take_items(&mut self, cx: &mut Context<'_>) -> bool {
        if self.farewell.is_some() {
            return false;
        }
        let accepts_requests = self.flags.accepts_requests.load(Ordering::Relaxed);
        if !self.ready {
            // All items can be complete before a further session is ready.
            let over = !accepts_requests && self.shared.queue.poll_over(cx).is_ready();
            return over && self.send_quit();
        }
        let retired = self.flags.retired.load(Ordering::Relaxed);
        let assigned = self.assigned();
        if retired && assigned + self.modes.len() == 0 {
            return self.send_quit();
        }
        let sessions = self.shared.sessions.load(Ordering::Relaxed);
        let capacity = SessionCapacity {
            assigned,
            depth: self.ahead.items(),
            assigned_bytes: self.bytes,
            ahead_bytes: self.ahead_bytes,
            sessions: sessions.max(self.soon),
            pace: self.progress.pace,
        };
        if retired || capacity.is_full() {
            return false;
        }
        match self.shared.queue.poll_take(cx, capacity) {
            Poll::Ready(Some(items)) => {
                let bytes = items.iter().map(Item::bytes).sum::<u64>();
                self.bytes += bytes;
                // The first items are representative of the following ones.
                if let Some(wide) = self.wide.take()
                    && bytes / items.len() as u64 >= WIDE_BYTES
                {
                    let whole = matches!(
                        &items[..],
                        [Item {
                            job: FtpDirection::Fetch(_),
                            ..
                        }]
                    );
                    let alone = sessions == 1 && whole;
                    let wide = if alone {
                        wide
                    } else {
                        wide.min(wide_streams(capacity.sessions))
                    };
                    if self.client.widen(wide) && accepts_requests {
                        self.report_wide(wide);
                    }
                }
                items.into_iter().for_each(|item| self.start_item(item));
                true
            }
            Poll::Ready(None)
                if !accepts_requests
                    && self.pending_requests.is_empty()
                    && self.client.open_transfers() == 0 =>
            {
                self.send_quit()
            }
            _ => false,
        }
    }

    /// Returns the number of assigned items.
    pub(super) fn assigned(&self) -> usize {
        let waiting = self.verifying.len() + self.unconfirmed.len() + self.checking.len();
        self.items.len() + self.opening + waiting
    }

    fn report_wide(&self, wide: u16) {
        let reason = format!(
            "files of {} MB or more and a long round-trip time: a lost packet slows only one of several connections",
            WIDE_BYTES / 1_000_000
        );
        self.shared.report.decision(&Decision {
            setting: "streams",
            value: wide.into(),
            reason,
        });
    }

    fn send_quit(&mut self) -> bool {
        self.client.quit();
        self.farewell = Some(Instant::now());
        true
    }

    fn start_item(&mut self, item: Item) {
        if item.job.is_void() {
            self.bytes -= item.bytes();
            return self.shared.queue.complete();
        }
        match &item.job {
            FtpDirection::Fetch(_) | FtpDirection::Chunk(..) | FtpDirection::Rest(_) => {
                self.fetch(item)
            }
            FtpDirection::Name(_) | FtpDirection::Again(..) => self.check_temp_file(item),
            FtpDirection::Store(_) | FtpDirection::Part(..) => self.open_file(item),
        }
    }

    pub(super) fn open_file(&mut self, item: Item) {
        self.opening += 1;
        self.opener.open(item);
    }

    fn fetch(&mut self, mut item: Item) {
        let transfer = item.number;
        let fetch = item.job.fetch();
        let source = match &item.job {
            FtpDirection::Chunk(large, index) => {
                let range = large.range(*index);
                let (offset, length) = (range.start, range.end - range.start);
                What::Region { offset, length }
            }
            _ => What::File,
        };
        let existing_bytes = match &item.job {
            FtpDirection::Rest(large) => large.remaining_bytes(),
            _ => 0,
        };
        let get = Get {
            transfer,
            source,
            path: fetch.from.clone(),
            size_bytes: fetch.known.size,
            present: ByteRanges::from_range(0..existing_bytes),
            stat_after: self.is_seen(&item),
        };
        item.reach(existing_bytes);
        self.items.insert(transfer, item);
        self.client.transfer(self.now(), Transfer::Get(get));
    }

    /// Sends an opened file, unless the server may have it.
    pub(super) fn opened(&mut self, item: Item, source: Arc<Source>) {
        let command_to_send = match &item.job {
            FtpDirection::Part(parts, index) if item.may_be_complete() => {
                verify::request(parts.store.part.clone(), Some(parts.range(*index)))
            }
            FtpDirection::Store(store) if store.resume_from.is_some() => {
                FtpCommand::Size(store.part.clone())
            }
            _ => return self.send_file(item, source, 0),
        };
        let number = self.command(command_to_send);
        self.unconfirmed.insert(number, (item, source));
    }

    /// Handles the reply about a chunk that may be complete, or about the size of a partial file.
    pub(super) fn size_received(&mut self, mut item: Item, source: Arc<Source>, reply: &FtpReply) {
        if let FtpDirection::Store(store) = &item.job {
            let existing_bytes = reply
                .size_bytes()
                .filter(|&existing_bytes| existing_bytes <= source.size);
            let existing_bytes = existing_bytes.unwrap_or(0);
            if existing_bytes > 0 {
                let location = self.shared.display_url(&store.to);
                self.shared
                    .report
                    .bytes_kept(&location, existing_bytes, source.size);
            }
            item.reach(existing_bytes);
            return self.send_file(item, source, existing_bytes);
        }
        let checksum = verify::parse_checksum(reply);
        if checksum.is_none() || checksum != source.checksum {
            return self.send_file(item, source, 0);
        }
        self.bytes -= item.bytes();
        self.part_stored(item);
    }

    /// Sends a file, a chunk, or the data after an offset.
    fn send_file(&mut self, item: Item, source: Arc<Source>, existing_bytes: u64) {
        let store = item.job.store().expect("what is opened is sent");
        let put = match &item.job {
            FtpDirection::Part(parts, index) => {
                let range = parts.range(*index);
                Put {
                    path: store.part.clone(),
                    temporary: None,
                    size_bytes: range.end - range.start,
                    modify_s: None,
                    part: Some(range.start),
                    ..self.put(item.number, store, 0)
                }
            }
            // All data is complete: only the end is sent.
            FtpDirection::Name(_) => Put {
                present: ByteRanges::from_range(0..source.size),
                ..self.put(item.number, store, source.size)
            },
            _ => Put {
                checksum: source
                    .checksum
                    .map(|value| (verify::ALGORITHM.into(), verify::text(value))),
                present: ByteRanges::from_range(0..existing_bytes),
                ..self.put(item.number, store, source.size)
            },
        };
        self.sources.insert(item.number, source);
        self.items.insert(item.number, item);
        self.client.transfer(self.now(), Transfer::Put(put));
    }

    /// Returns the upload of a complete file.
    fn put(&self, transfer: u64, store: &UploadTask, size_bytes: u64) -> Put {
        let times = self.shared.options.preserve.times;
        Put {
            transfer,
            path: store.to.clone(),
            temporary: Some(store.part.clone()),
            size_bytes,
            checksum: None,
            modify_s: store.known.modify_s.filter(|_| times),
            present: ByteRanges::default(),
            part: None,
            resumable: store.resume_from.is_some(),
        }
    }

    pub(super) fn started(&mut self, transfer: u64) {
        if let Some(item) = self.items.get_mut(&transfer)
            && !item.job.is_upload()
        {
            item.starts += 1;
            item.since.get_or_insert_with(Instant::now);
            self.writing.start_item(item);
        }
    }

    pub(super) fn done(&mut self, transfer: u64) {
        if let Some(listing) = self.listings.remove(&transfer) {
            return listing.end();
        }
        let Some(item) = self.items.remove(&transfer) else {
            return;
        };
        self.bytes -= item.bytes();
        self.moved += 1;
        self.progress.ended(transfer);
        let source = self.sources.remove(&transfer);
        match &item.job {
            FtpDirection::Fetch(_) | FtpDirection::Chunk(..) | FtpDirection::Rest(_) => {
                self.received(item)
            }
            FtpDirection::Again(..) => unreachable!("checked, not transferred"),
            FtpDirection::Part(..) => self.part_sent(item, source),
            FtpDirection::Store(store) => {
                let size = source.map_or(0, |source| source.size);
                self.stored(store, size, "ftp");
            }
            FtpDirection::Name(parts) => self.stored(&parts.store, parts.size, "ftp in chunks"),
        }
    }

    fn stored(&mut self, store: &UploadTask, size: u64, how: &str) {
        self.shared
            .copied(|| self.shared.display_url(&store.to), size, how);
        let target_mode = store
            .known
            .mode
            .filter(|_| self.shared.options.preserve.mode);
        match target_mode.filter(|mode| differs(*mode, 0o644)) {
            // Servers do not set it themselves. The next file does not wait for the reply.
            Some(mode) => self.set_mode(store.to.clone(), mode),
            None => self.shared.queue.complete(),
        }
    }

    fn set_mode(&mut self, path: RemotePath, mode: u32) {
        let number = self.command(chmod(path.clone(), mode));
        self.modes.insert(number, (path, mode));
    }

    /// Sends a command and returns its request number.
    pub(super) fn command(&mut self, command: FtpCommand) -> u64 {
        let number = self.next_request;
        self.next_request += 1;
        self.client.request(self.now(), number, command);
        number
    }

    pub(super) fn mode_set(&mut self, path: &RemotePath, reply: &FtpReply) {
        self.shared.check_mode_reply(path, reply);
        self.shared.queue.complete();
    }

    /// Handles a sent chunk of a large file.
    fn part_sent(&mut self, item: Item, source: Option<Arc<Source>>) {
        let (FtpDirection::Part(parts, index), true) = (&item.job, self.shared.options.verify)
        else {
            return self.part_stored(item);
        };
        let command = verify::request(parts.store.part.clone(), Some(parts.range(*index)));
        // The data to compare with.
        self.sources
            .extend(source.map(|source| (item.number, source)));
        self.compare(item, command);
    }

    /// Records a complete chunk; after the last one, the file is renamed.
    fn part_stored(&mut self, item: Item) {
        let FtpDirection::Part(parts, _) = &item.job else {
            unreachable!("what is stored in parts has them");
        };
        if parts.is_unknown() {
            return self.check_temp_file(item);
        }
        self.part_counted(item);
    }

    pub(super) fn part_counted(&mut self, item: Item) {
        let FtpDirection::Part(parts, _) = &item.job else {
            unreachable!("what is counted is a chunk");
        };
        if !parts.mark() {
            return self.shared.queue.complete();
        }
        let job = FtpDirection::Name(Arc::clone(parts));
        self.start_item(Item {
            attempts: 0,
            job,
            ..item
        });
    }

    /// Handles a download that has received all data.
    pub(super) fn arrived(&mut self, item: Item) {
        if !self.shared.options.verify {
            return self.writing.commit(item, None);
        }
        let range = match &item.job {
            FtpDirection::Chunk(large, index) => Some(large.range(*index)),
            _ => None,
        };
        let command = verify::request(item.job.fetch().from.clone(), range);
        self.compare(item, command);
    }

    /// Requests a checksum from the server.
    fn compare(&mut self, item: Item, command: FtpCommand) {
        let number = self.command(command);
        self.verifying.insert(number, item);
    }

    pub(super) fn verified(&mut self, item: Item, reply: &FtpReply) {
        let checksum = verify::parse_checksum(reply);
        let own = self.sources.remove(&item.number);
        let advice = "omit --verify, or run the same command again";
        match checksum {
            Some(checksum) if !item.job.is_upload() => self.writing.commit(item, Some(checksum)),
            Some(checksum) if own.and_then(|own| own.checksum) == Some(checksum) => {
                self.part_stored(item)
            }
            Some(_) => self
                .shared
                .failed(&item, "another checksum at the server", advice),
            None => {
                if !item.job.is_upload() {
                    self.writing.discard(item.number);
                }
                let found = format!("no checksum: {reply}");
                self.shared.failed(&item, &found, advice);
            }
        }
    }

    pub(super) fn failed(&mut self, transfer: u64, failure: &TransferFailure) {
        self.untidy = true;
        let connection_error = self.connection_error.take();
        let reason = &failure.reason;
        let reason = connection_error.map_or(reason.clone(), |why| format!("{reason}; {why}"));
        if let Some(listing) = self.listings.remove(&transfer) {
            return listing.result_sender.end(FtpReply::new(550, reason));
        }
        self.sources.remove(&transfer);
        let Some(item) = self.items.remove(&transfer) else {
            return;
        };
        self.bytes -= item.bytes();
        self.progress.ended(transfer);
        if !item.job.is_upload() {
            self.writing.discard(transfer);
            if failure.changed {
                return self.changed(item, &reason);
            }
        }
        if failure.again && item.attempts < MAX_SESSIONS_PER_ITEM {
            return self.shared.queue.requeue(item);
        }
        let creates_parents = self.shared.options.mkpath;
        let advice = failures::advice(item.job.is_upload() && !creates_parents, &reason);
        self.shared.failed(&item, &reason, advice);
        self.abandon_void(&reason);
    }

    /// Aborts chunks of files that have failed: a server that rejects one would reject all of them.
    pub(super) fn abandon_void(&mut self, reason: &str) {
        let now = self.now();
        let void = |item: &&Item| item.job.is_upload() && item.job.is_void();
        let numbers = self.items.values().filter(void).map(|item| item.number);
        for number in numbers.collect::<Vec<_>>() {
            self.client.abandon(now, number, reason);
        }
    }
}
