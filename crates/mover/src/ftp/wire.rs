//! The control connection of a session: over TCP, or through ssh.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::net::sockets::Tcp;
use crate::net::ssh::Tunnel;
use crate::net::tcp_info;
use crate::net::url::{Scheme, Url};

/// What a round trip is taken for where it cannot be measured: that of a path through a country, on which too much asked for ahead costs
/// nothing, and too little much.
const UNKNOWN: Duration = Duration::from_millis(50);

/// A control connection.
#[derive(Debug)]
pub(crate) enum Wire {
    Tcp {
        stream: TcpStream,
        own: IpAddr,
        peer: IpAddr,
    },
    Ssh(Box<Tunnel>),
}

impl Wire {
    /// Opens one, and tells what a round trip takes. `ssh` may ask its user something, if it `may_ask`.
    pub(crate) async fn open(server: &Url, may_ask: bool) -> Result<(Self, Duration), String> {
        if server.scheme == Scheme::Sshftp {
            let tunnel = Tunnel::open(server, may_ask)?;
            return Ok((Self::Ssh(Box::new(tunnel)), UNKNOWN));
        }
        let (stream, took) = connect(server).await?;
        let _ = stream.set_nodelay(true);
        // The kernel knows better: where the first packet was lost it took a second more to connect.
        let seen = tcp_info::see(&stream).and_then(|seen| seen.least_round_trip);
        let round_trip = seen.map_or(took, |seen| seen.min(took));
        let said = |error: io::Error| crate::error::said(&error);
        let (own, peer) = (
            stream.local_addr().map_err(said)?.ip(),
            stream.peer_addr().map_err(said)?.ip(),
        );
        Ok((Self::Tcp { stream, own, peer }, round_trip))
    }

    /// Where the server reaches us.
    pub(crate) fn own(&self) -> IpAddr {
        match self {
            Self::Tcp { own, .. } => *own,
            Self::Ssh(tunnel) => tunnel.own,
        }
    }

    /// The server's address.
    pub(crate) fn peer(&self) -> IpAddr {
        match self {
            Self::Tcp { peer, .. } => *peer,
            Self::Ssh(tunnel) => tunnel.peer,
        }
    }

    /// What the kernel tells of it; none of `ssh`.
    pub(crate) fn seen(&self) -> Option<tcp_info::Seen> {
        match self {
            Self::Tcp { stream, .. } => tcp_info::see(stream),
            Self::Ssh(_) => None,
        }
    }

    /// Why it is lost, with what `ssh` says of it.
    pub(crate) fn explain(&self, reason: String) -> String {
        match self {
            Self::Ssh(tunnel) => match tunnel.said() {
                Some(said) => format!("{reason}; ssh says: {said}"),
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

/// A connection to the first address of the server's name that answers, and what it took.
async fn connect(server: &Url) -> Result<(TcpStream, Duration), String> {
    let name = (&server.host[..], server.port);
    let addresses: Vec<SocketAddr> = name
        .to_socket_addrs()
        .map_err(|error| format!("no address of {}: {}", server.host, error))?
        .collect();
    let mut reason = format!("no address of {}", server.host);
    for address in addresses {
        let begin = Instant::now();
        match Tcp::default().connect(address).await {
            Ok(stream) => return Ok((stream, begin.elapsed())),
            Err(error) => {
                reason = format!("no answer of {address}: {}", crate::error::said(&error));
            }
        }
    }
    Err(reason)
}
