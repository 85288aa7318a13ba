//! Ports for data connections: any free port, or one of a range that a firewall permits.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::net::TcpListener;

use crate::net::sockets::Tcp;

/// Ports on which data connections are accepted.
#[derive(Debug)]
pub(crate) struct Ports {
    range: Option<(u16, u16)>,
    /// Next port to try. A port that was just used could receive connections for its previous owner.
    next: AtomicU32,
}

impl Ports {
    pub(crate) fn new(range: Option<(u16, u16)>) -> Self {
        Self {
            range,
            next: AtomicU32::new(0),
        }
    }

    /// Listen on one of the ports of a local address.
    ///
    /// # Errors
    /// The kernel error of the last attempt.
    pub(crate) fn listen(&self, on: IpAddr, tcp: &Tcp) -> io::Result<TcpListener> {
        let Some((first, last)) = self.range else {
            return tcp.listen(on);
        };
        let count = u32::from(last - first) + 1;
        let mut result = Err(io::ErrorKind::AddrInUse.into());
        for _ in 0..count {
            let step = self.next.fetch_add(1, Ordering::Relaxed) % count;
            let port = first + u16::try_from(step).expect("below the number of ports");
            result = tcp.listen_at(SocketAddr::new(on, port));
            if result.is_ok() {
                break;
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_provides_each_port_once_and_then_reports_that_it_is_exhausted() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let (tcp, on) = (Tcp::default(), IpAddr::from([127, 0, 0, 1]));
            // Three in sequence that are free now.
            let free = (40_000..60_000).step_by(3).find(|&first| {
                (first..first + 3).all(|port| std::net::TcpListener::bind((on, port)).is_ok())
            });
            let first = free.expect("three free ports");
            let ports = Ports::new(Some((first, first + 2)));
            let pending: Vec<_> = (0..3)
                .map(|_| ports.listen(on, &tcp).expect("free"))
                .collect();
            let mut found: Vec<_> = pending
                .iter()
                .map(|it| it.local_addr().expect("bound").port())
                .collect();
            found.sort_unstable();
            assert_eq!(found, [first, first + 1, first + 2]);
            ports.listen(on, &tcp).expect_err("all are taken");
            drop(pending);
            ports.listen(on, &tcp).expect("they are free again");
        });
    }
}
