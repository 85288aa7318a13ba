//! A controller for tests: starts a real agent, sends it a plan, collects its records.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::{Value, json};
use venturi_plan::{Hello, Outcome, Ready, Record, TransferRecord, Trial};

/// Maximum wait for a record, far more than needed on a busy host.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The program under test.
pub const ENGINE: &str = env!("CARGO_BIN_EXE_venturi-engine");

/// A scratch directory and the plan to execute in it.
pub struct TestScene {
    pub scratch: tempfile::TempDir,
    pub header: Value,
    pub actors: Vec<Value>,
    pub skip: Vec<&'static str>,
    pub search: Vec<String>,
    /// Other hosts that execute operations.
    pub hosts: serde_json::Map<String, Value>,
    /// Addresses of services that have started.
    pub services: serde_json::Map<String, Value>,
    /// Maximum time without a command.
    pub silence_s: Option<f64>,
    /// The umask of the agent; none: the umask of the tests.
    pub umask: Option<&'static str>,
    /// Whether the agent continues to sample after the end of its part.
    pub stay: bool,
}

impl TestScene {
    /// A plan with only a storage `disk` (`data` below the scratch directory).
    pub fn new() -> Self {
        let header = json!({
            "format": "venturi-plan", "version": 2, "name": "test", "seed": 1, "scale": 1.0, "scenario": {},
            "hosts": {"me": {"ssh": null, "memory_bytes": null}, "other": {"ssh": null, "memory_bytes": null}},
            "storages": {"disk": {"host": "me", "path": "data"}, "far": {"host": "other", "path": "data"}},
            "datasets": {}, "calls": {}, "draws": {}, "pools": {},
            "measure": {"interval_s": null, "counters": []},
            "totals": {"trials": 0, "transfers": 0, "bytes": 0, "disk_bytes": {}}
        });
        let scratch = tempfile::tempdir().expect("a scratch directory");
        Self {
            scratch,
            header,
            actors: Vec::new(),
            skip: Vec::new(),
            search: Vec::new(),
            hosts: serde_json::Map::new(),
            services: serde_json::Map::new(),
            silence_s: None,
            umask: None,
            stay: false,
        }
    }

