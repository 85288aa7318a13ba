//! Pacing: a socket sends no more than so many bytes a second, evenly (`SO_MAX_PACING_RATE`, socket(7)).
//!
//! The kernel does it for all that leaves the socket, whoever put it there (sendfile, splice): since Linux 4.13 by itself, before that with
//! the queueing discipline fq. The first ten segments of a connection go unpaced.

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::SetSockOpt;
use nix::{getsockopt_impl, libc, setsockopt_impl, sockopt_impl};

use super::sockets::Tcp;
use crate::decision::Decision;
use crate::report::Report;

sockopt_impl!(
    /// The kernel has it as a C `long`; older ones take 32 bits of that, up to 34 Gb/s.
    MaxPacingRate,
    Both,
    libc::SOL_SOCKET,
    libc::SO_MAX_PACING_RATE,
    u64
);

/// Has a socket send no more than so much; one that listens has all that it accepts do so.
///
/// # Errors
/// As the kernel says.
pub(crate) fn pace(socket: &impl AsFd, bytes_per_s: u64) -> io::Result<()> {
    Ok(MaxPacingRate.set(socket, &bytes_per_s)?)
}

/// Tells that connections are paced, if they are.
pub(crate) fn tell(tcp: &Tcp, report: &Report) {
    if let Some(value) = tcp.pacing_bytes_per_s {
        report.decision(&Decision {
            what: "pacing_bytes_per_s",
            value,
            reason: "as asked for, each data connection".into(),
        });
    }
}

/// What a socket sends at most.
#[cfg(test)]
pub(crate) fn of(socket: &impl AsFd) -> io::Result<u64> {
    use nix::sys::socket::GetSockOpt;
    Ok(MaxPacingRate.get(socket)?)
}
