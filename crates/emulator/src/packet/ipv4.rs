//! Properties of a packet for the emulator: its destination and its split into segments.

use std::net::Ipv4Addr;

use super::{GSO_NONE, GSO_TCP4, GSO_UDP, VNET_BYTES, Vnet, word};
use crate::model::PacketShape;

pub(crate) const IPV4_BYTES: usize = 20;
pub(crate) const TCP_BYTES: usize = 20;
pub(crate) const UDP_BYTES: usize = 8;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
const DONT_FRAGMENT: u8 = 0x40;

/// Properties of a packet that the network uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inspected {
    /// Split into segments.
    pub shape: PacketShape,
    /// Destination.
    pub destination: Ipv4Addr,
    /// Whether its sender forbids fragmentation.
    pub dont_fragment: bool,
}

/// Reason why the network rejects a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketRejection {
    /// It is not IPv4.
    Protocol,
    /// It is multicast or broadcast; links are point-to-point, so no group can be reached.
    Multicast,
    /// The header is invalid, or it uses an offload that was not requested.
    Malformed,
}

/// Inspect a packet as it was read, virtio-net header first.
///
/// # Errors
/// A [`PacketRejection`] if the network cannot transmit it.
pub fn inspect(bytes: &[u8]) -> Result<Inspected, PacketRejection> {
    let Some((vnet, ip)) = bytes.split_first_chunk::<VNET_BYTES>() else {
        return Err(PacketRejection::Malformed);
    };
    match ip.first() {
        None => return Err(PacketRejection::Malformed),
        Some(first) if first >> 4 != 4 => return Err(PacketRejection::Protocol),
        Some(_) if ip.len() < IPV4_BYTES => return Err(PacketRejection::Malformed),
        Some(_) => {}
    }
    if usize::from(word(ip, 2)) != ip.len() {
        return Err(PacketRejection::Malformed);
    }
    let destination = Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19]);
    if destination.is_multicast() || destination.is_broadcast() {
        return Err(PacketRejection::Multicast);
    }
    Ok(Inspected {
        shape: shape(&Vnet::parse(vnet), ip)?,
        destination,
        dont_fragment: ip[6] & DONT_FRAGMENT != 0,
    })
}

fn shape(vnet: &Vnet, ip: &[u8]) -> Result<PacketShape, PacketRejection> {
    let total = u16::try_from(ip.len()).map_err(|_| PacketRejection::Malformed)?;
    if vnet.gso_kind() == GSO_NONE {
        return Ok(PacketShape::single(total));
    }
    let header = header_bytes(vnet, ip).ok_or(PacketRejection::Malformed)?;
    let payload = total - header;
    if vnet.gso_bytes == 0 {
        return Err(PacketRejection::Malformed);
    }
    if payload <= vnet.gso_bytes {
        return Ok(PacketShape::single(total));
    }
    let segments = payload.div_ceil(vnet.gso_bytes);
    Ok(PacketShape {
        segments,
        segment_bytes: header
            .checked_add(vnet.gso_bytes)
            .ok_or(PacketRejection::Malformed)?,
        last_bytes: header + payload - (segments - 1) * vnet.gso_bytes,
    })
}

/// Return the length of the IP header.
pub(crate) fn ip_header_bytes(ip: &[u8]) -> usize {
    usize::from(ip[0] & 0xf) * 4
}

/// Return the length of the headers of each segment of a super-packet: IP and TCP or UDP. None if
/// they exceed the packet.
pub(crate) fn header_bytes(vnet: &Vnet, ip: &[u8]) -> Option<u16> {
    let ip_header = ip_header_bytes(ip);
    let transport = ip.get(ip_header..).filter(|_| ip_header >= IPV4_BYTES)?;
    let (protocol, length) = match vnet.gso_kind() {
        GSO_TCP4 if transport.len() >= TCP_BYTES => (TCP, usize::from(transport[12] >> 4) * 4),
        GSO_UDP => (UDP, UDP_BYTES),
        _ => return None,
    };
    let min = if protocol == TCP {
        TCP_BYTES
    } else {
        UDP_BYTES
    };
    let fits = ip[9] == protocol && length >= min && length <= transport.len();
    fits.then(|| u16::try_from(ip_header + length).expect("at most 120 bytes"))
}
