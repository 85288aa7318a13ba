//! Barrier: processes are armed first and then released together.
//!
//! *Exec-stop*, the preferred method: the child requests tracing and calls `execve`, and the kernel
//! stops it before its first instruction, with its image loaded. The release is one
//! `PTRACE_DETACH`. Fork, exec and the search of the file are complete by then. *Pipe*, if tracing
//! is not permitted or would remove the privileges of a program: the child reads one byte from a
//! pipe and then calls `execve`, which is part of the measured time.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;
use nix::unistd::Pid;

use crate::clock::monotonic_ns;
use crate::program::{Environment, Executable};
use crate::work_groups::{THIS_THREAD, WorkGroups};

/// Method that stops a child at the barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierMethod {
    /// Stopped by the kernel after `execve`.
    ExecStop,
    /// Reading from a pipe before `execve`.
    Pipe,
}

/// Program, arguments and environment of a child.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a Executable,
    pub(crate) argv: &'a [String],
    pub(crate) environment: &'a Environment,
    pub(crate) directory: &'a Path,
    pub(crate) stdout: BorrowedFd<'a>,
    pub(crate) stderr: BorrowedFd<'a>,
}

/// A child at the barrier, or in its last step before it; leader of its own process group.
#[derive(Debug)]
pub(crate) struct Armed {
    /// The child, and its group.
    pub(crate) pid: Pid,
    /// Pipe that blocks the child; without it, the kernel stops the child.
    gate: Option<Gate>,
}

/// A released child.
#[derive(Debug)]
pub(crate) struct Released {
    /// The child, and its group.
    pub(crate) pid: Pid,
    /// Time of the monotonic clock directly before the release.
    pub(crate) start_ns: u64,
    /// Pipe for the error number of a failed `execve` (pipe barrier only).
    pub(crate) failure: Option<OwnedFd>,
}

#[derive(Debug)]
struct Gate {
    open: OwnedFd,
    failure: OwnedFd,
}

/// Stack of a child that shares our memory until its `execve`; the child makes only some system calls.
const CHILD_STACK_BYTES: usize = 128 * 1024;

/// Exit code of a child that did not execute its program; the reason is sent separately.
const NOT_STARTED: c_int = 127;

/// Arms children. Use it only on the thread that created it, because a tracer is a thread, not a
/// process.
#[derive(Debug)]
pub(crate) struct Barrier {
    stack: Vec<u8>,
    null: OwnedFd,
    parent: Pid,
    usual_files: libc::rlimit,
    usual_slack_ns: c_int,
    /// Control groups that every child joins.
    pub(crate) groups: WorkGroups,
    /// The best method that this host permits.
    pub(crate) method: BarrierMethod,
}

impl Barrier {
    /// Open the descriptors that children need and test whether they can be traced. `usual_files` and `usual_slack_ns`
    /// are the limits on descriptors and the timer slack for children, independent of the agent's own values.
    pub(crate) fn new(usual_files: libc::rlimit, usual_slack_ns: c_int) -> io::Result<Self> {
        let null = std::fs::File::open("/dev/null")
            .map_err(|error| io::Error::new(error.kind(), format!("/dev/null: {error}")))?;
        let stack = vec![0; CHILD_STACK_BYTES];
        let mut barrier = Self {
            stack,
            null: null.into(),
            parent: nix::unistd::getpid(),
            usual_files,
            usual_slack_ns,
            groups: WorkGroups::default(),
            method: BarrierMethod::ExecStop,
        };
        if !barrier.tracing_works() {
            barrier.method = BarrierMethod::Pipe;
        }
        Ok(barrier)
    }

    /// Returns the method for this program on this host.
    pub(crate) fn method_for(&self, program: &Executable) -> BarrierMethod {
        if program.privileged {
            BarrierMethod::Pipe
        } else {
            self.method
        }
    }

    /// Send a child to the barrier; [`Armed::stand`] reports its arrival. Between the two calls, the kernel loads the
    /// image of the child on another core while this thread forks the next. This nearly halves the time for many children.
    ///
    /// # Errors
    /// The error number of the call that failed; from `execve` for a file that cannot be executed.
    pub(crate) fn arm(&mut self, launch: &Launch<'_>) -> Result<Armed, Errno> {
        match self.method_for(launch.program) {
            BarrierMethod::ExecStop => self.arm_traced(launch),
            BarrierMethod::Pipe => self.arm_gated(launch),
        }
    }

    fn arm_traced(&mut self, launch: &Launch<'_>) -> Result<Armed, Errno> {
        let strings = Strings::new(launch)?;
        let child = self.child(launch, &strings, None);
        // CLONE_VM and CLONE_VFORK copy no page table, so arming stays fast with a long plan in memory. The agent
        // continues when `execve` has returned: a failure is then already in `child.error`.
        let pid = self.clone(&child, libc::CLONE_VM | libc::CLONE_VFORK)?;
        let error = child.error.load(Ordering::Acquire);
        if error != 0 {
            wait_for_end(pid);
            return Err(Errno::from_raw(error));
        }
        Ok(Armed { pid, gate: None })
    }

