//! A controller for tests: starts a real `hold`, runs commands in its hosts, looks for what is left.

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

/// No test waits longer; far more than any needs on a busy host.
const PATIENCE: Duration = Duration::from_secs(30);

/// An id that owns nothing.
pub const NOBODY: &str = "65534";

/// As whom the ground is held and entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// As whoever runs the tests.
    Caller,
    /// As an ordinary user; only root can become one.
    Nobody,
}

impl Who {
    /// Whether a test can be done as this one; says so if not.
    pub fn is_possible(self) -> bool {
        if self == Self::Nobody && !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: only root can become another user");
            return false;
        }
        let begun = Hold::spawn(self, &json!({"hosts": {"a": "a"}})).begin();
        if begun["record"] == "fatal" {
            assert!(
                !nix::unistd::geteuid().is_root() || self == Self::Nobody,
                "{begun}"
            );
            eprintln!("skipped: this machine makes no namespaces: {begun}");
        }
        begun["record"] == "ready"
    }

    /// The command line by which this one runs `program`.
    fn command(self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        if self == Self::Caller {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
        command.args([&user, &group, "--clear-groups"]).arg(program);
        command
    }
}

/// A folder that everybody may read, with a copy of the engine that everybody may run.
pub fn open_folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let everybody = |path: &Path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode");
    };
    everybody(folder.path());
    let engine = folder.path().join("engine");
    // By a process of its own: a child that another test forks meanwhile must not hold the copy open for writing.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_venturi-engine"))
        .arg(&engine)
        .status();
    assert!(copied.expect("cp is there").success());
    everybody(&engine);
    (folder, engine)
}

/// A running `hold`.
#[derive(Debug)]
pub struct Hold {
    pub child: Child,
    who: Who,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Its `ready`, once it was read.
    pub ready: Value,
    #[expect(dead_code, reason = "the binary that runs lies in it")]
    folder: tempfile::TempDir,
}

impl Hold {
    /// Starts one and gives it an order; what it says to it is not read yet.
    pub fn spawn(who: Who, order: &Value) -> Self {
        let (folder, engine) = open_folder();
        let mut hold = Self::with(who, &engine, Stdio::piped(), folder);
        hold.stdin = hold.child.stdin.take();
        writeln!(hold.stdin.as_ref().expect("a pipe"), "{order}").expect("it reads");
        hold
    }

    /// Starts one that takes its order from somewhere else.
    pub fn adopt(engine: &Path, stdin: Stdio, folder: tempfile::TempDir) -> Self {
        Self::with(Who::Caller, engine, stdin, folder)
    }

    fn with(who: Who, engine: &Path, stdin: Stdio, folder: tempfile::TempDir) -> Self {
        let mut child = who
            .command(engine)
            .arg("hold")
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the engine is built");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Self {
            child,
            who,
            stdin: None,
            stdout,
            ready: Value::Null,
            folder,
        }
    }

    /// One whose ground is there.
    pub fn start(who: Who, order: &Value) -> Self {
        let mut hold = Self::spawn(who, order);
        let record = hold.begin();
        assert_eq!(record["record"], "ready", "{record}");
        hold
    }

    /// Two hosts, `a` and `b`, and nothing else.
    pub fn two_hosts(who: Who) -> Self {
        Self::start(
            who,
            &json!({"hosts": {"a": "a.lab.test", "b": "b.lab.test"}}),
        )
    }

    /// Its first record.
    pub fn begin(&mut self) -> Value {
        self.ready = self.record();
        self.ready.clone()
    }

    /// Its next record.
    pub fn record(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("text");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in `{line}`"))
    }

    /// PID 1, as we number it.
    pub fn init(&self) -> i32 {
        i32::try_from(self.ready["pid"].as_i64().expect("a number")).expect("a pid")
    }

    /// The process of a host, as we number it.
    pub fn host(&self, host: &str) -> i32 {
        let inner = self.ready["pids"][host].as_i64().expect("a number");
        self.child_of_init(inner).expect("it lives")
    }

    /// The child of PID 1 that has this number inside, as we number it; a zombie is one, too.
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

    /// A command in a host, entered as the controller enters it.
    pub fn enter(&self, host: &str, script: &str) -> Command {
        let mut command = self.who.command("nsenter");
        let target = format!("--target={}", self.host(host));
        command.args([&target, "--mount", "--uts", "--net", "--pid"]);
        if self.ready["user_namespace"] == true {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.args(["--", "sh", "-c", script]);
        command
    }

    /// What a script prints in a host.
    pub fn ask(&self, host: &str, script: &str) -> String {
        let output = self.enter(host, script).output().expect("nsenter is there");
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout)
            .expect("text")
            .trim()
            .to_owned()
    }

    /// Starts a script in a host that prints a line when it is ready, and goes on. Its standard input and output are its own.
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
    pub fn let_go(&mut self) {
        self.stdin = None;
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        wait_for(&mut self.child)
    }

    /// What there is of it now.
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

impl Drop for Hold {
    fn drop(&mut self) {
        self.let_go();
        let _ = self.wait();
    }
}

/// What a ground is made of, as the machine sees it.
#[derive(Debug)]
pub struct Traces {
    pub processes: BTreeSet<i32>,
    pub namespaces: BTreeSet<String>,
    /// When they were taken, in clock ticks since the machine started.
    pub taken: u64,
}

impl Traces {
    /// Waits until none of it is left.
    pub fn wait_until_gone(&self) {
        wait_until(&format!("the end of {self:?}"), || {
            // The kernel gives the number of a namespace that is gone to the next one: whoever came later is not meant.
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

/// All processes of this machine.
pub fn processes() -> BTreeSet<i32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Whether a process is there and has not ended.
pub fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// When a process started, in clock ticks since the machine did; none of one that is not there.
pub fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// Now, on the clock of [`started`].
pub fn ticks() -> u64 {
    const TICKS_PER_S: f64 = 100.0; // USER_HZ, the same on every machine that Rust knows
    let uptime = fs::read_to_string("/proc/uptime").expect("/proc");
    let seconds: f64 = uptime
        .split(' ')
        .next()
        .expect("a number")
        .parse()
        .expect("seconds");
    (seconds * TICKS_PER_S).ceil() as u64
}

/// The name of a namespace of a process; none of one that has ended.
pub fn namespace(pid: i32, kind: &str) -> Option<String> {
    let link = fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()?;
    Some(link.to_str()?.to_owned())
}

/// Where the descriptors of a process lead to.
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

/// The mounts that this process sees.
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

/// Waits until a condition holds; the bound is the only clock.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(1));
    }
}
