//! That a download is of one version of its file. What is known of it before its first byte (size and time of change) is compared with what
//! the server says of it behind its last one; if that is something else, what came counts nothing, and it comes as a new file.

use std::sync::Arc;
use std::time::Duration;

use venturi_gridftp::{Kind, Reply};

use super::Session;
use crate::decision::Decision;
use crate::ftp::chunks::LEAST_CHUNK_BYTES;
use crate::ftp::desk::entry_of;
use crate::ftp::files::Known;
use crate::ftp::work::{Item, Job};

/// How often a file that changes while it comes is begun anew.
const MOST_CHANGES: u32 = 1;
/// Servers tell times in whole seconds (RFC 3659, section 2.3): what was changed and read within one looks the same.
const TOLD: Duration = Duration::from_secs(1);
/// A file of this size is asked about behind its request, for it may take longer than that. The answer costs nothing beside its bytes.
const ASKED_BYTES: u64 = LEAST_CHUNK_BYTES;
/// What servers answer that do not have a command (RFC 959, section 4.2).
const NOT_IMPLEMENTED: [u16; 4] = [202, 500, 502, 504];

const STAYS: &str = "a file that stays as it is while it is copied";
const ADVICE: &str = "wait until nobody writes to it, then run the same command again";

impl Session<'_> {
    /// Whether the server is asked behind the request of a file what it is by then: one that reads its commands in order answers when it has
    /// read all of it, so that nobody waits for that.
    pub(super) fn is_seen(&self, item: &Item) -> bool {
        let size = item.job.fetch().known.size;
        let long = size.is_none_or(|size| size >= ASKED_BYTES);
        self.client.features().is_globus() && (long || item.begins > 0 || is_doubtful(item))
    }

    /// All bytes of a download have come.
    pub(super) fn came(&mut self, item: Item) {
        let long = item.since.is_some_and(|since| since.elapsed() > TOLD);
        match self.seen.remove(&item.number) {
            Some(reply) => self.compared(item, &reply),
            None if long || item.begins > 1 || is_doubtful(&item) => self.look(item),
            None => self.arrived(item),
        }
    }

    /// What the server says of a file whose bytes have come.
    pub(super) fn compared(&mut self, item: Item, reply: &Reply) {
        match difference(item.job.fetch().known, reply) {
            None => self.arrived(item),
            Some(found) => {
                self.writing.discard(item.number);
                self.changed(item, &found);
            }
        }
    }

    /// A file is not what it was: it comes as a new one, but not for ever.
    pub(super) fn changed(&mut self, item: Item, found: &str) {
        // Of a large one the first chunk that shows it says so for all.
        if !item.job.fail() {
            return self.shared.queue.settle();
        }
        let fetch = Arc::clone(item.job.fetch());
        let chunks = match &item.job {
            Job::Chunk(large, _) | Job::Rest(large) => Some(Arc::clone(large)),
            _ => None,
        };
        let item = Item {
            tries: 0,
            job: Job::Again(Arc::clone(&fetch), chunks),
            ..item
        };
        if fetch.changes >= MOST_CHANGES {
            return self.gave_up(item, found);
        }
        self.shared.report.decision(&Decision {
            what: "again",
            value: u64::from(fetch.changes) + 1,
            reason: format!(
                "{}: it was changed while it was copied ({found}); it comes once more, as a new file",
                self.shared.place(&fetch.from).display()
            ),
        });
        self.look(item);
    }

    /// What a file is that was changed while it came.
    pub(super) fn begun_again(&mut self, item: Item, reply: &Reply) {
        match entry_of(reply)
            .filter(|entry| entry.kind.as_ref().is_none_or(|kind| *kind == Kind::File))
        {
            Some(entry) => self.writing.renew(item, Some(Known::from(&entry))),
            None => self.gave_up(item, &format!("none of that name any more: {reply}")),
        }
    }

    fn gave_up(&mut self, item: Item, found: &str) {
        let place = self.shared.place(&item.job.fetch().from);
        let failure = crate::error::Failure::found(place, STAYS, found, ADVICE);
        self.shared.tell(&failure);
        self.writing.renew(item, None);
    }
}

/// Whether a file is asked about however soon it comes: its chunks come one after the other, a part of it came earlier, or it is known to change.
fn is_doubtful(item: &Item) -> bool {
    matches!(item.job, Job::Chunk(..) | Job::Rest(_)) || item.job.fetch().changes > 0
}

/// How a file differs from what was known of it, as far as both are told.
fn difference(known: Known, reply: &Reply) -> Option<String> {
    let Some(entry) = entry_of(reply) else {
        let silent = NOT_IMPLEMENTED.contains(&reply.code);
        return (!silent).then(|| reply.to_string());
    };
    let differs = |before: Option<i128>, now: Option<i128>| {
        before.zip(now).is_some_and(|(before, now)| before != now)
    };
    if differs(known.size.map(i128::from), entry.size_bytes.map(i128::from)) {
        let (before, now) = (known.size.unwrap_or(0), entry.size_bytes.unwrap_or(0));
        return Some(format!("one of {now} bytes, where it had {before}"));
    }
    let times = (
        known.modify_s.map(i128::from),
        entry.modify_s.map(i128::from),
    );
    differs(times.0, times.1).then(|| "one that was written to meanwhile".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_differs_by_what_is_told_of_it_both_times() {
        let known = Known {
            size: Some(3),
            modify_s: Some(1_577_836_800),
            mode: None,
        };
        let check = |facts: &str, same: bool| {
            let line = format!(" {facts} /a").into_bytes();
            let reply = Reply::block(250, vec![b"status".to_vec(), line]);
            assert_eq!(difference(known, &reply).is_none(), same, "{facts}");
        };
        check("Size=3;Modify=20200101000000;", true);
        check("Size=3;", true);
        check("Type=file;", true);
        check("Size=4;Modify=20200101000000;", false);
        check("Size=3;Modify=20200101000001;", false);
        assert_eq!(difference(known, &Reply::new(500, "What?")), None);
        assert!(difference(known, &Reply::new(550, "No such file.")).is_some());
    }
}
