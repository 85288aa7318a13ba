//! The shell of a host: runs programs, servers, file commands and probes for a controller, during a whole run.
//!
//! Two processes of the engine run on a host: the agent measures without slow work in its loop, and
//! the shell does all other work. Out of scope: timing of transfers, which is the task of the
//! agent. Read [`serve_shell`] first, then `commands.rs`.

mod children;
mod commands;
mod connect;
mod converse;
mod failure;
mod files;
mod ports;
mod processes;
mod protocol;
mod run_command;
mod servers;
mod session;
mod spawn;
mod watchdog;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{Mode, umask};
use nix::sys::time::TimeSpec;

use crate::agent::{keep_descriptors_to_ourselves, raise_descriptor_limit};
use crate::clock::monotonic_ns;
use crate::input::{InputReading, Lines};
use crate::output::Writer;
use crate::properties;
use crate::worker::WorkerThreads;
use children::Children;
use commands::{Commands, ShellState};
use protocol::{
    ClockResult, ControllerMessage, PROTOCOL, ShellCommand, ShellHello, ShellOutcome, ShellRecord,
    ShellRequest, ShellResult,
};
use session::Session;
use watchdog::Role;

/// Interval of `alive`.
const ALIVE: Duration = Duration::from_secs(10);

/// Time for servers to end after SIGTERM when the session ends.
const GRACE: Duration = Duration::from_secs(2);

/// Time for the threads of commands to end after their processes.
const THREADS: Duration = Duration::from_secs(2);

/// Time for the last records to reach a controller that reads.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for the last records if the controller seems to be disconnected.
const PARTING: Duration = Duration::from_secs(1);

/// Parameters of a shell.
#[derive(Debug, Clone)]
pub struct ShellOptions {
    /// Name of the session directory.
    pub session: String,
    /// Directory of all sessions; none: `sessions` next to the program.
    pub sessions: Option<PathBuf>,
    /// Maximum time without input; after it, the controller counts as unreachable.
    pub silence: Duration,
}

/// Reason for the end of a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ShellExit {
    /// The command `end` with this number, or the end of standard input.
    Ended(Option<u64>),
    /// No input for the time of [`ShellOptions::silence`].
    Silence,
    /// Standard output is closed.
    Disconnected,
    /// SIGINT, SIGTERM or SIGHUP.
    Signal(i32),
    /// The shell cannot continue.
    Fatal(String),
}

/// Serves a controller on standard input and output until it sends `end` or disconnects. Then all
/// started processes end and the session directory is removed. `build` is the version and build of
/// the program, for `hello`.
///
/// Returns the exit code: 0 after `end` or the end of standard input; 1 if the controller was
/// silent or does not read; 2 after `fatal`; 128 plus the number of the signal that ended it.
///
/// Call this from the first thread, before any other thread starts, because the process forks.
#[must_use]
pub fn serve_shell(build: &str, options: &ShellOptions) -> u8 {
    keep_descriptors_to_ourselves();
    umask(Mode::from_bits_truncate(0o077));
    let session = match open_session(options) {
        Ok(session) => session,
        Err(message) => return fail(message),
    };
    let prepared = match watchdog::split(&session) {
        Ok(Role::Done(code)) => return code,
        Ok(Role::Shell) => Shell::prepare(session, options),
        Err(error) => Err(error),
    };
    match prepared {
        Ok((shell, writer)) => shell.live(build, writer),
        Err(error) => fail(format!("cannot start a shell on this host: {error}")),
    }
}

fn open_session(options: &ShellOptions) -> Result<Session, String> {
    let sessions = match &options.sessions {
        Some(sessions) => sessions.clone(),
        None => std::env::current_exe()
            .map_err(|error| format!("cannot find this program: {error}. Set --sessions."))?
            .with_file_name("sessions"),
    };
    Session::open(&sessions, &options.session)
}

/// Writes the record directly, because the writer does not exist yet.
fn fail(message: String) -> u8 {
    eprintln!("venturi-engine shell: {message}");
    let record = ShellRecord::Fatal { message };
    if let Ok(line) = serde_json::to_string(&record) {
        println!("{line}");
    }
    2
}

