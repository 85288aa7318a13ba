//! Main loop of the emulator: read the network, open the devices, move packets, send `done`.

use std::io;
use std::os::fd::AsRawFd;
use std::thread::JoinHandle;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use venturi_plan::{Fatal, Name};

use super::buffers::PacketBuffers;
use super::clock::ModelClock;
use super::idle_pollers::IdlePollers;
use super::input::{ControllerInput, Inbox};
use super::machine::{self, Machine};
use super::output::{Broken, Message, Outbox};
use super::report;
use super::run::{EmulatorRun, OpenInterface};
use super::tun::{Statistics, Tun};
use super::wait_strategy::{Wait, WaitStrategy};
use crate::EmulatorError;
use crate::model::EmulatorWorld;
use crate::protocol::{EmulatorCommand, EmulatorReady, EmulatorRecord, EmulatorStart};

/// Event numbers of the bell and the signals, which differ from all interface numbers.
const BELL: u64 = u64::MAX;
const SIGNALS: u64 = u64::MAX - 1;
/// Maximum number of descriptors per wait.
const EVENTS: usize = 64;
/// Minimum time between samples.
const SHORTEST_INTERVAL_S: f64 = 0.001;

/// Reason for the exit of the emulator.
enum EmulatorExit {
    /// The controller has sent `stop`.
    Done,
    /// The controller has disconnected.
    Alone,
    /// SIGINT, SIGTERM or SIGHUP.
    Signal(i32),
    /// The network or the machine is unusable.
    Fatal(EmulatorError),
}

impl From<Broken> for EmulatorExit {
    fn from(_: Broken) -> Self {
        Self::Alone
    }
}

impl From<EmulatorError> for EmulatorExit {
    fn from(error: EmulatorError) -> Self {
        Self::Fatal(error)
    }
}

/// Serve a controller on standard input and output until it sends `stop` or disconnects. Returns
/// the exit code: 0 after `done`; 1 if the controller disconnected first; 2 after `fatal`; 128 plus
/// the number of the signal that ended it.
///
/// Call this from the first thread, before any other thread starts.
#[must_use]
pub fn serve() -> u8 {
    let prepared = prepare().map_err(|source| EmulatorError::System {
        expected: "signals, threads and descriptors",
        source,
    });
    match prepared {
        Ok((emulator, output)) => part(emulator.live(), output),
        Err(error) => {
            eprintln!("venturi-engine emulator: {error}");
            let message = error.to_string();
            let line = serde_json::to_string(&EmulatorRecord::Fatal(Fatal {
                kind: None,
                message,
            }));
            println!("{}", line.expect("a text"));
            2
        }
    }
}

fn prepare() -> io::Result<(Emulator, JoinHandle<()>)> {
    let mut watched = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        watched.add(signal);
    }
    // Block signals before the first thread starts, so that all threads inherit the mask.
    watched.thread_block()?;
    let signals = SignalFd::with_flags(&watched, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let (outbox, output) = Outbox::start()?;
    let inbox = Inbox::start()?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&*inbox.bell, EpollEvent::new(EpollFlags::EPOLLIN, BELL))?;
    epoll.add(&signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNALS))?;
    let emulator = Emulator {
        epoll,
        signals,
        inbox,
        outbox,
    };
    Ok((emulator, output))
}

/// Send the last record. No other outbox exists, so the output thread writes the rest and ends.
fn part((end, outbox): (EmulatorExit, Outbox), output: JoinHandle<()>) -> u8 {
    let code = match end {
        EmulatorExit::Done => 0,
        EmulatorExit::Alone => return 1, // the thread may block in a write without a reader; the process exits without it
        EmulatorExit::Fatal(error) => {
            eprintln!("venturi-engine emulator: {error}");
            let message = error.to_string();
            let _ = outbox.send(EmulatorRecord::Fatal(Fatal {
                kind: None,
                message,
            })); // no recipient for an error
            2
        }
        EmulatorExit::Signal(number) => 128 + u8::try_from(number).unwrap_or(0),
    };
    drop(outbox);
    let _ = output.join();
    code
}

