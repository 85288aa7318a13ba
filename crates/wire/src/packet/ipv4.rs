//! What the wire has to know of a packet: its destination and how it falls into segments.

use std::net::Ipv4Addr;

use super::{GSO_NONE, GSO_TCP4, GSO_UDP, VNET_BYTES, Vnet, word};
use crate::model::Shape;

pub(crate) const IPV4_BYTES: usize = 20;
pub(crate) const TCP_BYTES: usize = 20;
pub(crate) const UDP_BYTES: usize = 8;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
const DONT_FRAGMENT: u8 = 0x40;

/// What a packet is to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inspected {
    /// How it falls into segments.
    pub shape: Shape,
    /// Where it goes.
    pub destination: Ipv4Addr,
    /// Whether its sender forbids to fragment it.
    pub dont_fragment: bool,
}

/// Why the network does not take a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is no IPv4.
    Protocol,
    /// It is for a group or for everybody: there is no network of many here to reach them.
    Multicast,
    /// It is not what its header says, or of a kind of offload that was not asked for.
    Malformed,
}

/// Looks at a packet as it was read, virtio-net header first.
///
/// # Errors
/// A [`Refusal`] where it cannot be carried.
pub fn inspect(bytes: &[u8]) -> Result<Inspected, Refusal> {
    let Some((vnet, ip)) = bytes.split_first_chunk::<VNET_BYTES>() else {
        return Err(Refusal::Malformed);
    };
    match ip.first() {
        None => return Err(Refusal::Malformed),
        Some(first) if first >> 4 != 4 => return Err(Refusal::Protocol),
        Some(_) if ip.len() < IPV4_BYTES => return Err(Refusal::Malformed),
        Some(_) => {}
    }
    if usize::from(word(ip, 2)) != ip.len() {
        return Err(Refusal::Malformed);
    }
    let destination = Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19]);
    if destination.is_multicast() || destination.is_broadcast() {
        return Err(Refusal::Multicast);
    }
    Ok(Inspected {
        shape: shape(&Vnet::parse(vnet), ip)?,
        destination,
        dont_fragment: ip[6] & DONT_FRAGMENT != 0,
    })
}

fn shape(vnet: &Vnet, ip: &[u8]) -> Result<Shape, Refusal> {
    let total = u16::try_from(ip.len()).map_err(|_| Refusal::Malformed)?;
    if vnet.gso_kind() == GSO_NONE {
        return Ok(Shape::single(total));
    }
    let header = header_bytes(vnet, ip).ok_or(Refusal::Malformed)?;
    let payload = total - header;
    if vnet.gso_bytes == 0 {
        return Err(Refusal::Malformed);
    }
    if payload <= vnet.gso_bytes {
        return Ok(Shape::single(total));
    }
    let segments = payload.div_ceil(vnet.gso_bytes);
    Ok(Shape {
        segments,
        segment_bytes: header
            .checked_add(vnet.gso_bytes)
            .ok_or(Refusal::Malformed)?,
        last_bytes: header + payload - (segments - 1) * vnet.gso_bytes,
    })
}

/// Length of the IP header.
pub(crate) fn ip_header_bytes(ip: &[u8]) -> usize {
    usize::from(ip[0] & 0xf) * 4
}

/// Length of the headers that each segment of a super-packet has: IP and TCP or UDP. None if they do not fit the
/// packet.
pub(crate) fn header_bytes(vnet: &Vnet, ip: &[u8]) -> Option<u16> {
    let ip_header = ip_header_bytes(ip);
    let transport = ip.get(ip_header..).filter(|_| ip_header >= IPV4_BYTES)?;
    let (protocol, length) = match vnet.gso_kind() {
        GSO_TCP4 if transport.len() >= TCP_BYTES => (TCP, usize::from(transport[12] >> 4) * 4),
        GSO_UDP => (UDP, UDP_BYTES),
        _ => return None,
    };
    let least = if protocol == TCP {
        TCP_BYTES
    } else {
        UDP_BYTES
    };
    let fits = ip[9] == protocol && length >= least && length <= transport.len();
    fits.then(|| u16::try_from(ip_header + length).expect("at most 120 bytes"))
}
