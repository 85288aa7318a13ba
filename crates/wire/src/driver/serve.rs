//! The life of a wire: take the network, open the devices, move packets, say done.

use std::io;
use std::os::fd::AsRawFd;
use std::thread::JoinHandle;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use venturi_plan::{Fatal, Name};

use super::awake::Awake;
use super::buffers::Buffers;
use super::clock::Clock;
use super::input::{Inbox, Input};
use super::machine::{self, Machine};
use super::output::{Broken, Message, Outbox};
use super::patience::{Patience, Wait};
use super::report;
use super::run::{Opened, Run};
use super::tun::{Statistics, Tun};
use crate::Error;
use crate::model::World;
use crate::protocol::{Command, Ready, Record, Start};

/// What the bell and the signals are called among the numbers of interfaces.
const BELL: u64 = u64::MAX;
const SIGNALS: u64 = u64::MAX - 1;
/// Descriptors that are told of at once.
const EVENTS: usize = 64;
/// Shortest time between samples.
const SHORTEST_INTERVAL_S: f64 = 0.001;

/// How a wire ends.
enum End {
    /// The controller has said `stop`.
    Done,
    /// The controller is gone.
    Alone,
    /// SIGINT, SIGTERM or SIGHUP.
    Signal(i32),
    /// It cannot go on.
    Fatal(Error),
}

impl From<Broken> for End {
    fn from(_: Broken) -> Self {
        Self::Alone
    }
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}

/// Serves a controller on standard input and output until it says `stop`, or is gone. Returns the exit code: 0 after
/// `done`; 1 when the controller went away first; 2 after `fatal`; 128 and the number of the signal that ended it.
///
/// To be called from the first thread, before any other is started.
#[must_use]
pub fn serve() -> u8 {
    let prepared = prepare().map_err(|source| Error::System {
        expected: "to set up signals, threads and descriptors",
        source,
    });
    match prepared {
        Ok((wire, output)) => part(wire.live(), output),
        Err(error) => {
            eprintln!("venturi-engine wire: {error}");
            let message = error.to_string();
            let line = serde_json::to_string(&Record::Fatal(Fatal { message }));
            println!("{}", line.expect("a text"));
            2
        }
    }
}

fn prepare() -> io::Result<(Wire, JoinHandle<()>)> {
    let mut watched = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        watched.add(signal);
    }
    // Before the first thread, so that all inherit the mask.
    watched.thread_block()?;
    let signals = SignalFd::with_flags(&watched, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let (outbox, output) = Outbox::start()?;
    let inbox = Inbox::start()?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&*inbox.bell, EpollEvent::new(EpollFlags::EPOLLIN, BELL))?;
    epoll.add(&signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNALS))?;
    let wire = Wire {
        epoll,
        signals,
        inbox,
        outbox,
    };
    Ok((wire, output))
}

/// `ended` comes with nothing left that holds an outbox, so that the output thread writes the rest and ends.
fn part((end, outbox): (End, Outbox), output: JoinHandle<()>) -> u8 {
    let code = match end {
        End::Done => 0,
        End::Alone => return 1, // the thread may hang in a write that nobody reads; the process ends without it
        End::Fatal(error) => {
            eprintln!("venturi-engine wire: {error}");
            let message = error.to_string();
            let _ = outbox.send(Record::Fatal(Fatal { message })); // nobody to tell it to
            2
        }
        End::Signal(number) => 128 + u8::try_from(number).unwrap_or(0),
    };
    drop(outbox);
    let _ = output.join();
    code
}

struct Wire {
    epoll: Epoll,
    signals: SignalFd,
    inbox: Inbox,
    outbox: Outbox,
}

impl Wire {
    fn live(self) -> (End, Outbox) {
        let end = self.carry();
        (end.err().unwrap_or(End::Done), self.outbox)
    }

