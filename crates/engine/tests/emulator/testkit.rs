//! Hosts for tests, each a thread in a network namespace without a name, and a network between them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// Maximum wait, far more than needed on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns whether this process can create namespaces and devices, and prints a message if not.
pub fn is_possible() -> bool {
    let possible =
        nix::unistd::geteuid().is_root() && std::path::Path::new("/dev/net/tun").exists();
    if !possible {
        eprintln!("skipped: network namespaces and TUN devices need root and /dev/net/tun");
    }
    possible
}

type Job = Box<dyn FnOnce() + Send>;

/// A host; its commands run in its namespace, which ends with the value.
pub struct TestHost {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    pub namespace: String,
}

impl TestHost {
    pub fn new() -> Self {
        let (jobs, theirs) = channel::<Job>();
        let (reported, namespace) = channel();
        let thread = std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a namespace");
            let (process, thread) = (std::process::id(), nix::unistd::gettid());
            reported
                .send(format!("/proc/{process}/task/{thread}/ns/net"))
                .expect("somebody waits for it");
            theirs.into_iter().for_each(|job| job());
        });
        Self {
            namespace: namespace.recv_timeout(TIMEOUT).expect("a namespace"),
            jobs: Some(jobs),
            thread: Some(thread),
        }
    }

    /// Start a command in the host; the caller can wait for its output.
    pub fn start<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Receiver<T> {
        let (done, result) = channel();
        let job: Job = Box::new(move || drop(done.send(job())));
        self.jobs
            .as_ref()
            .expect("it lives")
            .send(job)
            .expect("it lives");
        result
    }

    /// Runs a closure in the host.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        wait(&self.start(job))
    }

    /// Runs a program in the host; panics if it fails.
    pub fn sh(&self, line: &str) -> String {
        let line = line.to_owned();
        self.run(move || {
            let output = Command::new("sh")
                .args(["-ec", &line])
                .output()
                .expect("a shell");
            assert!(
                output.status.success(),
                "{line}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            String::from_utf8(output.stdout).expect("text")
        })
    }

    /// Returns the number of segments that TCP has sent, from kernel counters for new segments and
    /// for retransmissions.
    pub fn segments_sent(&self) -> u64 {
        self.tcp_counter("OutSegs") + self.tcp_counter("RetransSegs")
    }

    pub fn tcp_counter(&self, name: &str) -> u64 {
        let table = self.sh("cat /proc/thread-self/net/snmp");
        let mut rows = table.lines().filter(|row| row.starts_with("Tcp:"));
        let (names, values) = (rows.next().expect("names"), rows.next().expect("values"));
        let index = names
            .split_whitespace()
            .position(|known| known == name)
            .expect(name);
        values
            .split_whitespace()
            .nth(index)
            .expect("a value")
            .parse()
            .expect("a number")
    }

    /// Returns packets and bytes that `eth0` has sent.
    pub fn sent(&self) -> (u64, u64) {
        self.device_columns(8, 9)
    }

    /// Returns packets and bytes that `eth0` has received.
    pub fn received(&self) -> (u64, u64) {
        self.device_columns(0, 1)
    }

    fn device_columns(&self, bytes: usize, packets: usize) -> (u64, u64) {
        let table = self.sh("cat /proc/thread-self/net/dev");
        let row = table
            .lines()
            .find_map(|row| row.trim_start().strip_prefix("eth0:"))
            .expect("the device");
        let column = |index| {
            row.split_whitespace()
                .nth(index)
                .expect("a column")
                .parse()
                .expect("a number")
        };
        (column(packets), column(bytes))
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a failed test has printed the reason
        }
    }
}

/// Return the output of a job.
pub fn wait<T>(result: &Receiver<T>) -> T {
    result
        .recv_timeout(TIMEOUT)
        .expect("the job ends in time and without a panic")
}

/// Returns a link between two nodes, 100 Mb/s and 5 ms by default.
pub fn link(from: &str, to: &str, differing: &Value) -> Value {
    let mut link = json!({
        "from": from, "to": to, "rate_bit_per_s": 1e8, "delay_s": 0.005, "queue_bytes": 250_000,
    });
    let differing = differing.as_object().expect("an object").clone();
    link.as_object_mut().expect("an object").extend(differing);
    link
}

/// Returns a network of hosts `a` (10.77.0.1) and `b` (10.77.0.2) with a link in each direction:
/// `there`, `back`.
pub fn pair(there: &Value, interfaces: &Value) -> Value {
    let interface = |host: &str, number: u8| {
        let mut interface =
            json!({"host": host, "device": "eth0", "address": format!("10.77.0.{number}")});
        let differing = interfaces.as_object().expect("an object").clone();
        interface
            .as_object_mut()
            .expect("an object")
            .extend(differing);
        interface
    };
    json!({
        "interfaces": {"a": interface("a", 1), "b": interface("b", 2)},
        "links": {"there": link("a", "b", there), "back": link("b", "a", &json!({}))},
    })
}

