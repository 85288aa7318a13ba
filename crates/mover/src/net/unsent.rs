//! How much the kernel takes of what it cannot send yet (`TCP_NOTSENT_LOWAT`, tcp(7)). By itself it takes as much again as is on its way: on a
//! connection that loses, that is late, while others have nothing to do.

use std::os::fd::AsFd;

use nix::sys::socket::SetSockOpt;
use nix::{libc, setsockopt_impl, sockopt_impl};

/// Enough that who sends need not hurry: at 10 Gb/s it lasts 0.2 ms.
const MOST_BYTES: u32 = 256 << 10;

sockopt_impl!(
    /// Bytes that are not sent.
    Most,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_NOTSENT_LOWAT,
    u32
);

/// Has a connection take no more than that. A kernel that does not know it takes what it takes.
pub(crate) fn bound(socket: &impl AsFd) {
    let _ = Most.set(socket, &MOST_BYTES);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn of_what_nobody_reads_less_is_taken() {
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
