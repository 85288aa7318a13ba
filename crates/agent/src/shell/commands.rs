//! Commands in flight. Each gets one reply, from its thread or, after its limit, from the main
//! loop.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use venturi_plan::{FileOperation, OperationResult};

use super::children::Children;
use super::connect::connect;
use super::converse::converse;
use super::failure::{FailureKind, ShellFailure};
use super::files;
use super::ports::PortTable;
use super::protocol::{
    ClockResult, ShellCommand, ShellOutcome, ShellRecord, ShellRequest, ShellResult,
};
use super::run_command::run;
use super::servers::{MAX_GRACE_S, ServerTable};
use crate::clock::monotonic_ns;
use crate::operations::Operations;
use crate::output::Sender;
use crate::worker::WorkerThreads;

/// Maximum number of threads that run commands; further commands wait. A thread that blocks beyond
/// the limit of its command does not count.
const MAX_THREADS: usize = 256;

/// Maximum waiting commands.
const MAX_WAITING: usize = 16_384;

/// Additional time after the limit of `run` and `stop` for their threads to kill processes and
/// reply.
const KILL_MARGIN: Duration = Duration::from_secs(10);

/// Additional time after the limit of other commands for their threads to reply with more details.
const MARGIN: Duration = Duration::from_secs(1);

/// Time between two checks for ended threads.
const PAUSE: Duration = Duration::from_millis(2);

/// Number of a started command. A controller can use its own numbers again, after the reply.
pub(crate) type Serial = u64;

/// All data that the threads share.
#[derive(Debug)]
pub(crate) struct ShellState {
    /// The session directory.
    pub(crate) directory: PathBuf,
    pub(crate) children: Children,
    pub(crate) servers: ServerTable,
    pub(crate) ports: PortTable,
    operations: Operations,
    stop_operations: Arc<AtomicBool>,
    pub(crate) sender: Sender,
    /// Commands without a reply, by their numbers.
    in_flight: Mutex<BTreeMap<u64, Serial>>,
}

/// Starts commands and watches their limits.
#[derive(Debug)]
pub(crate) struct Commands {
    shared: Arc<ShellState>,
    threads: WorkerThreads<Serial>,
    waiting: VecDeque<(Serial, ShellRequest)>,
    running: BTreeMap<Serial, Running>,
    next: Serial,
}

#[derive(Debug)]
struct Running {
    number: u64,
    deadline_ns: u64,
}

impl ShellState {
    /// Creates it without commands.
    pub(crate) fn new(directory: PathBuf, children: Children, sender: Sender) -> Self {
        let stop_operations = Arc::new(AtomicBool::new(false));
        Self {
            directory,
            children,
            operations: Operations::new(Arc::clone(&stop_operations)),
            stop_operations,
            servers: ServerTable::default(),
            ports: PortTable::default(),
            sender,
            in_flight: Mutex::default(),
        }
    }

    /// Lets running operations on files end early.
    pub(crate) fn stop_operations(&self) {
        self.stop_operations.store(true, Ordering::Relaxed);
    }

