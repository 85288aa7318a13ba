//! The life of an agent: say hello, look the host over, take the plan, carry it out, say done.
//!
//! One thread does everything that has to do with time, and waits in one place, for five things: the controller, the
//! children, the slow threads, signals, and the clock.

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
use venturi_plan::{ActorLine, Clock, Command, Fatal, Hello, Name, PROTOCOL, Record, Start};

use crate::barrier::Barrier;
use crate::clock::{monotonic_ns, unix_ns};
use crate::facts;
use crate::guardian::Guardian;
use crate::input::{Lines, Reading};
use crate::output::{Sender, Writer};
use crate::program::Environment;
use crate::reap;
use crate::run::{Job, Run, Tools};
use crate::scratch;
use crate::survey;
use crate::worker::Workers;

/// How long the last records may take to a controller that reads.
const LAST_WORDS: Duration = Duration::from_secs(60);

/// How long they may take to one that seems to be gone.
const PARTING: Duration = Duration::from_secs(1);

/// How an agent ends.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// The plan is carried out, or the controller has said `stop`.
    Done,
    /// Standard input has ended or standard output is not read: nobody is there.
    Alone,
    /// SIGINT, SIGTERM or SIGHUP.
    Signal(i32),
    /// The plan or this host does not allow to go on.
    Fatal(String),
}

/// Where the agent is on its way.
#[derive(Debug)]
enum Phase {
    /// Before `start`.
    New(Tools),
    /// Between `start` and the beginning.
    Waiting(Box<Waiting>),
    /// After `go`.
    Going(Box<Run>),
    /// In between, for a moment.
    Between,
}

#[derive(Debug)]
struct Waiting {
    tools: Tools,
    start: Start,
    environment: Environment,
    lines: Vec<ActorLine>,
    /// Shared counters, as far as they have been told; they only grow.
    counters: BTreeMap<Name, u64>,
    go: bool,
    surveyed: bool,
}

/// Serves a controller on standard input and output until the plan is carried out or the controller is gone. `build` is
/// the version and build of the program, for `hello`. Returns the exit code: 0 after `done`; 1 when the controller went
/// away first; 2 after `fatal`; 128 and the number of the signal that ended it.
///
/// To be called from the first thread, before any other is started: children are traced by the thread that forks them,
/// and die with it, and a guardian process is forked first of all.
#[must_use]
pub fn serve(build: &str) -> u8 {
    match prepare() {
        Ok((tools, writer, signals)) => {
            let end = Agent {
                phase: Phase::New(tools),
                lines: Lines::default(),
                signals,
            }
            .live(build, &writer.sender());
            part(&end, writer)
        }
        Err(error) => {
            let message = format!("expected an agent to start on this host, found: {error}");
            // Nothing is set up: the record goes out by hand.
            let _ = Record::Fatal(Fatal { message }).emit(io::stdout());
            2
        }
    }
}

/// Sets the process up. The order matters: the guardian before the first thread, signals blocked before it too, so that
/// every thread inherits the mask.
fn prepare() -> io::Result<(Tools, Writer, SignalFd)> {
    keep_descriptors_to_ourselves();
    let guardian = Guardian::start()?;
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
    let workers: Workers<Job> = Workers::new()?;
    let waker = workers.waker().clone();
    // A full SIGTERM of our own making: the loop then ends by the way that it knows.
    let on_broken = move || {
        let _ = nix::sys::signal::kill(nix::unistd::getpid(), Signal::SIGHUP);
        waker.wake();
    };
    let writer = Writer::start(io::stdout(), on_broken)?;
    let tools = Tools {
        barrier,
        guardian,
        sender: writer.sender(),
        workers,
        scratch: None,
    };
    Ok((tools, writer, signals))
}

/// Inherited descriptors must not leak into the children. Our own are close-on-exec from birth.
pub(crate) fn keep_descriptors_to_ourselves() {
    let open = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let numbers: Vec<i32> = open
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for fd in numbers.into_iter().filter(|fd| *fd > 2) {
        // SAFETY: sets a flag of a descriptor; for one that is closed meanwhile it only fails.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Room for many children at once, whose limits stay as they were. Returns those.
fn raise_descriptor_limit() -> io::Result<libc::rlimit> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // Not being allowed to leaves the usual limit, which is enough for most plans.
    let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    Ok(libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    })
}

