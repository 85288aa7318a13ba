//! Free TCP ports, and listeners to test the reachability of ports.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::connect::MAX_EXCHANGE_BYTES;
use super::failure::{FailureKind, ShellFailure};
use super::protocol::{CloseCommand, FreePortsCommand, ListenCommand, ShellResult};

/// Maximum ports of one command.
const MAX_PORTS: usize = 1024;

/// Maximum open listeners. Each has a thread.
const MAX_LISTENERS: usize = 256;

/// Maximum number of concurrent connections of a listener. Further connections are closed
/// immediately.
const MAX_CLIENTS: usize = 64;

/// Longest time of a connection without progress.
const CLIENT_LIMIT: Duration = Duration::from_secs(10);

/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(10);

/// Ports of the session.
#[derive(Debug, Default)]
pub(crate) struct PortTable {
    state: Mutex<PortsState>,
}

#[derive(Debug, Default)]
struct PortsState {
    /// Ports of earlier replies, because a server can need some time before it listens.
    given: BTreeSet<u16>,
    listeners: BTreeMap<u64, (Arc<EventFd>, JoinHandle<()>)>,
    next: u64,
}

impl PortTable {
    /// Finds ports that this user can listen on. Ports of earlier replies come last.
    ///
    /// # Errors
    /// If too few ports are free.
    pub(crate) fn free(&self, command: &FreePortsCommand) -> Result<ShellResult, ShellFailure> {
        if !(1..=MAX_PORTS).contains(&command.count) {
            return Err(ShellFailure::invalid(format!(
                "`count`: expected 1 to {MAX_PORTS}, found {}",
                command.count
            )));
        }
        let addresses = addresses(command.address.as_deref())?;
        let range = range(command.low, command.high)?;
        let mut state = self.lock();
        // The listeners stay open until all ports are found, so that no port is found twice.
        let mut open = Vec::new();
        let mut ports = Vec::new();
        let mut last_error = None;
        let candidates: Vec<u16> = match range {
            Some((low, high)) => {
                let (given, fresh): (Vec<u16>, Vec<u16>) =
                    (low..=high).partition(|port| state.given.contains(port));
                fresh.into_iter().chain(given).collect()
            }
            // Port 0: the kernel selects a port. Ports of earlier replies are skipped.
            None => vec![0; 2 * command.count + state.given.len()],
        };
        for candidate in candidates {
            if ports.len() == command.count {
                break;
            }
            match bind_all(&addresses, candidate) {
                Ok((listeners, port)) => {
                    open.push(listeners);
                    if candidate != 0 || !state.given.contains(&port) {
                        ports.push(port);
                    }
                }
                Err(error) => last_error = Some(error),
            }
        }
        open.iter().for_each(|listeners| stop_listening(listeners));
        drop(open);
        if ports.len() < command.count {
            let reason = last_error.map_or_else(String::new, |error| format!(" (last: {error})"));
            let within =
                range.map_or_else(String::new, |(low, high)| format!(" of {low} to {high}"));
            return Err(ShellFailure {
                kind: FailureKind::Other,
                message: format!(
                    "expected {} free ports{within}, found {}{reason}. Stop other servers, or use a larger range.",
                    command.count,
                    ports.len()
                ),
            });
        }
        state.given.extend(&ports);
        Ok(ShellResult::FreePorts { ports })
    }

