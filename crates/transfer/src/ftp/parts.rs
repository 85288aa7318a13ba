//! Chunked upload of a large file: any session can transfer a chunk into the common temporary file
//! (ESTO). After the last chunk, the file is renamed.
//!
//! After a kill, only the content of the temporary file shows the complete chunks. Its size does not: chunks arrive in any order, and the server can
//! lose the last writes. So the checksum of each chunk on the server (CKSM) is compared with the source. The temporary name
//! depends on size and time of the source, so that no other version is resumed.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use venturi_gridftp::{Features, ListEntry};

use super::chunks;
use super::files::UploadTask;
use crate::attributes::LocalMetadata;

/// Chunked upload in progress.
#[derive(Debug)]
pub(crate) struct ChunkedUpload {
    pub(crate) store: Arc<UploadTask>,
    pub(crate) size: u64,
    /// Metadata of the source as scanned: all chunks must belong to this file.
    pub(crate) source_metadata: LocalMetadata,
    remaining: AtomicU64,
    failed: AtomicBool,
    /// Unique identifier of the temporary file at the server.
    unique: OnceLock<String>,
}

impl ChunkedUpload {
    /// True if the server accepts parts of a file: Globus servers and `venturi serve`. Others have the command for complete files only.
    pub(crate) fn are_supported(features: &Features) -> bool {
        features.is_globus() && features.has("ESTO")
    }

    /// Returns an upload with this number of missing chunks.
    pub(crate) fn new(
        store: Arc<UploadTask>,
        source_metadata: LocalMetadata,
        missing: u64,
    ) -> Self {
        Self {
            store,
            size: source_metadata.size,
            source_metadata,
            remaining: missing.into(),
            failed: false.into(),
            unique: OnceLock::new(),
        }
    }

    /// Returns the number of chunks.
    pub(crate) fn count(size: u64) -> u64 {
        chunks::count(size)
    }

    /// Returns the byte range of a chunk.
    pub(crate) fn range(&self, index: u64) -> Range<u64> {
        chunks::range(index, self.size)
    }

    /// Records a complete chunk. Returns true for the last one.
    pub(crate) fn mark(&self) -> bool {
        self.remaining.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// True if the identifier of the temporary file is still unknown.
    pub(crate) fn is_unknown(&self) -> bool {
        self.unique.get().is_none()
    }

    /// True if the temporary file received the chunks. Another copy can have renamed that file: the
    /// chunks are then in another file, which is incomplete. True as well if the server does not
    /// report an identifier.
    pub(crate) fn is_same(&self, entry: Option<&ListEntry>) -> bool {
        let unique = entry.and_then(|entry| entry.unique.as_ref());
        unique.is_none_or(|unique| self.unique.get_or_init(|| unique.clone()) == unique)
    }

    /// Records a failure. Returns true for the first one.
    pub(crate) fn fail(&self) -> bool {
        !self.failed.swap(true, Ordering::AcqRel)
    }

    /// True if the upload has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::ftp::files::FtpMetadata;

    #[test]
    fn the_last_chunk_completes_a_file_and_one_failure_is_reported() {
        let directory = tempfile::tempdir().expect("a folder");
        let file = File::create(directory.path().join("file")).expect("a file");
        let size = 2 * chunks::MIN_CHUNK_BYTES + 1;
        file.set_len(size).expect("a hole");
        let path = |text: &str| venturi_gridftp::Path::new(text).expect("a path");
        let store = Arc::new(UploadTask {
            from: directory.path().join("file"),
            to: path("/to"),
            part: path("/part"),
            known: FtpMetadata::default(),
            resume_from: None,
        });
        let source_metadata = LocalMetadata::from(rustix::fs::fstat(&file).expect("its facts"));
        assert_eq!(ChunkedUpload::count(size), 5);
        let parts = ChunkedUpload::new(store, source_metadata, 2);
        assert_eq!(parts.range(4), size - 1..size);
        assert!(!parts.mark() && parts.mark());
        let entry = |text: &[u8]| ListEntry::parse(text).expect("an entry");
        assert!(parts.is_same(Some(&entry(b"Size=1; a"))) && parts.is_unknown());
        assert!(parts.is_same(Some(&entry(b"Unique=8-1; a"))) && !parts.is_unknown());
        assert!(!parts.is_same(Some(&entry(b"Unique=8-2; a"))) && parts.is_same(None));
        assert!(!parts.has_failed() && parts.fail() && !parts.fail() && parts.has_failed());
    }
}