    /// Returns the directory of the storage `disk`.
    pub fn disk(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    /// Adds a call with this command line; it is not verified, and its output is kept.
    pub fn call(self, name: &str, argv: &[&str]) -> Self {
        self.call_with(name, argv, json!({}))
    }

    /// Adds a call that runs in a shell.
    pub fn shell(self, name: &str, script: &str) -> Self {
        self.call(
            name,
            &["sh", "-c", script, "sh", "{source}", "{destination}"],
        )
    }

    /// Add a call with these additional keys.
    pub fn call_with(mut self, name: &str, argv: &[&str], keys: Value) -> Self {
        let mut call = json!({"mover": name, "options": {}, "argv": argv, "requires": [argv[0]], "timeout_s": 120.0,
            "capture": true, "expect": "nothing"});
        for (key, value) in keys.as_object().expect("keys and values") {
            call[key] = value.clone();
        }
        self.header["calls"][name] = call;
        self
    }

    /// Writes a shell script with this name to the first directory of the search path.
    pub fn tool(mut self, name: &str, script: &str) -> Self {
        let directory = self.scratch.path().join("bin");
        std::fs::create_dir_all(&directory).expect("a folder");
        write_script(&directory.join(name), &format!("#!/bin/sh\n{script}\n"));
        self.search = vec![directory.display().to_string()];
        self
    }

    /// Adds a dataset on `disk`.
    pub fn dataset(mut self, name: &str, files: u64, size_bytes: u64) -> Self {
        self.header["datasets"][name] = json!({"storage": "disk", "path": name, "files": files, "size_bytes": size_bytes, "seed": 1});
        self
    }

    /// Places the files of the host `other` on this machine, where the agent sees them.
    pub fn seeing(mut self) -> Self {
        let directory = self.scratch.path().join("other");
        std::fs::create_dir_all(&directory).expect("a folder");
        let other = json!({"scratch": directory, "seen": true});
        self.hosts.insert("other".into(), other);
        self
    }

    /// Places the files of the host `other` on this machine, where only its shell operates on them.
    pub fn requesting(mut self) -> Self {
        let other = json!({"scratch": self.scratch.path().join("other"), "seen": false});
        self.hosts.insert("other".into(), other);
        self
    }

    /// Returns the directory of the storage `far`, as the agent sees it.
    pub fn far(&self) -> PathBuf {
        self.scratch.path().join("other/data")
    }

    /// Adds a service of the host `other` that serves `far` at this service port.
    pub fn service(
        mut self,
        name: &str,
        service_port: &str,
        template: &str,
        ports: &[u16],
    ) -> Self {
        self.header["services"][name] = json!({"kind": "test", "host": "other", "storages": ["far"], "ports": ports,
            "service_ports": {service_port: template}});
        self
    }

    /// Adds steps to an actor.
    pub fn actor(mut self, actor: &str, steps: Vec<Value>) -> Self {
        self.actors
            .push(json!({"actor": actor, "host": "me", "steps": steps}));
        self
    }

    /// Starts an agent that executes the plan.
    pub fn start(&self) -> AgentProcess {
        let mut agent = self.introduce();
        agent.command(json!({"command": "go"}));
        agent
    }

    /// Like [`TestScene::start`], with this copy of the engine, while `PATH` contains no other
    /// engine.
    pub fn start_by(&self, engine: &Path) -> AgentProcess {
        let mut command = Command::new(engine);
        command.arg("agent").env("PATH", "/usr/bin:/bin");
        let mut agent = self.introduce_to(AgentProcess::spawn_by(command));
        agent.command(json!({"command": "go"}));
        agent
    }

    /// Starts an agent that has read the plan and waits for `go`.
    pub fn introduce(&self) -> AgentProcess {
        self.introduce_to(match self.umask {
            None => AgentProcess::spawn(),
            Some(umask) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("umask {umask}; exec \"$0\" agent"), ENGINE]);
                AgentProcess::spawn_by(shell)
            }
        })
    }

    fn introduce_to(&self, mut agent: AgentProcess) -> AgentProcess {
        agent.command(json!({"command": "start", "host": "me", "scratch": self.scratch.path(), "header": self.header,
            "epoch_unix_ns": unix_ns(), "skip": self.skip, "search": self.search, "hosts": self.hosts,
            "services": self.services, "silence_s": self.silence_s, "stay": self.stay}));
        for line in &self.actors {
            agent.command(json!({"command": "actor", "line": line}));
        }
        agent
    }

    /// Executes the plan to its end.
    pub fn run(&self) -> AgentOutput {
        self.start().finish()
    }
}

/// A trial with the number of its id.
pub fn trial(number: u32, steps: Vec<Value>) -> Value {
    json!({"step": "trial", "id": format!("t{number:07}"), "point": 0, "repetition": number, "block": 0, "factors": {},
        "steps": steps})
}

/// A transfer of this number of bytes.
pub fn transfer(call: &str, source: &str, destination: &str, bytes: u64) -> Value {
    json!({"step": "transfer", "call": call, "slot": 0, "source": source, "destination": destination, "files": 1,
        "bytes": bytes})
}

/// A transfer of this number of files and bytes in total.
pub fn transfer_many(
    call: &str,
    source: &str,
    destination: &str,
    (files, bytes): (u64, u64),
) -> Value {
    let mut step = transfer(call, source, destination, bytes);
    step["files"] = json!(files);
    step
}

/// Returns the step with additional keys.
pub fn with(mut step: Value, keys: Value) -> Value {
    for (key, value) in keys.as_object().expect("keys and values") {
        step[key] = value.clone();
    }
    step
}

/// Returns a transfer without bytes.
pub fn bare(call: &str) -> Value {
    transfer(call, "zero:", "null:", 0)
}

fn unix_ns() -> u64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970");
    u64::try_from(now.as_nanos()).expect("before 2554")
}

