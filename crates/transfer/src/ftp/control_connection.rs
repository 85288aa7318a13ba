//! Control connection of a session: over TCP, or through ssh.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::net::sockets::Tcp;
use crate::net::ssh::Tunnel;
use crate::net::tcp_info;
use crate::net::url::{Scheme, Url};

/// Assumed round-trip time if it cannot be measured: a national path. Too deep a pipeline costs
/// nothing there, and too short a pipeline costs much.
const UNKNOWN: Duration = Duration::from_millis(50);

/// Control connection.
#[derive(Debug)]
pub(crate) enum ControlConnection {
    Tcp {
        stream: TcpStream,
        own: IpAddr,
        peer: IpAddr,
    },
    Ssh(Box<Tunnel>),
}

impl ControlConnection {
    /// Opens a connection, and measures the round-trip time. If `interactive`, `ssh` can prompt the user.
    pub(crate) async fn open(server: &Url, interactive: bool) -> Result<(Self, Duration), String> {
        if server.scheme == Scheme::Sshftp {
            let tunnel = Tunnel::open(server, interactive)?;
            return Ok((Self::Ssh(Box::new(tunnel)), UNKNOWN));
        }
        let (stream, took) = connect(server).await?;
        let _ = stream.set_nodelay(true);
        // The kernel is more accurate: if the first packet was lost, the connection took one second more.
        let snapshot = tcp_info::read(&stream).and_then(|snapshot| snapshot.min_round_trip);
        let round_trip = snapshot.map_or(took, |snapshot| snapshot.min(took));
        let describe = |error: io::Error| crate::error::describe(&error);
        let (own, peer) = (
            stream.local_addr().map_err(describe)?.ip(),
            stream.peer_addr().map_err(describe)?.ip(),
        );
        Ok((Self::Tcp { stream, own, peer }, round_trip))
    }

    /// Returns the local address.
    pub(crate) fn own(&self) -> IpAddr {
        match self {
            Self::Tcp { own, .. } => *own,
            Self::Ssh(tunnel) => tunnel.own,
        }
    }

    /// Returns the address of the server.
    pub(crate) fn peer(&self) -> IpAddr {
        match self {
            Self::Tcp { peer, .. } => *peer,
            Self::Ssh(tunnel) => tunnel.peer,
        }
    }

    /// Returns the TCP state; none for `ssh`.
    pub(crate) fn snapshot(&self) -> Option<tcp_info::TcpSnapshot> {
        match self {
            Self::Tcp { stream, .. } => tcp_info::read(stream),
            Self::Ssh(_) => None,
        }
    }

    /// Adds the error output of `ssh` to the reason.
    pub(crate) fn explain(&self, reason: String) -> String {
        match self {
            Self::Ssh(tunnel) => match tunnel.error_text() {
                Some(error_text) => format!("{reason}; ssh: {error_text}"),
                None => reason,
            },
            Self::Tcp { .. } => reason,
        }
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp { stream, .. } => stream.poll_read_ready(cx),
            Self::Ssh(tunnel) => tunnel.stream.poll_read_ready(cx),
        }
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp { stream, .. } => stream.poll_write_ready(cx),
            Self::Ssh(tunnel) => tunnel.stream.poll_write_ready(cx),
        }
    }

    pub(crate) fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp { stream, .. } => stream.try_read(into),
            Self::Ssh(tunnel) => tunnel.stream.try_read(into),
        }
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp { stream, .. } => stream.try_write(bytes),
            Self::Ssh(tunnel) => tunnel.stream.try_write(bytes),
        }
    }
}

/// Connects to the first reachable address of the server. Also returns the connection time.
async fn connect(server: &Url) -> Result<(TcpStream, Duration), String> {
    let name = (&server.host[..], server.port);
    let addresses: Vec<SocketAddr> = name
        .to_socket_addrs()
        .map_err(|error| format!("cannot resolve {}: {}", server.host, error))?
        .collect();
    let mut reason = format!("cannot resolve {}", server.host);
    for address in addresses {
        let start = Instant::now();
        match Tcp::default().connect(address).await {
            Ok(stream) => return Ok((stream, start.elapsed())),
            Err(error) => {
                reason = format!(
                    "cannot connect to {address}: {}",
                    crate::error::describe(&error)
                );
            }
        }
    }
    Err(reason)
}
