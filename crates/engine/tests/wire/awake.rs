//! Processors that do not halt, as long as that serves anybody.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;

use crate::testkit::{PATIENCE, Wire, is_possible, pair};
use crate::traffic::{echo, round_trips};

/// A control group of version 1 that gives way to all others; gone at the end.
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
        let _ = fs::remove_dir(&self.0); // a test that failed has told why
    }
}

#[test]
fn processors_are_kept_awake_while_packets_flow_and_no_longer() {
    let Some(group) = is_possible().then(IdleGroup::make).flatten() else {
        return;
    };
    let mut wire = Wire::new(
        &pair(&json!({}), &json!({})),
        &json!({"idle_group": group.0}),
    );
    let ready = wire.seen.iter().find(|record| record["record"] == "ready");
    let processors = std::thread::available_parallelism()
        .expect("a number")
        .get();
    assert_eq!(ready.expect("it began")["pollers"], processors);
    assert_eq!(group.threads(), processors);
    echo(&wire.b);
    // Once other tests leave processors idle.
    let deadline = Instant::now() + PATIENCE;
    let mut before = wire.sample()["wire.awake_cpu_s"];
    while before == 0.0 && Instant::now() < deadline {
        assert_eq!(round_trips(&wire.a, 20, PATIENCE).len(), 20);
        before = wire.sample()["wire.awake_cpu_s"];
    }
    assert!(before > 0.0, "{before}");
    // Until a second after the last packet; nothing is sent any more.
    wire.wait_until(|record| {
        let used = record["counters"]["wire.awake_cpu_s"].as_f64();
        let stopped = used.is_some_and(|used| used - before < 1e-6);
        before = used.unwrap_or(before);
        stopped
    });
    wire.stop();
    assert_eq!(group.threads(), 0);
}

#[test]
fn without_the_group_there_are_no_pollers() {
    if !is_possible() {
        return;
    }
    let mut wire = Wire::new(&pair(&json!({}), &json!({})), &json!({}));
    let ready = wire.seen.iter().find(|record| record["record"] == "ready");
    assert_eq!(ready.expect("it began")["pollers"], 0);
    assert_eq!(wire.sample()["wire.awake_cpu_s"], 0.0);
    wire.stop();
}

#[test]
fn a_group_that_is_not_there_is_told() {
    if !is_possible() {
        return;
    }
    let mut wire = Wire::spawn();
    wire.say(&json!({
        "command": "start", "epoch_unix_ns": 0, "seed": 1, "network": pair(&json!({}), &json!({})),
        "namespaces": {"a": wire.a.namespace, "b": wire.b.namespace}, "idle_group": "/nowhere",
    }));
    let fatal = wire.wait_for("fatal");
    let message = fatal["message"].as_str().expect("a text");
    assert!(message.contains("control group"), "{message}");
}