/// A running emulator between two hosts.
pub struct EmulatorProcess {
    // Declared first, so that the namespaces end after the process.
    process: Child,
    stdin: Option<ChildStdin>,
    records: Receiver<Value>,
    pub seen: Vec<Value>,
    pub a: TestHost,
    pub b: TestHost,
}

impl EmulatorProcess {
    /// Starts the network and configures the hosts.
    pub fn new(network: &Value, start: &Value) -> Self {
        let mut emulator = Self::spawn();
        let mut command = json!({
            "command": "start", "epoch_unix_ns": unix_ns(), "seed": 1, "network": network,
            "namespaces": {"a": emulator.a.namespace, "b": emulator.b.namespace}, "interval_s": 0.05,
        });
        let start = start.as_object().expect("an object").clone();
        command.as_object_mut().expect("an object").extend(start);
        emulator.send(&command);
        let ready = emulator.wait_for("ready");
        assert_eq!(ready["devices"], json!({"a": "eth0", "b": "eth0"}));
        for (host, own, other) in [(&emulator.a, 1, 2), (&emulator.b, 2, 1)] {
            host.sh(&format!(
                "ip link set lo up; sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1; ip address add 10.77.0.{own}/32 dev eth0; \
                 ip link set eth0 up; ip route add 10.77.0.{other} dev eth0 congctl reno"
            ));
        }
        emulator
    }

    /// Starts the process without a network.
    pub fn spawn() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_venturi-engine"))
            .arg("emulator")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the engine");
        let stdout = BufReader::new(process.stdout.take().expect("piped"));
        let (sender, records) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let record = serde_json::from_str(&line).expect("a record is JSON");
                if sender.send(record).is_err() {
                    return;
                }
            }
        });
        Self {
            stdin: process.stdin.take(),
            process,
            records,
            seen: Vec::new(),
            a: TestHost::new(),
            b: TestHost::new(),
        }
    }

    pub fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(i32::try_from(self.process.id()).expect("a process id"))
    }

    pub fn send(&mut self, command: &Value) {
        let stdin = self.stdin.as_mut().expect("it is open");
        writeln!(stdin, "{command}").expect("the wire reads");
    }

    /// Send several commands together.
    pub fn send_all(&mut self, commands: &[Value]) {
        let lines: String = commands
            .iter()
            .map(|command| format!("{command}\n"))
            .collect();
        let stdin = self.stdin.as_mut().expect("it is open");
        stdin.write_all(lines.as_bytes()).expect("the wire reads");
    }

    /// Returns the next record of this kind.
    pub fn wait_for(&mut self, kind: &str) -> Value {
        self.wait_until(|record| record["record"] == kind)
    }

    /// Return the next matching record.
    pub fn wait_until(&mut self, mut good: impl FnMut(&Value) -> bool) -> Value {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let record = self.records.recv_timeout(left);
            let record = record.unwrap_or_else(|error| panic!("{error}, after {:?}", self.seen));
            self.seen.push(record.clone());
            if good(&record) {
                return record;
            }
        }
    }

    /// Returns a sample that was taken after this call.
    pub fn sample(&mut self) -> BTreeMap<String, f64> {
        while let Ok(old) = self.records.try_recv() {
            self.seen.push(old);
        }
        self.wait_for("sample");
        let sample = self.wait_for("sample");
        serde_json::from_value(sample["counters"].clone()).expect("counters")
    }

    /// Returns the number of segments that TCP of host `a` has sent, and a sample that was taken
    /// after a while without new segments.
    pub fn final_counters(&mut self) -> (u64, BTreeMap<String, f64>) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let before = self.a.segments_sent();
            let sample = self.sample();
            if before == self.a.segments_sent() {
                return (before, sample);
            }
            assert!(Instant::now() < deadline, "the connection becomes idle");
        }
    }

    /// Requests a change and waits until it is applied.
    pub fn change(&mut self, set: &Value) {
        self.send(&json!({"command": "change", "link": "there", "set": set}));
        let event = self.wait_for("event");
        assert_eq!(event["kind"], "network-change");
        assert_eq!(event["detail"], json!({"link": "there", "set": set}));
    }

    /// Stops it with `stop` and returns its last record.
    pub fn stop(&mut self) -> Value {
        self.send(&json!({"command": "stop"}));
        let done = self.wait_for("done");
        assert_eq!(self.ended().code(), Some(0));
        done
    }

    /// Closes its standard input.
    pub fn leave(&mut self) {
        self.stdin = None;
    }

    /// Return its exit status, after a bounded wait.
    pub fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.process.try_wait().expect("our child") {
                return status;
            }
            assert!(Instant::now() < deadline, "the emulator exits in time");
            std::thread::yield_now();
        }
    }

    /// Returns the number of findings with this code so far.
    pub fn findings(&self, code: &str) -> usize {
        self.seen
            .iter()
            .filter(|record| record["code"] == code)
            .count()
    }
}

impl Drop for EmulatorProcess {
    fn drop(&mut self) {
        let _ = self.process.kill(); // usually it has ended already
        let _ = self.process.wait();
    }
}

fn unix_ns() -> u64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    u64::try_from(elapsed.as_nanos()).expect("before 2554")
}
