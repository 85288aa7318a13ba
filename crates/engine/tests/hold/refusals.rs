//! What is not possible is told, and by whom it can be made so.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::testkit::{Hold, NOBODY, Who, open_folder};

/// Gives a line to a `hold` that such a command starts; returns its `fatal` message.
fn refused(mut command: Command, line: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it is there");
    let mut stdin = child.stdin.take().expect("a pipe");
    let _ = write!(stdin, "{line}"); // one that refuses early does not read it
    // Kept open for a whole line: a refusal must not wait for the end.
    let kept = line.ends_with('\n').then_some(stdin);
    let output = child.wait_with_output().expect("our child");
    drop(kept);
    let record: Value = serde_json::from_slice(&output.stdout).expect("one record");
    assert_eq!(record["record"], "fatal", "{record}");
    assert_eq!(output.status.code(), Some(2));
    record["message"].as_str().expect("text").to_owned()
}

fn engine() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_venturi-engine"));
    command.arg("hold");
    command
}

fn check(line: &str, expected: &str) {
    let message = refused(engine(), line);
    assert!(message.contains(expected), "{line}: {message}");
}

#[test]
fn an_order_that_is_none_is_refused_at_once() {
    check("", "its end after 0 bytes");
    check("{\"hosts\": {}}", "its end after 13 bytes");
    check("hello\n", "expected one JSON line");
    check("{\"hosts\": {\"a\": \"\"}}\n", "hosts.a");
    check("{\"hosts\": {}, \"tmpfs\": [\"run\"]}\n", "`run` is not");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    if !Who::Caller.is_possible() {
        return;
    }
    let (folder, engine_path) = open_folder();
    let absent = folder.path().join("absent");
    let order =
        |from: &Path, to: &Path| format!("{}\n", json!({"hosts": {}, "binds": [[from, to]]}));
    let expected = format!("found no {}", absent.display());
    check(&order(&absent, &engine_path), &expected);
    check(&order(&engine_path, &absent), &expected);
    // A folder does not go over a file, whatever the kernel calls that.
    check(&order(folder.path(), &engine_path), "expected to bind");
    check(
        &format!("{}\n", json!({"hosts": {}, "tmpfs": [absent]})),
        "mount a tmpfs",
    );
}

#[test]
fn whoever_may_not_make_namespaces_is_told_what_to_do() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can change the root directory");
        return;
    }
    // The kernel gives no user namespaces in a changed root directory (user_namespaces(7), EPERM).
    let (folder, _engine) = open_folder();
    let mut command = Command::new("chroot");
    command
        .arg(format!("--userspec={NOBODY}:{NOBODY}"))
        .arg(folder.path())
        .args(["/engine", "hold"]);
    let message = refused(command, "{\"hosts\": {}}\n");
    assert!(message.contains("make a user namespace"), "{message}");
    assert!(
        message.contains("EPERM") && message.contains("run it as root"),
        "{message}"
    );
}

#[test]
fn a_limit_of_namespaces_is_named_with_its_cure() {
    if !Who::Nobody.is_possible() {
        return;
    }
    // A limit of a user namespace of our own, which binds whoever is in it.
    let (_folder, engine) = open_folder();
    for kind in ["pid", "mnt", "net"] {
        let mut command = Command::new("unshare");
        let script = format!("echo 0 > /proc/sys/user/max_{kind}_namespaces && exec \"$0\" hold");
        command
            .args(["--user", "--map-root-user", "sh", "-c", &script])
            .arg(&engine);
        let message = refused(command, "{\"hosts\": {\"a\": \"a\"}}\n");
        let cure = format!("sysctl -w user.max_{kind}_namespaces=");
        assert!(
            message.contains("ENOSPC") && message.contains(&cure),
            "{message}"
        );
    }
}

#[test]
fn a_name_of_64_bytes_is_one() {
    if !Who::Caller.is_possible() {
        return;
    }
    let name = "n".repeat(64);
    let hold = Hold::start(Who::Caller, &json!({"hosts": {"a": name}}));
    assert_eq!(hold.ask("a", "hostname"), name);
}
