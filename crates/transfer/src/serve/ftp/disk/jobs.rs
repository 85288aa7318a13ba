//! Disk operations that run on threads, and their responses.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use venturi_gridftp::Path;
use venturi_gridftp::server::{DriverResponse, GlobusError};

use super::{DiskResult, ENTRIES};
use crate::serve::confined_root::listing::RootListing;
use crate::serve::confined_root::upload::UploadFile;
use crate::serve::confined_root::{ServedMetadata, checksum_while};
use crate::serve::ftp::entry::{algorithm, entry, hexadecimal, rejection};
use crate::serve::ftp::file_writer::{FileWriter, Filled, put};
use crate::serve::state::ServerState;

pub(super) fn rejected(errno: Errno) -> DriverResponse {
    DriverResponse::Failed(rejection(errno))
}

pub(super) fn name(path: &Path) -> Vec<u8> {
    path.split().1.to_vec()
}

pub(super) fn alone(host: &ServerState, path: &Path, writes: bool) -> DriverResponse {
    match host.root.stat(path.as_bytes()) {
        Ok(metadata) => DriverResponse::Entries {
            entries: vec![entry(name(path), &metadata, writes)],
            more: false,
        },
        Err(errno) => rejected(errno),
    }
}

pub(super) fn more(host: &ServerState, mut listing: RootListing, writes: bool) -> DiskResult {
    let mut found = Vec::new();
    match listing.next(&host.root, ENTRIES, &mut found) {
        Ok(more) => {
            let entries = found
                .into_iter()
                .map(|it| entry(it.name, &it.metadata, writes));
            let response = DriverResponse::Entries {
                entries: entries.collect(),
                more,
            };
            DiskResult::RootEntry(more.then_some(listing), response)
        }
        Err(errno) => DiskResult::Response(rejected(errno)),
    }
}

pub(super) fn sum(
    upload: &UploadFile,
    name: &str,
    requested: impl Fn() -> bool,
) -> Result<String, Errno> {
    let algorithm = algorithm(name).ok_or(Errno::INVAL)?;
    checksum_while(requested, upload.file(), algorithm, 0, None).map(|sum| hexadecimal(&sum))
}

/// Check that a sent file is unchanged since its opening: writes change its times, and a replaced file has a new
/// change time.
pub(super) fn sent(file: &OwnedFd, before: &ServedMetadata) -> DriverResponse {
    match rustix::fs::fstat(file) {
        Ok(now) if ServedMetadata::of(&now) == *before => DriverResponse::Done,
        Ok(_) => DriverResponse::Failed(GlobusError::Changed),
        Err(errno) => rejected(errno),
    }
}

/// Write the remaining buffers and rename the file into place.
pub(super) fn finish(writer: FileWriter, pending: &[Filled], sync: bool) -> Result<(), Errno> {
    let upload = writer.into_upload().ok_or(Errno::IO)?;
    for filled in pending {
        put(&upload, filled, false)?;
    }
    upload.commit(sync, true).map(drop)
}