    fn carry(&self) -> Result<(), End> {
        let start = self.await_start()?;
        let (mut run, names, _machine) = self.begin(start)?;
        // What came right behind `start` has rung its bell already.
        let mut gone_on = self.obey(&mut run);
        while gone_on.is_ok() {
            gone_on = self.turn(&mut run, &names);
        }
        let end = gone_on.expect_err("that is why the loop ended");
        run.finish(matches!(end, End::Done))?;
        Err(end)
    }

    fn await_start(&self) -> Result<Start, End> {
        loop {
            let events = self.wait(0, Wait::Sleep { until_ns: u64::MAX })?;
            events.tokens().try_for_each(|token| match token {
                SIGNALS => Err(self.signal()),
                _ => Ok(()),
            })?;
            self.inbox.silence();
            match self.inbox.next() {
                None => {}
                Some(Input::Command(Command::Start(start))) => return Ok(*start),
                Some(Input::Command(Command::Stop)) => return Err(End::Done),
                Some(Input::Command(_)) => {
                    return Err(End::Fatal(Error::Order {
                        command: "start",
                        expected: "`start` as the first command".into(),
                        found: "another".into(),
                    }));
                }
                Some(Input::Bad(error)) => return Err(error.into()),
                Some(Input::End) => return Err(End::Alone),
            }
        }
    }

    /// Opens the devices and says that they are there.
    fn begin(&self, start: Start) -> Result<(Run, Vec<Name>, Machine), End> {
        let clock = Clock::new(start.epoch_unix_ns);
        let world = World::new(&start.network, start.seed)?;
        let interval_ns = interval_ns(&start)?;
        let (opened, statistics) = open_all(&start)?;
        let buffers =
            Buffers::new(world.extremes().held_bytes).map_err(|source| Error::System {
                expected: "address space for packets",
                source,
            })?;
        for (number, opened) in (0..).zip(&opened) {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, number);
            let added = self.epoll.add(&opened.tun, event);
            added.map_err(|error| Error::System {
                expected: "to watch the TUN devices",
                source: error.into(),
            })?;
        }
        // Before this thread gets its priority, which they would inherit.
        let awake = Awake::start(clock, start.idle_group.as_deref());
        let awake = awake.map_err(|source| Error::System {
            expected: "threads in the control group for idle processors",
            source,
        })?;
        let machine = Machine::prepare();
        let interfaces = &start.network.interfaces;
        let names = interfaces.keys().cloned().collect();
        self.outbox
            .pass(Message::Names(world.link_names().to_vec(), statistics))?;
        let devices = interfaces
            .iter()
            .map(|(name, interface)| (name.clone(), interface.device.clone()));
        self.outbox.send(Record::Ready(Ready {
            devices: devices.collect(),
            pollers: awake.pollers(),
        }))?;
        if let Some(finding) = report::memory(world.extremes(), machine::tcp_memory_bytes()) {
            self.outbox.send(Record::Finding(finding))?;
        }
        let outbox = self.outbox.clone();
        let run = Run::new(
            clock,
            world,
            opened,
            buffers,
            outbox,
            interval_ns,
            Patience::new(start.spin, machine::processors(), awake),
        )
        .map_err(|source| Error::System {
            expected: "a thread that writes packets",
            source,
        })?;
        Ok((run, names, machine))
    }

    #[inline]
    fn turn(&self, run: &mut Run, names: &[Name]) -> Result<(), End> {
        let (now_ns, wait) = run.proceed()?;
        let events = self.wait(now_ns, wait)?;
        if wait != Wait::Look {
            run.slept();
        }
        events.tokens().try_for_each(|token| match token {
            SIGNALS => Err(self.signal()),
            BELL => self.obey(run),
            number => {
                let number = u16::try_from(number).expect("the number of an interface");
                if !run.read(number)? {
                    let name = &names[usize::from(number)];
                    self.outbox.send(Record::Finding(report::gone(name)))?;
                    run.forget(number, &self.epoll);
                }
                Ok(())
            }
        })
    }

    /// Waits for what is readable.
    #[inline]
    fn wait(&self, now_ns: u64, wait: Wait) -> Result<Events, End> {
        epoll_wait(&self.epoll, now_ns, wait).map_err(|source| {
            End::Fatal(Error::System {
                expected: "to wait for packets (`epoll_pwait2`, Linux 5.11)",
                source,
            })
        })
    }

    fn signal(&self) -> End {
        match self.signals.read_signal() {
            Ok(Some(told)) => End::Signal(i32::try_from(told.ssi_signo).unwrap_or(0)),
            _ => End::Alone,
        }
    }

    fn obey(&self, run: &mut Run) -> Result<(), End> {
        self.inbox.silence();
        while let Some(input) = self.inbox.next() {
            match input {
                Input::Command(Command::Go { elapsed_s }) => run.go(elapsed_s)?,
                Input::Command(Command::Change { link, set }) => run.change(&link, &set)??,
                Input::Command(Command::Capture {
                    link,
                    path,
                    snap_bytes,
                }) => run.capture(&link, path, snap_bytes)?,
                Input::Command(Command::CaptureStop { link }) => run.capture_stop(&link)??,
                Input::Command(Command::Stop) => return Err(End::Done),
                Input::Command(Command::Start(_)) => {
                    return Err(End::Fatal(Error::Order {
                        command: "start",
                        expected: "`start` once, as the first command".into(),
                        found: "it again".into(),
                    }));
                }
                Input::Bad(error) => return Err(error.into()),
                Input::End => return Err(End::Alone),
            }
        }
        Ok(())
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value was checked"
)]
fn interval_ns(start: &Start) -> Result<Option<u64>, Error> {
    let Some(interval) = start.interval_s else {
        return Ok(None);
    };
    if !(SHORTEST_INTERVAL_S..=1e6).contains(&interval.get()) {
        return Err(Error::Order {
            command: "start",
            expected: format!("an `interval_s` of at least {SHORTEST_INTERVAL_S}, or null"),
            found: interval.to_string(),
        });
    }
    Ok(Some((interval.get() * 1e9) as u64))
}

