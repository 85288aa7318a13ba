//! A controller for tests: starts a real shell, sends commands, collects records.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Maximum wait for a record or a process, far more than needed on a busy host.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// The program under test.
pub const ENGINE: &str = env!("CARGO_BIN_EXE_venturi-engine");

/// A running shell.
pub struct ShellProcess {
    pub child: Child,
    pub hello: Value,
    stdin: Option<ChildStdin>,
    records: Receiver<Value>,
    next: u64,
    /// Records that arrived before the awaited record.
    kept: Vec<Value>,
    replies: BTreeMap<u64, Value>,
}

/// Creates a directory for the sessions and other files of a test.
pub fn scene() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

impl ShellProcess {
    /// Starts a shell with the session `test` in `scene`, and waits for `hello`.
    pub fn start(scene: &TempDir) -> Self {
        Self::start_with(scene, &[])
    }

    /// Like [`ShellProcess::start`], with more options.
    pub fn start_with(scene: &TempDir, options: &[&str]) -> Self {
        let mut command = command(scene, "test");
        command.args(options);
        Self::start_by(command)
    }

    /// Starts a shell by any command line.
    pub fn start_by(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the engine is built");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, records) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let line = line.expect("text");
                let record =
                    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
                let _ = sender.send(record);
            }
        });
        let mut shell = Self {
            stdin: child.stdin.take(),
            child,
            hello: Value::Null,
            records,
            next: 0,
            kept: Vec::new(),
            replies: BTreeMap::new(),
        };
        shell.hello = shell.record("hello");
        shell
    }

    /// Returns the session directory.
    pub fn directory(&self) -> PathBuf {
        self.hello["directory"].as_str().expect("a path").into()
    }

    /// Returns the PID of the shell itself; the child of this process is its watchdog.
    pub fn pid(&self) -> i32 {
        number(&self.hello["pid"])
    }

    /// Returns the PID of the watchdog.
    pub fn watchdog(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Sends unmodified text.
    pub fn text(&mut self, text: &str) {
        // A shell that has exited does not receive it.
        let _ = self
            .stdin
            .as_mut()
            .expect("stdin is open")
            .write_all(text.as_bytes());
    }

    /// Closes its standard input.
    pub fn leave(&mut self) {
        self.stdin = None;
    }

    /// Sends a command and returns its number.
    pub fn send(&mut self, mut command: Value) -> u64 {
        let number = self.next;
        self.next += 1;
        command["number"] = json!(number);
        self.text(&format!("{command}\n"));
        number
    }

    /// Sends a command and returns its result.
    pub fn call(&mut self, command: Value) -> Value {
        let shown = command.to_string();
        let number = self.send(command);
        let record = self.reply(number);
        assert!(record.get("error").is_none(), "{record} after {shown:.300}");
        record["result"].clone()
    }

    /// Sends a command that must fail, and returns the kind of its error.
    pub fn kind(&mut self, command: Value) -> String {
        let shown = command.to_string();
        let number = self.send(command);
        let record = self.reply(number);
        assert!(
            record.get("result").is_none(),
            "{record} after {shown:.300}"
        );
        let message = record["error"]["message"].as_str().expect("a text");
        assert!(!message.is_empty());
        record["error"]["kind"].as_str().expect("a text").to_owned()
    }

    /// Runs a program with the default limit.
    pub fn run(&mut self, argv: &[&str]) -> Value {
        self.call(json!({"command": "run", "argv": argv}))
    }

    /// Starts a server that runs a script of `sh`; its log is `NAME.log` in the session directory.
    pub fn start_server(&mut self, name: &str, script: &str) -> i32 {
        let log = self.directory().join(format!("{name}.log"));
        let result = self.call(
            json!({"command": "start", "process": name, "argv": ["sh", "-c", script], "log": log}),
        );
        number(&result["pid"])
    }

    /// Returns the reply to a command.
    pub fn reply(&mut self, number: u64) -> Value {
        loop {
            if let Some(reply) = self.replies.remove(&number) {
                return reply;
            }
            let record = self.receive();
            match record["number"]
                .as_u64()
                .filter(|_| record["record"] == "result")
            {
                Some(found) => {
                    let earlier = self.replies.insert(found, record);
                    assert_eq!(earlier, None, "one result for each command");
                }
                None => self.kept.push(record),
            }
        }
    }

    /// Returns the next record of a kind; for results, the next one without a number.
    pub fn record(&mut self, kind: &str) -> Value {
        loop {
            if let Some(at) = self.kept.iter().position(|record| record["record"] == kind) {
                return self.kept.remove(at);
            }
            let record = self.receive();
            match record["number"].as_u64() {
                Some(number) => {
                    self.replies.insert(number, record);
                }
                None => self.kept.push(record),
            }
        }
    }

    /// Returns whether the reply to a command has arrived.
    pub fn has_reply(&self, number: u64) -> bool {
        self.replies.contains_key(&number)
    }

    fn receive(&self) -> Value {
        self.records
            .recv_timeout(TIMEOUT)
            .unwrap_or_else(|error| panic!("no record came: {error}"))
    }

    /// Waits for its end. Returns its exit status and all other records.
    pub fn finish(mut self) -> (ExitStatus, Vec<Value>) {
        let mut values = std::mem::take(&mut self.kept);
        loop {
            match self.records.recv_timeout(TIMEOUT) {
                Ok(record) => values.push(record),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("the shell does not end"),
            }
        }
        (self.child.wait().expect("our child"), values)
    }
}

impl Drop for ShellProcess {
    fn drop(&mut self) {
        // The end of its input ends the shell, even after a failed test.
        self.stdin = None;
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Returns the command line of a shell.
pub fn command(scene: &TempDir, session: &str) -> Command {
    let mut command = Command::new(ENGINE);
    command
        .args(["shell", "--session", session, "--sessions"])
        .arg(scene.path().join("sessions"));
    command
}

pub fn number(value: &Value) -> i32 {
    let number = value
        .as_i64()
        .unwrap_or_else(|| panic!("a number: {value}"));
    i32::try_from(number).expect("a small number")
}

/// Returns whether a process exists and can run.
pub fn runs(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = stat.rsplit_once(')').expect("a name").1.trim_start();
    !state.starts_with(['Z', 'X'])
}

pub fn kill(pid: i32, signal: i32) {
    // SAFETY: a plain system call with numbers.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "{pid} exists");
}

/// Waits until a condition holds, at most for the timeout.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < TIMEOUT, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits for a number in a file that another process writes.
pub fn wait_for_number(path: &Path) -> i32 {
    let mut number = None;
    wait_until(&format!("a number in {}", path.display()), || {
        // The newline shows that the number is complete.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        number = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        number.is_some()
    });
    number.expect("waited for")
}

/// Returns the script of a server that ignores SIGTERM. It starts two daemons that have left its
/// session, the second also without its environment, and writes the PIDs of all three to files in
/// `directory`.
pub fn stubborn_server(directory: &Path) -> (String, [PathBuf; 3]) {
    let files = ["server", "daemon", "bare"].map(|name| directory.join(name));
    let [server, daemon, bare] = files.each_ref().map(|path| path.display());
    let script = format!(
        "trap '' TERM
         (setsid sh -c 'echo $$ > {daemon}; exec sleep 1000' &)
         (env -i /usr/bin/setsid /bin/sh -c 'echo $$ > {bare}; exec /bin/sleep 1000' &)
         echo $$ > {server}
         exec sleep 1000"
    );
    (script, files)
}