/// Lets this thread's sleeps end when they are due, not up to 50 µs later. Returns the usual slack, in nanoseconds, for
/// the children, who would inherit ours.
fn sharpen_timers() -> i32 {
    const USUAL_NS: i32 = 50_000; // prctl(2)
    // SAFETY: both calls take and return numbers only.
    unsafe {
        let usual = libc::prctl(libc::PR_GET_TIMERSLACK);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        if usual > 0 { usual } else { USUAL_NS }
    }
}

fn part(end: &End, writer: Writer) -> u8 {
    let sender = writer.sender();
    if let End::Fatal(message) = end {
        eprintln!("venturi-engine agent: {message}");
        sender.send(&Record::Fatal(Fatal {
            message: message.clone(),
        }));
    }
    let (limit, code) = match end {
        End::Done => (LAST_WORDS, 0),
        End::Alone => (PARTING, 1),
        End::Fatal(_) => (LAST_WORDS, 2),
        End::Signal(number) => (PARTING, 128 + u8::try_from(*number).unwrap_or(0)),
    };
    writer.finish(limit);
    code
}

#[derive(Debug)]
struct Agent {
    phase: Phase,
    lines: Lines,
    signals: SignalFd,
}

impl Agent {
    fn live(mut self, build: &str, sender: &Sender) -> End {
        sender.send(&Record::Hello(Hello {
            protocol: PROTOCOL,
            engine: build.to_owned(),
            pid: std::process::id(),
            clock: Clock {
                monotonic_ns: monotonic_ns(),
                unix_ns: unix_ns(),
            },
            facts: facts::host(),
        }));
        let end = loop {
            if let Err(end) = self.turn() {
                break end;
            }
        };
        if let Phase::Going(run) = &mut self.phase {
            run.halt();
            if end == End::Done {
                run.close();
            }
        }
        end
    }

    /// Waits until something happens, and deals with it: the children first, as only theirs is a matter of time.
    fn turn(&mut self) -> Result<(), End> {
        let readable = self
            .wait()
            .map_err(|error| End::Fatal(format!("cannot wait for events: {error}")))?;
        if readable.signal {
            self.take_signals()?;
        }
        self.proceed()?;
        if let (true, Phase::Going(run)) = (readable.signal, &self.phase) {
            run.bury_orphans();
        }
        if readable.input {
            self.take_commands()?;
            self.proceed()?;
        }
        Ok(())
    }

    fn wait(&self) -> Result<Readable, Errno> {
        let now_ns = monotonic_ns();
        let wake_ns = match &self.phase {
            Phase::Going(run) => run.wake_ns(),
            _ => None,
        };
        let timeout = wake_ns
            .map(|wake_ns| TimeSpec::from(Duration::from_nanos(wake_ns.saturating_sub(now_ns))));
        // SAFETY: descriptor 0 is open for as long as the process: the standard library sees to it.
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
        // A closed pipe shows as an error or a hang-up, which a reading then tells as the end.
        let any = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        Ok(Readable {
            signal: any(&watched[0]),
            input: any(&watched[2]),
        })
    }

    fn workers(&self) -> &Workers<Job> {
        match &self.phase {
            Phase::New(tools) => &tools.workers,
            Phase::Waiting(waiting) => &waiting.tools.workers,
            Phase::Going(run) => &run.tools().workers,
            Phase::Between => {
                unreachable!("the phase is between two others only inside one function")
            }
        }
    }

    fn take_signals(&mut self) -> Result<(), End> {
        while let Ok(Some(told)) = self.signals.read_signal() {
            match i32::try_from(told.ssi_signo).unwrap_or(0) {
                libc::SIGCHLD => {} // the run looks at its children in each turn
                // Our own SIGHUP says that standard output is broken.
                libc::SIGHUP if told.ssi_pid == std::process::id() => return Err(End::Alone),
                number => return Err(End::Signal(number)),
            }
        }
        Ok(())
    }

