//! A TUN device in the network namespace of a host.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use venturi_plan::Interface;

use crate::EmulatorError;
use crate::packet::VNET_BYTES;

/// Length of the ring between the network stack of the host and the emulator. The default of 500
/// overflows in one burst of a window, and the model does not see these losses.
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

/// Kernel counters of a device.
#[derive(Debug)]
pub(crate) struct Statistics {
    /// `/proc/thread-self/net/dev` of the namespace; none if it cannot be read.
    table: Option<File>,
    device: String,
}

impl Tun {
    /// Create the device in a namespace. A temporary thread enters the namespace, so the namespace
    /// of the caller does not change.
    ///
    /// # Errors
    /// [`EmulatorError::Device`] with the failed step.
    pub(crate) fn open(
        name: &str,
        interface: &Interface,
        namespace: &Path,
    ) -> Result<(Self, Statistics), EmulatorError> {
        let open = || {
            enter(namespace).map_err(|source| {
                (
                    format!("access to the namespace {}", namespace.display()),
                    source,
                )
            })?;
            make(interface)
        };
        // A namespace is a property of a thread.
        std::thread::scope(|scope| scope.spawn(open).join().expect("no panic in `open`")).map_err(
            |(expected, source)| EmulatorError::Device {
                interface: name.to_owned(),
                expected,
                source,
            },
        )
    }

    /// Read a packet, virtio-net header first. `WouldBlock` if no packet is available.
    #[inline]
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(nix::unistd::read(&self.file, buffer)?)
    }

    /// Write a packet from one buffer.
    #[inline]
    pub(crate) fn write(&self, packet: &[u8]) -> io::Result<()> {
        nix::unistd::write(&self.file, packet)?;
        Ok(())
    }

    /// Write a packet from two buffers.
    #[inline]
    pub(crate) fn write_parts(&self, headers: &[u8], payload: &[u8]) -> io::Result<()> {
        let parts = [IoSlice::new(headers), IoSlice::new(payload)];
        nix::sys::uio::writev(&self.file, &parts)?;
        Ok(())
    }

    /// Read and discard a packet; return false if no packet was available.
    pub(crate) fn discard(&self) -> bool {
        let mut some = [0; 64];
        nix::sys::uio::readv(&self.file, &mut [IoSliceMut::new(&mut some)]).is_ok()
    }
}

impl Statistics {
    /// Return the packets that the ring dropped; none if the kernel does not report them.
    pub(crate) fn dropped(&self) -> Option<u64> {
        /// Enough for a namespace with hundreds of devices.
        const MAX_BYTES: usize = 64 * 1024;
        let mut text = vec![0; MAX_BYTES];
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
    // SAFETY: changes only the namespace of this thread, which was started for this purpose.
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
        "the TUN device `{device}` in the namespace of host `{}`",
        interface.host
    );
    control(&file, libc::TUNSETIFF, &raw mut request).map_err(step(&what))?;
    let mut header = libc::c_int::try_from(VNET_BYTES).expect("12");
    control(&file, libc::TUNSETVNETHDRSZ, &raw mut header)
        .map_err(step("a TUN device with a virtio-net header of 12 bytes"))?;
    if interface.offload {
        offload(&file).map_err(step("a TUN device with segmentation offload"))?;
    }
    tune(interface).map_err(step("the MTU of the TUN device"))?;
    let statistics = Statistics {
        table: File::open("/proc/thread-self/net/dev").ok(),
        device: device.clone(),
    };
    Ok((Tun { file }, statistics))
}

fn offload(file: &OwnedFd) -> io::Result<()> {
    let mut rejected = Ok(());
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
        rejected = Err(io::Error::last_os_error());
    }
    rejected
}

/// Set the MTU and the length of the ring, by a socket in the namespace of this thread.
fn tune(interface: &Interface) -> io::Result<()> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    let mut request = request(&interface.device);
    request.ifr_ifru.ifru_mtu = libc::c_int::try_from(interface.mtu).unwrap_or(libc::c_int::MAX);
    control(&socket, libc::SIOCSIFMTU, &raw mut request)?;
    request.ifr_ifru.ifru_metric = RING_PACKETS; // `ifr_qlen` is the same field of the union
    // Root of a user namespace lacks the permission for this call, but not for `ip link set
    // txqueuelen`. The controller uses `ip` for the addresses anyway.
    let _ = control(&socket, SIOCSIFTXQLEN, &raw mut request);
    Ok(())
}

fn request(device: &str) -> libc::ifreq {
    // SAFETY: a structure of numbers, valid with all zeros.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (location, byte) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *location = byte.cast_signed();
    }
    request
}

fn control<T>(file: &impl AsRawFd, order: libc::Ioctl, argument: *mut T) -> io::Result<()> {
    // SAFETY: the callers pass the structure for this request, valid during the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), order, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Return the number of packets that were not sent because the ring was full: the 12th number in
/// the line of a device.
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
