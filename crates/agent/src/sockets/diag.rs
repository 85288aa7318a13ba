//! Requests to the kernel about TCP sockets, and their responses (sock_diag(7), `linux/inet_diag.h`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use venturi_plan::{Bytes, Socket};

use super::netlink::{HEADER_BYTES, attributes, number32};
use super::tcp_info;

/// `TCPDIAG_GETSOCK`: sockets of IPv4 and IPv6 in one walk through the kernel's table, whose length is the cost of a list.
/// `SOCK_DIAG_BY_FAMILY` needs one walk for each family.
const BOTH_FAMILIES: u16 = 18;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;

/// `NLM_F_REQUEST` and `NLM_F_DUMP`.
const REQUEST: u16 = 0x1;
const DUMP: u16 = 0x300;

/// `struct inet_diag_sockid`: ports in network order, two addresses of 16 bytes, interface, cookie. In a response, it
/// follows 4 bytes with the family, the state and timers.
const ID_BYTES: usize = 48;
const ID_OFFSET: usize = 4;

/// `struct inet_diag_msg`; attributes follow.
const RESPONSE_BYTES: usize = 72;

/// `INET_DIAG_INFO`, `INET_DIAG_CONG`, `INET_DIAG_SKMEMINFO`.
const INFO: u16 = 2;
const CONGESTION: u16 = 4;
const MEMORY: u16 = 7;

/// States by number (`net/tcp_states.h`).
const STATES: [&str; 13] = [
    "unknown",
    "established",
    "syn_sent",
    "syn_received",
    "fin_wait_1",
    "fin_wait_2",
    "time_wait",
    "closed",
    "close_wait",
    "last_ack",
    "listen",
    "closing",
    "syn_received",
];

/// States with counts per socket. They exclude `listen`, `time_wait` and half-open sockets, because
/// the kernel keeps less data for these.
const CONNECTED: u32 = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;

/// The state `listen`.
const LISTENING: u32 = 1 << 10;

/// `idiag_inode`.
const INODE_OFFSET: usize = 68;

/// A connected socket in a list of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedSocket {
    /// Cookie, unique among the sockets of this machine since its start.
    pub(crate) cookie: u64,
    /// Inode of its file; 0: no process has it open.
    pub(crate) inode: u32,
    /// Port on this host.
    pub(crate) local_port: u16,
    family: u8,
    id: [u8; ID_BYTES],
}

/// A socket with the counts that the kernel reports.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SocketReport {
    /// Cookie, unique among the sockets of this machine since its start.
    pub(crate) cookie: u64,
    /// Port on this host.
    pub(crate) local_port: u16,
    /// Recorded properties.
    pub(crate) socket: Socket,
}

/// Return the request for a list of all connected sockets.
pub(crate) fn list_request() -> Vec<u8> {
    both_families(CONNECTED)
}

/// Return the request for a list of all listening sockets.
pub(crate) fn listeners_request() -> Vec<u8> {
    both_families(LISTENING)
}

/// `struct inet_diag_req`.
fn both_families(states: u32) -> Vec<u8> {
    let mut request = header(BOTH_FAMILIES, REQUEST | DUMP, 4 + ID_BYTES + 8);
    request.resize(HEADER_BYTES + 4 + ID_BYTES, 0); // any family, extensions none, any address
    request.extend(states.to_ne_bytes());
    request.extend([0; 4]);
    request
}

/// Append the request for the counts of one socket (`struct inet_diag_req_v2`).
pub(crate) fn append_counts_request(socket: &ListedSocket, requests: &mut Vec<u8>) {
    let extensions = 1 << (INFO - 1) | 1 << (CONGESTION - 1) | 1 << (MEMORY - 1);
    requests.extend(header(BY_FAMILY, REQUEST, 8 + ID_BYTES));
    requests.extend([socket.family, libc::IPPROTO_TCP as u8, extensions, 0]);
    requests.extend(u32::MAX.to_ne_bytes()); // in any current state
    requests.extend(socket.id);
}

fn header(kind: u16, flags: u16, body_bytes: usize) -> Vec<u8> {
    let length = u32::try_from(HEADER_BYTES + body_bytes).expect("less than 100");
    let mut header = Vec::with_capacity(HEADER_BYTES + body_bytes);
    header.extend(length.to_ne_bytes());
    header.extend(kind.to_ne_bytes());
    header.extend(flags.to_ne_bytes());
    header.extend([0; 8]); // sequence number and port: all replies are read before the next request
    header
}

/// Read an entry of a list. `None`: it has no peer.
pub(crate) fn read_listed(message: &[u8]) -> Option<ListedSocket> {
    let id = message.get(ID_OFFSET..ID_OFFSET + ID_BYTES)?;
    let has_peer = id[2..4] != [0, 0];
    has_peer.then_some(ListedSocket {
        cookie: cookie(message)?,
        inode: number32(message, INODE_OFFSET)?,
        local_port: u16::from_be_bytes([id[0], id[1]]),
        family: *message.first()?,
        id: id.try_into().expect("of this length"),
    })
}

fn cookie(message: &[u8]) -> Option<u64> {
    Some(u64::from(number32(message, 44)?) | u64::from(number32(message, 48)?) << 32)
}