    fn take_commands(&mut self) -> Result<(), End> {
        // SAFETY: as in `wait`.
        let reading = self.lines.read(unsafe { BorrowedFd::borrow_raw(0) });
        while let Some(line) = self.lines.next_line() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let command = Command::parse(&line).map_err(|error| End::Fatal(error.to_string()))?;
            self.take_command(command)?;
        }
        match reading {
            Reading::More => Ok(()),
            Reading::End => Err(End::Alone),
            Reading::TooLong => Err(End::Fatal(format!(
                "expected a command in a line of at most {} bytes",
                venturi_plan::LINE_LIMIT_BYTES
            ))),
        }
    }

    fn take_command(&mut self, command: Command) -> Result<(), End> {
        let wrong = |found: &str, expected: &str| {
            Err(End::Fatal(format!(
                "expected {expected}, found the command `{found}`"
            )))
        };
        match (command, std::mem::replace(&mut self.phase, Phase::Between)) {
            (Command::Stop, phase) => {
                self.phase = phase;
                return Err(End::Done);
            }
            (Command::Start(start), Phase::New(tools)) => {
                self.phase = Phase::Waiting(Box::new(begin_waiting(*start, tools)?))
            }
            (Command::Actor(actor), Phase::Waiting(mut waiting)) if !waiting.go => {
                waiting.lines.push(actor.line);
                self.phase = Phase::Waiting(waiting);
            }
            (Command::Go, Phase::Waiting(mut waiting)) if !waiting.go => {
                waiting.go = true;
                self.phase = Phase::Waiting(waiting);
            }
            (Command::Counter(counter), Phase::Waiting(mut waiting)) => {
                let known = waiting.counters.entry(counter.counter).or_default();
                *known = counter.value.max(*known);
                self.phase = Phase::Waiting(waiting);
            }
            (Command::Counter(counter), Phase::Going(mut run)) => {
                run.take_counter(counter.counter, counter.value);
                self.phase = Phase::Going(run);
            }
            (Command::Counter(_), phase) => {
                self.phase = phase;
                return wrong("counter", "`start` once, as the first command");
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

    /// Does what can be done now.
    fn proceed(&mut self) -> Result<(), End> {
        if let Phase::Waiting(waiting) = &mut self.phase {
            waiting.take_survey()?;
            if waiting.go && waiting.surveyed {
                let Phase::Waiting(waiting) = std::mem::replace(&mut self.phase, Phase::Between)
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
                let mut run = Run::begin(tools, start, environment, lines).map_err(End::Fatal)?;
                for (name, value) in counters {
                    run.take_counter(name, value);
                }
                self.phase = Phase::Going(Box::new(run));
            }
        }
        if let Phase::Going(run) = &mut self.phase {
            run.turn().map_err(End::Fatal)?;
            if run.is_finished() && !run.stays() {
                return Err(End::Done);
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

fn begin_waiting(start: Start, tools: Tools) -> Result<Waiting, End> {
    if !start.header.hosts.contains_key(&start.host) {
        let known = start
            .header
            .hosts
            .keys()
            .map(AsRef::as_ref)
            .collect::<Vec<_>>()
            .join(", ");
        return Err(End::Fatal(format!(
            "expected `host` to be one of {known}, found `{}`",
            start.host
        )));
    }
    if !start.scratch.starts_with('/') {
        return Err(End::Fatal(format!(
            "expected `scratch` to be an absolute path, found `{}`",
            start.scratch
        )));
    }
    let claim = scratch::claim(Path::new(&start.scratch)).map_err(End::Fatal)?;
    let environment = Environment::new(&start.search);
    let (theirs, method) = (start.clone(), tools.barrier.method);
    let look = move || {
        let environment = Environment::new(&theirs.search);
        Job::Surveyed(Box::new(survey::survey(&theirs, &environment, method)))
    };
    let begun = tools.workers.run("survey", look);
    begun.map_err(|error| End::Fatal(format!("cannot start a thread: {error}")))?;
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
    fn take_survey(&mut self) -> Result<(), End> {
        self.tools.workers.waker().clear();
        while let Some(result) = self.tools.workers.poll() {
            match result {
                Ok(Job::Surveyed(ready)) => self.tools.sender.send(&Record::Ready(*ready)),
                Ok(_) => continue,
                Err(_) => {
                    return Err(End::Fatal(
                        "the look over this host panicked; its last words are on stderr".into(),
                    ));
                }
            }
            self.surveyed = true;
        }
        Ok(())
    }
}
