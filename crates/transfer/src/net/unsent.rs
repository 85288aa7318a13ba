//! Limit of unsent data in the kernel (`TCP_NOTSENT_LOWAT`, tcp(7)). By default, the kernel queues as much again as is in flight. On a
//! connection with losses, this data is late while other connections are idle.

use std::os::fd::AsFd;

use nix::sys::socket::SetSockOpt;
use nix::{libc, setsockopt_impl, sockopt_impl};

/// Sufficient for the sender: 0.2 ms at 10 Gb/s.
const MAX_UNSENT_BYTES: u32 = 256 << 10;

sockopt_impl!(
    /// Unsent bytes.
    Most,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_NOTSENT_LOWAT,
    u32
);

/// Sets the limit of a connection. Kernels without this option keep their default.
pub(crate) fn bound(socket: &impl AsFd) {
    let _ = Most.set(socket, &MAX_UNSENT_BYTES);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_bounded_socket_accepts_fewer_unread_bytes() {
        let taken = |bounded: bool| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("bound");
            let mut sender = TcpStream::connect(address).expect("a connection");
            let _receiver = listener.accept().expect("it comes");
            if bounded {
                bound(&sender);
            }
            sender.set_nonblocking(true).expect("an option");
            let block = vec![0; 64 << 10];
            std::iter::from_fn(|| sender.write(&block).ok()).sum::<usize>()
        };
        let (bounded, unbounded) = (taken(true), taken(false));
        assert!(bounded < unbounded, "{bounded} {unbounded}");
    }
}