/// A running agent.
pub struct AgentProcess {
    pub child: Child,
    stdin: Option<ChildStdin>,
    records: Receiver<Value>,
}

impl AgentProcess {
    /// Start an agent without sending a command.
    pub fn spawn() -> Self {
        let mut engine = Command::new(ENGINE);
        engine.arg("agent");
        Self::spawn_by(engine)
    }

    fn spawn_by(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the engine is built");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, records) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let line = line.expect("text");
                let _ = sender.send(
                    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}")),
                );
            }
        });
        Self {
            child,
            stdin,
            records,
        }
    }

    pub fn command(&mut self, command: Value) {
        self.line(&command.to_string());
    }

    /// Send a line, which can be an invalid command. An agent that has exited does not receive it.
    pub fn line(&mut self, line: &str) {
        let _ = writeln!(self.stdin.as_mut().expect("stdin is open"), "{line}");
    }

    /// Closes its standard input.
    pub fn leave(&mut self) {
        self.stdin = None;
    }

    /// Returns the next record of this kind and skips others.
    pub fn next(&self, kind: &str) -> Value {
        loop {
            let record = self
                .records
                .recv_timeout(TIMEOUT)
                .unwrap_or_else(|error| panic!("no `{kind}` came: {error}"));
            if record["record"] == kind {
                return record;
            }
        }
    }

    /// Wait for its exit, and return all of its output.
    pub fn finish(self) -> AgentOutput {
        self.finish_with(|_| None)
    }

    /// Like [`AgentProcess::finish`]; the shell of the other host executes the requested
    /// operations.
    pub fn relay(self, shell: &mut ShellProcess) -> AgentOutput {
        self.finish_with(|record| {
            let requested = record["record"] == "request";
            requested.then(|| shell.reply(record))
        })
    }

    /// Like [`AgentProcess::finish`]; each request gets this error.
    pub fn relay_errors(self, error: &str) -> AgentOutput {
        self.finish_with(|record| {
            let requested = record["record"] == "request";
            requested
                .then(|| json!({"command": "response", "number": record["number"], "error": error}))
        })
    }

    fn finish_with(mut self, mut reply: impl FnMut(&Value) -> Option<Value>) -> AgentOutput {
        let mut values = Vec::new();
        loop {
            match self.records.recv_timeout(TIMEOUT) {
                Ok(record) => {
                    if let Some(reply) = reply(&record) {
                        self.command(reply);
                    }
                    values.push(record);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    panic!("the agent sent no record for {TIMEOUT:?} after {values:#?}");
                }
            }
        }
        let status = self.child.wait().expect("our child");
        let parse = |value: &Value| {
            Record::parse(value.to_string().as_bytes())
                .unwrap_or_else(|error| panic!("{error} in {value}"))
        };
        let records = values.iter().map(parse).collect();
        AgentOutput {
            values,
            records,
            code: status.code(),
        }
    }
}

/// The running shell of the host `other`.
pub struct ShellProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    records: BufReader<ChildStdout>,
    sent: u64,
}