fn open_all(start: &Start) -> Result<(Vec<Opened>, Vec<Statistics>), Error> {
    let open = |(name, interface): (&Name, &venturi_plan::Interface)| {
        let namespace =
            start
                .namespaces
                .get(&interface.host)
                .ok_or_else(|| Error::NoNamespace {
                    host: interface.host.to_string(),
                    interface: name.to_string(),
                })?;
        let (tun, statistics) = Tun::open(name, interface, namespace)?;
        let opened = Opened {
            tun,
            offload: interface.offload,
            mtu: interface.mtu,
        };
        Ok((opened, statistics))
    };
    start.network.interfaces.iter().map(open).collect()
}

/// What is readable.
struct Events {
    events: [libc::epoll_event; EVENTS],
    count: usize,
}

impl Events {
    #[inline]
    fn tokens(&self) -> impl Iterator<Item = u64> {
        self.events[..self.count].iter().map(|event| event.u64)
    }
}

/// `epoll_pwait2`: its timeout is in nanoseconds.
#[inline]
fn epoll_wait(epoll: &Epoll, now_ns: u64, wait: Wait) -> io::Result<Events> {
    let timeout_ns = match wait {
        Wait::Look => 0,
        Wait::Sleep { until_ns } => until_ns.saturating_sub(now_ns),
    };
    let timeout = libc::timespec {
        tv_sec: i64::try_from(timeout_ns / 1_000_000_000).expect("a time in ns"),
        tv_nsec: i64::try_from(timeout_ns % 1_000_000_000).expect("below 10^9"),
    };
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
    // SAFETY: the descriptor is open; `events` has room for `EVENTS`; `timeout` is alive for the call; no signal mask.
    let count = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.0.as_raw_fd(),
            events.as_mut_ptr(),
            EVENTS,
            &raw const timeout,
            std::ptr::null::<libc::sigset_t>(),
            0_usize,
        )
    };
    let count = match usize::try_from(count) {
        Ok(count) => count,
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => 0,
            error => return Err(error),
        },
    };
    Ok(Events { events, count })
}
