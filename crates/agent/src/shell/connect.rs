//! `connect`: reachability of a server, round-trip time, path MTU, and the interface to it.

use std::ffi::{CStr, c_int};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use venturi_linux::{TcpInfo, socket_option};

use super::failure::{FailureKind, ShellFailure};
use super::protocol::{ConnectCommand, ConnectResult, ShellResult};

/// Maximum connections of one command.
const MAX_COUNT: u32 = 1000;

/// Concurrent connections of one command, after the first one.
const CONNECTS_AT_ONCE: usize = 8;

/// Maximum bytes to send or receive. They fit into the buffers of both kernels, so the server need
/// not read them.
pub(crate) const MAX_EXCHANGE_BYTES: u32 = 64 * 1024;

/// Connects `count` times. The first connection tests the path and exchanges bytes. The other
/// connections are concurrent, so that a long path takes few round trips. All together take at most
/// `timeout`.
///
/// # Errors
/// `unresolved`, `refused`, `unreachable`, `timeout` or `stalled`.
pub(crate) fn connect(
    command: &ConnectCommand,
    timeout: Duration,
) -> Result<ShellResult, ShellFailure> {
    if !(1..=MAX_COUNT).contains(&command.count) {
        return Err(ShellFailure::invalid(format!(
            "`count`: expected 1 to {MAX_COUNT}, found {}",
            command.count
        )));
    }
    let deadline = Instant::now() + timeout;
    let addresses = resolve(&command.host, command.port)?;
    let (mut stream, time_s) = connect_any(&addresses, deadline)?;
    let remote = stream.peer_addr().map_err(|error| lost(command, &error))?;
    let mut times_s = vec![time_s];
    let mut rtt_us = rtt_us(&stream);
    let others = std::thread::scope(|scope| {
        let others = scope.spawn(|| connect_others(remote, command.count as usize - 1, deadline));
        let exchanged = exchange(&mut stream, remote, command, deadline);
        let others = join(others);
        exchanged.and(others)
    })?;
    for (time_s, other_us) in others {
        times_s.push(time_s);
        rtt_us = rtt_us.into_iter().chain(other_us).min();
    }
    let local = stream.local_addr().map_err(|error| lost(command, &error))?;
    let interface = interface_of(local.ip());
    Ok(ShellResult::Connect(ConnectResult {
        times_s,
        rtt_s: rtt_us.map(|us| f64::from(us) * 1e-6),
        path_mtu_bytes: path_mtu(&stream, remote),
        mss_bytes: option(&stream, libc::IPPROTO_TCP, libc::TCP_MAXSEG),
        local_address: plain(local.ip()).to_string(),
        remote_address: plain(remote.ip()).to_string(),
        interface_bit_per_s: interface.as_deref().and_then(interface_rate),
        interface,
        family: if plain(remote.ip()).is_ipv4() {
            "ipv4"
        } else {
            "ipv6"
        },
    }))
}

/// Connects `count` times and closes each connection; returns the time and the round-trip time of each.
fn connect_others(
    remote: SocketAddr,
    count: usize,
    deadline: Instant,
) -> Result<Vec<(f64, Option<u32>)>, ShellFailure> {
    let connect = || {
        let started = Instant::now();
        let stream = connect_one(remote, deadline).map_err(|error| at(remote, &error))?;
        Ok((started.elapsed().as_secs_f64(), rtt_us(&stream)))
    };
    let mut found = Vec::new();
    while found.len() < count {
        let at_once = CONNECTS_AT_ONCE.min(count - found.len());
        let batch: Result<Vec<_>, ShellFailure> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(connect)).collect();
            threads.into_iter().map(join).collect()
        });
        found.extend(batch?);
    }
    Ok(found)
}

/// Returns the result of a thread.
fn join<T>(thread: ScopedJoinHandle<'_, Result<T, ShellFailure>>) -> Result<T, ShellFailure> {
    thread.join().unwrap_or_else(|_| {
        Err(ShellFailure {
            kind: FailureKind::Other,
            message: "internal error of the shell; see its messages on stderr".into(),
        })
    })
}

