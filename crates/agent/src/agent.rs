//! Main loop of an agent: send `hello`, survey the host, read the plan, run it, send `done`.
//!
//! One thread does all time-critical work and waits in a single call for five sources: the
//! controller, the children, the slow threads, signals, and the clock.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use venturi_plan::{
    ActorLine, Clock, Command, Fatal, FatalKind, Hello, Name, PROTOCOL, Record, Seconds, Start,
};

use crate::barrier::Barrier;
use crate::clock::{monotonic_ns, unix_ns};
use crate::input::{InputReading, Lines};
use crate::output::{Sender, Writer};
use crate::program::{self, Environment};
use crate::properties;
use crate::reap;
use crate::requests::Requests;
use crate::run::{Run, Tools, WorkerJob};
use crate::scratch::{self, ClaimError};
use crate::survey;
use crate::watchdog::Watchdog;
use crate::worker::WorkerThreads;

/// Time for the last records to reach a controller that reads.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for the last records if the controller seems to be disconnected.
const PARTING: Duration = Duration::from_secs(1);

/// Reason for the exit of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AgentExit {
    /// The plan is complete, or the controller has sent `stop`.
    Done,
    /// Standard input has ended or standard output is closed: the controller has disconnected.
    Disconnected,
    /// No command for this time: the connection to the controller is dead.
    Silent(Duration),
    /// SIGINT, SIGTERM or SIGHUP.
    Signal(i32),
    /// The plan or this host is unusable.
    Fatal(String),
    /// Another agent uses the scratch directory.
    ScratchInUse(String),
}

/// Phase of the agent.
#[derive(Debug)]
enum AgentPhase {
    /// Before `start`.
    New(Tools),
    /// Between `start` and `go`.
    Waiting(Box<Waiting>),
    /// After `go`.
    Running(Box<Run>),
    /// Temporary value during a change of the phase.
    Between,
}

#[derive(Debug)]
struct Waiting {
    tools: Tools,
    start: Start,
    environment: Environment,
    lines: Vec<ActorLine>,
    /// Shared counters with the last received values; they only grow.
    counters: BTreeMap<Name, u64>,
    go: bool,
    surveyed: bool,
}

/// Serves a controller on standard input and output until the plan is complete or the controller
/// disconnects. `build` is the version and build of the program, for `hello`. Returns the exit
/// code: 0 after `done`; 1 if the controller disconnected first; 2 after `fatal`; 128 plus the
/// number of the signal that ended it.
///
/// Call this from the first thread, before any other thread starts, because the watchdog is forked
/// first. The thread that forks children traces them, and they die with it.
#[must_use]
pub fn serve(build: &str) -> u8 {
    match prepare() {
        Ok((tools, writer, signals)) => {
            let end = Agent {
                phase: AgentPhase::New(tools),
                lines: Lines::default(),
                signals,
                silence: None,
                last_request_ns: monotonic_ns(),
            }
            .live(build, &writer.sender());
            part(&end, writer)
        }
        Err(error) => {
            let message = format!("cannot start an agent on this host: {error}");
            // Nothing is set up, so write the record directly.
            let _ = Record::Fatal(Fatal {
                kind: None,
                message,
            })
            .emit(io::stdout());
            2
        }
    }
}

