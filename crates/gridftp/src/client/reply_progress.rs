//! Detects progress in preliminary replies. Servers repeat markers during a stall, and a line can
//! arrive byte by byte forever: a session that counted those as progress would never end.

use std::collections::BTreeMap;

use crate::address::MAX_STRIPES;
use crate::{FtpReply, ProgressMarker};

/// Maximum preliminary replies without bytes that count as progress of one command.
const MAX_PLAIN_REPLIES: usize = 16;

/// Progress reported by the preliminary replies to one command.
#[derive(Debug, Default)]
pub(super) struct ReplyProgress {
    plain_replies: usize,
    /// Code and stripe of a marker → highest reported position.
    positions: BTreeMap<(u16, u32), u64>,
}

impl ReplyProgress {
    /// Returns `true` if this reply reports more progress than earlier ones.
    pub fn is_new(&mut self, reply: &FtpReply) -> bool {
        let (stripe, position) = match ProgressMarker::parse(reply) {
            Ok(Some(ProgressMarker::Performance(marker))) => (marker.stripe, marker.bytes),
            Ok(Some(ProgressMarker::Ranges(ranges))) => (0, ranges.end()),
            Ok(Some(ProgressMarker::Checksummed { bytes })) => (0, bytes),
            _ => {
                self.plain_replies += 1;
                return self.plain_replies <= MAX_PLAIN_REPLIES;
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
