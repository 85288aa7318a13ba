//! What is asked of the kernel about TCP sockets, and how it answers (sock_diag(7), `linux/inet_diag.h`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use venturi_plan::{Bytes, Socket};

use super::netlink::{HEADER_BYTES, attributes, number32};
use super::tcp_info;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;

/// `NLM_F_REQUEST` and `NLM_F_DUMP`.
const DUMP: u16 = 0x1 | 0x300;

/// `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = 56;

/// `struct inet_diag_msg`; attributes follow.
const ANSWER_BYTES: usize = 72;

/// `INET_DIAG_INFO`, `INET_DIAG_CONG`, `INET_DIAG_SKMEMINFO`.
const INFO: u16 = 2;
const CONGESTION: u16 = 4;
const MEMORY: u16 = 7;

/// By number (`net/tcp_states.h`).
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

/// States in which a socket has counts of its own: not those of `listen`, of `time_wait` and of half-open ones, for which the
/// kernel keeps less than a socket.
const ASKED: u32 = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;

/// A socket as the kernel told it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    /// What no other socket of this machine has had since its start.
    pub(crate) cookie: u64,
    /// Of the file that stands for it; 0: no process has it open (any more).
    pub(crate) inode: u32,
    /// All that is recorded of it.
    pub(crate) socket: Socket,
}

/// The request for all sockets of `family` (`AF_INET` or `AF_INET6`).
pub(crate) fn dump_request(family: u8) -> Vec<u8> {
    let wanted = 1 << (INFO - 1) | 1 << (CONGESTION - 1) | 1 << (MEMORY - 1);
    let length = u32::try_from(HEADER_BYTES + REQUEST_BYTES).expect("72");
    let mut request = Vec::with_capacity(HEADER_BYTES + REQUEST_BYTES);
    request.extend(length.to_ne_bytes());
    request.extend(BY_FAMILY.to_ne_bytes());
    request.extend(DUMP.to_ne_bytes());
    request.extend([0; 8]); // sequence number and port: one question at a time
    request.extend([family, libc::IPPROTO_TCP as u8, wanted, 0]);
    request.extend(ASKED.to_ne_bytes());
    request.resize(HEADER_BYTES + REQUEST_BYTES, 0); // whatever its addresses
    request
}

/// Reads an answer, or the news that a socket was destroyed. `None`: it has no peer or no counts.
pub(crate) fn read(message: &[u8], closed: bool) -> Option<Seen> {
    let (head, rest) = message.split_at_checked(ANSWER_BYTES)?;
    let (family, state) = (head[0], usize::from(head[1]));
    // `struct inet_diag_sockid`, from the 5th byte: ports in network order, two addresses of 16 bytes, interface, cookie.
    let local = address(family, &head[8..24], &head[4..6])?;
    let remote = address(family, &head[24..40], &head[6..8])?;
    let cookie = u64::from(number32(head, 44)?) | u64::from(number32(head, 48)?) << 32;
    let mut socket = Socket {
        local: local.to_string(),
        remote: remote.to_string(),
        state: (*STATES.get(state).unwrap_or(&STATES[0])).to_owned(),
        closed,
        ..Socket::default()
    };
    let mut counted = false;
    for (kind, content) in attributes(rest) {
        match kind {
            INFO => {
                tcp_info::read_into(content, &mut socket);
                counted = true;
            }
            CONGESTION => socket.congestion_control = name(content),
            MEMORY => {
                // `SK_MEMINFO_RCVBUF` and `SK_MEMINFO_SNDBUF`: the second and the fourth.
                let bytes =
                    |index: usize| Some(Bytes::new(u64::from(number32(content, 4 * index)?)));
                socket.receive_buffer_bytes = bytes(1);
                socket.send_buffer_bytes = bytes(3);
            }
            _ => {}
        }
    }
    let has_peer = remote.port() != 0;
    (counted && has_peer).then_some(Seen {
        cookie,
        inode: number32(head, 68)?,
        socket,
    })
}

/// An IPv4 address in the dress of an IPv6 one is told as what it is, so that both ends of a connection look alike.
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

    fn answer(family: libc::c_int, local: &[u8], attributes: &[u8]) -> Vec<u8> {
        let mut head = vec![0_u8; ANSWER_BYTES];
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
    fn addresses_of_both_families_are_told_as_people_write_them() {
        let v4 = read(&answer(libc::AF_INET, &[10, 77, 0, 1], &info(8)), false);
        assert_eq!(v4.expect("a socket").socket.local, "10.77.0.1:2811");
        let mapped = "::ffff:10.77.0.1".parse::<Ipv6Addr>().expect("an address");
        let mapped = read(&answer(libc::AF_INET6, &mapped.octets(), &info(8)), true);
        assert_eq!(mapped.expect("a socket").socket.remote, "10.77.0.1:50000");
        let v6 = read(
            &answer(libc::AF_INET6, &Ipv6Addr::LOCALHOST.octets(), &info(8)),
            false,
        );
        assert_eq!(v6.expect("a socket").socket.remote, "[::1]:50000");
    }

    #[test]
    fn what_has_no_counts_or_no_peer_is_no_socket_to_record() {
        assert_eq!(
            read(&answer(libc::AF_INET, &[127, 0, 0, 1], &[]), false),
            None
        );
        let mut unconnected = answer(libc::AF_INET, &[127, 0, 0, 1], &info(8));
        unconnected[6..8].fill(0);
        assert_eq!(read(&unconnected, true), None);
        assert_eq!(read(&answer(libc::AF_UNIX, &[], &info(8)), false), None);
    }

    #[test]
    fn an_answer_that_is_cut_anywhere_is_no_reason_to_panic() {
        let whole = answer(libc::AF_INET, &[127, 0, 0, 1], &info(240));
        for end in 0..whole.len() {
            let _ = read(&whole[..end], false);
        }
    }
}