    fn arm_gated(&mut self, launch: &Launch<'_>) -> Result<Armed, Errno> {
        let strings = Strings::new(launch)?;
        let (gate_read, gate_write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let (failure_read, failure_write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let child = self.child(
            launch,
            &strings,
            Some((gate_read.as_raw_fd(), failure_write.as_raw_fd())),
        );
        let pid = self.clone(&child, 0)?;
        Ok(Armed {
            pid,
            gate: Some(Gate {
                open: gate_write,
                failure: failure_read,
            }),
        })
    }

    fn child(&self, launch: &Launch<'_>, strings: &Strings, gate: Option<(RawFd, RawFd)>) -> Child {
        Child {
            path: strings.path.as_ptr(),
            argv: strings.argv.as_ptr(),
            envp: strings.envp.as_ptr(),
            directory: strings.directory.as_ptr(),
            stdin: self.null.as_raw_fd(),
            stdout: launch.stdout.as_raw_fd(),
            stderr: launch.stderr.as_raw_fd(),
            parent: self.parent.as_raw(),
            usual_files: self.usual_files,
            usual_slack_ns: self.usual_slack_ns,
            groups: self.groups.descriptors(),
            gate,
            error: AtomicI32::new(0),
        }
    }

    fn clone(&mut self, child: &Child, flags: c_int) -> Result<Pid, Errno> {
        let top = self.stack.as_mut_ptr_range().end;
        let top = top.wrapping_sub(top as usize % 16).cast::<c_void>();
        let argument = std::ptr::from_ref(child).cast::<c_void>().cast_mut();
        // SAFETY: `become_program` makes only async-signal-safe calls on the data of `child`, which
        // stay valid: with CLONE_VM, CLONE_VFORK blocks this thread until the child has left this
        // memory; without it, the child has a copy. For the same reason, no other thread uses the
        // stack.
        let pid = unsafe { libc::clone(become_program, top, flags | libc::SIGCHLD, argument) };
        Errno::result(pid).map(Pid::from_raw)
    }

    /// Arms and kills one child, which is the only reliable test of all rules that can forbid
    /// tracing.
    fn tracing_works(&mut self) -> bool {
        let program = Executable {
            path: "/proc/self/exe".into(),
            privileged: false,
        };
        let environment = Environment::new(&[]);
        let Ok(sink) = std::fs::OpenOptions::new().write(true).open("/dev/null") else {
            return false;
        };
        let sink = OwnedFd::from(sink);
        let sink = std::os::fd::AsFd::as_fd(&sink);
        let launch = Launch {
            program: &program,
            argv: &["venturi-engine".into()],
            environment: &environment,
            directory: Path::new("/"),
            stdout: sink,
            stderr: sink,
        };
        let Ok(armed) = self.arm_traced(&launch) else {
            return false;
        };
        let stands = armed.stand().is_ok();
        if stands {
            armed.cancel();
        }
        stands
    }
}

impl Armed {
    /// Waits until the child is stopped at the barrier. Call this once, before the release.
    ///
    /// # Errors
    /// The error number, if the child has ended instead, because it was killed or the kernel could
    /// not load its image.
    pub(crate) fn stand(&self) -> Result<(), Errno> {
        match self.gate {
            Some(_) => Ok(()),
            None => wait_for_exec_stop(self.pid),
        }
    }

    /// Releases the child.
    pub(crate) fn release(self) -> Released {
        let start_ns = monotonic_ns();
        match &self.gate {
            None => {
                // A killed child cannot be detached; reaping it gives the reason.
                let _ = nix::sys::ptrace::detach(self.pid, None);
            }
            Some(gate) => {
                let _ = nix::unistd::write(&gate.open, b"g");
            }
        }
        Released {
            pid: self.pid,
            start_ns,
            failure: self.gate.map(|gate| gate.failure),
        }
    }

    /// Kills the child before its release, and reaps it.
    pub(crate) fn cancel(&self) {
        let _ = nix::sys::signal::kill(self.pid, nix::sys::signal::Signal::SIGKILL);
        wait_for_end(self.pid);
    }
}

impl Released {
    /// Returns the error number of a failed `execve` after the pipe barrier; call this after the
    /// end of the child.
    pub(crate) fn exec_failure(&self) -> Option<Errno> {
        let mut word = [0; 4];
        let read = nix::unistd::read(self.failure.as_ref()?, &mut word);
        (read == Ok(word.len())).then(|| Errno::from_raw(i32::from_ne_bytes(word)))
    }
}

/// Texts and pointer tables for `execve`, created before the child exists.
struct Strings {
    path: CString,
    directory: CString,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    /// Owner of the data that `argv` points to.
    _argv: Vec<CString>,
}

impl Strings {
    fn new(launch: &Launch<'_>) -> Result<Self, Errno> {
        // A NUL inside an argument cannot be passed to any program.
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| Errno::EINVAL);
        let argv_text = launch
            .argv
            .iter()
            .map(|item| text(item.as_bytes()))
            .collect::<Result<Vec<_>, _>>()?;
        let end = std::iter::once(std::ptr::null());
        Ok(Self {
            path: text(launch.program.path.as_os_str().as_bytes())?,
            directory: text(launch.directory.as_os_str().as_bytes())?,
            argv: argv_text
                .iter()
                .map(|item| item.as_ptr())
                .chain(end.clone())
                .collect(),
            envp: launch
                .environment
                .entries()
                .map(CStr::as_ptr)
                .chain(end)
                .collect(),
            _argv: argv_text,
        })
    }
}

/// All data that the child reads between `clone` and `execve`.
struct Child {
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    directory: *const c_char,
    stdin: RawFd,
    stdout: RawFd,
    stderr: RawFd,
    parent: libc::pid_t,
    usual_files: libc::rlimit,
    usual_slack_ns: c_int,
    /// Files of the control groups to join.
    groups: Vec<RawFd>,
    /// Descriptors to wait on and to report a failure; none: the child is traced.
    gate: Option<(RawFd, RawFd)>,
    /// The error number, in memory that a traced child shares with this process.
    error: AtomicI32,
}

extern "C" fn become_program(argument: *mut c_void) -> c_int {
    // SAFETY: `Barrier::clone` passes a `Child` that lives until this function has ended or replaced the process.
    let child = unsafe { &*argument.cast::<Child>() };
    // SAFETY: called in the child right after `clone`, with pointers that `Strings` keeps alive.
    let error = unsafe { prepare_and_exec(child) };
    if let Some((_, failure)) = child.gate {
        let word = error.to_ne_bytes();
        // SAFETY: the descriptor is the child's own copy and `word` is four readable bytes.
        unsafe { libc::write(failure, word.as_ptr().cast(), word.len()) };
    }
    child.error.store(error, Ordering::Release);
    // SAFETY: leaves without the exit handlers, which belong to the agent.
    unsafe { libc::_exit(NOT_STARTED) }
}

/// Prepares the child and calls `execve`. Returns only after an error, with its number.
///
/// # Safety
/// For a new child only, with valid pointers in `child`. Makes only async-signal-safe calls and
/// never allocates, because another thread of the agent may hold the lock of the allocator, forever
/// in this copy.
unsafe fn prepare_and_exec(child: &Child) -> c_int {
    // SAFETY: system calls on the child's own state with valid arguments, see above.
    unsafe {
        if libc::setpgid(0, 0) != 0 {
            return Errno::last_raw();
        }
        // The child dies with the thread of the agent. If the agent died before this call, the
        // child would wait forever.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != child.parent {
            libc::_exit(NOT_STARTED);
        }
        // Fds 0, 1 and 2 lose their close-on-exec flag here; all others keep theirs.
        for (from, to) in [(child.stdin, 0), (child.stdout, 1), (child.stderr, 2)] {
            if libc::dup2(from, to) < 0 {
                return Errno::last_raw();
            }
        }
        if libc::chdir(child.directory) != 0 {
            return Errno::last_raw();
        }
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const child.usual_files);
        libc::prctl(libc::PR_SET_TIMERSLACK, child.usual_slack_ns);
        for group in &child.groups {
            if libc::write(*group, THIS_THREAD.as_ptr().cast(), THIS_THREAD.len()) < 0 {
                return Errno::last_raw();
            }
        }
        if let Some((gate, _)) = child.gate {
            let mut byte = 0_u8;
            if libc::read(gate, (&raw mut byte).cast(), 1) != 1 {
                libc::_exit(NOT_STARTED);
            }
        } else if libc::ptrace(
            libc::PTRACE_TRACEME,
            0,
            std::ptr::null_mut::<c_void>(),
            std::ptr::null_mut::<c_void>(),
        ) != 0
        {
            return Errno::last_raw();
        }
        restore_signals();
        libc::execve(child.path, child.argv, child.envp);
        Errno::last_raw()
    }
}

/// Resets ignored signals and the mask, which survive `execve`: a tool with an inherited ignored
/// SIGPIPE behaves differently than in a shell.
///
/// # Safety
/// For a new child only.
pub(crate) unsafe fn restore_signals() {
    // SAFETY: plain system calls; SIG_DFL is no handler, and the set is initialised before it is used.
    unsafe {
        for signal in 1..32 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Wait until a traced child stops before its first instruction.
fn wait_for_exec_stop(pid: Pid) -> Result<(), Errno> {
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    loop {
        match waitpid(pid, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Stopped(_, nix::sys::signal::Signal::SIGTRAP)) => break,
            // Another signal arrived first: deliver it to the child, which still stops after its
            // exec.
            Ok(WaitStatus::Stopped(_, signal)) => nix::sys::ptrace::cont(pid, signal)?,
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => return Err(Errno::ECHILD),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    // Without this option, a tracee would run without a release if its tracer dies.
    nix::sys::ptrace::setoptions(pid, nix::sys::ptrace::Options::PTRACE_O_EXITKILL)
}

fn wait_for_end(pid: Pid) {
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    loop {
        match waitpid(pid, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => return,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests;
