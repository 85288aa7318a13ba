//! TCP sockets with kernel counts: the open sockets of a run at a fixed interval, and each socket
//! once more when it is destroyed.
//!
//! Selection: in a separate network namespace (a host of a lab) all sockets; on a machine, sockets
//! of processes that the agent has started and of the plan's servers. A separate thread reads them,
//! so that a long list of sockets does not delay other samples.
//!
//! Cost: for a list of all sockets, the kernel walks through a table with one entry for each 16 to
//! 128 kB of memory of the machine, up to 524,288. The counts of one known socket need no walk. So
//! lists, which find new sockets, have a separate budget, and each sample requests the counts of
//! the known sockets one by one.

mod diag;
mod netlink;
mod owners;
mod tcp_info;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::time::TimeSpec;
use venturi_plan::{Bytes, Finding, Socket};

use crate::clock::{NS_PER_S, monotonic_ns, thread_cpu_ns};
use crate::findings;
use crate::processes;
use crate::servers::PlanServers;
use diag::{ListedSocket, SocketReport};
use netlink::{Netlink, NetlinkReading};

/// Maximum number of sockets in one sample: 1.5 MB of text.
const SOCKETS_LIMIT: usize = 2048;

/// Pause after a list, as a multiple of its CPU time: at most 0.4 % of a core …
const LIST_PAUSE_FACTOR: u64 = 250;

/// … but at the latest after this time, so that new sockets are found on every machine. The longest table takes 5 ms.
const LIST_PAUSE_LIMIT_NS: u64 = NS_PER_S;

/// Pause after a sample, as a multiple of its CPU time without lists: at most 0.5 % of a core.
const SAMPLE_PAUSE_FACTOR: u64 = 200;

/// Requests in one message. Their replies take 37 kB of the buffer of a netlink socket, which has 213 kB unless
/// `net.core.rmem_default` was changed.
const BATCH: usize = 16;

/// Time to remember a socket that is not in any list. If its process keeps it open after the end of
/// the connection, it is destroyed much later.
const MEMORY_NS: u64 = 60 * NS_PER_S;

/// Time before a socket without a process of the run is examined again.
const FOREIGN_NS: u64 = NS_PER_S;

/// Maximum number of remembered sockets, for a machine that opens connections faster than they expire.
const MEMORY_LIMIT: usize = 16 * 1024;

/// Maximum duration of one sleep, so that the end of a run does not wait for a long interval.
const MAX_SLEEP_NS: u64 = NS_PER_S / 10;

/// Wait for events at the end: the kernel reports a destroyed socket a little later, from its own queue.
const LAST_WAIT_NS: u64 = NS_PER_S / 10;

/// The groups `SKNLGRP_INET_TCP_DESTROY` and `SKNLGRP_INET6_TCP_DESTROY`, numbers 1 and 3 (`linux/sock_diag.h`).
const DESTROYED: u32 = 1 << 0 | 1 << 2;

/// Handle of the thread that watches sockets.
#[derive(Debug)]
pub(crate) struct SocketWatcher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Finding>>,
}

/// Selection of recorded sockets.
#[derive(Debug, Clone)]
pub(crate) enum SocketFilter {
    /// All sockets of this network namespace.
    All,
    /// Sockets of processes that the agent has started, and of the plan's servers. Servers are
    /// found by their processes, or by their ports if the processes belong to another user.
    Run(PlanServers),
}

impl SocketFilter {
    /// Return the selection of this agent.
    pub(crate) fn here(servers: &PlanServers) -> Self {
        if owners::in_a_network_of_its_own() {
            Self::All
        } else {
            Self::Run(servers.clone())
        }
    }

    /// Return the inodes of the sockets that processes of the run have open.
    fn inodes(&self) -> BTreeSet<u32> {
        let Self::Run(servers) = self else {
            return BTreeSet::new(); // all sockets are recorded anyway
        };
        let movers = processes::descendants([std::process::id()]).unwrap_or_default();
        let servers = servers.processes().into_iter().flat_map(|one| one.pids);
        let pids: BTreeSet<u32> = servers.chain(movers).collect();
        pids.into_iter().flat_map(processes::sockets_of).collect()
    }