struct Emulator {
    epoll: Epoll,
    signals: SignalFd,
    inbox: Inbox,
    outbox: Outbox,
}

impl Emulator {
    fn live(self) -> (EmulatorExit, Outbox) {
        let end = self.run_network();
        (end.err().unwrap_or(EmulatorExit::Done), self.outbox)
    }

    fn run_network(&self) -> Result<(), EmulatorExit> {
        let start = self.await_start()?;
        let (mut run, names, _machine) = self.start_emulation(start)?;
        // The bell has already rung for commands directly after `start`.
        let mut resumed = self.obey(&mut run);
        while resumed.is_ok() {
            resumed = self.turn(&mut run, &names);
        }
        let end = resumed.expect_err("that is why the loop ended");
        run.finish(matches!(end, EmulatorExit::Done))?;
        Err(end)
    }

    fn await_start(&self) -> Result<EmulatorStart, EmulatorExit> {
        loop {
            let events = self.wait(0, Wait::Sleep { until_ns: u64::MAX })?;
            events.tokens().try_for_each(|token| match token {
                SIGNALS => Err(self.signal()),
                _ => Ok(()),
            })?;
            self.inbox.silence();
            match self.inbox.next() {
                None => {}
                Some(ControllerInput::Command(EmulatorCommand::Start(start))) => return Ok(*start),
                Some(ControllerInput::Command(EmulatorCommand::Stop)) => {
                    return Err(EmulatorExit::Done);
                }
                Some(ControllerInput::Command(_)) => {
                    return Err(EmulatorExit::Fatal(EmulatorError::Order {
                        command: "start",
                        expected: "`start` as the first command".into(),
                        found: "another".into(),
                    }));
                }
                Some(ControllerInput::Bad(error)) => return Err(error.into()),
                Some(ControllerInput::End) => return Err(EmulatorExit::Alone),
            }
        }
    }

