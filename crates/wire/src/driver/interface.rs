//! An interface of a host: its device, and how packets are written to it.

use super::tun::Tun;
use crate::model::Chunk;
use crate::packet::cut;

#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) tun: Tun,
    /// Whether its host takes several segments as one packet.
    pub(crate) joins: bool,
    /// For each destination, the longest packet that comes through; 0 if none does.
    pub(crate) mtus: Vec<u16>,
}

impl Interface {
    /// Hands a run of segments of the packet `bytes` to the host. How many of them it did not take.
    #[inline]
    pub(crate) fn hand_over(&self, bytes: &[u8], chunk: &Chunk) -> u64 {
        let write_part = |first, count| {
            let part = cut(bytes, first, count);
            self.tun
                .write_pieces(part.headers(), &bytes[part.payload.clone()])
        };
        if chunk.shape.segments == 1 || (self.joins && chunk.is_whole()) {
            u64::from(self.tun.write(bytes).is_err()) * u64::from(chunk.count)
        } else if self.joins {
            u64::from(write_part(chunk.first, chunk.count).is_err()) * u64::from(chunk.count)
        } else {
            let segments = chunk.first..chunk.first + chunk.count;
            segments
                .filter(|segment| write_part(*segment, 1).is_err())
                .count() as u64
        }
    }
}
