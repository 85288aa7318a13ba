//! An interface of a host with its device, and the writing of packets to it.

use super::tun::Tun;
use crate::model::Chunk;
use crate::packet::cut;

#[derive(Debug)]
pub(crate) struct TunInterface {
    pub(crate) tun: Tun,
    /// Whether its host accepts several segments as one packet.
    pub(crate) joins: bool,
    /// For each destination, the maximum packet size on the route; 0 without a route.
    pub(crate) mtus: Vec<u16>,
}

impl TunInterface {
    /// Write a run of segments of the packet `bytes` to the host; return the number of segments
    /// that the host did not accept.
    #[inline]
    pub(crate) fn hand_over(&self, bytes: &[u8], chunk: &Chunk) -> u64 {
        let write_part = |first, count| {
            let part = cut(bytes, first, count);
            self.tun
                .write_parts(part.headers(), &bytes[part.payload.clone()])
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