/// Read a reply about one socket, or an event about a destroyed socket. `None`: it has no peer or no counts.
pub(crate) fn read(message: &[u8], closed: bool) -> Option<SocketReport> {
    let (head, rest) = message.split_at_checked(RESPONSE_BYTES)?;
    let (family, state) = (head[0], usize::from(head[1]));
    let local = address(family, &head[8..24], &head[4..6])?;
    let remote = address(family, &head[24..40], &head[6..8])?;
    let mut socket = Socket {
        local: local.to_string(),
        remote: remote.to_string(),
        state: (*STATES.get(state).unwrap_or(&STATES[0])).to_owned(),
        closed,
        ..Socket::default()
    };
    if !closed {
        // `idiag_rqueue` and `idiag_wqueue`; a destroyed socket has no queue.
        let queue = |offset| Some(Bytes::new(u64::from(number32(head, offset)?)));
        (socket.receive_queue_bytes, socket.send_queue_bytes) = (queue(56), queue(60));
    }
    let mut counted = false;
    for (kind, content) in attributes(rest) {
        match kind {
            INFO => {
                tcp_info::read_into(content, &mut socket);
                counted = true;
            }
            CONGESTION => socket.congestion_control = name(content),
            MEMORY => {
                // `SK_MEMINFO_RCVBUF`, `SK_MEMINFO_SNDBUF`, `SK_MEMINFO_DROPS`: the second, fourth and ninth.
                let bytes =
                    |index: usize| Some(Bytes::new(u64::from(number32(content, 4 * index)?)));
                socket.receive_buffer_bytes = bytes(1);
                socket.send_buffer_bytes = bytes(3);
                socket.drops = number32(content, 4 * 8).map(u64::from);
            }
            _ => {}
        }
    }
    let has_peer = remote.port() != 0;
    (counted && has_peer).then_some(SocketReport {
        cookie: cookie(head)?,
        local_port: local.port(),
        socket,
    })
}

/// Return port and inode of a listening socket.
pub(crate) fn read_listener(message: &[u8]) -> Option<(u16, u32)> {
    let port = message.get(4..6)?;
    let port = u16::from_be_bytes(port.try_into().ok()?);
    Some((port, number32(message, INODE_OFFSET)?))
}

/// Return an address; an IPv4 address mapped to IPv6 is returned as IPv4, so that both ends of a
/// connection have the same form.
fn address(family: u8, bytes: &[u8], port: &[u8]) -> Option<SocketAddr> {
    let ip = match i32::from(family) {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(..4)?).ok()?)),
        libc::AF_INET6 => {
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)).to_canonical()
        }
        _ => return None,
    };
    let port = u16::from_be_bytes(port.try_into().ok()?);
    Some(SocketAddr::new(ip, port))
}

fn name(content: &[u8]) -> Option<String> {
    let text = content.split(|byte| *byte == 0).next()?;
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(family: libc::c_int, local: &[u8], attributes: &[u8]) -> Vec<u8> {
        let mut head = vec![0_u8; RESPONSE_BYTES];
        head[0] = u8::try_from(family).expect("small");
        head[1] = 1;
        head[4..6].copy_from_slice(&2811_u16.to_be_bytes());
        head[6..8].copy_from_slice(&50_000_u16.to_be_bytes());
        head[8..8 + local.len()].copy_from_slice(local);
        head[24..24 + local.len()].copy_from_slice(local);
        [head, attributes.to_vec()].concat()
    }

    fn info(bytes: usize) -> Vec<u8> {
        let length = u16::try_from(4 + bytes).expect("short");
        [
            &length.to_ne_bytes()[..],
            &INFO.to_ne_bytes(),
            &vec![0; bytes],
        ]
        .concat()
    }

    #[test]
    fn addresses_of_both_families_are_printed_in_the_usual_notation() {
        let v4 = read(&response(libc::AF_INET, &[10, 77, 0, 1], &info(8)), false);
        assert_eq!(v4.expect("a socket").socket.local, "10.77.0.1:2811");
        let mapped = "::ffff:10.77.0.1".parse::<Ipv6Addr>().expect("an address");
        let mapped = read(&response(libc::AF_INET6, &mapped.octets(), &info(8)), true);
        assert_eq!(mapped.expect("a socket").socket.remote, "10.77.0.1:50000");
        let v6 = read(
            &response(libc::AF_INET6, &Ipv6Addr::LOCALHOST.octets(), &info(8)),
            false,
        );
        assert_eq!(v6.expect("a socket").socket.remote, "[::1]:50000");
    }

    #[test]
    fn sockets_without_counters_or_without_a_peer_are_ignored() {
        assert_eq!(
            read(&response(libc::AF_INET, &[127, 0, 0, 1], &[]), false),
            None
        );
        let mut unconnected = response(libc::AF_INET, &[127, 0, 0, 1], &info(8));
        unconnected[6..8].fill(0);
        assert_eq!(read(&unconnected, true), None);
        assert_eq!(read(&response(libc::AF_UNIX, &[], &info(8)), false), None);
    }

    #[test]
    fn truncated_replies_do_not_panic() {
        let whole = response(libc::AF_INET, &[127, 0, 0, 1], &info(240));
        for end in 0..whole.len() {
            let _ = read(&whole[..end], false);
            let _ = read_listed(&whole[..end]);
        }
    }
}
