//! Check that the temporary file of a large upload has received its chunks: after the first chunks,
//! and before the rename.

use venturi_gridftp::{FtpCommand, FtpReply};

use super::FtpSession;
use crate::ftp::session_handle::parse_entry;
use crate::ftp::work::{FtpDirection, Item};

/// Reply code for a missing file (RFC 959, section 4.2).
const NOT_FOUND: u16 = 550;

impl FtpSession<'_> {
    /// Requests the metadata of the temporary file.
    pub(super) fn check_temp_file(&mut self, item: Item) {
        let path = match item.job.store() {
            Some(store) => &store.part,
            None => &item.job.fetch().from,
        };
        let number = self.command(FtpCommand::Mlst(Some(path.clone())));
        self.checking.insert(number, item);
    }

    pub(super) fn temp_file_checked(&mut self, item: Item, reply: &FtpReply) {
        let entry = parse_entry(reply);
        // It existed for a chunk. For a rename, a lost session can have renamed it.
        let missing = reply.code == NOT_FOUND && matches!(item.job, FtpDirection::Part(..));
        match &item.job {
            FtpDirection::Part(parts, _) | FtpDirection::Name(parts)
                if missing || !parts.is_same(entry.as_ref()) =>
            {
                let found =
                    "a temporary file that another copy of the same source replaced or renamed";
                let advice = "run only one copy at a time, then run the same command again";
                self.shared.failed(&item, found, advice);
                self.abandon_void(found);
            }
            FtpDirection::Fetch(_) | FtpDirection::Chunk(..) | FtpDirection::Rest(_) => {
                self.compared(item, reply)
            }
            FtpDirection::Again(..) => self.restarted(item, reply),
            FtpDirection::Part(..) => self.part_counted(item),
            _ => self.open_file(item),
        }
    }
}
