//! A controller for tests: starts a real `sandbox`, runs commands in its hosts, searches for
//! remains.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Maximum wait, far more than needed on a busy host.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A user id without files.
pub const NOBODY_UID: &str = "65534";

/// User that starts and enters the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxUser {
    /// The user of the tests.
    Current,
    /// An ordinary user; only root can switch to it.
    Unprivileged,
}

impl SandboxUser {
    /// Returns whether tests can run as this user, and prints a message if not.
    pub fn is_possible(self) -> bool {
        if self == Self::Unprivileged && !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: only root can become another user");
            return false;
        }
        let started = Sandbox::spawn(self, &json!({"hosts": {"a": "a"}})).wait_ready();
        if started["record"] == "fatal" {
            assert!(
                !nix::unistd::geteuid().is_root() || self == Self::Unprivileged,
                "{started}"
            );
            eprintln!("skipped: this machine makes no namespaces: {started}");
        }
        started["record"] == "ready"
    }

    /// The command line that runs `program` as this user.
    fn command(self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        if self == Self::Current {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        let (user, group) = (
            format!("--reuid={NOBODY_UID}"),
            format!("--regid={NOBODY_UID}"),
        );
        command.args([&user, &group, "--clear-groups"]).arg(program);
        command
    }
}

/// Creates a directory that all users can read, with a copy of the engine that all users can run.
pub fn open_directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a folder");
    let everybody = |path: &Path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode");
    };
    everybody(directory.path());
    let engine = directory.path().join("engine");
    // Copy in a separate process, because a child that another test forks must not keep the copy
    // open for writing.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_venturi-engine"))
        .arg(&engine)
        .status();
    assert!(copied.expect("cp is there").success());
    everybody(&engine);
    (directory, engine)
}

/// A running `sandbox`.
#[derive(Debug)]
pub struct Sandbox {
    pub child: Child,
    user: SandboxUser,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Its record `ready`, after it was read.
    pub ready: Value,
    #[expect(dead_code, reason = "the binary that runs lies in it")]
    directory: tempfile::TempDir,
}

impl Sandbox {
    /// Starts a sandbox and sends it a configuration, without reading its output.
    pub fn spawn(user: SandboxUser, order: &Value) -> Self {
        let (directory, engine) = open_directory();
        let mut sandbox = Self::with(user, &engine, Stdio::piped(), directory);
        sandbox.stdin = sandbox.child.stdin.take();
        writeln!(sandbox.stdin.as_ref().expect("a pipe"), "{order}").expect("it reads");
        sandbox
    }

    /// Starts a sandbox that reads its configuration from `stdin`.
    pub fn adopt(engine: &Path, stdin: Stdio, directory: tempfile::TempDir) -> Self {
        Self::with(SandboxUser::Current, engine, stdin, directory)
    }

