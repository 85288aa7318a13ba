//! A controller for tests: starts a real agent, gives it a plan, collects what it says.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::{Value, json};
use venturi_plan::{Hello, Outcome, Ready, Record, TransferRecord, Trial};

/// No test waits longer for a record; far more than any needs on a busy host.
const PATIENCE: Duration = Duration::from_secs(180);

/// The program under test.
const ENGINE: &str = env!("CARGO_BIN_EXE_venturi-engine");

/// A scratch directory and the plan that is to be carried out in it.
pub struct Scene {
    pub scratch: tempfile::TempDir,
    pub header: Value,
    pub actors: Vec<Value>,
    pub skip: Vec<&'static str>,
    pub search: Vec<String>,
    /// Other hosts whose files are here.
    pub sees: serde_json::Map<String, Value>,
    /// The umask of the agent; none: that of the tests.
    pub umask: Option<&'static str>,
    /// Whether the agent goes on sampling when its part is over.
    pub stay: bool,
}

impl Scene {
    /// A plan with a place `disk` (`data` below the scratch directory) and nothing else.
    pub fn new() -> Self {
        let header = json!({
            "format": "venturi-plan", "version": 1, "name": "test", "seed": 1, "scale": 1.0, "scenario": {},
            "hosts": {"me": {"ssh": null, "memory_bytes": null}, "other": {"ssh": null, "memory_bytes": null}},
            "places": {"disk": {"host": "me", "path": "data"}, "far": {"host": "other", "path": "data"}},
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
            sees: serde_json::Map::new(),
            umask: None,
            stay: false,
        }
    }

    /// The directory of the place `disk`.
    pub fn disk(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    /// Adds a call with this command line; nothing proves it, its output is kept.
    pub fn call(self, name: &str, argv: &[&str]) -> Self {
        self.call_with(name, argv, json!({}))
    }

    /// Adds a call that a shell carries out.
    pub fn shell(self, name: &str, script: &str) -> Self {
        self.call(
            name,
            &["sh", "-c", script, "sh", "{source}", "{destination}"],
        )
    }

    /// Adds a call with some keys of its own.
    pub fn call_with(mut self, name: &str, argv: &[&str], keys: Value) -> Self {
        let mut call = json!({"mover": name, "options": {}, "argv": argv, "requires": [argv[0]], "timeout_s": 120.0,
            "capture": true, "expect": "nothing"});
        for (key, value) in keys.as_object().expect("keys and values") {
            call[key] = value.clone();
        }
        self.header["calls"][name] = call;
        self
    }

    /// Writes a program of this name, for a shell to carry out, to where tools are looked for first.
    pub fn tool(mut self, name: &str, script: &str) -> Self {
        let folder = self.scratch.path().join("bin");
        std::fs::create_dir_all(&folder).expect("a folder");
        write_script(&folder.join(name), &format!("#!/bin/sh\n{script}\n"));
        self.search = vec![folder.display().to_string()];
        self
    }

    /// Adds a data set on `disk`.
    pub fn dataset(mut self, name: &str, files: u64, size_bytes: u64) -> Self {
        self.header["datasets"][name] = json!({"place": "disk", "path": name, "files": files, "size_bytes": size_bytes, "seed": 1});
        self
    }

    /// Puts the files of the host `other` on this machine, where the agent sees them.
    pub fn seeing(mut self) -> Self {
        let folder = self.scratch.path().join("other");
        std::fs::create_dir_all(&folder).expect("a folder");
        self.sees.insert("other".into(), json!(folder));
        self
    }

    /// The directory of the place `far`, where it is seen.
    pub fn far(&self) -> PathBuf {
        self.scratch.path().join("other/data")
    }

    /// Adds a service of the host `other` that serves `far` through this door.
    pub fn service(mut self, name: &str, door: &str, template: &str, ports: &[u16]) -> Self {
        self.header["services"][name] = json!({"kind": "test", "host": "other", "places": ["far"], "ports": ports,
            "doors": {door: template}});
        self
    }

    /// Adds steps to an actor.
    pub fn actor(mut self, actor: &str, steps: Vec<Value>) -> Self {
        self.actors
            .push(json!({"actor": actor, "host": "me", "steps": steps}));
        self
    }

    /// Starts an agent that carries the plan out.
    pub fn start(&self) -> Agent {
        let mut agent = self.introduce();
        agent.command(json!({"command": "go"}));
        agent
    }

    /// Starts an agent that knows the plan and waits for `go`.
    pub fn introduce(&self) -> Agent {
        let mut agent = match self.umask {
            None => Agent::spawn(),
            Some(umask) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("umask {umask}; exec \"$0\" agent"), ENGINE]);
                Agent::spawn_by(shell)
            }
        };
        agent.command(json!({"command": "start", "host": "me", "scratch": self.scratch.path(), "header": self.header,
            "epoch_unix_ns": unix_ns(), "skip": self.skip, "search": self.search, "sees": self.sees,
            "stay": self.stay}));
        for line in &self.actors {
            agent.command(json!({"command": "actor", "line": line}));
        }
        agent
    }

    /// Carries the plan out to its end.
    pub fn run(&self) -> Told {
        self.start().finish()
    }
}