    /// Open the devices and report that they exist.
    fn start_emulation(
        &self,
        start: EmulatorStart,
    ) -> Result<(EmulatorRun, Vec<Name>, Machine), EmulatorExit> {
        let clock = ModelClock::new(start.epoch_unix_ns);
        let world = EmulatorWorld::new(&start.network, start.seed)?;
        let interval_ns = interval_ns(&start)?;
        let (opened, statistics) = open_all(&start)?;
        let buffers = PacketBuffers::new(world.extremes().held_bytes).map_err(|source| {
            EmulatorError::System {
                expected: "address space for packets",
                source,
            }
        })?;
        for (number, opened) in (0..).zip(&opened) {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, number);
            let added = self.epoll.add(&opened.tun, event);
            added.map_err(|error| EmulatorError::System {
                expected: "events of the TUN devices",
                source: error.into(),
            })?;
        }
        // Start the pollers before this thread raises its priority, which they would inherit.
        let awake = IdlePollers::start(clock, start.idle_group.as_deref());
        let awake = awake.map_err(|source| EmulatorError::System {
            expected: "threads in the cgroup for idle CPUs",
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
        self.outbox.send(EmulatorRecord::Ready(EmulatorReady {
            devices: devices.collect(),
            pollers: awake.pollers(),
        }))?;
        if let Some(finding) = report::memory(world.extremes(), machine::tcp_memory_bytes()) {
            self.outbox.send(EmulatorRecord::Finding(finding))?;
        }
        let outbox = self.outbox.clone();
        let smallest_rtt_ns = world.extremes().smallest_rtt_ns;
        let run = EmulatorRun::new(
            clock,
            world,
            opened,
            buffers,
            outbox,
            interval_ns,
            WaitStrategy::new(start.spin, machine::cpus(), awake, smallest_rtt_ns),
        )
        .map_err(|source| EmulatorError::System {
            expected: "a thread that writes packets",
            source,
        })?;
        Ok((run, names, machine))
    }

    #[inline]
    fn turn(&self, run: &mut EmulatorRun, names: &[Name]) -> Result<(), EmulatorExit> {
        let (now_ns, wait) = run.proceed()?;
        let events = self.wait(now_ns, wait)?;
        if wait != Wait::Poll {
            run.slept();
        }
        events.tokens().try_for_each(|token| match token {
            SIGNALS => Err(self.signal()),
            BELL => self.obey(run),
            number => {
                let number = u16::try_from(number).expect("the number of an interface");
                if !run.read(number)? {
                    let name = &names[usize::from(number)];
                    self.outbox
                        .send(EmulatorRecord::Finding(report::gone(name)))?;
                    run.forget(number, &self.epoll);
                }
                Ok(())
            }
        })
    }

    /// Wait for readable descriptors.
    #[inline]
    fn wait(&self, now_ns: u64, wait: Wait) -> Result<Events, EmulatorExit> {
        epoll_wait(&self.epoll, now_ns, wait).map_err(|source| {
            EmulatorExit::Fatal(EmulatorError::System {
                expected: "a wait for packets (`epoll_pwait2`, Linux 5.11)",
                source,
            })
        })
    }

    fn signal(&self) -> EmulatorExit {
        match self.signals.read_signal() {
            Ok(Some(reported)) => {
                EmulatorExit::Signal(i32::try_from(reported.ssi_signo).unwrap_or(0))
            }
            _ => EmulatorExit::Alone,
        }
    }

    fn obey(&self, run: &mut EmulatorRun) -> Result<(), EmulatorExit> {
        self.inbox.silence();
        while let Some(input) = self.inbox.next() {
            match input {
                ControllerInput::Command(EmulatorCommand::Go { elapsed_s }) => run.go(elapsed_s)?,
                ControllerInput::Command(EmulatorCommand::Change { link, set }) => {
                    run.change(&link, &set)??
                }
                ControllerInput::Command(EmulatorCommand::Capture {
                    link,
                    path,
                    snap_bytes,
                }) => run.capture(&link, path, snap_bytes)?,
                ControllerInput::Command(EmulatorCommand::CaptureStop { link }) => {
                    run.capture_stop(&link)??
                }
                ControllerInput::Command(EmulatorCommand::Stop) => return Err(EmulatorExit::Done),
                ControllerInput::Command(EmulatorCommand::Start(_)) => {
                    return Err(EmulatorExit::Fatal(EmulatorError::Order {
                        command: "start",
                        expected: "`start` once, as the first command".into(),
                        found: "it again".into(),
                    }));
                }
                ControllerInput::Bad(error) => return Err(error.into()),
                ControllerInput::End => return Err(EmulatorExit::Alone),
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
fn interval_ns(start: &EmulatorStart) -> Result<Option<u64>, EmulatorError> {
    let Some(interval) = start.interval_s else {
        return Ok(None);
    };
    if !(SHORTEST_INTERVAL_S..=1e6).contains(&interval.get()) {
        return Err(EmulatorError::Order {
            command: "start",
            expected: format!("an `interval_s` of at least {SHORTEST_INTERVAL_S}, or null"),
            found: interval.to_string(),
        });
    }
    Ok(Some((interval.get() * 1e9) as u64))
}

fn open_all(start: &EmulatorStart) -> Result<(Vec<OpenInterface>, Vec<Statistics>), EmulatorError> {
    let open =
        |(name, interface): (&Name, &venturi_plan::Interface)| {
            let namespace = start.namespaces.get(&interface.host).ok_or_else(|| {
                EmulatorError::NoNamespace {
                    host: interface.host.to_string(),
                    interface: name.to_string(),
                }
            })?;
            let (tun, statistics) = Tun::open(name, interface, namespace)?;
            let opened = OpenInterface {
                tun,
                offload: interface.offload,
                mtu: interface.mtu,
            };
            Ok((opened, statistics))
        };
    start.network.interfaces.iter().map(open).collect()
}

/// Readable descriptors.
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
        Wait::Poll => 0,
        Wait::Sleep { until_ns } => until_ns.saturating_sub(now_ns),
    };
    let timeout = libc::timespec {
        tv_sec: i64::try_from(timeout_ns / 1_000_000_000).expect("a time in ns"),
        tv_nsec: i64::try_from(timeout_ns % 1_000_000_000).expect("below 10^9"),
    };
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
    // SAFETY: the descriptor is open; `events` has space for `EVENTS`; `timeout` is valid during
    // the call; no signal mask.
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
