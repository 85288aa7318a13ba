//! Checksums that are known: of files that were written here, or asked for before.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::serve::root::Facts;

/// Files whose checksum is kept; beyond that all are forgotten, and computed again when somebody asks.
const MOST: usize = 65_536;

/// A version of a file: device and inode, size, time of modification, time of any change.
type Version = ((u64, u64), u64, (i64, u32), (i64, u32));

/// Adler-32 of files.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<HashMap<Version, u32>>);

fn version(facts: &Facts) -> Version {
    (
        facts.identity,
        facts.bytes,
        (facts.modified_s, facts.modified_ns),
        facts.changed,
    )
}

impl Known {
    pub(crate) fn find(&self, facts: &Facts) -> Option<u32> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&version(facts))
            .copied()
    }

    pub(crate) fn keep(&self, facts: &Facts, adler: u32) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(version(facts), adler);
    }
}
