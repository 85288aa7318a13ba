//! Runs a load: one thread, one `epoll`, the monotonic clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::client::{ClientEvent, ClientState, LoadClient};
use crate::connection::LoadConnection;
use crate::report::seconds;
use crate::target::local_address;
use crate::{
    FetchFailure, IntervalCounts, LoadConfig, LoadError, LoadRecord, LoadTotals, PhaseCounters,
    StopCondition,
};

/// Size of the shared read buffer.
const BUFFER_BYTES: usize = 256 * 1024;
/// Maximum number of events per `epoll` call.
const EVENTS: usize = 1024;
/// Interval between timeout checks. A timeout is late by at most this time.
const CHECK_INTERVAL_NS: u64 = 100_000_000;
/// Pause of a client after a failed fetch, so that it does not flood a server that is down.
const BACK_OFF_NS: u64 = 100_000_000;
/// Descriptors of the process itself: standard streams, `epoll`, and files that the loader left open.
const OWN_DESCRIPTORS: u64 = 16;

/// Runs a load; calls `emit` with each record, including the last one.
///
/// # Errors
/// If this machine cannot run the load. Failures of single fetches are counted instead.
pub fn run_load(
    config: &LoadConfig,
    emit: &mut dyn FnMut(&LoadRecord) -> io::Result<()>,
) -> Result<LoadTotals, LoadError> {
    raise_descriptors(u64::from(config.clients))?;
    let mut driver = Driver::new(config)?;
    let output_error = |source| LoadError::System {
        call: "standard output",
        source,
    };
    while driver.done < config.clients {
        driver.turn()?;
        if let Some(interval) = driver.interval() {
            emit(&LoadRecord::Interval(interval)).map_err(output_error)?;
        }
    }
    let total = driver.total();
    emit(&LoadRecord::Total(Box::new(total.clone()))).map_err(output_error)?;
    Ok(total)
}

struct Driver<'a> {
    config: &'a LoadConfig,
    request: Vec<u8>,
    peer: SocketAddr,
    local: Option<IpAddr>,
    epoll: Epoll,
    clients: Vec<LoadClient>,
    /// Sleeping clients, each once.
    sleeping: BinaryHeap<Reverse<(u64, usize)>>,
    phases: PhaseCounters,
    buffer: Vec<u8>,
    events: Vec<EpollEvent>,
    origin: Instant,
    now_ns: u64,
    check_ns: u64,
    interval_ns: u64,
    /// Stop time of the first client.
    steady_end_ns: Option<u64>,
    done: u32,
}

impl<'a> Driver<'a> {
    fn new(config: &'a LoadConfig) -> Result<Self, LoadError> {
        let peer = config.proxy.as_ref().unwrap_or(&config.target).address()?;
        let local = config.bind.as_deref().map(local_address).transpose()?;
        let clients = config.clients as usize;
        let step_ns = config.spread_ns / u64::from(config.clients);
        Ok(Self {
            config,
            request: config.request(),
            peer,
            local,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
                .map_err(LoadError::system("epoll_create"))?,
            clients: (0..clients).map(|_| LoadClient::default()).collect(),
            sleeping: (0..clients)
                .map(|id| Reverse((step_ns * id as u64, id)))
                .collect(),
            phases: PhaseCounters::default(),
            buffer: vec![0; BUFFER_BYTES],
            events: vec![EpollEvent::empty(); EVENTS],
            origin: Instant::now(),
            now_ns: 0,
            check_ns: CHECK_INTERVAL_NS,
            interval_ns: 0,
            steady_end_ns: None,
            done: 0,
        })
    }

