//! How a data connection is read: by large pieces, and seldom, as long as large pieces come fast.

use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::socket::SetSockOpt;
use nix::sys::socket::sockopt::SetUsize;

use super::straight::WORTH_BYTES;
use super::tcp_info;

/// We are woken when so many bytes are there, if they are known to come: at every packet, a gigabit network costs more than a disk. The least is
/// a quarter of the buffer that the kernel begins with (`tcp_rmem`); more than the most costs no less.
const PATIENT_BYTES: RangeInclusive<u64> = 32 << 10..=256 << 10;
/// Beyond such a part of what comes in a round trip, it would hold the window down: the kernel has room for two.
const PART: u64 = 4;
/// How often it is seen whether bytes come fast.
const STRETCH_BYTES: u64 = 256 << 10;
/// Such a stretch takes less, where they do.
const FAST: Duration = Duration::from_secs(2);

/// Who has got nothing for so long is woken for a byte: what comes slowly now may be all that comes before somebody loses patience.
const HUSH: Duration = Duration::from_millis(500);

/// What is known of what comes on a connection.
#[derive(Debug)]
pub(crate) struct Intake {
    /// Whether it comes in large pieces of files.
    pub(crate) bulk: bool,
    /// Bytes that wake us.
    low: u64,
    /// Begin of a stretch, and its bytes.
    begin: Instant,
    bytes: u64,
    fast: bool,
    /// When something came last.
    last: Instant,
    /// What is worth to be woken for, and whether that is to be seen again.
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

impl Intake {
    pub(crate) fn new() -> Self {
        Self {
            bulk: false,
            low: 1,
            begin: Instant::now(),
            bytes: 0,
            fast: false,
            last: Instant::now(),
            worth: *PATIENT_BYTES.start(),
            stale: false,
        }
    }

    /// So many bytes came.
    pub(crate) fn came(&mut self, bytes: usize) {
        let now = Instant::now();
        self.last = now;
        self.bytes += bytes as u64;
        if self.bytes >= STRETCH_BYTES {
            self.fast = now - self.begin < FAST;
            self.stale = self.fast;
            (self.begin, self.bytes) = (now, 0);
        }
    }

    /// Has us woken when it is worth it: `coming` bytes are known to come. To be called now and then, also where nothing came.
    pub(crate) fn expect(&mut self, socket: impl AsFd, coming: u64) {
        if std::mem::take(&mut self.stale) {
            let came = tcp_info::see(&socket).map_or(0, |seen| seen.bytes_a_trip);
            let (least, most) = PATIENT_BYTES.into_inner();
            // Rounded, so that it is seldom another.
            self.worth = 1 << (came / PART).clamp(least, most).ilog2();
        }
        self.fast &= self.low == 1 || self.last.elapsed() < HUSH;
        let patient = self.fast && coming >= WORTH_BYTES;
        let low = if patient { self.worth.min(coming) } else { 1 };
        if low != self.low {
            self.low = low;
            // Where it is not to be had, we are woken as ever.
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
    fn only_who_gets_bytes_fast_waits_for_many_and_never_for_more_than_will_come() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let low = || ReceiveLow.get(&socket).expect("readable") as u64;
        let mut intake = Intake::new();
        intake.expect(&socket, u64::MAX);
        assert_eq!(low(), 1);
        intake.came(2 << 20);
        intake.expect(&socket, u64::MAX);
        assert_eq!(low(), *PATIENT_BYTES.start());
        intake.expect(&socket, 17);
        assert_eq!(low(), 1);
        intake.begin -= FAST;
        intake.came(2 << 20);
        intake.expect(&socket, u64::MAX);
        assert_eq!(low(), 1);
        intake.came(2 << 20);
        intake.expect(&socket, u64::MAX);
        assert_eq!(low(), *PATIENT_BYTES.start());
        intake.last -= HUSH;
        intake.expect(&socket, u64::MAX);
        assert_eq!(low(), 1, "nothing has come for a while");
    }

    #[test]
    fn who_gets_much_in_a_round_trip_waits_for_a_part_of_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let sender = std::thread::spawn(move || {
            let mut socket = TcpStream::connect(address).expect("it listens");
            let sent = (0..512).try_for_each(|_| socket.write_all(&[0; 1 << 20]));
            sent.expect("room");
        });
        let (mut socket, _) = listener.accept().expect("it comes");
        let (mut intake, mut block) = (Intake::new(), vec![0; 1 << 20]);
        while let came @ 1.. = socket.read(&mut block).expect("bytes") {
            intake.came(came);
            intake.expect(&socket, u64::MAX);
        }
        sender.join().expect("all is sent");
        let came = tcp_info::see(&socket).expect("told").bytes_a_trip;
        let low = ReceiveLow.get(&socket).expect("readable") as u64;
        assert!(
            low > *PATIENT_BYTES.start() && low <= *PATIENT_BYTES.end(),
            "{low}"
        );
        assert!(low <= came / PART, "{low} of {came}");
    }
}
