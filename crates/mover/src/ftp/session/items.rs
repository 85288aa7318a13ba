//! What a session moves: how items are taken, begun, ended, and compared with what the server says of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;

use venturi_gridftp::client::{Failure, Get, Job as Transfer, Put, Source as What};
use venturi_gridftp::{ByteRanges, Command, Path as There, Reply};

use super::Session;
use crate::decision::Decision;
use crate::ftp::MOST_SESSIONS_AN_ITEM;
use crate::ftp::failures;
use crate::ftp::files::Source;
use crate::ftp::files::Store;
use crate::ftp::forecast::{WIDE_BYTES, wide_streams};
use crate::ftp::queue::Room;
use crate::ftp::upload::{chmod, differs};
use crate::ftp::verify;
use crate::ftp::work::{Item, Job};

impl Session<'_> {
    /// Takes items as long as there are fewer than are to be under way.
    pub(super) fn take_items(&mut self, cx: &mut Context<'_>) -> bool {
        if self.farewell.is_some() {
            return false;
        }
        let asked = self.post.asked.load(Ordering::Relaxed);
        if !self.ready {
            // All may be done before one is ready that was opened to help.
            let over = !asked && self.shared.queue.poll_over(cx).is_ready();
            return over && self.say_goodbye();
        }
        let retired = self.post.retired.load(Ordering::Relaxed);
        let held = self.held();
        if retired && held + self.modes.len() == 0 {
            return self.say_goodbye();
        }
        let sessions = self.shared.sessions.load(Ordering::Relaxed);
        let room = Room {
            held,
            depth: self.ahead.items(),
            held_bytes: self.bytes,
            ahead_bytes: self.ahead_bytes,
            sessions: sessions.max(self.soon),
            pace: self.progress.pace,
        };
        if retired || room.is_full() {
            return false;
        }
        match self.shared.queue.poll_take(cx, room) {
            Poll::Ready(Some(items)) => {
                let bytes = items.iter().map(Item::bytes).sum::<u64>();
                self.bytes += bytes;
                // What the first are like, so are those that follow.
                if let Some(wide) = self.wide.take()
                    && bytes / items.len() as u64 >= WIDE_BYTES
                {
                    let whole = matches!(
                        &items[..],
                        [Item {
                            job: Job::Fetch(_),
                            ..
                        }]
                    );
                    let alone = sessions == 1 && whole;
                    let wide = if alone {
                        wide
                    } else {
                        wide.min(wide_streams(room.sessions))
                    };
                    if self.client.widen(wide) && asked {
                        self.tell_wide(wide);
                    }
                }
                items.into_iter().for_each(|item| self.begin(item));
                true
            }
            Poll::Ready(None)
                if !asked && self.asked.is_empty() && self.client.open_transfers() == 0 =>
            {
                self.say_goodbye()
            }
            _ => false,
        }
    }

    /// Items that it has.
    pub(super) fn held(&self) -> usize {
        let asked_for = self.verifying.len() + self.doubtful.len() + self.looking.len();
        self.items.len() + self.opening + asked_for
    }

    fn tell_wide(&self, wide: u16) {
        let reason = format!(
            "files of {} MB or more from afar: of several connections one loses less",
            WIDE_BYTES / 1_000_000
        );
        self.shared.report.decision(&Decision {
            what: "streams",
            value: wide.into(),
            reason,
        });
    }

    fn say_goodbye(&mut self) -> bool {
        self.client.quit();
        self.farewell = Some(Instant::now());
        true
    }

    fn begin(&mut self, item: Item) {
        if item.job.is_void() {
            self.bytes -= item.bytes();
            return self.shared.queue.settle();
        }
        match &item.job {
            Job::Fetch(_) | Job::Chunk(..) | Job::Rest(_) => self.fetch(item),
            Job::Name(_) | Job::Again(..) => self.look(item),
            Job::Store(_) | Job::Part(..) => self.open_file(item),
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
            Job::Chunk(large, index) => {
                let range = large.range(*index);
                let (offset, length) = (range.start, range.end - range.start);
                What::Region { offset, length }
            }
            _ => What::File,
        };
        let there = match &item.job {
            Job::Rest(large) => large.rest(),
            _ => 0,
        };
        let get = Get {
            transfer,
            source,
            path: fetch.from.clone(),
            size_bytes: fetch.known.size,
            present: ByteRanges::of(0..there),
            see: self.is_seen(&item),
        };
        item.reach(there);
        self.items.insert(transfer, item);
        self.client.transfer(self.now(), Transfer::Get(get));
    }

    /// A file is open: it is sent, unless the server may have it.
    pub(super) fn opened(&mut self, item: Item, source: Arc<Source>) {
        let question = match &item.job {
            Job::Part(parts, index) if item.may_be_there() => {
                verify::question(parts.store.part.clone(), Some(parts.range(*index)))
            }
            Job::Store(store) if store.goes_on.is_some() => Command::Size(store.part.clone()),
            _ => return self.send_file(item, source, 0),
        };
        let number = self.command(question);
        self.doubtful.insert(number, (item, source));
    }

    /// What the server says of a chunk that it may have, or of how much it has of a file.
    pub(super) fn answered_for(&mut self, mut item: Item, source: Arc<Source>, reply: &Reply) {
        if let Job::Store(store) = &item.job {
            let there = reply.size_bytes().filter(|&there| there <= source.size);
            let there = there.unwrap_or(0);
            if there > 0 {
                let place = self.shared.place(&store.to);
                self.shared.report.bytes_kept(&place, there, source.size);
            }
            item.reach(there);
            return self.send_file(item, source, there);
        }
        let told = verify::told(reply);
        if told.is_none() || told != source.checksum {
            return self.send_file(item, source, 0);
        }
        self.bytes -= item.bytes();
        self.part_stored(item);
    }

    /// Sends a file, a part of it, or what is behind so many bytes that the server has.
    fn send_file(&mut self, item: Item, source: Arc<Source>, there: u64) {
        let store = item.job.store().expect("what is opened is sent");
        let put = match &item.job {
            Job::Part(parts, index) => {
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
            // All of it is there: nothing is sent but the end.
            Job::Name(_) => Put {
                present: ByteRanges::of(0..source.size),
                ..self.put(item.number, store, source.size)
            },
            _ => Put {
                checksum: source
                    .checksum
                    .map(|value| (verify::ALGORITHM.into(), verify::text(value))),
                present: ByteRanges::of(0..there),
                ..self.put(item.number, store, source.size)
            },
        };
        self.sources.insert(item.number, source);
        self.items.insert(item.number, item);
        self.client.transfer(self.now(), Transfer::Put(put));
    }

    /// A whole file to the server.
    fn put(&self, transfer: u64, store: &Store, size_bytes: u64) -> Put {
        let times = self.shared.order.preserve.times;
        Put {
            transfer,
            path: store.to.clone(),
            temporary: Some(store.part.clone()),
            size_bytes,
            checksum: None,
            modify_s: store.known.modify_s.filter(|_| times),
            present: ByteRanges::default(),
            part: None,
            goes_on: store.goes_on.is_some(),
        }
    }

    pub(super) fn begun(&mut self, transfer: u64) {
        if let Some(item) = self.items.get_mut(&transfer)
            && !item.job.is_upload()
        {
            item.begins += 1;
            item.since.get_or_insert_with(Instant::now);
            self.writing.begin(item);
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
            Job::Fetch(_) | Job::Chunk(..) | Job::Rest(_) => self.came(item),
            Job::Again(..) => unreachable!("it is asked about, and not transferred"),
            Job::Part(..) => self.part_sent(item, source),
            Job::Store(store) => {
                let size = source.map_or(0, |source| source.size);
                self.stored(store, size, "ftp");
            }
            Job::Name(parts) => self.stored(&parts.store, parts.size, "ftp in chunks"),
        }
    }

    fn stored(&mut self, store: &Store, size: u64, how: &str) {
        self.shared
            .copied(|| self.shared.place(&store.to), size, how);
        let wanted = store.known.mode.filter(|_| self.shared.order.preserve.mode);
        match wanted.filter(|mode| differs(*mode, 0o644)) {
            // Servers do not give it by themselves. The next file does not wait for the answer.
            Some(mode) => self.set_mode(store.to.clone(), mode),
            None => self.shared.queue.settle(),
        }
    }

    fn set_mode(&mut self, path: There, mode: u32) {
        let number = self.command(chmod(path.clone(), mode));
        self.modes.insert(number, (path, mode));
    }

    /// Gives the server a command; its answer has the number.
    pub(super) fn command(&mut self, command: Command) -> u64 {
        let number = self.next_request;
        self.next_request += 1;
        self.client.request(self.now(), number, command);
        number
    }

    pub(super) fn mode_set(&mut self, path: &There, reply: &Reply) {
        self.shared.see_mode(path, reply);
        self.shared.queue.settle();
    }

    /// The server has a chunk of a large file.
    fn part_sent(&mut self, item: Item, source: Option<Arc<Source>>) {
        let (Job::Part(parts, index), true) = (&item.job, self.shared.order.verify) else {
            return self.part_stored(item);
        };
        let command = verify::question(parts.store.part.clone(), Some(parts.range(*index)));
        // What it is compared with.
        self.sources
            .extend(source.map(|source| (item.number, source)));
        self.compare(item, command);
    }

    /// A chunk of a large file is there; with the last one the file gets its name.
    fn part_stored(&mut self, item: Item) {
        let Job::Part(parts, _) = &item.job else {
            unreachable!("what is stored in parts has them");
        };
        if parts.is_unknown() {
            return self.look(item);
        }
        self.part_counted(item);
    }

    pub(super) fn part_counted(&mut self, item: Item) {
        let Job::Part(parts, _) = &item.job else {
            unreachable!("what is counted is a chunk");
        };
        if !parts.mark() {
            return self.shared.queue.settle();
        }
        let job = Job::Name(Arc::clone(parts));
        self.begin(Item {
            tries: 0,
            job,
            ..item
        });
    }

    /// All bytes of a download are here.
    pub(super) fn arrived(&mut self, item: Item) {
        if !self.shared.order.verify {
            return self.writing.commit(item, None);
        }
        let range = match &item.job {
            Job::Chunk(large, index) => Some(large.range(*index)),
            _ => None,
        };
        let command = verify::question(item.job.fetch().from.clone(), range);
        self.compare(item, command);
    }

    /// Asks the server for a checksum.
    fn compare(&mut self, item: Item, command: Command) {
        let number = self.command(command);
        self.verifying.insert(number, item);
    }

    pub(super) fn verified(&mut self, item: Item, reply: &Reply) {
        let told = verify::told(reply);
        let own = self.sources.remove(&item.number);
        let advice = "leave --verify out, or run the same command again";
        match told {
            Some(told) if !item.job.is_upload() => self.writing.commit(item, Some(told)),
            Some(told) if own.and_then(|own| own.checksum) == Some(told) => self.part_stored(item),
            Some(_) => self
                .shared
                .failed(&item, "other bytes at the server", advice),
            None => {
                if !item.job.is_upload() {
                    self.writing.discard(item.number);
                }
                let found = format!("no checksum: {reply}");
                self.shared.failed(&item, &found, advice);
            }
        }
    }

    pub(super) fn failed(&mut self, transfer: u64, failure: &Failure) {
        self.untidy = true;
        let refusal = self.refusal.take();
        let reason = &failure.reason;
        let reason = refusal.map_or(reason.clone(), |why| format!("{reason}; {why}"));
        if let Some(listing) = self.listings.remove(&transfer) {
            return listing.asker.end(Reply::new(550, reason));
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
        if failure.again && item.tries < MOST_SESSIONS_AN_ITEM {
            return self.shared.queue.give_back(item);
        }
        let makes_way = self.shared.order.mkpath;
        let advice = failures::advice(item.job.is_upload() && !makes_way, &reason);
        self.shared.failed(&item, &reason, advice);
        self.abandon_void(&reason);
    }

    /// Chunks that are on their way to a file that will not be whole: a server that refused one would refuse each in its turn.
    pub(super) fn abandon_void(&mut self, reason: &str) {
        let now = self.now();
        let void = |item: &&Item| item.job.is_upload() && item.job.is_void();
        let numbers = self.items.values().filter(void).map(|item| item.number);
        for number in numbers.collect::<Vec<_>>() {
            self.client.abandon(now, number, reason);
        }
    }
}
