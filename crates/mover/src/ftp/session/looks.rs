//! Whether the temporary file of a large upload is the one that its chunks went into: the server is asked what it is when the first are
//! there, and before it gets its name.

use venturi_gridftp::{Command, Reply};

use super::Session;
use crate::ftp::desk::entry_of;
use crate::ftp::work::{Item, Job};

impl Session<'_> {
    /// Asks what the temporary file is.
    pub(super) fn look(&mut self, item: Item) {
        let Some(store) = item.job.store() else {
            return;
        };
        let command = Command::Mlst(Some(store.part.clone()));
        let number = self.next_request;
        self.next_request += 1;
        self.looking.insert(number, item);
        self.client.request(self.now(), number, command);
    }

    pub(super) fn looked(&mut self, item: Item, reply: &Reply) {
        let entry = entry_of(reply);
        match &item.job {
            Job::Part(parts, _) | Job::Name(parts) if !parts.is_same(entry.as_ref()) => {
                let found = "a temporary file that another copy of the same has begun or given its name meanwhile";
                let advice = "let one copy at a time write it, then run the same command again";
                self.shared.failed(&item, found, advice);
                self.abandon_void(found);
            }
            Job::Part(..) => self.part_counted(item),
            _ => self.open_file(item),
        }
    }
}
