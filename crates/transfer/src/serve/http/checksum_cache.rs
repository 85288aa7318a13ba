//! Cache of checksums of written and requested files.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::serve::confined_root::ServedMetadata;

/// Maximum entries; beyond it, the cache is cleared.
const MAX_ENTRIES: usize = 65_536;

/// Version of a file: device and inode, size, modification time, time of any change.
type Version = ((u64, u64), u64, (i64, u32), (i64, u32));

/// Adler-32 of files.
#[derive(Debug, Default)]
pub(crate) struct ChecksumCache(Mutex<HashMap<Version, u32>>);

fn version(metadata: &ServedMetadata) -> Version {
    (
        metadata.identity,
        metadata.bytes,
        (metadata.modified_s, metadata.modified_ns),
        metadata.changed,
    )
}

impl ChecksumCache {
    pub(crate) fn find(&self, metadata: &ServedMetadata) -> Option<u32> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&version(metadata))
            .copied()
    }

    pub(crate) fn keep(&self, metadata: &ServedMetadata, adler: u32) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_ENTRIES {
            known.clear();
        }
        known.insert(version(metadata), adler);
    }
}
