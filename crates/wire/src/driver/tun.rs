//! A TUN device in the network namespace of a host.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use venturi_plan::Interface;

use crate::Error;
use crate::packet::VNET_BYTES;

/// Length of the ring between the host's stack and us. The usual 500 overflow in one burst of a window; what
/// overflows is lost unseen by the model.
const RING_PACKETS: libc::c_int = 10_000;

/// Offload, best first: checksums, TSO for IPv4 and 6, ECN; USO needs Linux 6.2.
const OFFLOADS: [libc::c_uint; 2] = [TSO | TUN_F_USO4 | TUN_F_USO6, TSO];
const TSO: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
/// `include/uapi/linux/if_tun.h`, not yet in `libc`.
const TUN_F_USO4: libc::c_uint = 0x20;
const TUN_F_USO6: libc::c_uint = 0x40;
/// `include/uapi/linux/sockios.h`, not yet in `libc`.
const SIOCSIFTXQLEN: libc::Ioctl = 0x8943;

#[derive(Debug)]
pub(crate) struct Tun {
    file: OwnedFd,
}

/// What the kernel counts of a device.
#[derive(Debug)]
pub(crate) struct Statistics {
    /// `/proc/thread-self/net/dev` of the namespace; none if it cannot be read.
    table: Option<File>,
    device: String,
}

impl Tun {
    /// Makes the device in a namespace. The namespace of the caller stays as it is: a thread that ends goes there.
    ///
    /// # Errors
    /// [`Error::Device`] naming the step that failed.
    pub(crate) fn open(
        name: &str,
        interface: &Interface,
        namespace: &Path,
    ) -> Result<(Self, Statistics), Error> {
        let open = || {
            enter(namespace).map_err(|source| {
                (
                    format!("to enter the namespace {}", namespace.display()),
                    source,
                )
            })?;
            make(interface)
        };
        // A namespace is a property of a thread.
        std::thread::scope(|scope| scope.spawn(open).join().expect("no panic in `open`")).map_err(
            |(expected, source)| Error::Device {
                interface: name.to_owned(),
                expected,
                source,
            },
        )
    }

    /// Reads a packet, virtio-net header first. `WouldBlock` if there is none.
    #[inline]
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(nix::unistd::read(&self.file, buffer)?)
    }

    /// Writes a packet that lies in one piece.
    #[inline]
    pub(crate) fn write(&self, packet: &[u8]) -> io::Result<()> {
        nix::unistd::write(&self.file, packet)?;
        Ok(())
    }

    /// Writes a packet that lies in two pieces.
    #[inline]
    pub(crate) fn write_pieces(&self, headers: &[u8], payload: &[u8]) -> io::Result<()> {
        let pieces = [IoSlice::new(headers), IoSlice::new(payload)];
        nix::sys::uio::writev(&self.file, &pieces)?;
        Ok(())
    }

    /// Reads a packet that nobody wants. Whether there was one.
    pub(crate) fn discard(&self) -> bool {
        let mut some = [0; 64];
        nix::sys::uio::readv(&self.file, &mut [IoSliceMut::new(&mut some)]).is_ok()
    }
}

impl Statistics {
    /// Packets that the ring had no room for; none where the kernel does not tell.
    pub(crate) fn dropped(&self) -> Option<u64> {
        /// Enough for a namespace with hundreds of devices.
        const MOST_BYTES: usize = 64 * 1024;
        let mut text = vec![0; MOST_BYTES];
        let length = self.table.as_ref()?.read_at(&mut text, 0).ok()?;
        dropped(std::str::from_utf8(&text[..length]).ok()?, &self.device)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn enter(namespace: &Path) -> io::Result<()> {
    let file = File::open(namespace)?;
    // SAFETY: changes the namespace of this thread only, which was made for it.
    match unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn make(interface: &Interface) -> Result<(Tun, Statistics), (String, io::Error)> {
    let step = |expected: &str| {
        let expected = expected.to_owned();
        move |source| (expected, source)
    };
    let file: OwnedFd = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")
        .map_err(step("to open /dev/net/tun"))?
        .into();
    let device = &interface.device;
    let mut request = request(device);
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR)
            .expect("flags of 16 bits");
    let what = format!(
        "to make the TUN device `{device}` in the namespace of host `{}`",
        interface.host
    );
    control(&file, libc::TUNSETIFF, &raw mut request).map_err(step(&what))?;
    let mut header = libc::c_int::try_from(VNET_BYTES).expect("12");
    control(&file, libc::TUNSETVNETHDRSZ, &raw mut header)
        .map_err(step("a TUN device with a virtio-net header of 12 bytes"))?;
    if interface.offload {
        offload(&file).map_err(step("a TUN device with segmentation offload"))?;
    }
    tune(interface).map_err(step("to set the MTU of the TUN device"))?;
    let statistics = Statistics {
        table: File::open("/proc/thread-self/net/dev").ok(),
        device: device.clone(),
    };
    Ok((Tun { file }, statistics))
}

fn offload(file: &OwnedFd) -> io::Result<()> {
    let mut refused = Ok(());
    for offload in OFFLOADS {
        // SAFETY: takes the flags as a number.
        if unsafe {
            libc::ioctl(
                file.as_raw_fd(),
                libc::TUNSETOFFLOAD,
                libc::c_ulong::from(offload),
            )
        } == 0
        {
            return Ok(());
        }
        refused = Err(io::Error::last_os_error());
    }
    refused
}

/// Sets the MTU and the length of the ring, by a socket in this thread's namespace.
fn tune(interface: &Interface) -> io::Result<()> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    let mut request = request(&interface.device);
    request.ifr_ifru.ifru_mtu = libc::c_int::try_from(interface.mtu).unwrap_or(libc::c_int::MAX);
    control(&socket, libc::SIOCSIFMTU, &raw mut request)?;
    request.ifr_ifru.ifru_metric = RING_PACKETS; // `ifr_qlen` is the same place of the union
    // Root of a user namespace may not do this; by `ip link set txqueuelen` it may, and whoever sets the addresses
    // has `ip` at hand.
    let _ = control(&socket, SIOCSIFTXQLEN, &raw mut request);
    Ok(())
}

fn request(device: &str) -> libc::ifreq {
    // SAFETY: a structure of numbers, for which all zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *place = byte.cast_signed();
    }
    request
}

fn control<T>(file: &impl AsRawFd, order: libc::Ioctl, argument: *mut T) -> io::Result<()> {
    // SAFETY: the callers pass the structure that belongs to the order, alive for the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), order, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Packets that were not sent for lack of room: the 12th number of a device's line.
fn dropped(table: &str, device: &str) -> Option<u64> {
    const TX_DROPPED: usize = 11;
    let line = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().nth(TX_DROPPED)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drops_of_a_device_are_found_in_the_table_of_the_kernel() {
        let table = "Inter-|   Receive                |  Transmit\n\
             face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
             lo:       1  2    3    4    5     6          7         8        9       10   11   12    13     14       15          16\n  \
             eth0:       0  0    0    0    0     0          0         0        0       0   0   77    0     0       0          0\n";
        assert_eq!(dropped(table, "eth0"), Some(77));
        assert_eq!(dropped(table, "lo"), Some(12));
        assert_eq!(dropped(table, "eth1"), None);
    }
}
