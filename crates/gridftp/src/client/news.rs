//! Which of a server's words show that something goes on. Servers repeat markers while a transfer stands still, and
//! a line can come byte by byte for ever: a session that took all of that for progress would never end.

use std::collections::BTreeMap;

use crate::address::MAX_STRIPES;
use crate::{Progress, Reply};

/// Most preliminary replies to one command that count though they tell of no bytes.
const MAX_WORDS: usize = 16;

/// What the preliminary replies to one command have told.
#[derive(Debug, Default)]
pub(super) struct News {
    words: usize,
    /// Code and stripe of a marker → the highest position that one told.
    positions: BTreeMap<(u16, u32), u64>,
}

impl News {
    /// Whether this tells of more than those before.
    pub fn is_new(&mut self, reply: &Reply) -> bool {
        let (stripe, position) = match Progress::parse(reply) {
            Ok(Some(Progress::Performance(marker))) => (marker.stripe, marker.bytes),
            Ok(Some(Progress::Ranges(ranges))) => (0, ranges.end()),
            Ok(Some(Progress::Checksummed { bytes })) => (0, bytes),
            _ => {
                self.words += 1;
                return self.words <= MAX_WORDS;
            }
        };
        let key = (reply.code, stripe);
        if self.positions.len() >= MAX_STRIPES && !self.positions.contains_key(&key) {
            return false;
        }
        let before = self.positions.insert(key, position);
        before.is_none_or(|before| position > before)
    }
}
