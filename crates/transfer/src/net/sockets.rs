//! Sockets with configured window, congestion control and pacing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::pacing;

/// Socket options of data connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tcp {
    /// Buffer size, bytes; none: the kernel tunes it.
    pub(crate) window_bytes: Option<u32>,
    /// Name of the congestion control; none: default of the system.
    pub(crate) congestion: Option<String>,
    /// Maximum rate, bytes per second; none: unlimited.
    pub(crate) pacing_bytes_per_s: Option<u64>,
}

/// Timeout of a connection attempt.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Length of the accept queue: all connections of a file can arrive at the same time.
const BACKLOG: u32 = 1024;

impl Tcp {
    /// Opens a connection.
    ///
    /// # Errors
    /// The error of the kernel, or a timeout after [`CONNECT_TIMEOUT`].
    pub(crate) async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = self.socket(to.ip())?;
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, socket.connect(to)).await;
        let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Listens on a free port of a local address.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn listen(&self, on: IpAddr) -> io::Result<TcpListener> {
        self.listen_at(SocketAddr::new(on, 0))
    }

    /// Listens on a port of a local address; 0 is any free port.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn listen_at(&self, at: SocketAddr) -> io::Result<TcpListener> {
        let socket = self.socket(at.ip())?;
        // Without this, ports with recent connections would be unavailable.
        socket.set_reuseaddr(true)?;
        socket.bind(at)?;
        socket.listen(BACKLOG)
    }

    /// Set before the connection, because the window scale is announced with it.
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
    fn a_connection_has_the_requested_options() {
        run(async {
            let options = Tcp {
                window_bytes: Some(1 << 16),
                congestion: Some("reno".into()),
                pacing_bytes_per_s: Some(5_000_000_000),
            };
            let listener = options
                .listen("127.0.0.1".parse().expect("one"))
                .expect("a port");
            let address = listener.local_addr().expect("bound");
            let stream = options.connect(address).await.expect("a connection");
            let congestion = sockopt::tcp_congestion(&stream).expect("readable");
            assert_eq!(congestion, "reno");
            // The kernel doubles the value (socket(7)).
            let buffer = sockopt::socket_recv_buffer_size(&stream).expect("readable");
            assert_eq!(buffer, 1 << 17);
            let (accepted, _) = listener.accept().await.expect("it comes");
            for socket in [&stream, &accepted] {
                assert_eq!(pacing::of(socket).expect("readable"), 5_000_000_000);
            }
        });
    }

    #[test]
    fn an_unavailable_congestion_control_is_an_error() {
        let options = Tcp {
            congestion: Some("none such".into()),
            ..Tcp::default()
        };
        run(async { options.listen("127.0.0.1".parse().expect("one")) }).expect_err("no such one");
    }
}