/// Sets the process up. The order matters: the watchdog starts and signals are blocked before the
/// first thread, so that every thread inherits the mask.
fn prepare() -> io::Result<(Tools, Writer, SignalFd)> {
    keep_descriptors_to_ourselves();
    let watchdog = Watchdog::start()?;
    reap::adopt_orphans();
    let mut watched = SigSet::empty();
    for signal in [
        Signal::SIGCHLD,
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
    ] {
        watched.add(signal);
    }
    watched.thread_block()?;
    let signals = SignalFd::with_flags(&watched, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let barrier = Barrier::new(raise_descriptor_limit()?, sharpen_timers())?;
    let workers: WorkerThreads<WorkerJob> = WorkerThreads::new()?;
    let waker = workers.waker().clone();
    // Send SIGHUP to this process, so that the loop ends in the usual way.
    let on_broken = move || {
        let _ = nix::sys::signal::kill(nix::unistd::getpid(), Signal::SIGHUP);
        waker.wake();
    };
    let writer = Writer::start(io::stdout(), on_broken)?;
    let tools = Tools {
        requests: Requests::new(writer.sender()),
        barrier,
        watchdog,
        sender: writer.sender(),
        workers,
        scratch: None,
    };
    Ok((tools, writer, signals))
}

/// Sets close-on-exec for inherited descriptors, so that children do not get them. Descriptors of
/// the agent always have this flag.
pub(crate) fn keep_descriptors_to_ourselves() {
    let open = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let numbers: Vec<i32> = open
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for fd in numbers.into_iter().filter(|fd| *fd > 2) {
        // SAFETY: sets a flag of a descriptor; for a closed descriptor it only fails.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Raises limits for many children, and returns the old limits, which the children get.
pub(crate) fn raise_descriptor_limit() -> io::Result<libc::rlimit> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // Without the permission, the usual limit remains, which is enough for most plans.
    let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    Ok(libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    })
}

/// Makes sleeps of this thread end on time, and not up to 50 µs later. Returns the usual slack, in
/// nanoseconds, for the children, which would inherit the changed slack.
fn sharpen_timers() -> i32 {
    const USUAL_NS: i32 = 50_000; // prctl(2)
    // SAFETY: both calls take and return numbers only.
    unsafe {
        let usual = libc::prctl(libc::PR_GET_TIMERSLACK);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        if usual > 0 { usual } else { USUAL_NS }
    }
}

fn part(end: &AgentExit, writer: Writer) -> u8 {
    let sender = writer.sender();
    let fatal = match end {
        AgentExit::Fatal(message) => Some((None, message)),
        AgentExit::ScratchInUse(message) => Some((Some(FatalKind::ScratchInUse), message)),
        _ => None,
    };
    if let Some((kind, message)) = fatal {
        eprintln!("venturi-engine agent: {message}");
        sender.send(&Record::Fatal(Fatal {
            kind,
            message: message.clone(),
        }));
    }
    if let AgentExit::Silent(silence) = end {
        let silence_s = silence.as_secs_f64();
        eprintln!(
            "venturi-engine agent: expected a command from the controller within {silence_s} s, found none; check the connection"
        );
    }
    let (limit, code) = match end {
        AgentExit::Done => (EXIT_TIMEOUT, 0),
        AgentExit::Disconnected | AgentExit::Silent(_) => (PARTING, 1),
        AgentExit::Fatal(_) | AgentExit::ScratchInUse(_) => (EXIT_TIMEOUT, 2),
        AgentExit::Signal(number) => (PARTING, 128 + u8::try_from(*number).unwrap_or(0)),
    };
    writer.finish(limit);
    code
}

#[derive(Debug)]
struct Agent {
    phase: AgentPhase,
    lines: Lines,
    signals: SignalFd,
    /// Maximum time without a command.
    silence: Option<Duration>,
    /// Time of the latest command, by the monotonic clock.
    last_request_ns: u64,
}

impl Agent {
    fn live(mut self, build: &str, sender: &Sender) -> AgentExit {
        sender.send(&Record::Hello(Hello {
            protocol: PROTOCOL,
            engine: build.to_owned(),
            pid: std::process::id(),
            clock: Clock {
                monotonic_ns: monotonic_ns(),
                unix_ns: unix_ns(),
            },
            properties: properties::host(),
        }));
        let end = loop {
            if let Err(end) = self.turn() {
                break end;
            }
        };
        if let AgentPhase::Running(run) = &mut self.phase {
            run.halt();
            if end == AgentExit::Done {
                run.close();
            }
        }
        end
    }

    /// Waits for an event and handles it: children first, because only they are time-critical.
    fn turn(&mut self) -> Result<(), AgentExit> {
        let readable = self
            .wait()
            .map_err(|error| AgentExit::Fatal(format!("cannot wait for events: {error}")))?;
        if readable.signal {
            self.take_signals()?;
        }
        self.proceed()?;
        if let (true, AgentPhase::Running(run)) = (readable.signal, &self.phase) {
            run.bury_orphans();
        }
        if readable.input {
            self.take_commands()?;
            self.proceed()?;
            self.last_request_ns = monotonic_ns();
            return Ok(());
        }
        // Check this only here, because unread commands end a silence, too.
        match (self.silence, self.silent_ns()) {
            (Some(silence), Some(due_ns)) if monotonic_ns() >= due_ns => {
                Err(AgentExit::Silent(silence))
            }
            _ => Ok(()),
        }
    }

    /// Return the end of the maximum time without a command.
    fn silent_ns(&self) -> Option<u64> {
        let silence_ns = u64::try_from(self.silence?.as_nanos()).unwrap_or(u64::MAX);
        Some(self.last_request_ns.saturating_add(silence_ns))
    }

    fn wait(&self) -> Result<Readable, Errno> {
        let now_ns = monotonic_ns();
        let wake_ns = match &self.phase {
            AgentPhase::Running(run) => run.wake_ns(),
            _ => None,
        };
        let timeout = wake_ns
            .into_iter()
            .chain(self.silent_ns())
            .min()
            .map(|wake_ns| TimeSpec::from(Duration::from_nanos(wake_ns.saturating_sub(now_ns))));
        // SAFETY: the standard library keeps descriptor 0 open during the whole process.
        let stdin = unsafe { BorrowedFd::borrow_raw(0) };
        let watch = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut watched = [
            watch(self.signals.as_fd()),
            watch(self.workers().waker().fd()),
            watch(stdin),
        ];
        match nix::poll::ppoll(&mut watched, timeout, None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
        // A closed pipe causes an error or a hang-up; the next read then returns the end.
        let any = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        Ok(Readable {
            signal: any(&watched[0]),
            input: any(&watched[2]),
        })
    }

    fn workers(&self) -> &WorkerThreads<WorkerJob> {
        match &self.phase {
            AgentPhase::New(tools) => &tools.workers,
            AgentPhase::Waiting(waiting) => &waiting.tools.workers,
            AgentPhase::Running(run) => &run.tools().workers,
            AgentPhase::Between => {
                unreachable!("the phase is between two others only inside one function")
            }
        }
    }

    fn take_signals(&mut self) -> Result<(), AgentExit> {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            match i32::try_from(signal.ssi_signo).unwrap_or(0) {
                libc::SIGCHLD => {} // the run checks its children in each turn
                // Our own SIGHUP reports that standard output is broken.
                libc::SIGHUP if signal.ssi_pid == std::process::id() => {
                    return Err(AgentExit::Disconnected);
                }
                number => return Err(AgentExit::Signal(number)),
            }
        }
        Ok(())
    }

    fn take_commands(&mut self) -> Result<(), AgentExit> {
        // SAFETY: as in `wait`.
        let reading = self.lines.read(unsafe { BorrowedFd::borrow_raw(0) });
        while let Some(line) = self.lines.next_line() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let command =
                Command::parse(&line).map_err(|error| AgentExit::Fatal(error.to_string()))?;
            self.take_command(command)?;
        }
        match reading {
            InputReading::More => Ok(()),
            InputReading::End => Err(AgentExit::Disconnected),
            InputReading::TooLong => Err(AgentExit::Fatal(format!(
                "expected a command in a line of at most {} bytes",
                venturi_plan::LINE_LIMIT_BYTES
            ))),
        }
    }

    fn take_command(&mut self, command: Command) -> Result<(), AgentExit> {
        let wrong = |found: &str, expected: &str| {
            Err(AgentExit::Fatal(format!(
                "expected {expected}, found the command `{found}`"
            )))
        };
        match (
            command,
            std::mem::replace(&mut self.phase, AgentPhase::Between),
        ) {
            (Command::Stop, phase) => {
                self.phase = phase;
                return Err(AgentExit::Done);
            }
            (Command::Start(start), AgentPhase::New(tools)) => {
                self.silence = silence(&start)?;
                self.phase = AgentPhase::Waiting(Box::new(start_waiting(*start, tools)?))
            }
            (Command::Actor(actor), AgentPhase::Waiting(mut waiting)) if !waiting.go => {
                waiting.lines.push(actor.line);
                self.phase = AgentPhase::Waiting(waiting);
            }
            (Command::Go, AgentPhase::Waiting(mut waiting)) if !waiting.go => {
                waiting.go = true;
                self.phase = AgentPhase::Waiting(waiting);
            }
            (Command::Counter(counter), AgentPhase::Waiting(mut waiting)) => {
                let value = waiting.counters.entry(counter.counter).or_default();
                *value = counter.value.max(*value);
                self.phase = AgentPhase::Waiting(waiting);
            }
            (Command::Counter(counter), AgentPhase::Running(mut run)) => {
                run.take_counter(counter.counter, counter.value);
                self.phase = AgentPhase::Running(run);
            }
            (Command::EndService(ended), AgentPhase::Waiting(mut waiting)) => {
                waiting.start.ended_services.insert(ended.service);
                self.phase = AgentPhase::Waiting(waiting);
            }
            (Command::EndService(ended), AgentPhase::Running(mut run)) => {
                run.end_service(ended.service);
                self.phase = AgentPhase::Running(run);
            }
            (Command::Response(response), AgentPhase::Running(run)) => {
                run.tools().requests.respond(response);
                self.phase = AgentPhase::Running(run);
            }
            // The line itself shows that the controller is alive. A response can arrive after the
            // limit of its request.
            (Command::Heartbeat | Command::Response(_), phase) => self.phase = phase,
            (Command::Counter(_), phase) => {
                self.phase = phase;
                return wrong("counter", "`start` once, as the first command");
            }
            (Command::EndService(_), phase) => {
                self.phase = phase;
                return wrong("end_service", "`start` once, as the first command");
            }
            (Command::Start(_), phase) => {
                self.phase = phase;
                return wrong("start", "`start` once, as the first command");
            }
            (Command::Actor(_), phase) => {
                self.phase = phase;
                return wrong("actor", "actor lines between `start` and `go`");
            }
            (Command::Go, phase) => {
                self.phase = phase;
                return wrong("go", "`go` once, after `start`");
            }
        }
        Ok(())
    }

    /// Process all events that are due.
    fn proceed(&mut self) -> Result<(), AgentExit> {
        if let AgentPhase::Waiting(waiting) = &mut self.phase {
            waiting.take_survey()?;
            if waiting.go && waiting.surveyed {
                let AgentPhase::Waiting(waiting) =
                    std::mem::replace(&mut self.phase, AgentPhase::Between)
                else {
                    unreachable!("the phase was looked at just now");
                };
                let Waiting {
                    tools,
                    start,
                    environment,
                    lines,
                    counters,
                    ..
                } = *waiting;
                let mut run =
                    Run::start(tools, start, environment, lines).map_err(AgentExit::Fatal)?;
                for (name, value) in counters {
                    run.take_counter(name, value);
                }
                self.phase = AgentPhase::Running(Box::new(run));
            }
        }
        if let AgentPhase::Running(run) = &mut self.phase {
            run.turn().map_err(AgentExit::Fatal)?;
            if run.is_finished() && !run.stays() {
                return Err(AgentExit::Done);
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
struct Readable {
    signal: bool,
    input: bool,
}

/// Return the maximum time without a command.
fn silence(start: &Start) -> Result<Option<Duration>, AgentExit> {
    let Some(silence_s) = start.silence_s.map(Seconds::get) else {
        return Ok(None);
    };
    let silence = Duration::try_from_secs_f64(silence_s).ok();
    match silence.filter(|silence| !silence.is_zero()) {
        Some(silence) => Ok(Some(silence)),
        None => Err(AgentExit::Fatal(format!(
            "expected `silence_s` to be a number above 0 or null, found {silence_s}"
        ))),
    }
}

fn start_waiting(start: Start, tools: Tools) -> Result<Waiting, AgentExit> {
    if !start.header.hosts.contains_key(&start.host) {
        let value = start
            .header
            .hosts
            .keys()
            .map(AsRef::as_ref)
            .collect::<Vec<_>>()
            .join(", ");
        return Err(AgentExit::Fatal(format!(
            "expected `host` to be one of {value}, found `{}`",
            start.host
        )));
    }
    if !start.scratch.starts_with('/') {
        return Err(AgentExit::Fatal(format!(
            "expected `scratch` to be an absolute path, found `{}`",
            start.scratch
        )));
    }
    let claim = scratch::claim(Path::new(&start.scratch)).map_err(|error| match error {
        ClaimError::InUse(message) => AgentExit::ScratchInUse(message),
        ClaimError::Unusable(message) => AgentExit::Fatal(message),
    })?;
    // An error is harmless, because only shells of calls need the link, and some file systems have
    // no links.
    let links = program::link_engine(Path::new(&start.scratch)).ok();
    let links = links.and_then(|path| path.into_os_string().into_string().ok());
    let search: Vec<String> = links
        .into_iter()
        .chain(start.search.iter().cloned())
        .collect();
    let environment = Environment::new(&search);
    let (theirs, method) = (start.clone(), tools.barrier.method);
    let check = move || {
        let environment = Environment::new(&theirs.search);
        WorkerJob::Surveyed(Box::new(survey::survey(&theirs, &environment, method)))
    };
    let started = tools.workers.run("survey", check);
    started.map_err(|error| AgentExit::Fatal(format!("cannot start a thread: {error}")))?;
    Ok(Waiting {
        tools: Tools {
            scratch: Some(claim),
            ..tools
        },
        start,
        environment,
        lines: Vec::new(),
        counters: BTreeMap::new(),
        go: false,
        surveyed: false,
    })
}

impl Waiting {
    fn take_survey(&mut self) -> Result<(), AgentExit> {
        self.tools.workers.waker().clear();
        while let Some(result) = self.tools.workers.poll() {
            match result {
                Ok(WorkerJob::Surveyed(ready)) => self.tools.sender.send(&Record::Ready(*ready)),
                Ok(_) => continue,
                Err(_) => {
                    return Err(AgentExit::Fatal(
                        "the survey of this host panicked; see the messages on stderr".into(),
                    ));
                }
            }
            self.surveyed = true;
        }
        Ok(())
    }
}
