//! How a data connection is read: by large pieces, and seldom, as long as large pieces come fast.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::socket::SetSockOpt;
use nix::sys::socket::sockopt::SetUsize;

use super::straight::WORTH_BYTES;

/// We are woken when so many bytes are there, if they are known to come: at every packet, a gigabit network costs more than a disk. Beyond
/// a quarter of the buffer that the kernel begins with (`tcp_rmem`), it would hold the window down.
const PATIENT_BYTES: u64 = 32 << 10;
/// How often it is seen whether bytes come fast.
const STRETCH_BYTES: u64 = 256 << 10;
/// Such a stretch takes less, where they do: who waits for [`PATIENT_BYTES`] then does not take the other end for one that stands still.
const FAST: Duration = Duration::from_secs(2);

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
        }
    }

    /// So many bytes came.
    pub(crate) fn came(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if self.bytes >= STRETCH_BYTES {
            let now = Instant::now();
            self.fast = now - self.begin < FAST;
            (self.begin, self.bytes) = (now, 0);
        }
    }

    /// Has us woken when it is worth it: `coming` bytes are known to come.
    pub(crate) fn expect(&mut self, socket: impl AsFd, coming: u64) {
        let patient = self.fast && coming >= WORTH_BYTES;
        let low = if patient {
            PATIENT_BYTES.min(coming)
        } else {
            1
        };
        if low != self.low {
            self.low = low;
            // Where it is not to be had, we are woken as ever.
            let _ = ReceiveLow.set(&socket, &usize::try_from(low).unwrap_or(1));
        }
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(low(), PATIENT_BYTES);
        intake.expect(&socket, 17);
        assert_eq!(low(), 1);
        intake.begin -= FAST;
        intake.came(2 << 20);
        intake.expect(&socket, u64::MAX);
        assert_eq!(low(), 1);
    }
}
