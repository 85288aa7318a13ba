//! A host with only the binary: a root directory with the engine and `/dev/null`.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::testkit::{TestScene, install, trial};

#[test]
fn an_agent_works_and_ends_in_a_root_directory_with_only_the_binary() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can change the root directory");
        return;
    }
    let root = tempfile::tempdir().expect("a directory");
    furnish(root.path());
    let scene = TestScene::new()
        .dataset("set", 1, 1000)
        .call("version", &["engine", "version"]);
    let steps = vec![
        json!({"step": "prepare", "dataset": "set", "first": 0, "files": 1, "cache": "as_is"}),
        json!({"step": "transfer", "call": "version", "slot": 0, "source": "disk:set/000000", "destination": "null:",
            "files": 1, "bytes": 1000}),
    ];
    let line = json!({"actor": "a", "host": "me", "steps": [trial(0, steps)]});
    let commands = [
        json!({"command": "start", "host": "me", "scratch": "/scratch", "header": scene.header, "epoch_unix_ns": 1,
            "skip": [], "search": ["/"]}),
        json!({"command": "actor", "line": line}),
        json!({"command": "go"}),
    ];
    let mut agent = Command::new("chroot")
        .arg(root.path())
        .args(["/engine", "agent"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("chroot is there");
    let mut stdin = agent.stdin.take().expect("a pipe");
    for command in commands {
        writeln!(stdin, "{command}").expect("the agent reads");
    }
    // Reading to the end also shows that no process, not even the watchdog, keeps the output open.
    let output = agent.wait_with_output().expect("our child");
    drop(stdin);
    let text = String::from_utf8(output.stdout).expect("text");
    let records: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let of_kind = |kind: &str| {
        records
            .iter()
            .find(|record| record["record"] == kind)
            .unwrap_or_else(|| panic!("no {kind} in {text}"))
    };
    assert_eq!(of_kind("trial")["transfers"][0]["outcome"], "ok", "{text}");
    assert_eq!(of_kind("ready")["memory_bytes"], Value::Null);
    assert_eq!(of_kind("done")["trials"], 1);
    assert!(output.status.success());
}

fn furnish(root: &Path) {
    let engine = root.join("engine");
    install(
        Path::new(env!("CARGO_BIN_EXE_venturi-engine")),
        &engine,
        "755",
    );
    std::fs::create_dir(root.join("dev")).expect("a directory");
    let made = Command::new("mknod")
        .arg(root.join("dev/null"))
        .args(["c", "1", "3"])
        .status();
    assert!(made.expect("mknod is there").success());
}
