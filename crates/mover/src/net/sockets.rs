//! Sockets with what was asked of them: window, congestion control, pacing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::pacing;

/// What is asked of data connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tcp {
    /// Buffers of the socket, bytes; none: the kernel finds them, which it does well.
    pub(crate) window_bytes: Option<u32>,
    /// Congestion control by its name; none: that of the system.
    pub(crate) congestion: Option<String>,
    /// What it sends a second at most, bytes; none: as fast as it goes.
    pub(crate) pacing_bytes_per_s: Option<u64>,
}

/// How long a host may leave a connection request without an answer.
pub(crate) const CONNECT_PATIENCE: Duration = Duration::from_secs(20);
/// Connections that wait to be accepted: all of one file may come at once.
const BACKLOG: u32 = 1024;

impl Tcp {
    /// Opens a connection.
    ///
    /// # Errors
    /// As the kernel says, or after [`CONNECT_PATIENCE`].
    pub(crate) async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = self.socket(to.ip())?;
        let connected = tokio::time::timeout(CONNECT_PATIENCE, socket.connect(to)).await;
        let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Listens on a free port of an address of ours.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn listen(&self, on: IpAddr) -> io::Result<TcpListener> {
        self.listen_at(SocketAddr::new(on, 0))
    }

    /// Listens on a port of an address of ours; 0 is any that is free.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn listen_at(&self, at: SocketAddr) -> io::Result<TcpListener> {
        let socket = self.socket(at.ip())?;
        // Of a few ports, those whose last connections are still remembered would be missing.
        socket.set_reuseaddr(true)?;
        socket.bind(at)?;
        socket.listen(BACKLOG)
    }

    /// Before the connection, since the window that is announced with it holds for all of it.
    fn socket(&self, family: IpAddr) -> io::Result<TcpSocket> {
        let socket = match family {
            IpAddr::V4(_) => TcpSocket::new_v4()?,
            IpAddr::V6(_) => TcpSocket::new_v6()?,
        };
        if let Some(bytes) = self.window_bytes {
            socket.set_recv_buffer_size(bytes)?;
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(name) = &self.congestion {
            sockopt::set_tcp_congestion(socket.as_fd(), name)?;
        }
        if let Some(bytes_per_s) = self.pacing_bytes_per_s {
            pacing::pace(&socket, bytes_per_s)?;
        }
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(future)
    }

    #[test]
    fn a_connection_has_what_was_asked_for() {
        run(async {
            let asked = Tcp {
                window_bytes: Some(1 << 16),
                congestion: Some("reno".into()),
                pacing_bytes_per_s: Some(5_000_000_000),
            };
            let listener = asked
                .listen("127.0.0.1".parse().expect("one"))
                .expect("a port");
            let address = listener.local_addr().expect("bound");
            let stream = asked.connect(address).await.expect("a connection");
            let congestion = sockopt::tcp_congestion(&stream).expect("readable");
            assert_eq!(congestion, "reno");
            // The kernel keeps as much again for itself (socket(7)).
            let buffer = sockopt::socket_recv_buffer_size(&stream).expect("readable");
            assert_eq!(buffer, 1 << 17);
            let (accepted, _) = listener.accept().await.expect("it comes");
            for socket in [&stream, &accepted] {
                assert_eq!(pacing::of(socket).expect("readable"), 5_000_000_000);
            }
        });
    }

    #[test]
    fn a_congestion_control_that_is_not_there_is_an_error() {
        let asked = Tcp {
            congestion: Some("none such".into()),
            ..Tcp::default()
        };
        run(async { asked.listen("127.0.0.1".parse().expect("one")) }).expect_err("no such one");
    }
}
