//! CPUs do not halt while packets need them.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;

use crate::testkit::{EmulatorProcess, TIMEOUT, is_possible, pair};
use crate::traffic::{echo, round_trips};

/// An idle control group of version 1, removed at the end.
struct IdleGroup(PathBuf);

impl IdleGroup {
    fn make() -> Option<Self> {
        let name = format!("venturi-test-{}", std::process::id());
        let group = PathBuf::from("/sys/fs/cgroup/cpu").join(name);
        if fs::create_dir(&group).is_err() {
            eprintln!("skipped: expected the cgroup controller `cpu` of version 1");
            return None;
        }
        let group = Self(group);
        fs::write(group.0.join("cpu.idle"), "1").ok()?;
        Some(group)
    }

    fn threads(&self) -> usize {
        let tasks = fs::read_to_string(self.0.join("tasks")).expect("the group is there");
        tasks.lines().count()
    }
}

impl Drop for IdleGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0); // a failed test has printed the reason
    }
}

#[test]
fn cores_are_kept_awake_only_while_packets_flow() {
    let Some(group) = is_possible().then(IdleGroup::make).flatten() else {
        return;
    };
    let mut emulator = EmulatorProcess::new(
        &pair(&json!({}), &json!({})),
        &json!({"idle_group": group.0}),
    );
    let ready = emulator
        .seen
        .iter()
        .find(|record| record["record"] == "ready");
    let cores = std::thread::available_parallelism()
        .expect("a number")
        .get();
    assert_eq!(ready.expect("it began")["pollers"], cores);
    assert_eq!(group.threads(), cores);
    echo(&emulator.b);
    // Wait until other tests leave CPUs idle.
    let deadline = Instant::now() + TIMEOUT;
    let mut before = emulator.sample()["emulator.awake_cpu_s"];
    while before == 0.0 && Instant::now() < deadline {
        assert_eq!(round_trips(&emulator.a, 20, TIMEOUT).len(), 20);
        before = emulator.sample()["emulator.awake_cpu_s"];
    }
    assert!(before > 0.0, "{before}");
    // Wait until a second after the last packet; no more packets are sent.
    emulator.wait_until(|record| {
        let used = record["counters"]["emulator.awake_cpu_s"].as_f64();
        let stopped = used.is_some_and(|used| used - before < 1e-6);
        before = used.unwrap_or(before);
        stopped
    });
    emulator.stop();
    assert_eq!(group.threads(), 0);
}

#[test]
fn no_pollers_run_without_an_idle_group() {
    if !is_possible() {
        return;
    }
    let mut emulator = EmulatorProcess::new(&pair(&json!({}), &json!({})), &json!({}));
    let ready = emulator
        .seen
        .iter()
        .find(|record| record["record"] == "ready");
    assert_eq!(ready.expect("it began")["pollers"], 0);
    assert_eq!(emulator.sample()["emulator.awake_cpu_s"], 0.0);
    emulator.stop();
}

#[test]
fn a_missing_group_is_reported() {
    if !is_possible() {
        return;
    }
    let mut emulator = EmulatorProcess::spawn();
    emulator.send(&json!({
        "command": "start", "epoch_unix_ns": 0, "seed": 1, "network": pair(&json!({}), &json!({})),
        "namespaces": {"a": emulator.a.namespace, "b": emulator.b.namespace}, "idle_group": "/nowhere",
    }));
    let fatal = emulator.wait_for("fatal");
    let message = fatal["message"].as_str().expect("a text");
    assert!(message.contains("in the cgroup"), "{message}");
}