impl ShellProcess {
    /// Starts a shell with its session directory in the scratch directory of a scene.
    pub fn start(scene: &TestScene) -> Self {
        let mut child = Command::new(ENGINE)
            .args(["shell", "--session", "test", "--sessions"])
            .arg(scene.scratch.path().join("sessions"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the engine is built");
        let stdin = child.stdin.take();
        let records = BufReader::new(child.stdout.take().expect("a pipe"));
        Self {
            child,
            stdin,
            records,
            sent: 0,
        }
    }

    /// Returns the response to the request of an agent.
    fn reply(&mut self, request: &Value) -> Value {
        assert_eq!(request["host"], "other");
        self.sent += 1;
        let command =
            json!({"command": "operate", "number": self.sent, "operation": request["operation"]});
        writeln!(self.stdin.as_mut().expect("stdin is open"), "{command}").expect("it reads");
        loop {
            let mut line = String::new();
            let length = self.records.read_line(&mut line).expect("text");
            assert!(length > 0, "the shell has ended");
            let record: Value = serde_json::from_str(&line).expect("JSON");
            if record["number"] != self.sent {
                continue; // hello, alive
            }
            let mut response = json!({"command": "response", "number": request["number"]});
            match record.get("error") {
                Some(error) => response["error"] = error["message"].clone(),
                None => response["outcome"] = record["result"]["outcome"].clone(),
            }
            return response;
        }
    }
}

impl Drop for ShellProcess {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}

/// All output of an agent.
pub struct AgentOutput {
    pub values: Vec<Value>,
    pub records: Vec<Record>,
    pub code: Option<i32>,
}

impl AgentOutput {
    pub fn hello(&self) -> &Hello {
        self.records
            .iter()
            .find_map(|record| {
                if let Record::Hello(hello) = record {
                    Some(hello)
                } else {
                    None
                }
            })
            .expect("hello")
    }

    pub fn ready(&self) -> &Ready {
        self.records
            .iter()
            .find_map(|record| {
                if let Record::Ready(ready) = record {
                    Some(ready)
                } else {
                    None
                }
            })
            .expect("ready")
    }

    pub fn trials(&self) -> Vec<&Trial> {
        self.records
            .iter()
            .filter_map(|record| {
                if let Record::Trial(trial) = record {
                    Some(&**trial)
                } else {
                    None
                }
            })
            .collect()
    }

    /// Transfers of all trials, then transfers outside of trials.
    pub fn transfers(&self) -> Vec<&TransferRecord> {
        let loose = self.records.iter().filter_map(|record| {
            if let Record::Transfer(transfer) = record {
                Some(&**transfer)
            } else {
                None
            }
        });
        self.trials()
            .into_iter()
            .flat_map(|trial| &trial.transfers)
            .chain(loose)
            .collect()
    }

    /// Returns the only transfer.
    pub fn transfer(&self) -> &TransferRecord {
        let transfers = self.transfers();
        assert_eq!(transfers.len(), 1, "{:#?}", self.values);
        transfers[0]
    }

    pub fn outcomes(&self) -> Vec<Outcome> {
        self.transfers()
            .iter()
            .map(|transfer| transfer.outcome)
            .collect()
    }

    /// Returns the codes of all findings, in trials and outside.
    pub fn findings(&self) -> Vec<String> {
        let loose = self.records.iter().filter_map(|record| {
            if let Record::Finding(finding) = record {
                Some(finding)
            } else {
                None
            }
        });
        self.trials()
            .into_iter()
            .flat_map(|trial| &trial.findings)
            .chain(loose)
            .map(|finding| finding.code.clone())
            .collect()
    }

    pub fn last(&self) -> &Record {
        self.records.last().expect("every agent sends hello")
    }
}

/// Copy a program in a separate process: a child that another test forks must not keep it open for writing.
pub fn install(program: &Path, path: &Path, mode: &str) {
    let installed = Command::new("install")
        .args(["-m", mode])
        .args([program, path])
        .status();
    assert!(installed.expect("install is there").success());
}

/// Writes a script in the same way.
pub fn write_script(path: &Path, text: &str) {
    let written = path.with_extension("text");
    std::fs::write(&written, text).expect("a text");
    install(&written, path, "755");
    std::fs::remove_file(written).expect("it is there");
}

/// Returns the running members of a process group, without zombies.
pub fn group_members(group: i32) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let member = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name can contain any characters, so the fields are counted from its end: state,
        // parent, group.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        (fields[2] == group.to_string() && fields[0] != "Z").then_some(pid)
    };
    processes.filter_map(member).collect()
}

/// Waits until a condition holds, at most for the timeout.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !condition() {
        assert!(started.elapsed() < TIMEOUT, "{what} did not come about");
        std::thread::yield_now();
    }
}

/// Waits for a number in a file that another process writes.
pub fn wait_for_number(path: &Path) -> i32 {
    let mut number = None;
    wait_until("a number in a file", || {
        // The newline shows that the number is complete.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        number = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        number.is_some()
    });
    number.expect("waited for")
}