#[derive(Debug)]
struct Shell {
    session: Session,
    shared: Arc<ShellState>,
    commands: Commands,
    lines: Lines,
    signals: SignalFd,
    silence_ns: u64,
    last_input_ns: u64,
    next_alive_ns: u64,
}

impl Shell {
    fn prepare(session: Session, options: &ShellOptions) -> io::Result<(Self, Writer)> {
        let signals = SignalFd::with_flags(
            &watchdog::watched_signals(),
            SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK,
        )?;
        let files = raise_descriptor_limit()?;
        let threads = WorkerThreads::new()?;
        let waker = threads.waker().clone();
        // Send SIGHUP to this process, so that the loop ends as after any signal.
        let on_broken = move || {
            let _ = nix::sys::signal::kill(nix::unistd::getpid(), Signal::SIGHUP);
            waker.wake();
        };
        let writer = Writer::start(io::stdout(), on_broken)?;
        let marker = session.directory.display().to_string();
        let children = Children::new(session.process_log()?, marker, files);
        let shared = Arc::new(ShellState::new(
            session.directory.clone(),
            children,
            writer.sender(),
        ));
        let now_ns = monotonic_ns();
        let shell = Self {
            session,
            commands: Commands::new(Arc::clone(&shared), threads),
            shared,
            lines: Lines::default(),
            signals,
            silence_ns: nanoseconds(options.silence),
            last_input_ns: now_ns,
            next_alive_ns: now_ns + nanoseconds(ALIVE),
        };
        Ok((shell, writer))
    }

    fn live(mut self, build: &str, writer: Writer) -> u8 {
        self.shared
            .sender
            .push(&ShellRecord::Hello(Box::new(ShellHello {
                protocol: PROTOCOL,
                engine: build.to_owned(),
                pid: std::process::id(),
                directory: self.session.directory.display().to_string(),
                removed_sessions: self
                    .session
                    .removed
                    .iter()
                    .map(|directory| directory.display().to_string())
                    .collect(),
                clock: ClockResult::now(),
                properties: properties::host(),
            })));
        let end = loop {
            if let Err(end) = self.turn() {
                break end;
            }
        };
        self.part(&end, writer)
    }

    /// Ends all processes, removes the session, and sends the last records.
    fn part(mut self, end: &ShellExit, writer: Writer) -> u8 {
        let sender = &self.shared.sender;
        if let ShellExit::Fatal(message) = end {
            eprintln!("venturi-engine shell: {message}");
            sender.push(&ShellRecord::Fatal {
                message: message.clone(),
            });
        }
        self.shared.children.close();
        self.shared.stop_operations();
        let left = processes::end_descendants(GRACE);
        if !left.is_empty() {
            eprintln!("venturi-engine shell: killed processes do not end: {left:?}");
        }
        self.commands.abort();
        // A thread that opens a log would create it in the removed directory.
        self.commands.wait_for_threads(THREADS);
        if let Err(error) = self.session.remove() {
            // The watchdog tries again, after the last thread of this process.
            eprintln!(
                "venturi-engine shell: {}: cannot remove the session: {error}",
                self.session.directory.display()
            );
        }
        if let ShellExit::Ended(Some(number)) = end {
            sender.push(&ShellRecord::Result {
                number: Some(*number),
                outcome: ShellOutcome::Result(ShellResult::Nothing {}),
            });
        }
        let (limit, code) = match end {
            ShellExit::Ended(_) => (EXIT_TIMEOUT, 0),
            ShellExit::Silence | ShellExit::Disconnected => (PARTING, 1),
            ShellExit::Fatal(_) => (PARTING, 2),
            ShellExit::Signal(number) => (PARTING, 128 + u8::try_from(*number).unwrap_or(0)),
        };
        writer.finish(limit);
        code
    }