    /// Waits for events and handles them.
    fn turn(&mut self) -> Result<(), LoadError> {
        self.read_clock();
        self.wake()?;
        let due_ns = self.due_ns();
        let count = match self.epoll.wait(
            &mut self.events,
            timeout(due_ns.saturating_sub(self.now_ns)),
        ) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(LoadError::system("epoll_wait")(errno)),
        };
        self.read_clock();
        for index in 0..count {
            let event = self.events[index];
            self.serve(event.data() as usize, event.events())?;
        }
        if self.now_ns >= self.check_ns {
            self.check_ns = self.now_ns + CHECK_INTERVAL_NS;
            self.fail_timed_out()?;
        }
        Ok(())
    }

    fn read_clock(&mut self) {
        self.now_ns = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if self.steady_end_ns.is_none()
            && matches!(self.config.until, StopCondition::Time(end_ns) if self.now_ns >= end_ns)
        {
            self.end_steady(self.now_ns);
        }
        let steady = self.now_ns >= self.config.ramp_ns && self.steady_end_ns.is_none();
        self.phases.set_steady(steady);
    }

    /// Ends the steady state: some clients have stopped.
    fn end_steady(&mut self, now_ns: u64) {
        self.steady_end_ns.get_or_insert(now_ns);
        self.phases.set_steady(false);
    }

    fn due_ns(&self) -> u64 {
        let wake_ns = self
            .sleeping
            .peek()
            .map_or(u64::MAX, |Reverse((time_ns, _))| *time_ns);
        let edge_ns = match (self.steady_end_ns, self.config.until) {
            (None, StopCondition::Time(end_ns)) => end_ns,
            _ => u64::MAX,
        };
        let ramp_ns = if self.now_ns < self.config.ramp_ns {
            self.config.ramp_ns
        } else {
            u64::MAX
        };
        let report_ns = self.interval_ns + self.config.interval_ns;
        wake_ns
            .min(edge_ns)
            .min(ramp_ns)
            .min(report_ns)
            .min(self.check_ns)
    }

    fn wake(&mut self) -> Result<(), LoadError> {
        while let Some(Reverse((time_ns, id))) = self.sleeping.peek().copied() {
            if time_ns > self.now_ns {
                break;
            }
            self.sleeping.pop();
            self.start_fetch(id)?;
        }
        Ok(())
    }

    /// Starts the next fetch of a client, or stops the client.
    fn start_fetch(&mut self, id: usize) -> Result<(), LoadError> {
        let client = &mut self.clients[id];
        let continues = match self.config.until {
            StopCondition::Time(end_ns) => self.now_ns < end_ns,
            StopCondition::Fetches(count) => client.started < count,
        };
        if !continues {
            client.state = ClientState::Done;
            client.spare = None;
            self.done += 1;
            self.end_steady(self.now_ns);
            return Ok(());
        }
        client.started += 1;
        client.fetch_start_ns = self.now_ns;
        self.send_request(id)
    }

    fn send_request(&mut self, id: usize) -> Result<(), LoadError> {
        let client = &mut self.clients[id];
        if let Some(connection) = client.spare.take() {
            client.reused = true;
            self.epoll
                .modify(&connection, &mut interest(EpollFlags::EPOLLOUT, id))
                .map_err(LoadError::system("epoll_ctl"))?;
            client.state = ClientState::Requesting {
                connection,
                written: 0,
                made: true,
            };
            return Ok(());
        }
        client.reused = false;
        match LoadConnection::open(self.peer, self.local)? {
            Ok(connection) => {
                self.epoll
                    .add(&connection, interest(EpollFlags::EPOLLOUT, id))
                    .map_err(LoadError::system("epoll_ctl"))?;
                client.state = ClientState::Requesting {
                    connection,
                    written: 0,
                    made: false,
                };
                Ok(())
            }
            Err(failure) => self.conclude(id, ClientEvent::Failed(failure)),
        }
    }

    fn serve(&mut self, id: usize, flags: EpollFlags) -> Result<(), LoadError> {
        let client = &mut self.clients[id];
        if client.spare.is_some() {
            // An idle connection became readable: the server closed it.
            client.spare = None;
            return Ok(());
        }
        let turn = if matches!(client.state, ClientState::Requesting { .. }) {
            client.writable(&self.request, &mut self.phases.connections)
        } else if flags
            .intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR)
        {
            let phases = &mut self.phases;
            client.readable(self.config, &mut self.buffer, |head, body| {
                phases.arrived(head, body)
            })
        } else {
            ClientEvent::Same
        };
        self.conclude(id, turn)
    }

    fn conclude(&mut self, id: usize, turn: ClientEvent) -> Result<(), LoadError> {
        match turn {
            ClientEvent::Same => Ok(()),
            ClientEvent::RequestSent => {
                if let ClientState::Receiving { connection, .. } = &self.clients[id].state {
                    self.epoll
                        .modify(connection, &mut interest(EpollFlags::EPOLLIN, id))
                        .map_err(LoadError::system("epoll_ctl"))?;
                }
                Ok(())
            }
            ClientEvent::Stale => self.send_request(id),
            ClientEvent::Fetched(bytes) => {
                let latency_ns = self.now_ns - self.clients[id].fetch_start_ns;
                self.phases.fetched(bytes, latency_ns);
                if self.config.think_ns == 0 {
                    return self.start_fetch(id);
                }
                self.sleep(id, self.config.think_ns);
                Ok(())
            }
            ClientEvent::Failed(failure) => {
                self.phases.failed(failure);
                self.sleep(id, BACK_OFF_NS.max(self.config.think_ns));
                Ok(())
            }
        }
    }

    fn sleep(&mut self, id: usize, time_ns: u64) {
        self.clients[id].state = ClientState::Asleep;
        self.sleeping
            .push(Reverse((self.now_ns.saturating_add(time_ns), id)));
    }

    fn fail_timed_out(&mut self) -> Result<(), LoadError> {
        for id in 0..self.clients.len() {
            let client = &mut self.clients[id];
            if client.is_busy() && self.now_ns - client.fetch_start_ns >= self.config.timeout_ns {
                let turn = client.fails(FetchFailure::Timeout);
                self.conclude(id, turn)?;
            }
        }
        Ok(())
    }

    /// Returns the counters of the last interval, if it has ended.
    fn interval(&mut self) -> Option<IntervalCounts> {
        if self.now_ns < self.interval_ns + self.config.interval_ns {
            return None;
        }
        let counts = std::mem::take(&mut self.phases.interval);
        let start_ns = std::mem::replace(&mut self.interval_ns, self.now_ns);
        Some(IntervalCounts {
            start_s: seconds(start_ns),
            end_s: seconds(self.now_ns),
            fetches: counts.fetches,
            bytes: counts.bytes,
            errors: counts.errors,
            clients: self.config.clients - self.done,
        })
    }

    fn total(&self) -> LoadTotals {
        let steady_ns = self
            .steady_end_ns
            .map(|steady_end_ns| (self.config.ramp_ns, steady_end_ns))
            .filter(|(start_ns, end_ns)| start_ns < end_ns);
        LoadTotals::new(self.config.clients, self.now_ns, steady_ns, &self.phases)
    }
}

fn interest(flags: EpollFlags, id: usize) -> EpollEvent {
    EpollEvent::new(flags, id as u64)
}

/// Round up: a wait that ends early would cause another wait of zero length.
fn timeout(time_ns: u64) -> EpollTimeout {
    let milliseconds = time_ns.div_ceil(1_000_000);
    EpollTimeout::try_from(i32::try_from(milliseconds).unwrap_or(i32::MAX))
        .unwrap_or(EpollTimeout::MAX)
}

/// Raises the limit of open files for this number of clients.
fn raise_descriptors(clients: u64) -> Result<(), LoadError> {
    let needed = clients + OWN_DESCRIPTORS;
    let (soft, hard) =
        getrlimit(Resource::RLIMIT_NOFILE).map_err(LoadError::system("getrlimit"))?;
    if soft >= needed {
        return Ok(());
    }
    if hard < needed {
        // Root may raise the hard limit too, as far as the kernel's own.
        let raised = setrlimit(Resource::RLIMIT_NOFILE, needed, needed);
        return raised.map_err(|_| LoadError::Descriptors {
            needed,
            limit: hard,
        });
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard).map_err(LoadError::system("setrlimit"))
}
