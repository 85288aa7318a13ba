//! Low-water mark of data connections: large and rare reads while large files arrive fast.

use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::socket::SetSockOpt;
use nix::sys::socket::sockopt::SetUsize;

use super::splice::MIN_SPLICE_BYTES;
use super::tcp_info;

/// Low-water mark if the data is known to arrive: a wake-up for each packet costs more CPU time than the disk. The minimum is
/// a quarter of the initial buffer of the kernel (`tcp_rmem`); values above the maximum save nothing more.
const PATIENT_BYTES: RangeInclusive<u64> = 32 << 10..=256 << 10;
/// Maximum part of the data of a round trip; more would limit the window, because the kernel reserves twice as much.
const PART: u64 = 4;
/// Interval in bytes of the speed check.
const BATCH_BYTES: u64 = 256 << 10;
/// Maximum time for such an interval on a fast connection.
const FAST: Duration = Duration::from_secs(2);

/// Time without data before one byte wakes the reader, because this may be all the data before a
/// timeout.
const HUSH: Duration = Duration::from_millis(500);

/// Receive state of a connection.
#[derive(Debug)]
pub(crate) struct ReceiveTuner {
    /// True if data of large files arrives.
    pub(crate) bulk: bool,
    /// Current low-water mark, bytes.
    low: u64,
    /// Start of the interval, and its bytes.
    started: Instant,
    bytes: u64,
    fast: bool,
    /// Time of the last data.
    last: Instant,
    /// Low-water mark for this connection, and whether to compute it again.
    worth: u64,
    stale: bool,
}

#[derive(Clone, Copy)]
struct ReceiveLow;

nix::setsockopt_impl!(
    ReceiveLow,
    libc::SOL_SOCKET,
    libc::SO_RCVLOWAT,
    usize,
    SetUsize
);

impl ReceiveTuner {
    pub(crate) fn new() -> Self {
        Self {
            bulk: false,
            low: 1,
            started: Instant::now(),
            bytes: 0,
            fast: false,
            last: Instant::now(),
            worth: *PATIENT_BYTES.start(),
            stale: false,
        }
    }

    /// Counts received bytes.
    pub(crate) fn received(&mut self, bytes: usize) {
        let now = Instant::now();
        self.last = now;
        self.bytes += bytes as u64;
        if self.bytes >= BATCH_BYTES {
            self.fast = now - self.started < FAST;
            self.stale = self.fast;
            (self.started, self.bytes) = (now, 0);
        }
    }

    /// Sets the low-water mark for `coming` bytes. Call it regularly, also without new data.
    pub(crate) fn expect(&mut self, socket: impl AsFd, coming: u64) {
        if std::mem::take(&mut self.stale) {
            let received = tcp_info::read(&socket).map_or(0, |snapshot| snapshot.bytes_a_trip);
            let (min, most) = PATIENT_BYTES.into_inner();
            // Rounded, so that it rarely changes.
            self.worth = 1 << (received / PART).clamp(min, most).ilog2();
        }
        self.fast &= self.low == 1 || self.last.elapsed() < HUSH;
        let patient = self.fast && coming >= MIN_SPLICE_BYTES;
        let low = if patient { self.worth.min(coming) } else { 1 };
        if low != self.low {
            self.low = low;
            // Without this option, the kernel wakes the reader for each packet.
            let _ = ReceiveLow.set(&socket, &usize::try_from(low).unwrap_or(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use nix::sys::socket::GetSockOpt;
    use nix::sys::socket::sockopt::GetUsize;

    use super::*;

    nix::getsockopt_impl!(
        ReceiveLow,
        libc::SOL_SOCKET,
        libc::SO_RCVLOWAT,
        usize,
        GetUsize
    );

    #[test]
    fn only_a_fast_receiver_waits_for_many_bytes_and_never_for_more_than_expected() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let low = || ReceiveLow.get(&socket).expect("readable") as u64;
        let mut intake = ReceiveTuner::new();
        intake.expect(&socket, u64::MAX);
        assert_eq!(low(), 1);
        intake.received(2 << 20);
        intake.expect(&socket, u64::MAX);
        assert_eq!(low(), *PATIENT_BYTES.start());
        intake.expect(&socket, 17);
        assert_eq!(low(), 1);
        intake.started -= FAST;
        intake.received(2 << 20);
        intake.expect(&socket, u64::MAX);
        assert_eq!(low(), 1);
        intake.received(2 << 20);
        intake.expect(&socket, u64::MAX);
        assert_eq!(low(), *PATIENT_BYTES.start());
        intake.last -= HUSH;
        intake.expect(&socket, u64::MAX);
        assert_eq!(low(), 1, "nothing has come for a while");
    }

    #[test]
    fn a_receiver_waits_for_a_part_of_the_bytes_of_a_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let sender = std::thread::spawn(move || {
            let mut socket = TcpStream::connect(address).expect("it listens");
            let sent = (0..512).try_for_each(|_| socket.write_all(&[0; 1 << 20]));
            sent.expect("room");
        });
        let (mut socket, _) = listener.accept().expect("it comes");
        let (mut intake, mut block) = (ReceiveTuner::new(), vec![0; 1 << 20]);
        while let received @ 1.. = socket.read(&mut block).expect("bytes") {
            intake.received(received);
            intake.expect(&socket, u64::MAX);
        }
        sender.join().expect("all is sent");
        let received = tcp_info::read(&socket).expect("told").bytes_a_trip;
        let low = ReceiveLow.get(&socket).expect("readable") as u64;
        assert!(
            low > *PATIENT_BYTES.start() && low <= *PATIENT_BYTES.end(),
            "{low}"
        );
        assert!(low <= received / PART, "{low} of {received}");
    }
}
