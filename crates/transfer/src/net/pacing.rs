//! Pacing: a socket sends at most a configured rate, evenly (`SO_MAX_PACING_RATE`, socket(7)).
//!
//! The kernel paces all data of the socket, also with sendfile and splice. Since Linux 4.13, TCP does this itself; before, it needs
//! the queueing discipline fq. The first ten segments of a connection are not paced.

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::SetSockOpt;
use nix::{getsockopt_impl, libc, setsockopt_impl, sockopt_impl};

use super::sockets::Tcp;
use crate::decision::Decision;
use crate::report::Report;

sockopt_impl!(
    /// A C `long` of the kernel; older kernels use 32 bits of it, up to 34 Gb/s.
    MaxPacingRate,
    Both,
    libc::SOL_SOCKET,
    libc::SO_MAX_PACING_RATE,
    u64
);

/// Sets the maximum rate of a socket; accepted connections inherit it from a listener.
///
/// # Errors
/// The error of the kernel.
pub(crate) fn pace(socket: &impl AsFd, bytes_per_s: u64) -> io::Result<()> {
    Ok(MaxPacingRate.set(socket, &bytes_per_s)?)
}

/// Reports the pacing rate, if one is set.
pub(crate) fn report(tcp: &Tcp, report: &Report) {
    if let Some(value) = tcp.pacing_bytes_per_s {
        report.decision(&Decision {
            setting: "pacing_bytes_per_s",
            value,
            reason: "as requested, for each data connection".into(),
        });
    }
}

/// Returns the maximum rate of a socket.
#[cfg(test)]
pub(crate) fn of(socket: &impl AsFd) -> io::Result<u64> {
    use nix::sys::socket::GetSockOpt;
    Ok(MaxPacingRate.get(socket)?)
}
