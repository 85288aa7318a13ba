//! What threads do for a session, and what the client is told of it.

use rustix::io::Errno;
use venturi_gridftp::Path;
use venturi_gridftp::server::Answer;

use super::{Done, ENTRIES};
use crate::serve::ftp::entry::{algorithm, entry, hexadecimal, refusal};
use crate::serve::ftp::writing::{Filled, Writing, put};
use crate::serve::host::Host;
use crate::serve::root::checksum_while;
use crate::serve::root::listing::Listing;
use crate::serve::root::upload::Upload;

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

/// Writes what is left, and gives the file its name.
pub(super) fn finish(writing: Writing, held: &[Filled], sync: bool) -> Result<(), Errno> {
    let upload = writing.into_upload().ok_or(Errno::IO)?;
    for filled in held {
        put(&upload, filled, false)?;
    }
    upload.commit(sync, true).map(drop)
}
