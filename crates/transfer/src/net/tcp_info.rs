//! State of a connection from the kernel, for the copy and the server.

use std::os::fd::AsFd;
use std::time::Duration;

use venturi_linux::TcpInfo;

/// State of a connection at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TcpSnapshot {
    /// Time since data was sent or received.
    pub(crate) idle: Duration,
    /// Current round-trip time, the larger of the sender's and the receiver's, because only one
    /// side has a continuous stream.
    pub(crate) round_trip: Duration,
    /// Minimum round-trip time, if known.
    pub(crate) min_round_trip: Option<Duration>,
    /// Receive window estimate: bytes read per round trip.
    pub(crate) bytes_a_trip: u64,
    /// Retransmitted packets, and packets that arrived out of order if the kernel counts them: effects of losses at both hosts.
    pub(crate) lost: u32,
    /// Acknowledged bytes.
    pub(crate) acknowledged: u64,
}

/// Reads the state from the kernel; none if unsupported.
pub(crate) fn read(socket: &impl AsFd) -> Option<TcpSnapshot> {
    let info = TcpInfo::of(socket)?;
    let us = |us: u32| Duration::from_micros(us.into());
    let idle_ms = info.since_sent_ms()?.min(info.since_received_ms()?);
    let round_trip_us = info.rtt_us().max(info.receiver_rtt_us());
    Some(TcpSnapshot {
        idle: Duration::from_millis(idle_ms.into()),
        round_trip: us(round_trip_us.unwrap_or(0)),
        min_round_trip: info.min_rtt_us().map(us),
        bytes_a_trip: info.receive_space_bytes()?,
        lost: info
            .retransmits()?
            .wrapping_add(info.out_of_order().unwrap_or(0)),
        acknowledged: info.acked_bytes()?,
    })
}

/// Detects losses of a connection between two reads.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Lost packets at the last read.
    lost: u32,
}

impl Watch {
    /// Reads the state, and whether packets were lost since the last read.
    pub(crate) fn read(&mut self, socket: &impl AsFd) -> Option<(TcpSnapshot, bool)> {
        let snapshot = read(socket)?;
        let before = std::mem::replace(&mut self.lost, snapshot.lost);
        Some((snapshot, snapshot.lost != before))
    }
}

/// Acknowledged bytes of a connection: if the receiver reads slowly, the kernel can accept megabytes and then nothing for minutes.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged(u64);

impl Acknowledged {
    /// Returns the bytes since the last call; 0 if unsupported.
    pub(crate) fn more(&mut self, socket: &impl AsFd) -> u64 {
        let now = read(socket).map_or(self.0, |snapshot| snapshot.acknowledged);
        now - std::mem::replace(&mut self.0, now)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread::sleep;

    use super::*;

    #[test]
    fn both_ends_of_a_connection_report_tcp_info() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut sender = TcpStream::connect(address).expect("a connection");
        let (mut receiver, _) = listener.accept().expect("it comes");
        sender.write_all(&[0; 1 << 16]).expect("room");
        receiver.read_exact(&mut [0; 1 << 16]).expect("bytes");
        for socket in [&sender, &receiver] {
            let snapshot = read(socket).expect("told");
            assert!(snapshot.idle < Duration::from_secs(1), "{snapshot:?}");
            assert!(
                snapshot.min_round_trip <= Some(snapshot.round_trip),
                "{snapshot:?}"
            );
            assert!(snapshot.min_round_trip.is_some(), "{snapshot:?}");
            assert_eq!(snapshot.lost, 0, "{snapshot:?}");
            assert!(snapshot.bytes_a_trip > 0, "{snapshot:?}");
        }
        sleep(Duration::from_millis(50));
        let snapshot = read(&receiver).expect("told");
        assert!(snapshot.idle >= Duration::from_millis(40), "{snapshot:?}");
    }
}
