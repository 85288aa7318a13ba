//! Non-blocking TCP connection.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect,
    getsockopt, recv, send, setsockopt, socket, sockopt,
};

use crate::{FetchFailure, LoadError};

/// Connection, or an attempt to connect.
#[derive(Debug)]
pub(crate) struct LoadConnection {
    socket: OwnedFd,
}

/// Result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// Number of bytes.
    Bytes(usize),
    /// No data yet.
    Nothing,
    /// The peer closed the connection.
    End,
}

impl LoadConnection {
    /// Starts to connect, from `local` if set.
    ///
    /// # Errors
    /// Outer error: failure that affects all fetches, such as no descriptor or a wrong local address.
    pub fn open(
        peer: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<Result<Self, FetchFailure>, LoadError> {
        let family = if peer.is_ipv4() {
            AddressFamily::Inet
        } else {
            AddressFamily::Inet6
        };
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(family, SockType::Stream, flags, SockProtocol::Tcp)
            .map_err(LoadError::system("socket"))?;
        if let Some(local) = local {
            // The kernel picks the port when it knows the peer: each peer has its own port range.
            setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)
                .map_err(LoadError::system("IP_BIND_ADDRESS_NO_PORT"))?;
            let address = SockaddrStorage::from(SocketAddr::new(local, 0));
            bind(socket.as_raw_fd(), &address).map_err(|errno| LoadError::Bind {
                address: local.to_string(),
                reason: errno.desc().into(),
            })?;
        }
        match connect(socket.as_raw_fd(), &SockaddrStorage::from(peer)) {
            Ok(()) | Err(Errno::EINPROGRESS) => Ok(Ok(Self { socket })),
            Err(errno) => Ok(Err(to_failure(errno))),
        }
    }

    /// Returns the result of `connect`, once the socket is writable.
    pub fn made(&self) -> Result<(), FetchFailure> {
        match getsockopt(&self.socket, sockopt::SocketError) {
            Ok(0) => Ok(()),
            Ok(code) => Err(to_failure(Errno::from_raw(code))),
            Err(errno) => Err(to_failure(errno)),
        }
    }

    /// Writes without blocking; returns the number of bytes.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, FetchFailure> {
        match send(self.socket.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL) {
            Ok(written) => Ok(written),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
            Err(errno) => Err(to_failure(errno)),
        }
    }

    /// Reads without blocking.
    pub fn read(&self, buffer: &mut [u8]) -> Result<ReadOutcome, FetchFailure> {
        match recv(self.socket.as_raw_fd(), buffer, MsgFlags::empty()) {
            Ok(0) => Ok(ReadOutcome::End),
            Ok(count) => Ok(ReadOutcome::Bytes(count)),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(ReadOutcome::Nothing),
            Err(errno) => Err(to_failure(errno)),
        }
    }
}

impl AsFd for LoadConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn to_failure(errno: Errno) -> FetchFailure {
    match errno {
        Errno::ECONNREFUSED => FetchFailure::ConnectionRefused,
        Errno::ECONNRESET | Errno::EPIPE => FetchFailure::Reset,
        Errno::ETIMEDOUT => FetchFailure::Timeout,
        _ => FetchFailure::Connect,
    }
}