/// Sends and receives bytes, because only long packets detect a path that loses long packets.
fn exchange(
    stream: &mut TcpStream,
    remote: SocketAddr,
    command: &ConnectCommand,
    deadline: Instant,
) -> Result<(), ShellFailure> {
    if command.send_bytes.max(command.receive_bytes) > MAX_EXCHANGE_BYTES {
        return Err(ShellFailure::invalid(format!(
            "`send_bytes`, `receive_bytes`: expected at most {MAX_EXCHANGE_BYTES}"
        )));
    }
    let failed = |direction: &str, error: &io::Error| match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ShellFailure {
            kind: FailureKind::Stalled,
            message: format!(
                "{remote}: connected, but cannot {direction} within the timeout. Check the MTU of the path."
            ),
        },
        _ => ShellFailure::system(&format!("{remote}: cannot {direction}"), error),
    };
    send(stream, command.send_bytes, deadline)
        .map_err(|error| failed(&format!("send {} bytes", command.send_bytes), &error))?;
    receive(stream, command.receive_bytes, deadline)
        .map_err(|error| failed(&format!("receive {} bytes", command.receive_bytes), &error))
}

/// Sends bytes, and waits until the other kernel has acknowledged all of them.
fn send(stream: &mut TcpStream, bytes: u32, deadline: Instant) -> io::Result<()> {
    const PAUSE: Duration = Duration::from_millis(1);
    if bytes == 0 {
        return Ok(());
    }
    stream.set_write_timeout(Some(left(deadline)?))?;
    stream.write_all(&vec![0; bytes as usize])?;
    loop {
        let mut queued: c_int = 0;
        // SAFETY: the request writes one int.
        let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        if queued == 0 {
            return Ok(());
        }
        std::thread::sleep(PAUSE.min(left(deadline)?));
    }
}

fn receive(stream: &mut TcpStream, bytes: u32, deadline: Instant) -> io::Result<()> {
    let mut block = [0; 16 * 1024];
    let mut missing = bytes as usize;
    while missing > 0 {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let requested = missing.min(block.len());
        match stream.read(&mut block[..requested])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => missing -= count,
        }
    }
    Ok(())
}

/// Returns the remaining time.
///
/// # Errors
/// `TimedOut` if no time remains.
pub(crate) fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// Returns the addresses of a host name or of an address in text form.
///
/// # Errors
/// `unresolved`.
pub(crate) fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ShellFailure> {
    let plain = host.trim_start_matches('[').trim_end_matches(']');
    let unresolved = |reason: String| ShellFailure {
        kind: FailureKind::Unresolved,
        message: format!("{host}: cannot resolve the host name: {reason}"),
    };
    if plain.is_empty() || plain.contains('\0') {
        return Err(ShellFailure::invalid(format!(
            "expected a host name or an address, found {host:?}"
        )));
    }
    let addresses: Vec<SocketAddr> = (plain, port)
        .to_socket_addrs()
        .map_err(|error| unresolved(error.to_string()))?
        .collect();
    if addresses.is_empty() {
        return Err(unresolved("it has no address".into()));
    }
    Ok(addresses)
}

/// Connects to the first address that accepts. Returns the time of that connection.
///
/// # Errors
/// The error of the first address.
pub(crate) fn connect_any(
    addresses: &[SocketAddr],
    deadline: Instant,
) -> Result<(TcpStream, f64), ShellFailure> {
    let mut first = None;
    for address in addresses {
        let started = Instant::now();
        match connect_one(*address, deadline) {
            Ok(stream) => return Ok((stream, started.elapsed().as_secs_f64())),
            Err(error) => {
                first.get_or_insert_with(|| at(*address, &error));
            }
        }
    }
    Err(first.unwrap_or_else(|| ShellFailure::invalid("expected an address, found none".into())))
}

fn connect_one(address: SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, left(deadline)?)
}

fn at(address: SocketAddr, error: &io::Error) -> ShellFailure {
    ShellFailure::system(&format!("{address}: cannot connect"), error)
}

fn lost(command: &ConnectCommand, error: &io::Error) -> ShellFailure {
    let action = format!(
        "{}:{}: cannot examine the connection",
        command.host, command.port
    );
    ShellFailure::system(&action, error)
}

/// Returns an address; an IPv4 address of an IPv6 socket in its IPv4 form.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Returns the minimum round-trip time of a connection; for a new connection, the time of its
/// handshake.
fn rtt_us(stream: &TcpStream) -> Option<u32> {
    let info = TcpInfo::of(stream)?;
    info.min_rtt_us().or_else(|| info.rtt_us())
}

fn path_mtu(stream: &TcpStream, remote: SocketAddr) -> Option<u32> {
    if remote.is_ipv4() {
        option(stream, libc::IPPROTO_IP, libc::IP_MTU)
    } else {
        option(stream, libc::IPPROTO_IPV6, libc::IPV6_MTU)
    }
}