    fn with(user: SandboxUser, engine: &Path, stdin: Stdio, directory: tempfile::TempDir) -> Self {
        let mut child = user
            .command(engine)
            .arg("namespaces")
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the engine is built");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Self {
            child,
            user,
            stdin: None,
            stdout,
            ready: Value::Null,
            directory,
        }
    }

    /// Starts a sandbox and waits until it is ready.
    pub fn start(user: SandboxUser, order: &Value) -> Self {
        let mut sandbox = Self::spawn(user, order);
        let record = sandbox.wait_ready();
        assert_eq!(record["record"], "ready", "{record}");
        sandbox
    }

    /// Starts a sandbox with two hosts, `a` and `b`.
    pub fn two_hosts(user: SandboxUser) -> Self {
        Self::start(
            user,
            &json!({"hosts": {"a": "a.lab.test", "b": "b.lab.test"}}),
        )
    }

    /// Reads its first record.
    pub fn wait_ready(&mut self) -> Value {
        self.ready = self.record();
        self.ready.clone()
    }

    /// Reads its next record.
    pub fn record(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("text");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in `{line}`"))
    }

    /// Returns PID 1 of the sandbox, as numbered outside.
    pub fn init(&self) -> i32 {
        i32::try_from(self.ready["pid"].as_i64().expect("a number")).expect("a pid")
    }

    /// Returns the process of a host, as numbered outside.
    pub fn host(&self, host: &str) -> i32 {
        let inner = self.ready["pids"][host].as_i64().expect("a number");
        self.child_of_init(inner).expect("it lives")
    }

    /// Returns the child of PID 1 with this number inside, as numbered outside; zombies included.
    pub fn child_of_init(&self, inner: i64) -> Option<i32> {
        let fits = |pid: &i32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let last = |key: &str| {
                let line = status.lines().find(|line| line.starts_with(key))?;
                line.rsplit('\t').next()?.parse::<i64>().ok()
            };
            last("PPid:") == Some(i64::from(self.init())) && last("NSpid:") == Some(inner)
        };
        processes().into_iter().find(fits)
    }

    /// Returns a command in a host, entered in the same way as by the controller.
    pub fn enter(&self, host: &str, script: &str) -> Command {
        let mut command = self.user.command("nsenter");
        let target = format!("--target={}", self.host(host));
        command.args([&target, "--mount", "--uts", "--net", "--pid"]);
        if self.ready["user_namespace"] == true {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.args(["--", "sh", "-c", script]);
        command
    }

    /// Return the output of a script in a host.
    pub fn run_in(&self, host: &str, script: &str) -> String {
        let output = self.enter(host, script).output().expect("nsenter is there");
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout)
            .expect("text")
            .trim()
            .to_owned()
    }

    /// Start a script in a host that prints a line when it is ready, and continues. It has separate
    /// standard input and output.
    pub fn leave_in(&self, host: &str, script: &str) -> Child {
        let mut child = self
            .enter(host, script)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("nsenter is there");
        let mut first = [0_u8; 1];
        let stdout = child.stdout.as_mut().expect("a pipe");
        stdout.read_exact(&mut first).expect("it says something");
        child
    }

    /// Closes its standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        wait_for(&mut self.child)
    }

    /// Return its current remains.
    pub fn traces(&self) -> Traces {
        let (init, a) = (self.init(), self.host("a"));
        let inside = |pid: &i32| namespace(*pid, "pid") == namespace(init, "pid");
        let own: BTreeSet<String> = [init, a]
            .into_iter()
            .flat_map(|pid| ["mnt", "pid", "net", "uts", "user"].map(|kind| namespace(pid, kind)))
            .flatten()
            .collect();
        let ours = ["mnt", "pid", "net", "uts", "user"]
            .map(|kind| namespace(i32::try_from(std::process::id()).expect("a pid"), kind));
        Traces {
            processes: processes().into_iter().filter(inside).collect(),
            namespaces: own
                .into_iter()
                .filter(|name| !ours.contains(&Some(name.clone())))
                .collect(),
            taken: ticks(),
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.close_stdin();
        let _ = self.wait();
    }
}

/// Namespaces, processes and mounts of a sandbox, seen from outside.
#[derive(Debug)]
pub struct Traces {
    pub processes: BTreeSet<i32>,
    pub namespaces: BTreeSet<String>,
    /// Time of the observation, in clock ticks since boot.
    pub taken: u64,
}

impl Traces {
    /// Wait until the sandbox has no remains.
    pub fn wait_until_removed(&self) {
        wait_until(&format!("the end of {self:?}"), || {
            // The kernel reuses the number of a removed namespace, so later processes do not count.
            let old = |pid: &i32| started(*pid).is_some_and(|ticks| ticks <= self.taken);
            let left = processes().into_iter().filter(old).any(|pid| {
                let kinds = ["mnt", "pid", "pid_for_children", "net", "uts", "user"];
                let held = |kind: &&str| {
                    namespace(pid, kind).is_some_and(|name| self.namespaces.contains(&name))
                };
                kinds.iter().any(held)
            });
            !left && self.processes.iter().all(|pid| !old(pid) || !runs(*pid))
        });
    }
}

/// Returns all processes of this machine.
pub fn processes() -> BTreeSet<i32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Returns whether a process is running.
pub fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Returns the start of a process in clock ticks since boot, or none if it does not exist.
pub fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// Returns the current time on the clock of [`started`].
pub fn ticks() -> u64 {
    const TICKS_PER_S: f64 = 100.0; // USER_HZ, equal on all platforms of Rust
    let uptime = fs::read_to_string("/proc/uptime").expect("/proc");
    let seconds: f64 = uptime
        .split(' ')
        .next()
        .expect("a number")
        .parse()
        .expect("seconds");
    (seconds * TICKS_PER_S).ceil() as u64
}

/// Returns the name of a namespace of a process, or none if it has ended.
pub fn namespace(pid: i32, kind: &str) -> Option<String> {
    let link = fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()?;
    Some(link.to_str()?.to_owned())
}

/// Returns the targets of the descriptors of a process.
pub fn descriptors(pid: i32) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("it lives")
        .flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name, fs::read_link(entry.path()).ok()?))
        })
        .collect()
}

/// Returns the mounts of this process.
pub fn mounts() -> String {
    fs::read_to_string("/proc/self/mountinfo").expect("/proc")
}

pub fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).expect("it is there");
}

/// Waits for the end of a child.
pub fn wait_for(child: &mut Child) -> ExitStatus {
    let mut ended = None;
    wait_until("the end of a child", || {
        ended = child.try_wait().expect("our child");
        ended.is_some()
    });
    ended.expect("waited for")
}

/// Waits until a condition holds, at most for the timeout.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < TIMEOUT, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(1));
    }
}