    /// Claims the right to reply; only one thread gets it.
    fn claim(&self, number: u64, serial: Serial) -> bool {
        let mut in_flight = self.lock();
        let is_ours = in_flight.get(&number) == Some(&serial);
        if is_ours {
            in_flight.remove(&number);
        }
        is_ours
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Serial>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Commands {
    /// Creates it without commands; results are reported through `threads`.
    pub(crate) fn new(shared: Arc<ShellState>, threads: WorkerThreads<Serial>) -> Self {
        Self {
            shared,
            threads,
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            next: 0,
        }
    }

    /// Returns the threads, to wait for their results.
    pub(crate) fn threads(&self) -> &WorkerThreads<Serial> {
        &self.threads
    }

    /// Accepts a command from the controller. Its reply follows later.
    pub(crate) fn add(&mut self, request: ShellRequest) {
        let serial = self.next;
        self.next += 1;
        let number = request.number;
        let rejection = if self.waiting.len() >= MAX_WAITING {
            Some((
                FailureKind::Other,
                format!("{MAX_WAITING} commands wait already. Send fewer at the same time."),
            ))
        } else if self.shared.lock().contains_key(&number) {
            Some((
                FailureKind::Invalid,
                format!("`number`: another command has the number {number} and no result yet"),
            ))
        } else {
            None
        };
        if let Some((kind, message)) = rejection {
            self.shared
                .sender
                .push(&ShellRecord::error(Some(number), kind, message));
            return;
        }
        self.shared.lock().insert(number, serial);
        self.waiting.push_back((serial, request));
        self.start_waiting();
    }

    /// Handles ended threads and commands that are beyond their limit.
    pub(crate) fn proceed(&mut self) {
        self.threads.waker().clear();
        self.take_ended();
        let now_ns = monotonic_ns();
        let is_late = |running: &Running| running.deadline_ns <= now_ns;
        for (serial, running) in self.running.extract_if(.., |_, running| is_late(running)) {
            if self.shared.claim(running.number, serial) {
                let message = "the command did not end within its limit".to_owned();
                self.shared.sender.push(&ShellRecord::error(
                    Some(running.number),
                    FailureKind::Timeout,
                    message,
                ));
            }
        }
        self.start_waiting();
    }

    /// Returns the time of the next [`Commands::proceed`].
    pub(crate) fn wake_ns(&self) -> Option<u64> {
        self.running
            .values()
            .map(|running| running.deadline_ns)
            .min()
    }

    /// Replies to all commands without a reply, because the shell ends.
    pub(crate) fn abort(&self) {
        let in_flight = std::mem::take(&mut *self.shared.lock());
        for number in in_flight.into_keys() {
            let message = "the shell ended before the command".to_owned();
            let record = ShellRecord::error(Some(number), FailureKind::Other, message);
            self.shared.sender.push(&record);
        }
    }

    /// Waits until the threads of all running commands have ended, at most `limit`: until then, they
    /// can create files.
    pub(crate) fn wait_for_threads(&mut self, limit: Duration) {
        let end = Instant::now() + limit;
        self.take_ended();
        while !self.running.is_empty() && Instant::now() < end {
            std::thread::sleep(PAUSE);
            self.take_ended();
        }
    }

    fn take_ended(&mut self) {
        while let Some(ended) = self.threads.poll() {
            // A job does not panic: it catches panics of its command.
            if let Ok(serial) = ended {
                self.running.remove(&serial);
            }
        }
    }

    fn start_waiting(&mut self) {
        while self.running.len() < MAX_THREADS
            && let Some((serial, request)) = self.waiting.pop_front()
        {
            let number = request.number;
            let limit = limit(&request);
            let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
            let shared = Arc::clone(&self.shared);
            let job = move || {
                respond(&shared, serial, &request);
                serial
            };
            match self.threads.run("command", job) {
                Ok(()) => {
                    let deadline_ns = monotonic_ns().saturating_add(limit_ns);
                    self.running.insert(
                        serial,
                        Running {
                            number,
                            deadline_ns,
                        },
                    );
                }
                Err(error) => {
                    if self.shared.claim(number, serial) {
                        let message = format!("cannot start a thread: {error}");
                        let record = ShellRecord::error(Some(number), FailureKind::Other, message);
                        self.shared.sender.push(&record);
                    }
                }
            }
        }
    }
}

/// Returns the maximum time of the thread of a command.
fn limit(request: &ShellRequest) -> Duration {
    match &request.command {
        ShellCommand::Run(_) => request.timeout + KILL_MARGIN,
        ShellCommand::Stop(stop) => {
            // An invalid grace period is an error of the command.
            let grace = Duration::from_secs_f64(stop.grace_s.clamp(0.0, MAX_GRACE_S));
            request.timeout.max(grace) + KILL_MARGIN
        }
        _ => request.timeout + MARGIN,
    }
}

/// Runs a command and sends its reply, unless it is beyond its limit.
fn respond(shared: &ShellState, serial: Serial, request: &ShellRequest) {
    let result = catch_unwind(AssertUnwindSafe(|| execute(shared, request)));
    let outcome = match result {
        Ok(result) => ShellOutcome::from(result),
        Err(_) => ShellOutcome::Error(ShellFailure {
            kind: FailureKind::Other,
            message: "internal error of the shell; see its messages on stderr".into(),
        }),
    };
    let is_started = matches!(outcome, ShellOutcome::Result(ShellResult::Start { .. }));
    if !shared.claim(request.number, serial) {
        return;
    }
    shared.sender.send(&ShellRecord::Result {
        number: Some(request.number),
        outcome,
    });
    if let (true, ShellCommand::Start(start)) = (is_started, &request.command)
        && let Some(exit) = shared.servers.announce(&start.process)
    {
        shared.sender.send(&ShellRecord::Ended {
            process: start.process.clone(),
            exit_code: exit.code,
            signal: exit.signal,
        });
    }
}

fn execute(shared: &ShellState, request: &ShellRequest) -> Result<ShellResult, ShellFailure> {
    let (children, directory) = (&shared.children, &shared.directory);
    match &request.command {
        ShellCommand::Run(command) => run(children, directory, command, request.timeout),
        ShellCommand::Start(command) => shared.servers.start(children, directory, command),
        ShellCommand::Stop(command) => shared.servers.stop(children, command),
        ShellCommand::Put(command) => files::put(command),
        ShellCommand::Get(command) => files::get(command),
        ShellCommand::Stat(command) => files::stat(command),
        ShellCommand::MakeDirectory(command) => files::make_directory(directory, command),
        ShellCommand::Remove(command) => files::remove(command),
        ShellCommand::List(command) => files::list(command),
        ShellCommand::FreePorts(command) => shared.ports.free(command),
        ShellCommand::Listen(command) => shared.ports.listen(command),
        ShellCommand::Close(command) => shared.ports.close(command),
        ShellCommand::Operate(command) => operate(&shared.operations, &command.operation),
        ShellCommand::Connect(command) => connect(command, request.timeout),
        ShellCommand::Converse(command) => converse(command, request.timeout),
        // The main loop handles `clock` and `end`; a queue would make the clock late.
        ShellCommand::Clock(_) => Ok(ShellResult::Clock(ClockResult::now())),
        ShellCommand::End(_) => Ok(ShellResult::Nothing {}),
    }
}

fn operate(
    operations: &Operations,
    operation: &FileOperation,
) -> Result<ShellResult, ShellFailure> {
    match operations.execute(operation) {
        OperationResult::Outcome(outcome) => Ok(ShellResult::Operate { outcome }),
        OperationResult::Error(message) => Err(ShellFailure {
            kind: FailureKind::Other,
            message,
        }),
    }
}