    /// Waits for an event and handles it.
    fn turn(&mut self) -> Result<(), ShellExit> {
        let readable = self
            .wait()
            .map_err(|error| ShellExit::Fatal(format!("cannot wait for events: {error}")))?;
        if readable.signal {
            self.take_signals()?;
            self.reap();
        }
        self.commands.proceed();
        if readable.input {
            self.take_input()?;
        }
        self.keep_time()
    }

    fn wait(&self) -> Result<Readable, Errno> {
        let silence_end_ns = self.last_input_ns.saturating_add(self.silence_ns);
        let wake_ns = self
            .commands
            .wake_ns()
            .unwrap_or(u64::MAX)
            .min(self.next_alive_ns)
            .min(silence_end_ns);
        let timeout = Duration::from_nanos(wake_ns.saturating_sub(monotonic_ns()));
        // SAFETY: the standard library keeps descriptor 0 open during the whole process.
        let stdin = unsafe { BorrowedFd::borrow_raw(0) };
        let watch = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut watched = [
            watch(self.signals.as_fd()),
            watch(self.commands.threads().waker().fd()),
            watch(stdin),
        ];
        match nix::poll::ppoll(&mut watched, Some(TimeSpec::from(timeout)), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
        let any = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        Ok(Readable {
            signal: any(&watched[0]),
            input: any(&watched[2]),
        })
    }

    fn take_signals(&mut self) -> Result<(), ShellExit> {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            match i32::try_from(signal.ssi_signo).unwrap_or(0) {
                libc::SIGCHLD => {}
                // Our own SIGHUP reports that standard output is broken.
                libc::SIGHUP if signal.ssi_pid == std::process::id() => {
                    return Err(ShellExit::Disconnected);
                }
                number => return Err(ShellExit::Signal(number)),
            }
        }
        Ok(())
    }

    fn reap(&self) {
        for (process, exit) in self.shared.children.reap() {
            self.shared.sender.push(&ShellRecord::Ended {
                process,
                exit_code: exit.code,
                signal: exit.signal,
            });
        }
    }

    fn take_input(&mut self) -> Result<(), ShellExit> {
        // SAFETY: as in `wait`.
        let reading = self.lines.read(unsafe { BorrowedFd::borrow_raw(0) });
        // A part of a line counts, too, because a large file can take long on a slow link.
        self.last_input_ns = monotonic_ns();
        while let Some(line) = self.lines.next_line() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            match ControllerMessage::parse(&line) {
                Ok(ControllerMessage::Heartbeat) => {}
                Ok(ControllerMessage::Request(request)) => self.take_request(request)?,
                Err(invalid) => self.shared.sender.push(&ShellRecord::Result {
                    number: invalid.number,
                    outcome: ShellOutcome::Error(invalid.failure),
                }),
            }
        }
        match reading {
            InputReading::More => Ok(()),
            InputReading::End => Err(ShellExit::Ended(None)),
            InputReading::TooLong => Err(ShellExit::Fatal(format!(
                "expected a command in a line of at most {} bytes",
                venturi_plan::LINE_LIMIT_BYTES
            ))),
        }
    }

    fn take_request(&mut self, request: ShellRequest) -> Result<(), ShellExit> {
        match request.command {
            ShellCommand::Clock(_) => self.shared.sender.push(&ShellRecord::Result {
                number: Some(request.number),
                outcome: ShellOutcome::Result(ShellResult::Clock(ClockResult::now())),
            }),
            ShellCommand::End(_) => return Err(ShellExit::Ended(Some(request.number))),
            _ => self.commands.add(request),
        }
        Ok(())
    }

    /// Sends `alive`, and ends after silence.
    fn keep_time(&mut self) -> Result<(), ShellExit> {
        let now_ns = monotonic_ns();
        if now_ns >= self.next_alive_ns {
            self.next_alive_ns = now_ns + nanoseconds(ALIVE);
            // A full queue drops it, because an old `alive` is useless.
            self.shared.sender.offer(&ShellRecord::Alive);
        }
        if now_ns.saturating_sub(self.last_input_ns) >= self.silence_ns {
            return Err(ShellExit::Silence);
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
struct Readable {
    signal: bool,
    input: bool,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
