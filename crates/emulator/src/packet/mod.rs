//! Bytes of packets on a TUN device with `IFF_VNET_HDR`: a virtio-net header, then an IP packet
//! that can combine several segments.
//!
//! Sources: `include/uapi/linux/virtio_net.h` (struct `virtio_net_hdr_mrg_rxbuf`), RFC 791, 768, 9293, 792.

mod checksum;
mod cut;
mod icmp;
mod ipv4;
#[cfg(test)]
mod tests;

pub use cut::{Cut, cut, finish_checksum};
pub use icmp::too_big;
pub use ipv4::{Inspected, PacketRejection, inspect};

/// Bytes of the virtio-net header before each packet (`TUNSETVNETHDRSZ`).
pub const VNET_BYTES: usize = 12;

/// The virtio-net header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Vnet {
    pub(crate) flags: u8,
    pub(crate) gso_type: u8,
    pub(crate) header_bytes: u16,
    pub(crate) gso_bytes: u16,
    pub(crate) checksum_start: u16,
    pub(crate) checksum_offset: u16,
}

/// The field at `checksum_start + checksum_offset` contains only the sum of the pseudo-header; a
/// sender to a physical link must add the rest.
pub(crate) const NEEDS_CHECKSUM: u8 = 1;
pub(crate) const GSO_NONE: u8 = 0;
pub(crate) const GSO_TCP4: u8 = 1;
pub(crate) const GSO_UDP: u8 = 5;
/// Set together with the kind if the first segment has CWR.
pub(crate) const GSO_ECN: u8 = 0x80;

impl Vnet {
    pub(crate) fn parse(bytes: &[u8; VNET_BYTES]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            header_bytes: word(2),
            gso_bytes: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    pub(crate) fn emit(&self) -> [u8; VNET_BYTES] {
        let mut bytes = [0; VNET_BYTES];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        for (at, word) in [
            (2, self.header_bytes),
            (4, self.gso_bytes),
            (6, self.checksum_start),
            (8, self.checksum_offset),
        ] {
            bytes[at..at + 2].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    pub(crate) fn gso_kind(&self) -> u8 {
        self.gso_type & !GSO_ECN
    }
}

/// Return a 16-bit field in network order.
pub(crate) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn set_word(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
