//! The only message that the network sends itself: "fragmentation needed" (RFC 792, RFC 1191).

use super::checksum::sum;
use super::ipv4::{IPV4_BYTES, ip_header_bytes};
use super::{VNET_BYTES, Vnet, set_word};

const ICMP: u8 = 1;
const ICMP_BYTES: usize = 8;
const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
/// Bytes of a packet quoted after its IP header.
const QUOTED_BYTES: usize = 8;
const TTL: u8 = 64;

/// Return the response to a packet that exceeds the MTU of its route. It is sent to the sender, in
/// the name of the destination, with the maximum size.
///
/// `bytes` is the packet as it was read and accepted by [`super::inspect`].
#[must_use]
pub fn too_big(bytes: &[u8], mtu: u16) -> Vec<u8> {
    let ip = &bytes[VNET_BYTES..];
    let quoted = &ip[..(ip_header_bytes(ip) + QUOTED_BYTES).min(ip.len())];
    let total = IPV4_BYTES + ICMP_BYTES + quoted.len();
    let mut reply_packet = Vnet::default().emit().to_vec();
    reply_packet.resize(VNET_BYTES + total, 0);
    let (header, icmp) = reply_packet[VNET_BYTES..].split_at_mut(IPV4_BYTES);
    header[0] = 0x45;
    set_word(header, 2, u16::try_from(total).expect("under 100 bytes"));
    header[8] = TTL;
    header[9] = ICMP;
    header[12..16].copy_from_slice(&ip[16..20]);
    header[16..20].copy_from_slice(&ip[12..16]);
    let checksum = !sum(header);
    set_word(header, 10, checksum);
    icmp[0] = UNREACHABLE;
    icmp[1] = FRAGMENTATION_NEEDED;
    set_word(icmp, 6, mtu);
    icmp[ICMP_BYTES..].copy_from_slice(quoted);
    let checksum = !sum(icmp);
    set_word(icmp, 2, checksum);
    reply_packet
}