    /// Return whether a socket is recorded without a check of its process.
    fn takes(&self, local_port: u16) -> bool {
        match self {
            Self::All => true,
            Self::Run(servers) => servers.has_port(local_port),
        }
    }
}

impl SocketWatcher {
    /// Call `emit` every `interval_ns` and when sockets were destroyed, with the monotonic clock and the sockets,
    /// unless there are none; `emit` returns whether they were accepted.
    pub(crate) fn start(
        filter: SocketFilter,
        interval_ns: u64,
        emit: impl FnMut(u64, Vec<Socket>) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        // Before the thread starts, so that no socket that is destroyed from here on is missed,
        // even if the thread gets a core late.
        let watch = Watch::new(filter, emit);
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        let thread =
            std::thread::Builder::new()
                .name("sockets".into())
                .spawn(move || match watch {
                    Ok(watch) => watch.keep_on(interval_ns.max(1), &theirs),
                    Err(error) => vec![findings::sockets_unavailable(&error)],
                })?;
        Ok(Self { stop, thread })
    }

    /// End the thread, after a last check, and return the findings.
    pub(crate) fn finish(self) -> Vec<Finding> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// Properties that the kernel does not report for a destroyed socket.
#[derive(Debug)]
struct ClosedSocketInfo {
    seen_ns: u64,
    congestion_control: Option<String>,
    send_buffer_bytes: Option<Bytes>,
    receive_buffer_bytes: Option<Bytes>,
}

/// Return port and inode of the listening TCP sockets of this network namespace.
///
/// # Errors
/// If the kernel does not report sockets.
pub(crate) fn listening() -> io::Result<Vec<(u16, u32)>> {
    let mut requests = Netlink::open()?;
    let mut found = Vec::new();
    list(&mut requests, &diag::listeners_request(), |message| {
        found.extend(diag::read_listener(message));
    })?;
    Ok(found)
}

/// Send a request for a list and pass on its entries.
fn list(requests: &mut Netlink, request: &[u8], mut take: impl FnMut(&[u8])) -> io::Result<()> {
    requests.send(request)?;
    while requests.read(true, &mut take)? != NetlinkReading::Done {}
    Ok(())
}

/// Request the counts of some sockets. A destroyed socket has none.
fn counts_of(
    requests: &mut Netlink,
    sockets: &[ListedSocket],
    seen: &mut Vec<SocketReport>,
) -> io::Result<()> {
    let mut batch = Vec::new();
    for socket in sockets {
        diag::append_counts_request(socket, &mut batch);
    }
    requests.send(&batch)?;
    for _ in sockets {
        let reading = requests.read(true, |message| seen.extend(diag::read(message, false)));
        match reading {
            // ESTALE before Linux 4.4: another socket has its addresses now.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE)) => {}
            reading => drop(reading?),
        }
    }
    Ok(())
}

/// Lost records.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Losses {
    /// Sockets beyond the limit, over all samples.
    pub(crate) beyond_limit: u64,
    /// Number of times that the queue for events of destroyed sockets overflowed.
    pub(crate) overruns: u64,
    /// Records dropped because the controller was too slow.
    pub(crate) left_out: u64,
}

struct Watch<E> {
    filter: SocketFilter,
    emit: E,
    requests: Netlink,
    /// Events of destroyed sockets, if this process has the permission.
    changes: Result<Netlink, io::Error>,
    /// Open sockets of the run.
    open: Vec<ListedSocket>,
    /// Time of the next list of all sockets.
    list_due_ns: u64,
    closed_info: HashMap<u64, ClosedSocketInfo>,
    /// Sockets that belonged to no process of the run when it was last examined.
    foreign: HashSet<u64>,
    foreign_until_ns: u64,
    losses: Losses,
    failure: Option<io::Error>,
}

