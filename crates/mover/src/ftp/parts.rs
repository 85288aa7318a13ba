//! A large file to a server: its chunks are transfers of their own, over all sessions, into one temporary file there (ESTO); when all are there
//! it gets its name.
//!
//! After a kill only what the temporary file holds tells what is there. Its size does not: chunks come in any order, and what a server wrote last
//! it may have lost. So each chunk is compared, by the checksum that the server computes (CKSM), with that of the source; and the temporary name
//! follows from size and time of the source, so that nothing of another version is ever taken.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use venturi_gridftp::{Entry, Features};

use super::chunks;
use super::files::Store;
use crate::attributes::Facts;

/// A large file that is on its way to a server.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) store: Arc<Store>,
    pub(crate) size: u64,
    /// What the source was when it was found: every chunk is of that file.
    pub(crate) facts: Facts,
    left: AtomicU64,
    failed: AtomicBool,
    /// What the server calls the temporary file, whatever its name is.
    unique: OnceLock<String>,
}

impl Parts {
    /// Whether a server takes parts of a file: one of the Globus toolkit, and ours. Others have the command, but for whole files only.
    pub(crate) fn are_taken(features: &Features) -> bool {
        features.is_globus() && features.has("ESTO")
    }

    /// A file of which so many chunks are missing.
    pub(crate) fn new(store: Arc<Store>, facts: Facts, missing: u64) -> Self {
        Self {
            store,
            size: facts.size,
            facts,
            left: missing.into(),
            failed: false.into(),
            unique: OnceLock::new(),
        }
    }

    /// How many chunks it has.
    pub(crate) fn count(size: u64) -> u64 {
        chunks::count(size)
    }

    /// The bytes of a chunk.
    pub(crate) fn range(&self, index: u64) -> Range<u64> {
        chunks::range(index, self.size)
    }

    /// A chunk is there. True for the last one: all are.
    pub(crate) fn mark(&self) -> bool {
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether the server is still to be asked what it calls the temporary file.
    pub(crate) fn is_unknown(&self) -> bool {
        self.unique.get().is_none()
    }

    /// Whether the temporary file is the one that chunks went into. Another copy may have given that its name: then chunks have gone into
    /// another, which lacks the rest. One that the server says nothing of may be.
    pub(crate) fn is_same(&self, entry: Option<&Entry>) -> bool {
        let unique = entry.and_then(|entry| entry.unique.as_ref());
        unique.is_none_or(|unique| self.unique.get_or_init(|| unique.clone()) == unique)
    }

    /// It will not be whole. True for the first one that says so.
    pub(crate) fn fail(&self) -> bool {
        !self.failed.swap(true, Ordering::AcqRel)
    }

    /// Whether it will not be whole.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::ftp::files::Known;

    #[test]
    fn the_last_chunk_that_comes_makes_a_file_whole_and_one_failure_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = File::create(folder.path().join("file")).expect("a file");
        let size = 2 * chunks::LEAST_CHUNK_BYTES + 1;
        file.set_len(size).expect("a hole");
        let path = |text: &str| venturi_gridftp::Path::new(text).expect("a path");
        let store = Arc::new(Store {
            from: folder.path().join("file"),
            to: path("/to"),
            part: path("/part"),
            known: Known::default(),
            goes_on: None,
        });
        let facts = Facts::from(rustix::fs::fstat(&file).expect("its facts"));
        assert_eq!(Parts::count(size), 5);
        let parts = Parts::new(store, facts, 2);
        assert_eq!(parts.range(4), size - 1..size);
        assert!(!parts.mark() && parts.mark());
        let entry = |text: &[u8]| Entry::parse(text).expect("an entry");
        assert!(parts.is_same(Some(&entry(b"Size=1; a"))) && parts.is_unknown());
        assert!(parts.is_same(Some(&entry(b"Unique=8-1; a"))) && !parts.is_unknown());
        assert!(!parts.is_same(Some(&entry(b"Unique=8-2; a"))) && parts.is_same(None));
        assert!(!parts.has_failed() && parts.fail() && !parts.fail() && parts.has_failed());
    }
}
