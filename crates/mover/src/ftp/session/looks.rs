//! Whether the temporary file of a large upload is the one that its chunks went into: the server is asked what it is when the first are
//! there, and before it gets its name.

use venturi_gridftp::{Command, Reply};

use super::Session;
use crate::ftp::desk::entry_of;
use crate::ftp::work::{Item, Job};

/// What servers answer of what is not there (RFC 959, section 4.2).
const NOT_THERE: u16 = 550;

impl Session<'_> {
    /// Asks what the temporary file is.
    pub(super) fn look(&mut self, item: Item) {
        let path = match item.job.store() {
            Some(store) => &store.part,
            None => &item.job.fetch().from,
        };
        let number = self.command(Command::Mlst(Some(path.clone())));
        self.looking.insert(number, item);
    }

    pub(super) fn looked(&mut self, item: Item, reply: &Reply) {
        let entry = entry_of(reply);
        // A chunk went into it. Of the name, whoever has given it may have been a session that was lost.
        let gone = reply.code == NOT_THERE && matches!(item.job, Job::Part(..));
        match &item.job {
            Job::Part(parts, _) | Job::Name(parts) if gone || !parts.is_same(entry.as_ref()) => {
                let found = "a temporary file that another copy of the same has begun or given its name meanwhile";
                let advice = "let one copy at a time write it, then run the same command again";
                self.shared.failed(&item, found, advice);
                self.abandon_void(found);
            }
            Job::Fetch(_) | Job::Chunk(..) | Job::Rest(_) => self.compared(item, reply),
            Job::Again(..) => self.begun_again(item, reply),
            Job::Part(..) => self.part_counted(item),
            _ => self.open_file(item),
        }
    }
}