impl<E: FnMut(u64, Vec<Socket>) -> bool> Watch<E> {
    fn new(filter: SocketFilter, emit: E) -> io::Result<Self> {
        let run_only = matches!(filter, SocketFilter::Run(_));
        if run_only && processes::descendants([std::process::id()]).is_none() {
            return Err(io::Error::other(
                "/proc/PID/task/TID/children is missing (CONFIG_PROC_CHILDREN)",
            ));
        }
        let changes = Netlink::open().and_then(|changes| {
            changes.join(DESTROYED)?;
            Ok(changes)
        });
        Ok(Self {
            filter,
            emit,
            requests: Netlink::open()?,
            changes,
            open: Vec::new(),
            list_due_ns: 0,
            closed_info: HashMap::new(),
            foreign: HashSet::new(),
            foreign_until_ns: 0,
            losses: Losses::default(),
            failure: None,
        })
    }

    /// Samples on the schedule `start + k·interval`, like the counters; a sample that exceeds the
    /// budget is skipped.
    fn keep_on(mut self, interval_ns: u64, stop: &AtomicBool) -> Vec<Finding> {
        let mut due_ns = monotonic_ns();
        while !stop.load(Ordering::Relaxed) && self.failure.is_none() {
            let now_ns = monotonic_ns();
            if now_ns < due_ns {
                self.wait(due_ns.min(now_ns + MAX_SLEEP_NS) - now_ns);
                self.take_changes();
                continue;
            }
            if now_ns >= self.list_due_ns {
                self.find_new();
            }
            let before_ns = thread_cpu_ns();
            self.sample();
            let pause_ns = (thread_cpu_ns() - before_ns) * SAMPLE_PAUSE_FACTOR;
            due_ns += interval_ns.max(pause_ns.next_multiple_of(interval_ns));
            let passed = monotonic_ns().saturating_sub(due_ns) / interval_ns;
            due_ns += passed * interval_ns;
        }
        self.last_check();
        self.conclude()
    }

    /// Takes the last counts of open sockets, and waits a short time for the destruction of
    /// recently closed sockets.
    fn last_check(&mut self) {
        let end_ns = monotonic_ns() + LAST_WAIT_NS;
        self.find_new();
        self.sample();
        while self.changes.is_ok() && self.failure.is_none() {
            let now_ns = monotonic_ns();
            if now_ns >= end_ns {
                return;
            }
            self.wait(end_ns - now_ns);
            self.take_changes();
        }
    }

    fn conclude(self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(error) = &self.failure {
            findings.push(findings::sockets_unavailable(error));
        }
        if let Err(error) = &self.changes {
            findings.push(findings::sockets_not_final(error));
        }
        if self.losses != Losses::default() {
            findings.push(findings::sockets_incomplete(self.losses, SOCKETS_LIMIT));
        }
        findings
    }

    fn wait(&self, ns: u64) {
        let timeout = TimeSpec::from(Duration::from_nanos(ns));
        let result = match &self.changes {
            Ok(changes) => {
                let mut watched = [PollFd::new(changes.as_fd(), PollFlags::POLLIN)];
                nix::poll::ppoll(&mut watched, Some(timeout), None)
            }
            Err(_) => nix::poll::ppoll(&mut [], Some(timeout), None),
        };
        if !matches!(result, Ok(_) | Err(Errno::EINTR)) {
            std::thread::sleep(Duration::from_nanos(ns)); // after any error, the loop must not spin
        }
    }

    /// Find the sockets of the run in a list of all sockets.
    fn find_new(&mut self) {
        let (now_ns, before_ns) = (monotonic_ns(), thread_cpu_ns());
        let mut listed = Vec::new();
        let result = list(&mut self.requests, &diag::list_request(), |message| {
            listed.extend(diag::read_listed(message));
        });
        let pause_ns = (thread_cpu_ns() - before_ns) * LIST_PAUSE_FACTOR;
        self.list_due_ns = now_ns + pause_ns.min(LIST_PAUSE_LIMIT_NS);
        match result {
            Ok(()) => self.open = self.select(listed, now_ns),
            Err(error) => self.failure = Some(error),
        }
    }