/// Returns a socket option that is a positive number.
fn option(stream: &TcpStream, level: c_int, name: c_int) -> Option<u32> {
    let mut value = [0; size_of::<c_int>()];
    socket_option(stream, level, name, &mut value)?;
    let value = c_int::from_ne_bytes(value);
    u32::try_from(value).ok().filter(|value| *value > 0)
}

/// Returns the interface with this address.
fn interface_of(address: IpAddr) -> Option<String> {
    let address = plain(address);
    let mut list = MaybeUninit::<*mut libc::ifaddrs>::uninit();
    // SAFETY: on success the kernel library fills the pointer with a list, which is freed below.
    if unsafe { libc::getifaddrs(list.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled, see above.
    let first = unsafe { list.assume_init() };
    let mut found = None;
    let mut next = first;
    while found.is_none() && !next.is_null() {
        // SAFETY: an entry of the list, which lives until `freeifaddrs`.
        let entry = unsafe { &*next };
        // SAFETY: the address of an entry is null or a socket address of its family; the name is NUL-terminated.
        unsafe {
            if ip_of(entry.ifa_addr) == Some(address) {
                let name = CStr::from_ptr(entry.ifa_name);
                found = Some(name.to_string_lossy().into_owned());
            }
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list of `getifaddrs`; no reference to it is left.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// # Safety
/// `address` is null or points to a socket address of its family.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: by the contract of this function.
    unsafe {
        match c_int::from((*address).sa_family) {
            libc::AF_INET => {
                let address = &*address.cast::<libc::sockaddr_in>();
                Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let address = &*address.cast::<libc::sockaddr_in6>();
                Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

/// Returns the speed of an interface; virtual interfaces have none, or -1.
fn interface_rate(name: &str) -> Option<u64> {
    const BIT_PER_MBIT: u64 = 1_000_000;
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    let megabits: i64 = text.trim().parse().ok()?;
    u64::try_from(megabits)
        .ok()
        .filter(|megabits| *megabits > 0)
        .map(|megabits| megabits * BIT_PER_MBIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn command(host: &str, port: u16, count: u32) -> ConnectCommand {
        ConnectCommand {
            host: host.into(),
            port,
            count,
            send_bytes: 0,
            receive_bytes: 0,
        }
    }

    #[test]
    fn the_loopback_interface_is_recognized() {
        let server = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = server.local_addr().expect("bound").port();
        let found = connect(&command("127.0.0.1", port, 3), Duration::from_secs(10));
        let Ok(ShellResult::Connect(result)) = found else {
            panic!("{found:?}");
        };
        assert_eq!(result.times_s.len(), 3);
        assert_eq!(result.interface.as_deref(), Some("lo"));
        let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").expect("lo");
        let mtu: u32 = mtu.trim().parse().expect("a number");
        // No IPv4 packet is longer than 65535 bytes.
        assert_eq!(result.path_mtu_bytes, Some(mtu.min(65_535)));
        assert!(result.rtt_s.is_some_and(|rtt_s| 0.0 < rtt_s && rtt_s < 1.0));
        assert_eq!(
            (result.family, &*result.remote_address),
            ("ipv4", "127.0.0.1")
        );
        assert!(result.mss_bytes.is_some_and(|mss| mss > 500));
    }

    #[test]
    fn the_other_connections_are_made_during_the_exchange_of_the_first() {
        let server = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = server.local_addr().expect("bound").port();
        let clients = std::thread::spawn(move || {
            let (mut first, _) = server.accept().expect("a client");
            // The first connection gets its bytes only after all others are connected.
            let others: Vec<_> = (1..12)
                .map(|_| server.accept().expect("a client"))
                .collect();
            first.write_all(&[0; 10]).expect("a client");
            others.len()
        });
        let command = ConnectCommand {
            receive_bytes: 10,
            ..command("127.0.0.1", port, 12)
        };
        let found = connect(&command, Duration::from_secs(60));
        let Ok(ShellResult::Connect(result)) = found else {
            panic!("{found:?}");
        };
        assert_eq!(result.times_s.len(), 12);
        assert_eq!(clients.join().expect("all connect"), 11);
    }

    #[test]
    fn closed_ports_and_unknown_names_have_different_failure_kinds() {
        let server = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = server.local_addr().expect("bound").port();
        drop(server);
        let kind = |host: &str| {
            connect(&command(host, port, 1), Duration::from_secs(10))
                .expect_err("no server")
                .kind
        };
        assert_eq!(kind("127.0.0.1"), FailureKind::Refused);
        assert_eq!(kind("no-such-host.invalid"), FailureKind::Unresolved);
        assert_eq!(kind(""), FailureKind::Invalid);
    }
}
