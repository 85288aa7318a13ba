//! A netlink socket of the family `NETLINK_SOCK_DIAG`, which sends bytes and receives messages
//! (netlink(7), sock_diag(7)).

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `NLMSG_NOOP`, `NLMSG_ERROR`, `NLMSG_DONE` of netlink(7).
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// Header of a message: length, type, flags, sequence number, port.
pub(crate) const HEADER_BYTES: usize = 16;

/// Larger than a datagram of a dump (32 KiB since 4.4).
const DATAGRAM_BYTES: usize = 64 * 1024;

/// Buffer for messages about destroyed sockets between two reads: about ten thousand, if the
/// machine permits it.
const WAITING_BYTES: libc::c_int = 8 << 20;

/// Maximum wait for a response of the kernel, which is created in the calling process and so
/// arrives immediately.
const TIMEOUT: libc::timeval = libc::timeval {
    tv_sec: 2,
    tv_usec: 0,
};

/// Result of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetlinkReading {
    /// More messages may follow.
    More,
    /// The end of a dump.
    Done,
    /// No message is available.
    Nothing,
    /// Messages were lost, because the buffer was full.
    Lost,
}

/// The socket.
#[derive(Debug)]
pub(crate) struct Netlink {
    descriptor: OwnedFd,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens a socket in the network namespace of this thread.
    pub(crate) fn open() -> io::Result<Self> {
        // SAFETY: creates a descriptor; no memory is passed.
        let number = check(unsafe {
            libc::socket(
                libc::AF_NETLINK,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                libc::NETLINK_SOCK_DIAG,
            )
        })?;
        // SAFETY: the descriptor is new and has no other owner.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        let socket = Self {
            descriptor,
            buffer: vec![0; DATAGRAM_BYTES],
        };
        socket.set_option(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &TIMEOUT)?;
        Ok(socket)
    }

    /// Subscribes to these groups (bit *n* - 1 for group *n*); messages are queued until they are
    /// read.
    pub(crate) fn join(&self, groups: u32) -> io::Result<()> {
        // Only root of the machine can exceed `net.core.rmem_max`; others get this size.
        if self
            .set_option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &WAITING_BYTES)
            .is_err()
        {
            let _ = self.set_option(libc::SOL_SOCKET, libc::SO_RCVBUF, &WAITING_BYTES);
        }
        // By `bind`, which also gives the socket a port: the kernel sends no events to sockets without a port. SAFETY:
        // all zeros is a valid `sockaddr_nl`: numbers.
        let mut address: libc::sockaddr_nl = unsafe { mem::zeroed() };
        address.nl_family = libc::sa_family_t::try_from(libc::AF_NETLINK).expect("16");
        address.nl_groups = groups;
        let length = libc::socklen_t::try_from(mem::size_of_val(&address)).expect("12");
        // SAFETY: the kernel reads `address`, which is valid for its own size.
        check(unsafe {
            libc::bind(
                self.descriptor.as_raw_fd(),
                (&raw const address).cast(),
                length,
            )
        })
        .map(drop)
    }

    /// Sends one message to the kernel.
    pub(crate) fn send(&self, message: &[u8]) -> io::Result<()> {
        // SAFETY: the kernel reads `message`, which is valid for its length. Without an address,
        // the recipient is the kernel.
        let sent = unsafe {
            libc::send(
                self.descriptor.as_raw_fd(),
                message.as_ptr().cast(),
                message.len(),
                0,
            )
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Read one datagram and pass on the contents of its messages. `wait`: wait for a datagram.
    pub(crate) fn read(
        &mut self,
        wait: bool,
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<NetlinkReading> {
        let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
        let count = loop {
            // SAFETY: the kernel writes into `buffer`, at most as many bytes as it has.
            let count = unsafe {
                libc::recv(
                    self.descriptor.as_raw_fd(),
                    self.buffer.as_mut_ptr().cast(),
                    self.buffer.len(),
                    flags,
                )
            };
            let Ok(count) = usize::try_from(count) else {
                let error = io::Error::last_os_error();
                return match error.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    Some(libc::EAGAIN) if !wait => Ok(NetlinkReading::Nothing),
                    Some(libc::ENOBUFS) => Ok(NetlinkReading::Lost),
                    _ => Err(error),
                };
            };
            break count;
        };
        messages(&self.buffer[..count], &mut take)
    }

    fn set_option<T>(&self, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
        let length = libc::socklen_t::try_from(mem::size_of::<T>()).expect("a few bytes");
        // SAFETY: the kernel reads `value`, which is valid for its own size.
        check(unsafe {
            libc::setsockopt(
                self.descriptor.as_raw_fd(),
                level,
                name,
                std::ptr::from_ref(value).cast(),
                length,
            )
        })
        .map(drop)
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Splits a datagram into messages (netlink(7)), each of which starts at a multiple of 4.
fn messages(mut rest: &[u8], take: &mut impl FnMut(&[u8])) -> io::Result<NetlinkReading> {
    while let Some(header) = rest.get(..HEADER_BYTES) {
        let length = number32(header, 0).unwrap_or(0) as usize;
        let Some(body) = rest.get(HEADER_BYTES..length) else {
            return Ok(NetlinkReading::More); // truncated, which does not happen
        };
        match u16::from_ne_bytes([header[4], header[5]]) {
            DONE => return Ok(NetlinkReading::Done),
            ERROR => {
                let errno = number32(body, 0).unwrap_or(0).cast_signed();
                return Err(io::Error::from_raw_os_error(errno.wrapping_neg()));
            }
            _ => take(body),
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(NetlinkReading::More)
}

/// Returns the attributes of a message (netlink(7), `struct nlattr`): kind and content.
pub(crate) fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const HEADER_BYTES: usize = 4;
    /// Without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
    const KIND: u16 = 0x3fff;
    std::iter::from_fn(move || {
        let header = rest.get(..HEADER_BYTES)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let content = rest.get(HEADER_BYTES..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([header[2], header[3]]) & KIND, content))
    })
}

/// Returns the number at an offset, if the bytes are long enough.
pub(crate) fn number32(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER_BYTES + body.len()).expect("short");
        let mut bytes = [
            &length.to_ne_bytes()[..],
            &kind.to_ne_bytes(),
            &[0; 10],
            body,
        ]
        .concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn cut(bytes: &[u8]) -> (Vec<Vec<u8>>, io::Result<NetlinkReading>) {
        let mut seen = Vec::new();
        let reading = messages(bytes, &mut |body: &[u8]| seen.push(body.to_vec()));
        (seen, reading)
    }

    #[test]
    fn a_datagram_is_split_into_its_messages() {
        let bytes = [
            message(20, b"one"),
            message(20, b"three"),
            message(DONE, &[]),
        ]
        .concat();
        let (seen, reading) = cut(&bytes);
        assert_eq!(seen, [b"one".to_vec(), b"three".to_vec()]);
        assert_eq!(reading.expect("no error"), NetlinkReading::Done);
        let (_, reading) = cut(&message(ERROR, &(-libc::EPERM).to_ne_bytes()));
        let error = reading.expect_err("an error");
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn truncated_bytes_do_not_panic() {
        let bytes = [message(20, b"content"), message(DONE, &[])].concat();
        for end in 0..bytes.len() {
            let _ = cut(&bytes[..end]);
            attributes(&bytes[..end]).for_each(drop);
        }
        let _ = cut(&[0; 64]);
        assert_eq!(attributes(&[0; 64]).count(), 0);
    }
}