    /// Keep the sockets of the run. The open files of its processes are read only for new sockets.
    fn select(&mut self, listed: Vec<ListedSocket>, now_ns: u64) -> Vec<ListedSocket> {
        if now_ns >= self.foreign_until_ns {
            self.foreign.clear(); // a process of the run can inherit a socket, or accept it later
            self.foreign_until_ns = now_ns + FOREIGN_NS;
        }
        let is_known = |listed: &ListedSocket| {
            self.filter.takes(listed.local_port) || self.closed_info.contains_key(&listed.cookie)
        };
        let is_new =
            |listed: &ListedSocket| !is_known(listed) && !self.foreign.contains(&listed.cookie);
        let owned = if listed.iter().any(is_new) {
            self.filter.inodes()
        } else {
            BTreeSet::new()
        };
        let (kept, foreign): (Vec<_>, Vec<_>) = listed
            .into_iter()
            .partition(|listed| is_known(listed) || owned.contains(&listed.inode));
        // Without an inode: a connection that its server has not accepted yet.
        let owned = foreign.iter().filter(|listed| listed.inode != 0);
        self.foreign.extend(owned.map(|listed| listed.cookie));
        kept
    }

    /// Report the counts of the open sockets of the run.
    fn sample(&mut self) {
        if self.failure.is_some() {
            return;
        }
        let now_ns = monotonic_ns();
        let limit = self.open.len().min(SOCKETS_LIMIT);
        self.losses.beyond_limit += (self.open.len() - limit) as u64;
        let mut seen = Vec::with_capacity(limit);
        for batch in self.open[..limit].chunks(BATCH) {
            if let Err(error) = counts_of(&mut self.requests, batch, &mut seen) {
                self.failure = Some(error);
                return;
            }
        }
        self.remember(&seen, now_ns);
        self.report(now_ns, seen.into_iter().map(|seen| seen.socket).collect());
    }

    fn remember(&mut self, seen: &[SocketReport], now_ns: u64) {
        for SocketReport { cookie, socket, .. } in seen {
            let closed_info = ClosedSocketInfo {
                seen_ns: now_ns,
                congestion_control: socket.congestion_control.clone(),
                send_buffer_bytes: socket.send_buffer_bytes,
                receive_buffer_bytes: socket.receive_buffer_bytes,
            };
            self.closed_info.insert(*cookie, closed_info);
        }
        let horizon_ns = if self.closed_info.len() > MEMORY_LIMIT {
            now_ns
        } else {
            now_ns.saturating_sub(MEMORY_NS)
        };
        self.closed_info
            .retain(|_, closed_info| closed_info.seen_ns >= horizon_ns);
    }

    /// Read events about destroyed sockets.
    fn take_changes(&mut self) {
        let Ok(changes) = &mut self.changes else {
            return;
        };
        let mut gone = Vec::new();
        loop {
            match changes.read(false, |message| gone.extend(diag::read(message, true))) {
                Ok(NetlinkReading::More | NetlinkReading::Done) => {}
                Ok(NetlinkReading::Lost) => self.losses.overruns += 1,
                Ok(NetlinkReading::Nothing) => break,
                Err(error) => {
                    self.changes = Err(error);
                    break;
                }
            }
            if gone.len() >= SOCKETS_LIMIT {
                break; // the rest is read in the next turn
            }
        }
        let now_ns = monotonic_ns();
        let sockets = gone.into_iter().filter_map(|seen| self.complete(seen));
        let sockets = sockets.collect();
        self.report(now_ns, sockets);
    }

    /// Add known properties to a destroyed socket. `None`: the socket belongs to another process.
    fn complete(&mut self, seen: SocketReport) -> Option<Socket> {
        let takes = self.filter.takes(seen.local_port);
        let mut socket = seen.socket;
        match self.closed_info.remove(&seen.cookie) {
            Some(closed_info) => {
                socket.congestion_control = closed_info.congestion_control;
                socket.send_buffer_bytes = closed_info.send_buffer_bytes;
                socket.receive_buffer_bytes = closed_info.receive_buffer_bytes;
            }
            None if !takes => return None,
            None => {}
        }
        Some(socket)
    }

    fn report(&mut self, time_ns: u64, sockets: Vec<Socket>) {
        if !sockets.is_empty() && !(self.emit)(time_ns, sockets) {
            self.losses.left_out += 1;
        }
    }
}
