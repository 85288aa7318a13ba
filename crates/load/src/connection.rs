//! A TCP connection that never blocks: begun, written to, read from.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect,
    getsockopt, recv, send, setsockopt, socket, sockopt,
};

use crate::{Error, Failure};

/// A connection, being made or made.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
}

/// What reading gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// So many bytes.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The other end has closed.
    End,
}

impl Connection {
    /// Begins to connect, from `local` if there is one.
    ///
    /// # Errors
    /// Of the outer kind what no later fetch can be without: a descriptor, the local address.
    pub fn begin(peer: SocketAddr, local: Option<IpAddr>) -> Result<Result<Self, Failure>, Error> {
        let family = if peer.is_ipv4() {
            AddressFamily::Inet
        } else {
            AddressFamily::Inet6
        };
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(family, SockType::Stream, flags, SockProtocol::Tcp)
            .map_err(Error::system("socket"))?;
        if let Some(local) = local {
            // The kernel picks the port when it knows the other end: a port is free for each peer anew.
            setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)
                .map_err(Error::system("IP_BIND_ADDRESS_NO_PORT"))?;
            let address = SockaddrStorage::from(SocketAddr::new(local, 0));
            bind(socket.as_raw_fd(), &address).map_err(|errno| Error::Bind {
                address: local.to_string(),
                reason: errno.desc().into(),
            })?;
        }
        match connect(socket.as_raw_fd(), &SockaddrStorage::from(peer)) {
            Ok(()) | Err(Errno::EINPROGRESS) => Ok(Ok(Self { socket })),
            Err(errno) => Ok(Err(failure_of(errno))),
        }
    }

    /// What became of connecting, once the socket can be written to.
    pub fn made(&self) -> Result<(), Failure> {
        match getsockopt(&self.socket, sockopt::SocketError) {
            Ok(0) => Ok(()),
            Ok(code) => Err(failure_of(Errno::from_raw(code))),
            Err(errno) => Err(failure_of(errno)),
        }
    }

    /// Writes what goes; tells how much.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Failure> {
        match send(self.socket.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL) {
            Ok(written) => Ok(written),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
            Err(errno) => Err(failure_of(errno)),
        }
    }

    /// Reads what is there.
    pub fn read(&self, buffer: &mut [u8]) -> Result<Arrival, Failure> {
        match recv(self.socket.as_raw_fd(), buffer, MsgFlags::empty()) {
            Ok(0) => Ok(Arrival::End),
            Ok(count) => Ok(Arrival::Bytes(count)),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(Arrival::Nothing),
            Err(errno) => Err(failure_of(errno)),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn failure_of(errno: Errno) -> Failure {
    match errno {
        Errno::ECONNREFUSED => Failure::Refused,
        Errno::ECONNRESET | Errno::EPIPE => Failure::Reset,
        Errno::ETIMEDOUT => Failure::Timeout,
        _ => Failure::Connect,
    }
}
