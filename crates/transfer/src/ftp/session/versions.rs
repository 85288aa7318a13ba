//! Version check of downloads: size and modification time before the first byte are compared with those
//! after the last one. If they differ, the data is discarded, and the file is downloaded again.

use std::sync::Arc;
use std::time::Duration;

use venturi_gridftp::{EntryKind, FtpReply};

use super::FtpSession;
use crate::decision::Decision;
use crate::ftp::chunks::MIN_CHUNK_BYTES;
use crate::ftp::files::FtpMetadata;
use crate::ftp::session_handle::parse_entry;
use crate::ftp::work::{FtpDirection, Item};

/// Maximum repetitions of a download that changes.
const MAX_CHANGES: u32 = 1;
/// Servers report times in whole seconds (RFC 3659, section 2.3): changes within a second are invisible.
const MIN_CHECKED_DURATION: Duration = Duration::from_secs(1);
/// Minimum size of a file that is always checked, because its download can take longer than a
/// second. The request costs nothing compared with the data.
const MIN_CHECKED_BYTES: u64 = MIN_CHUNK_BYTES;
/// Reply codes for unsupported commands (RFC 959, section 4.2).
const NOT_IMPLEMENTED: [u16; 4] = [202, 500, 502, 504];

const STAYS: &str = "a file that does not change during the copy";
const ADVICE: &str = "wait until no process writes it, then run the same command again";

impl FtpSession<'_> {
    /// True if the metadata is requested directly after the file: a server that reads its commands in order replies when the
    /// file is complete, so this costs no time.
    pub(super) fn is_seen(&self, item: &Item) -> bool {
        let size = item.job.fetch().known.size;
        let long = size.is_none_or(|size| size >= MIN_CHECKED_BYTES);
        self.client.features().is_globus() && (long || item.starts > 0 || is_uncertain(item))
    }

    /// Handles a download that has received all data.
    pub(super) fn received(&mut self, item: Item) {
        let long = item
            .since
            .is_some_and(|since| since.elapsed() > MIN_CHECKED_DURATION);
        match self.final_replies.remove(&item.number) {
            Some(reply) => self.compared(item, &reply),
            None if long || item.starts > 1 || is_uncertain(&item) => self.check_temp_file(item),
            None => self.arrived(item),
        }
    }

    /// Compares the final metadata of a download.
    pub(super) fn compared(&mut self, item: Item, reply: &FtpReply) {
        match difference(item.job.fetch().known, reply) {
            None => self.arrived(item),
            Some(found) => {
                self.writing.discard(item.number);
                self.changed(item, &found);
            }
        }
    }

    /// Handles a changed file: downloads it again, up to the maximum.
    pub(super) fn changed(&mut self, item: Item, found: &str) {
        // Only the first chunk that detects the change acts.
        if !item.job.fail() {
            return self.shared.queue.complete();
        }
        let fetch = Arc::clone(item.job.fetch());
        let chunks = match &item.job {
            FtpDirection::Chunk(large, _) | FtpDirection::Rest(large) => Some(Arc::clone(large)),
            _ => None,
        };
        let item = Item {
            attempts: 0,
            job: FtpDirection::Again(Arc::clone(&fetch), chunks),
            ..item
        };
        if fetch.changes >= MAX_CHANGES {
            return self.gave_up(item, found);
        }
        self.shared.report.decision(&Decision {
            setting: "restarted",
            value: u64::from(fetch.changes) + 1,
            reason: format!(
                "{}: changed during the copy ({found}); copying it again from the start",
                self.shared.display_url(&fetch.from).display()
            ),
        });
        self.check_temp_file(item);
    }

    /// Handles the metadata of a changed file.
    pub(super) fn restarted(&mut self, item: Item, reply: &FtpReply) {
        match parse_entry(reply).filter(|entry| {
            entry
                .kind
                .as_ref()
                .is_none_or(|kind| *kind == EntryKind::File)
        }) {
            Some(entry) => self.writing.renew(item, Some(FtpMetadata::from(&entry))),
            None => self.gave_up(item, &format!("no file of that name: {reply}")),
        }
    }

    fn gave_up(&mut self, item: Item, found: &str) {
        let location = self.shared.display_url(&item.job.fetch().from);
        let failure = crate::error::Failure::found(location, STAYS, found, ADVICE);
        self.shared.report_failure(&failure);
        self.writing.renew(item, None);
    }
}

/// True if a file is always checked: it arrived in chunks, was resumed, or has changed before.
fn is_uncertain(item: &Item) -> bool {
    matches!(item.job, FtpDirection::Chunk(..) | FtpDirection::Rest(_))
        || item.job.fetch().changes > 0
}

/// Describes the difference from the known metadata, if there is one.
fn difference(known: FtpMetadata, reply: &FtpReply) -> Option<String> {
    let Some(entry) = parse_entry(reply) else {
        let silent = NOT_IMPLEMENTED.contains(&reply.code);
        return (!silent).then(|| reply.to_string());
    };
    let differs = |before: Option<i128>, now: Option<i128>| {
        before.zip(now).is_some_and(|(before, now)| before != now)
    };
    if differs(known.size.map(i128::from), entry.size_bytes.map(i128::from)) {
        let (before, now) = (known.size.unwrap_or(0), entry.size_bytes.unwrap_or(0));
        return Some(format!("{now} bytes instead of {before}"));
    }
    let times = (
        known.modify_s.map(i128::from),
        entry.modify_s.map(i128::from),
    );
    differs(times.0, times.1).then(|| "a newer modification time".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_file_differ_only_in_metadata_that_is_reported_both_times() {
        let known = FtpMetadata {
            size: Some(3),
            modify_s: Some(1_577_836_800),
            mode: None,
        };
        let check = |facts: &str, same: bool| {
            let line = format!(" {facts} /a").into_bytes();
            let reply = FtpReply::block(250, vec![b"status".to_vec(), line]);
            assert_eq!(difference(known, &reply).is_none(), same, "{facts}");
        };
        check("Size=3;Modify=20200101000000;", true);
        check("Size=3;", true);
        check("Type=file;", true);
        check("Size=4;Modify=20200101000000;", false);
        check("Size=3;Modify=20200101000001;", false);
        assert_eq!(difference(known, &FtpReply::new(500, "What?")), None);
        assert!(difference(known, &FtpReply::new(550, "No such file.")).is_some());
    }
}
