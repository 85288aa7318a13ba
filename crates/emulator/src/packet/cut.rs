//! Parts of a super-packet as separate packets: new headers, the same payload. No payload byte is
//! read or summed.

use std::ops::Range;

use super::checksum::{add, sum};
use super::ipv4::{TCP, TCP_BYTES, UDP_BYTES, header_bytes, ip_header_bytes};
use super::{GSO_ECN, GSO_NONE, GSO_TCP4, NEEDS_CHECKSUM, VNET_BYTES, Vnet, set_word, word};

/// The longest IP header and the longest TCP header.
const MAX_HEADERS: usize = VNET_BYTES + 60 + 60;

const FIN_PSH: u8 = 0x01 | 0x08;
const CWR: u8 = 0x80;

/// Headers of a part, and the position of its payload.
#[derive(Debug, Clone)]
pub struct Cut {
    headers: [u8; MAX_HEADERS],
    length: usize,
    /// Range of the payload in the original bytes.
    pub payload: Range<usize>,
}

impl Cut {
    /// Return the virtio-net header, followed by the headers of IP and TCP or UDP.
    #[must_use]
    pub fn headers(&self) -> &[u8] {
        &self.headers[..self.length]
    }

    /// Return the same bytes, mutable.
    pub fn headers_mut(&mut self) -> &mut [u8] {
        &mut self.headers[..self.length]
    }
}

/// Return `count` segments of a super-packet from number `first` on. `bytes` is the packet as it
/// was read and accepted by [`super::inspect`].
///
/// Each part has its own lengths of IP and UDP, IP identification and TCP sequence number. Only the
/// last segment has FIN and PSH, and only the first one has CWR. The IP checksum is computed again.
/// The checksum of TCP or UDP stays *partial* (`CHECKSUM_PARTIAL` of the kernel), with the length
/// of the part.
///
/// # Panics
/// If the packet is not a super-packet or does not have these segments.
#[must_use]
pub fn cut(bytes: &[u8], first: u16, count: u16) -> Cut {
    let (vnet, ip) = bytes
        .split_first_chunk::<VNET_BYTES>()
        .expect("inspected: it has a header");
    let mut vnet = Vnet::parse(vnet);
    let header = usize::from(header_bytes(&vnet, ip).expect("inspected: it is a super-packet"));
    let gso = usize::from(vnet.gso_bytes);
    let start = usize::from(first) * gso;
    let end = (start + usize::from(count) * gso).min(ip.len() - header);
    let last = end == ip.len() - header;
    let transport = ip_header_bytes(ip);

    if first > 0 {
        vnet.gso_type &= !GSO_ECN;
    }
    // The kernel returns its packet in one read, and accepts nothing longer than the packet.
    vnet.header_bytes = u16::try_from(header).expect("at most 120 bytes");
    let kind = vnet.gso_kind();
    if count == 1 {
        (vnet.gso_type, vnet.gso_bytes) = (GSO_NONE, 0);
    }
    let mut cut = Cut {
        headers: [0; MAX_HEADERS],
        length: VNET_BYTES + header,
        payload: VNET_BYTES + header + start..VNET_BYTES + header + end,
    };
    cut.headers[..VNET_BYTES].copy_from_slice(&vnet.emit());
    cut.headers[VNET_BYTES..VNET_BYTES + header].copy_from_slice(&ip[..header]);
    let own = &mut cut.headers[VNET_BYTES..VNET_BYTES + header];
    patch_ip(&mut own[..transport], first, header + end - start);
    let length = header - transport + end - start;
    let length = u16::try_from(length).expect("a part is not longer than the whole");
    let (addresses, own) = own.split_at_mut(transport);
    if kind == GSO_TCP4 {
        patch_tcp(own, start, first > 0, last);
    } else {
        set_word(own, 4, length);
    }
    if vnet.flags & NEEDS_CHECKSUM != 0 {
        // Pseudo-header: addresses, protocol, length (RFC 9293, section 3.1).
        let protocol = addresses[9];
        let pseudo = add(add(sum(&addresses[12..20]), u16::from(protocol)), length);
        let at = if protocol == TCP { 16 } else { 6 };
        set_word(own, at, pseudo);
    }
    cut
}

fn patch_ip(ip: &mut [u8], first: u16, total: usize) {
    set_word(
        ip,
        2,
        u16::try_from(total).expect("a part is not longer than the whole"),
    );
    let identification = word(ip, 4).wrapping_add(first);
    set_word(ip, 4, identification);
    set_word(ip, 10, 0);
    let checksum = !sum(ip);
    set_word(ip, 10, checksum);
}

fn patch_tcp(tcp: &mut [u8], start: usize, later: bool, last: bool) {
    debug_assert!(tcp.len() >= TCP_BYTES);
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    let start = u32::try_from(start).expect("within a packet");
    tcp[4..8].copy_from_slice(&sequence.wrapping_add(start).to_be_bytes());
    if !last {
        tcp[13] &= !FIN_PSH;
    }
    if later {
        tcp[13] &= !CWR;
    }
}

/// Complete a partial checksum, like a network card. `headers` are [`Cut::headers`] or the start of
/// a packet, `payload` is the rest. Complete checksums do not change.
///
/// The payload must start at an even offset from the transport header, as with TCP and UDP.
pub fn finish_checksum(headers: &mut [u8], payload: &[u8]) {
    let Some((vnet, ip)) = headers.split_first_chunk_mut::<VNET_BYTES>() else {
        return;
    };
    let vnet = Vnet::parse(vnet);
    let start = usize::from(vnet.checksum_start);
    let at = start + usize::from(vnet.checksum_offset);
    if vnet.flags & NEEDS_CHECKSUM == 0 || at + 2 > ip.len() {
        return;
    }
    let checksum = !add(sum(&ip[start..]), sum(payload));
    let is_udp = at - start == UDP_BYTES - 2;
    // Zero means "none" in UDP (RFC 768), and is sent as its other form.
    let checksum = if is_udp && checksum == 0 {
        0xffff
    } else {
        checksum
    };
    set_word(ip, at, checksum);
}