/// A trial with the number of its id.
pub fn trial(number: u32, steps: Vec<Value>) -> Value {
    json!({"step": "trial", "id": format!("t{number:07}"), "point": 0, "repetition": number, "block": 0, "factors": {},
        "steps": steps})
}

/// A transfer of so many bytes.
pub fn transfer(call: &str, source: &str, destination: &str, bytes: u64) -> Value {
    json!({"step": "transfer", "call": call, "slot": 0, "source": source, "destination": destination, "files": 1,
        "bytes": bytes})
}

/// A transfer of so many files and bytes in all.
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

/// The step with some more keys.
pub fn with(mut step: Value, keys: Value) -> Value {
    for (key, value) in keys.as_object().expect("keys and values") {
        step[key] = value.clone();
    }
    step
}

/// A transfer that moves nothing.
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
pub struct Agent {
    pub child: Child,
    stdin: Option<ChildStdin>,
    records: Receiver<Value>,
}

impl Agent {
    /// Starts one that has not been told anything.
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

    /// Says something that may be no command. An agent that is gone already does not hear it.
    pub fn line(&mut self, line: &str) {
        let _ = writeln!(self.stdin.as_mut().expect("stdin is open"), "{line}");
    }

    /// Closes its standard input.
    pub fn leave(&mut self) {
        self.stdin = None;
    }

    /// The next record of this kind; others are passed over.
    pub fn next(&self, kind: &str) -> Value {
        loop {
            let record = self
                .records
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|error| panic!("no `{kind}` came: {error}"));
            if record["record"] == kind {
                return record;
            }
        }
    }

    /// Waits for its end, and tells all that it has said.
    pub fn finish(mut self) -> Told {
        let mut values = Vec::new();
        loop {
            match self.records.recv_timeout(PATIENCE) {
                Ok(record) => values.push(record),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    panic!("the agent said nothing for {PATIENCE:?} after {values:#?}");
                }
            }
        }
        let status = self.child.wait().expect("our child");
        let parse = |value: &Value| {
            Record::parse(value.to_string().as_bytes())
                .unwrap_or_else(|error| panic!("{error} in {value}"))
        };
        let records = values.iter().map(parse).collect();
        Told {
            values,
            records,
            code: status.code(),
        }
    }
}

/// All that an agent has said.
pub struct Told {
    pub values: Vec<Value>,
    pub records: Vec<Record>,
    pub code: Option<i32>,
}

impl Told {
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

    /// Transfers of all trials, then those of none.
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

    /// The one transfer.
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

    /// Codes of all findings, in trials and outside.
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
        self.records.last().expect("an agent says hello at least")
    }
}

/// Makes a copy of a program, by a process of its own: a child that another test forks meanwhile must not hold it open for writing.
pub fn install(program: &Path, path: &Path, mode: &str) {
    let installed = Command::new("install")
        .args(["-m", mode])
        .args([program, path])
        .status();
    assert!(installed.expect("install is there").success());
}

/// Writes a script, likewise.
pub fn write_script(path: &Path, text: &str) {
    let written = path.with_extension("text");
    std::fs::write(&written, text).expect("a text");
    install(&written, path, "755");
    std::fs::remove_file(written).expect("it is there");
}

/// Members of a process group that still run; a zombie does not.
pub fn group_members(group: i32) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let member = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name may hold anything, so the fields are counted from behind it: state, parent, group.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        (fields[2] == group.to_string() && fields[0] != "Z").then_some(pid)
    };
    processes.filter_map(member).collect()
}

/// Waits until a condition holds; the bound is the only clock.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what} did not come about");
        std::thread::yield_now();
    }
}

/// Reads a file that another process is about to write.
pub fn wait_for_number(path: &Path) -> i32 {
    let mut number = None;
    wait_until("a number in a file", || {
        // The line end says that the number is whole.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        number = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        number.is_some()
    });
    number.expect("waited for")
}
