//! What the kernel tells of a connection (`TCP_INFO`, `struct tcp_info` in `linux/tcp.h`).

use std::os::fd::AsFd;
use std::sync::LazyLock;
use std::time::Duration;

use nix::sys::socket::GetSockOpt;
use nix::sys::utsname::uname;
use nix::{getsockopt_impl, libc, sockopt_impl};

/// Offsets in bytes.
const LAST_SENT_MS: usize = 44;
const LAST_RECEIVED_MS: usize = 52;
const ROUND_TRIP_US: usize = 68;
const RECEIVERS_ROUND_TRIP_US: usize = 92;
const RECEIVERS_SPACE: usize = 96;
const SENT_AGAIN: usize = 100;
const ACKNOWLEDGED: usize = 120;
const LEAST_ROUND_TRIP_US: usize = 148;
const OUT_OF_ORDER: usize = 224;
/// So much is there from Linux 4.10 on: it grows at its end only.
const BYTES: usize = 192;
const SINCE: (u32, u32) = (4, 10);
/// And so much from 5.4 on.
const ALL_BYTES: usize = 228;
const SINCE_ALL: (u32, u32) = (5, 4);

/// A connection at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Since something was sent, or came.
    pub(crate) idle: Duration,
    /// A round trip these days, of what we send or of what comes, whichever is more: only one of them is of a stream that flows.
    pub(crate) round_trip: Duration,
    /// The least of them all, where it is known.
    pub(crate) least_round_trip: Option<Duration>,
    /// Bytes that were read in a round trip, when these were most.
    pub(crate) bytes_a_trip: u64,
    /// Packets so far that were sent again, or, as far as the kernel tells it, came after a later one: what losses leave at either end.
    pub(crate) lost: u32,
    /// Bytes so far that have come to the other end.
    pub(crate) acknowledged: u64,
}

/// Asks the kernel; none where it does not tell.
pub(crate) fn see(socket: &impl AsFd) -> Option<Seen> {
    let mut told = [0; ALL_BYTES];
    if *RELEASE >= SINCE_ALL {
        told = AllInfo.get(socket).ok()?;
    } else if *RELEASE >= SINCE {
        told[..BYTES].copy_from_slice(&Info.get(socket).ok()?);
    } else {
        return None;
    }
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|index| told[at + index]));
    let us = |at| Duration::from_micros(word(at).into());
    // No round trip yet is 0, and for the least one the largest number.
    let least = word(LEAST_ROUND_TRIP_US);
    Some(Seen {
        idle: Duration::from_millis(word(LAST_SENT_MS).min(word(LAST_RECEIVED_MS)).into()),
        round_trip: us(ROUND_TRIP_US).max(us(RECEIVERS_ROUND_TRIP_US)),
        least_round_trip: (1..u32::MAX)
            .contains(&least)
            .then(|| us(LEAST_ROUND_TRIP_US)),
        bytes_a_trip: word(RECEIVERS_SPACE).into(),
        lost: word(SENT_AGAIN).wrapping_add(word(OUT_OF_ORDER)),
        acknowledged: u64::from_ne_bytes(std::array::from_fn(|index| told[ACKNOWLEDGED + index])),
    })
}

/// Looks at a connection again and again, and sees what it loses between.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Packets that had been lost when it was looked at last.
    lost: u32,
}

impl Watch {
    /// Asks the kernel, and whether packets were lost since that was asked last.
    pub(crate) fn see(&mut self, socket: &impl AsFd) -> Option<(Seen, bool)> {
        let seen = see(socket)?;
        let before = std::mem::replace(&mut self.lost, seen.lost);
        Some((seen, seen.lost != before))
    }
}

/// Bytes of a connection that come to the other end: of one that reads slowly a kernel may take none for minutes, having taken megabytes before.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged(u64);

impl Acknowledged {
    /// So many since this was asked last; none where the kernel does not tell.
    pub(crate) fn more(&mut self, socket: &impl AsFd) -> u64 {
        let now = see(socket).map_or(self.0, |seen| seen.acknowledged);
        now - std::mem::replace(&mut self.0, now)
    }
}

/// Of what a kernel tells: of one that tells less, `nix` would panic.
static RELEASE: LazyLock<(u32, u32)> = LazyLock::new(|| {
    let names = uname().ok();
    let release = names.as_ref().and_then(|names| names.release().to_str());
    numbers(release.unwrap_or_default())
});

/// The first two numbers of a release; zeros where there are none.
fn numbers(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    let mut number = || numbers.next()?.parse().ok();
    number().zip(number()).unwrap_or_default()
}

sockopt_impl!(
    /// The beginning of it.
    Info,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    [u8; BYTES]
);

sockopt_impl!(
    /// More of it.
    AllInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    [u8; ALL_BYTES]
);

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread::sleep;

    use super::*;

    #[test]
    fn the_kernels_that_tell_enough_are_known_by_their_numbers() {
        for told in ["4.10.0-rc1", "5.15.0-1", "6.1"] {
            assert!(numbers(told) >= SINCE, "{told}");
        }
        for told in ["4.9.337", "3.10.0-1160.el7.x86_64", ""] {
            assert!(numbers(told) < SINCE, "{told}");
        }
    }

    #[test]
    fn both_ends_of_a_connection_tell_of_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut sender = TcpStream::connect(address).expect("a connection");
        let (mut receiver, _) = listener.accept().expect("it comes");
        sender.write_all(&[0; 1 << 16]).expect("room");
        receiver.read_exact(&mut [0; 1 << 16]).expect("bytes");
        for socket in [&sender, &receiver] {
            let seen = see(socket).expect("told");
            assert!(seen.idle < Duration::from_secs(1), "{seen:?}");
            assert!(seen.least_round_trip <= Some(seen.round_trip), "{seen:?}");
            assert!(seen.least_round_trip.is_some(), "{seen:?}");
            assert_eq!(seen.lost, 0, "{seen:?}");
            assert!(seen.bytes_a_trip > 0, "{seen:?}");
        }
        sleep(Duration::from_millis(50));
        let seen = see(&receiver).expect("told");
        assert!(seen.idle >= Duration::from_millis(40), "{seen:?}");
    }
}