    /// Accepts connections until [`PortTable::close`]. On each connection, it sends some bytes and
    /// the end of data, and reads until the client closes, because closing a socket with unread
    /// bytes would reset the connection.
    ///
    /// # Errors
    /// If no port is free.
    pub(crate) fn listen(&self, command: &ListenCommand) -> Result<ShellResult, ShellFailure> {
        let addresses = addresses(command.address.as_deref())?;
        let send_bytes = command.send_bytes;
        if send_bytes > MAX_EXCHANGE_BYTES {
            return Err(ShellFailure::invalid(format!(
                "`send_bytes`: expected at most {MAX_EXCHANGE_BYTES}, found {send_bytes}"
            )));
        }
        let candidates = match (command.port, range(command.low, command.high)?) {
            (Some(_), Some(_)) => {
                return Err(ShellFailure::invalid(
                    "expected `port`, or `low` and `high`, found both".into(),
                ));
            }
            (Some(port), None) => vec![port],
            (None, Some((low, high))) => (low..=high).collect(),
            (None, None) => vec![0],
        };
        let mut state = self.lock();
        if state.listeners.len() >= MAX_LISTENERS {
            return Err(ShellFailure {
                kind: FailureKind::Other,
                message: format!("{MAX_LISTENERS} listeners are open. Close some of them."),
            });
        }
        let mut found = Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
        for candidate in candidates {
            found = bind_all(&addresses, candidate);
            if found.is_ok() {
                break;
            }
        }
        let (listeners, port) =
            found.map_err(|error| ShellFailure::system("cannot listen on a port", &error))?;
        let closed = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|error| ShellFailure::system("cannot listen on a port", &error.into()))?;
        let closed = Arc::new(closed);
        let theirs = Arc::clone(&closed);
        let acceptor = std::thread::Builder::new()
            .name("listener".into())
            .spawn(move || accept_until(&listeners, &theirs, send_bytes))
            .map_err(|error| ShellFailure::system("cannot start a thread", &error))?;
        let listener = state.next;
        state.next += 1;
        state.listeners.insert(listener, (closed, acceptor));
        Ok(ShellResult::Listen { listener, port })
    }

    /// Closes a listener. When it returns, its port is free for a server.
    ///
    /// # Errors
    /// If no listener has this number.
    pub(crate) fn close(&self, command: &CloseCommand) -> Result<ShellResult, ShellFailure> {
        let Some((closed, acceptor)) = self.lock().listeners.remove(&command.listener) else {
            return Err(ShellFailure {
                kind: FailureKind::NotFound,
                message: format!("`listener`: no listener {} is open", command.listener),
            });
        };
        // The counter of the new event is 0, so that writing 1 cannot fail.
        let _ = closed.write(1);
        // The end of the thread closes its sockets, even after a panic.
        let _ = acceptor.join();
        Ok(ShellResult::Nothing {})
    }

    fn lock(&self) -> MutexGuard<'_, PortsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept_until(listeners: &[TcpListener], closed: &EventFd, send_bytes: u32) {
    let served = Arc::new(AtomicUsize::new(0));
    loop {
        let mut watched: Vec<PollFd<'_>> = listeners
            .iter()
            .map(|listener| PollFd::new(listener.as_fd(), PollFlags::POLLIN))
            .collect();
        watched.push(PollFd::new(closed.as_fd(), PollFlags::POLLIN));
        match nix::poll::poll(&mut watched, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return,
        }
        let ready: Vec<bool> = watched
            .iter()
            .map(|fd| fd.revents().is_some_and(|events| !events.is_empty()))
            .collect();
        if ready.last() == Some(&true) {
            stop_listening(listeners);
            return;
        }
        for (listener, _) in listeners.iter().zip(ready).filter(|(_, ready)| *ready) {
            let client = match listener.accept() {
                Ok((client, _)) => client,
                // The client has disconnected, or no descriptors are left; a loop without a pause
                // would then spin.
                Err(_) => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
            };
            if served.load(Ordering::Relaxed) < MAX_CLIENTS {
                served.fetch_add(1, Ordering::Relaxed);
                let counter = Arc::clone(&served);
                let started = std::thread::Builder::new()
                    .name("client".into())
                    .spawn(move || {
                        let _ = serve(client, send_bytes);
                        counter.fetch_sub(1, Ordering::Relaxed);
                    });
                if started.is_err() {
                    served.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Frees the ports immediately. Closing the descriptors is not enough, because a process that
/// another thread starts has copies of the sockets until it executes its program.
fn stop_listening(listeners: &[TcpListener]) {
    for listener in listeners {
        // SAFETY: the descriptor is open.
        unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

/// Sends bytes and the end of data, and reads until the client closes.
fn serve(mut client: TcpStream, send_bytes: u32) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(CLIENT_LIMIT))?;
    client.set_write_timeout(Some(CLIENT_LIMIT))?;
    client.write_all(&vec![0; send_bytes as usize])?;
    client.shutdown(Shutdown::Write)?;
    let end = Instant::now() + CLIENT_LIMIT;
    let mut block = [0; 16 * 1024];
    while Instant::now() < end && client.read(&mut block)? > 0 {}
    Ok(())
}

/// Binds one port on all addresses. The sockets do not block.
fn bind_all(addresses: &[IpAddr], port: u16) -> io::Result<(Vec<TcpListener>, u16)> {
    let mut listeners = Vec::new();
    let mut bound = port;
    let mut bind_error = None;
    for address in addresses {
        match TcpListener::bind(SocketAddr::new(*address, bound)) {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                bound = listener.local_addr()?.port();
                listeners.push(listener);
            }
            // A host without IPv6 has only the other address.
            Err(error)
                if addresses.len() > 1
                    && matches!(
                        error.raw_os_error(),
                        Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)
                    ) =>
            {
                bind_error = Some(error);
            }
            // The existing socket for all IPv6 addresses includes this address.
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && listeners
                        .iter()
                        .any(|open| open.local_addr().is_ok_and(|found| found.is_ipv6())) => {}
            Err(error) => return Err(error),
        }
    }
    match bind_error {
        Some(error) if listeners.is_empty() => Err(error),
        _ => Ok((listeners, bound)),
    }
}

/// Returns the addresses to listen on; by default all.
fn addresses(address: Option<&str>) -> Result<Vec<IpAddr>, ShellFailure> {
    let Some(address) = address else {
        // IPv6 first: such a socket usually includes all IPv4 addresses.
        return Ok(vec![
            Ipv6Addr::UNSPECIFIED.into(),
            Ipv4Addr::UNSPECIFIED.into(),
        ]);
    };
    let plain = address.trim_start_matches('[').trim_end_matches(']');
    plain.parse().map(|address| vec![address]).map_err(|_| {
        ShellFailure::invalid(format!(
            "`address`: expected an IP address, found `{address}`"
        ))
    })
}

fn range(low: Option<u16>, high: Option<u16>) -> Result<Option<(u16, u16)>, ShellFailure> {
    match (low, high) {
        (None, None) => Ok(None),
        (Some(low), Some(high)) if 0 < low && low <= high => Ok(Some((low, high))),
        (low, high) => Err(ShellFailure::invalid(format!(
            "expected ports 0 < `low` ≤ `high`, or neither, found {low:?} and {high:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(
        ports: &PortTable,
        count: usize,
        range: Option<(u16, u16)>,
    ) -> Result<Vec<u16>, ShellFailure> {
        let command = FreePortsCommand {
            count,
            low: range.map(|(low, _)| low),
            high: range.map(|(_, high)| high),
            address: Some("127.0.0.1".into()),
        };
        match ports.free(&command)? {
            ShellResult::FreePorts { ports } => Ok(ports),
            other => panic!("expected ports, found {other:?}"),
        }
    }

    #[test]
    fn ports_are_not_reused_while_others_are_free() {
        let ports = PortTable::default();
        let mut given: Vec<u16> = (0..10)
            .flat_map(|_| free(&ports, 20, None).expect("free ports"))
            .collect();
        given.sort_unstable();
        given.dedup();
        assert_eq!(given.len(), 200);
    }

    #[test]
    fn the_port_of_a_closed_listener_is_free_at_once() {
        let ports = PortTable::default();
        for _ in 0..200 {
            let command = ListenCommand {
                address: Some("127.0.0.1".into()),
                port: None,
                low: None,
                high: None,
                send_bytes: 0,
            };
            let (listener, port) = match ports.listen(&command) {
                Ok(ShellResult::Listen { listener, port }) => (listener, port),
                other => panic!("expected a listener, found {other:?}"),
            };
            ports.close(&CloseCommand { listener }).expect("open");
            TcpStream::connect(("127.0.0.1", port)).expect_err("closed");
        }
    }

    #[test]
    fn a_port_in_use_is_skipped_and_an_assigned_port_is_reused_only_if_needed() {
        let used = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = used.local_addr().expect("bound").port();
        let ports = PortTable::default();
        let error = free(&ports, 1, Some((port, port))).expect_err("in use");
        assert_eq!(error.kind, FailureKind::Other);
        drop(used);
        for _ in 0..2 {
            assert_eq!(free(&ports, 1, Some((port, port))), Ok(vec![port]));
        }
    }

    #[test]
    fn invalid_ranges_are_rejected() {
        for (low, high) in [(Some(2), Some(1)), (Some(1), None), (Some(0), Some(9))] {
            assert!(range(low, high).is_err(), "{low:?} {high:?}");
        }
    }
}
