//! Carries a load out: one thread, one `epoll`, the monotonic clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::client::{Client, State, Turn};
use crate::connection::Connection;
use crate::report::seconds;
use crate::target::local_address;
use crate::{Error, Failure, Interval, Order, Phases, Record, Total, Until};

/// Of the one buffer that all clients read into.
const BUFFER_BYTES: usize = 256 * 1024;
/// Events taken at a time.
const EVENTS: usize = 1024;
/// How often clients are looked at whose time is up: a time-out is late by so much at most.
const LOOK_NS: u64 = 100_000_000;
/// A client whose fetch has failed waits so long: a server that is down is not asked in a tight loop.
const BACK_OFF_NS: u64 = 100_000_000;
/// Descriptors that are no client's: the standard ones, `epoll`, what the loader left open.
const OWN_DESCRIPTORS: u64 = 16;

/// Carries out a load; `tell` is called with each line, the last one included.
///
/// # Errors
/// Where the order cannot be carried out here. What goes wrong with a fetch is counted instead.
pub fn carry_out(
    order: &Order,
    tell: &mut dyn FnMut(&Record) -> io::Result<()>,
) -> Result<Total, Error> {
    raise_descriptors(u64::from(order.clients))?;
    let mut driver = Driver::new(order)?;
    let told = |source| Error::System {
        what: "standard output",
        source,
    };
    while driver.done < order.clients {
        driver.turn()?;
        if let Some(interval) = driver.interval() {
            tell(&Record::Interval(interval)).map_err(told)?;
        }
    }
    let total = driver.total();
    tell(&Record::Total(Box::new(total.clone()))).map_err(told)?;
    Ok(total)
}

struct Driver<'a> {
    order: &'a Order,
    request: Vec<u8>,
    peer: SocketAddr,
    local: Option<IpAddr>,
    epoll: Epoll,
    clients: Vec<Client>,
    /// Each client that sleeps is in it once.
    sleeping: BinaryHeap<Reverse<(u64, usize)>>,
    phases: Phases,
    buffer: Vec<u8>,
    events: Vec<EpollEvent>,
    origin: Instant,
    now_ns: u64,
    look_ns: u64,
    interval_ns: u64,
    /// When the first client began no more.
    slack_ns: Option<u64>,
    done: u32,
}

impl<'a> Driver<'a> {
    fn new(order: &'a Order) -> Result<Self, Error> {
        let peer = order.proxy.as_ref().unwrap_or(&order.target).address()?;
        let local = order.bind.as_deref().map(local_address).transpose()?;
        let clients = order.clients as usize;
        let step_ns = order.spread_ns / u64::from(order.clients);
        Ok(Self {
            order,
            request: order.request(),
            peer,
            local,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
                .map_err(Error::system("epoll_create"))?,
            clients: (0..clients).map(|_| Client::default()).collect(),
            sleeping: (0..clients)
                .map(|id| Reverse((step_ns * id as u64, id)))
                .collect(),
            phases: Phases::default(),
            buffer: vec![0; BUFFER_BYTES],
            events: vec![EpollEvent::empty(); EVENTS],
            origin: Instant::now(),
            now_ns: 0,
            look_ns: LOOK_NS,
            interval_ns: 0,
            slack_ns: None,
            done: 0,
        })
    }

