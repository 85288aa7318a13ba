//! What threads do for a session, and what the client is told of it.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use venturi_gridftp::Path;
use venturi_gridftp::server::{Answer, Refusal};

use super::{Done, ENTRIES};
use crate::serve::ftp::entry::{algorithm, entry, hexadecimal, refusal};
use crate::serve::ftp::writing::{Filled, Writing, put};
use crate::serve::host::Host;
use crate::serve::root::listing::Listing;
use crate::serve::root::upload::Upload;
use crate::serve::root::{Facts, checksum_while};

pub(super) fn refused(errno: Errno) -> Answer {
    Answer::Refused(refusal(errno))
}

pub(super) fn name(path: &Path) -> Vec<u8> {
    path.split().1.to_vec()
}

pub(super) fn alone(host: &Host, path: &Path, writes: bool) -> Answer {
    match host.root.stat(path.as_bytes()) {
        Ok(facts) => Answer::Entries {
            entries: vec![entry(name(path), &facts, writes)],
            more: false,
        },
        Err(errno) => refused(errno),
    }
}

pub(super) fn more(host: &Host, mut listing: Listing, writes: bool) -> Done {
    let mut found = Vec::new();
    match listing.next(&host.root, ENTRIES, &mut found) {
        Ok(more) => {
            let entries = found
                .into_iter()
                .map(|it| entry(it.name, &it.facts, writes));
            let answer = Answer::Entries {
                entries: entries.collect(),
                more,
            };
            Done::Listed(more.then_some(listing), answer)
        }
        Err(errno) => Done::Answer(refused(errno)),
    }
}

pub(super) fn sum(upload: &Upload, name: &str, wanted: impl Fn() -> bool) -> Result<String, Errno> {
    let algorithm = algorithm(name).ok_or(Errno::INVAL)?;
    checksum_while(wanted, upload.file(), algorithm, 0, None).map(|sum| hexadecimal(&sum))
}

/// Whether a file that was sent is what it was when it was opened: changes of its bytes change its times, and one that loses its name to
/// another file has another time of change, too.
pub(super) fn sent(file: &OwnedFd, before: &Facts) -> Answer {
    match rustix::fs::fstat(file) {
        Ok(now) if Facts::of(&now) == *before => Answer::Done,
        Ok(_) => Answer::Refused(Refusal::Changed),
        Err(errno) => refused(errno),
    }
}

/// Writes what is left, and gives the file its name.
pub(super) fn finish(writing: Writing, held: &[Filled], sync: bool) -> Result<(), Errno> {
    let upload = writing.into_upload().ok_or(Errno::IO)?;
    for filled in held {
        put(&upload, filled, false)?;
    }
    upload.commit(sync, true).map(drop)
}