    /// Waits for something to happen and does what follows from it.
    fn turn(&mut self) -> Result<(), Error> {
        self.read_clock();
        self.wake()?;
        let due_ns = self.due_ns();
        let count = match self.epoll.wait(
            &mut self.events,
            timeout(due_ns.saturating_sub(self.now_ns)),
        ) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(Error::system("epoll_wait")(errno)),
        };
        self.read_clock();
        for index in 0..count {
            let event = self.events[index];
            self.serve(event.data() as usize, event.events())?;
        }
        if self.now_ns >= self.look_ns {
            self.look_ns = self.now_ns + LOOK_NS;
            self.end_those_whose_time_is_up()?;
        }
        Ok(())
    }

    fn read_clock(&mut self) {
        self.now_ns = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if self.slack_ns.is_none()
            && matches!(self.order.until, Until::Time(end_ns) if self.now_ns >= end_ns)
        {
            self.slacken(self.now_ns);
        }
        let steady = self.now_ns >= self.order.ramp_ns && self.slack_ns.is_none();
        self.phases.set_steady(steady);
    }

    /// From now on not all clients are at work.
    fn slacken(&mut self, now_ns: u64) {
        self.slack_ns.get_or_insert(now_ns);
        self.phases.set_steady(false);
    }

    fn due_ns(&self) -> u64 {
        let wake_ns = self
            .sleeping
            .peek()
            .map_or(u64::MAX, |Reverse((time_ns, _))| *time_ns);
        let edge_ns = match (self.slack_ns, self.order.until) {
            (None, Until::Time(end_ns)) => end_ns,
            _ => u64::MAX,
        };
        let ramp_ns = if self.now_ns < self.order.ramp_ns {
            self.order.ramp_ns
        } else {
            u64::MAX
        };
        let line_ns = self.interval_ns + self.order.interval_ns;
        wake_ns
            .min(edge_ns)
            .min(ramp_ns)
            .min(line_ns)
            .min(self.look_ns)
    }

    fn wake(&mut self) -> Result<(), Error> {
        while let Some(Reverse((time_ns, id))) = self.sleeping.peek().copied() {
            if time_ns > self.now_ns {
                break;
            }
            self.sleeping.pop();
            self.begin(id)?;
        }
        Ok(())
    }

    /// Begins the next fetch of a client, or ends the client.
    fn begin(&mut self, id: usize) -> Result<(), Error> {
        let client = &mut self.clients[id];
        let goes_on = match self.order.until {
            Until::Time(end_ns) => self.now_ns < end_ns,
            Until::Fetches(count) => client.begun < count,
        };
        if !goes_on {
            client.state = State::Done;
            client.spare = None;
            self.done += 1;
            self.slacken(self.now_ns);
            return Ok(());
        }
        client.begun += 1;
        client.began_ns = self.now_ns;
        self.ask(id)
    }

    fn ask(&mut self, id: usize) -> Result<(), Error> {
        let client = &mut self.clients[id];
        if let Some(connection) = client.spare.take() {
            client.reused = true;
            self.epoll
                .modify(&connection, &mut interest(EpollFlags::EPOLLOUT, id))
                .map_err(Error::system("epoll_ctl"))?;
            client.state = State::Asking {
                connection,
                written: 0,
                made: true,
            };
            return Ok(());
        }
        client.reused = false;
        match Connection::begin(self.peer, self.local)? {
            Ok(connection) => {
                self.epoll
                    .add(&connection, interest(EpollFlags::EPOLLOUT, id))
                    .map_err(Error::system("epoll_ctl"))?;
                client.state = State::Asking {
                    connection,
                    written: 0,
                    made: false,
                };
                Ok(())
            }
            Err(failure) => self.conclude(id, Turn::Failed(failure)),
        }
    }

    fn serve(&mut self, id: usize, flags: EpollFlags) -> Result<(), Error> {
        let client = &mut self.clients[id];
        if client.spare.is_some() {
            // Idle, and something came: nothing but its end can.
            client.spare = None;
            return Ok(());
        }
        let turn = if matches!(client.state, State::Asking { .. }) {
            client.writable(&self.request, &mut self.phases.connections)
        } else if flags
            .intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR)
        {
            let phases = &mut self.phases;
            client.readable(self.order, &mut self.buffer, |head, body| {
                phases.arrived(head, body)
            })
        } else {
            Turn::Same
        };
        self.conclude(id, turn)
    }

    fn conclude(&mut self, id: usize, turn: Turn) -> Result<(), Error> {
        match turn {
            Turn::Same => Ok(()),
            Turn::Asked => {
                if let State::Receiving { connection, .. } = &self.clients[id].state {
                    self.epoll
                        .modify(connection, &mut interest(EpollFlags::EPOLLIN, id))
                        .map_err(Error::system("epoll_ctl"))?;
                }
                Ok(())
            }
            Turn::Stale => self.ask(id),
            Turn::Fetched(bytes) => {
                let latency_ns = self.now_ns - self.clients[id].began_ns;
                self.phases.fetched(bytes, latency_ns);
                if self.order.think_ns == 0 {
                    return self.begin(id);
                }
                self.sleep(id, self.order.think_ns);
                Ok(())
            }
            Turn::Failed(failure) => {
                self.phases.failed(failure);
                self.sleep(id, BACK_OFF_NS.max(self.order.think_ns));
                Ok(())
            }
        }
    }

    fn sleep(&mut self, id: usize, time_ns: u64) {
        self.clients[id].state = State::Asleep;
        self.sleeping
            .push(Reverse((self.now_ns.saturating_add(time_ns), id)));
    }

    fn end_those_whose_time_is_up(&mut self) -> Result<(), Error> {
        for id in 0..self.clients.len() {
            let client = &mut self.clients[id];
            if client.is_busy() && self.now_ns - client.began_ns >= self.order.timeout_ns {
                let turn = client.fails(Failure::Timeout);
                self.conclude(id, turn)?;
            }
        }
        Ok(())
    }

    /// The counts of the interval that has ended, if one has.
    fn interval(&mut self) -> Option<Interval> {
        if self.now_ns < self.interval_ns + self.order.interval_ns {
            return None;
        }
        let tally = std::mem::take(&mut self.phases.interval);
        let start_ns = std::mem::replace(&mut self.interval_ns, self.now_ns);
        Some(Interval {
            start_s: seconds(start_ns),
            end_s: seconds(self.now_ns),
            fetches: tally.fetches,
            bytes: tally.bytes,
            errors: tally.errors,
            clients: self.order.clients - self.done,
        })
    }

    fn total(&self) -> Total {
        let steady_ns = self
            .slack_ns
            .map(|slack_ns| (self.order.ramp_ns, slack_ns))
            .filter(|(start_ns, end_ns)| start_ns < end_ns);
        Total::new(self.order.clients, self.now_ns, steady_ns, &self.phases)
    }
}

fn interest(flags: EpollFlags, id: usize) -> EpollEvent {
    EpollEvent::new(flags, id as u64)
}

/// Rounded up: a wait that ends too early would be followed by another of no time.
fn timeout(time_ns: u64) -> EpollTimeout {
    let milliseconds = time_ns.div_ceil(1_000_000);
    EpollTimeout::try_from(i32::try_from(milliseconds).unwrap_or(i32::MAX))
        .unwrap_or(EpollTimeout::MAX)
}

/// Raises the limit of open files to what so many clients need.
fn raise_descriptors(clients: u64) -> Result<(), Error> {
    let needed = clients + OWN_DESCRIPTORS;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(Error::system("getrlimit"))?;
    if soft >= needed {
        return Ok(());
    }
    if hard < needed {
        // Root may raise the hard limit too, as far as the kernel's own.
        let raised = setrlimit(Resource::RLIMIT_NOFILE, needed, needed);
        return raised.map_err(|_| Error::Descriptors {
            needed,
            limit: hard,
        });
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard).map_err(Error::system("setrlimit"))
}
