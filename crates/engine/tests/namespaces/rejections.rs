//! Errors of a namespace sandbox, with their next steps.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::testkit::{NOBODY_UID, Sandbox, SandboxUser, open_directory};

/// Sends a line to a `sandbox` started by `command`; returns its `fatal` message.
fn rejected(mut command: Command, line: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it is there");
    let mut stdin = child.stdin.take().expect("a pipe");
    let _ = write!(stdin, "{line}"); // a sandbox that rejects early does not read it
    // Keep stdin open after a whole line, because a rejection must not wait for its end.
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
    command.arg("namespaces");
    command
}

fn check(line: &str, expected: &str) {
    let message = rejected(engine(), line);
    assert!(message.contains(expected), "{line}: {message}");
}

#[test]
fn an_invalid_order_is_rejected_immediately() {
    check("", "after 0 bytes");
    check("{\"hosts\": {}}", "after 13 bytes");
    check("hello\n", "expected one JSON line");
    check("{\"hosts\": {\"a\": \"\"}}\n", "hosts.a");
    check(
        "{\"hosts\": {}, \"tmpfs\": [\"run\"]}\n",
        "`run` is relative",
    );
}

#[test]
fn a_missing_file_is_named_in_the_error() {
    if !SandboxUser::Current.is_possible() {
        return;
    }
    let (directory, engine_path) = open_directory();
    let absent = directory.path().join("absent");
    let order =
        |from: &Path, to: &Path| format!("{}\n", json!({"hosts": {}, "binds": [[from, to]]}));
    let expected = format!("{} does not exist", absent.display());
    check(&order(&absent, &engine_path), &expected);
    check(&order(&engine_path, &absent), &expected);
    // A directory cannot be bound over a file; the error number of the kernel does not matter.
    check(&order(directory.path(), &engine_path), "cannot bind");
    check(
        &format!("{}\n", json!({"hosts": {}, "tmpfs": [absent]})),
        "mount a tmpfs",
    );
}

#[test]
fn a_user_that_may_not_make_namespaces_gets_advice() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can change the root directory");
        return;
    }
    // The kernel rejects user namespaces in a changed root directory (user_namespaces(7), EPERM).
    let (directory, _engine) = open_directory();
    let mut command = Command::new("chroot");
    command
        .arg(format!("--userspec={NOBODY_UID}:{NOBODY_UID}"))
        .arg(directory.path())
        .args(["/engine", "namespaces"]);
    let message = rejected(command, "{\"hosts\": {}}\n");
    assert!(message.contains("user namespace"), "{message}");
    assert!(
        message.contains("EPERM") && message.contains("Run it as root"),
        "{message}"
    );
}

#[test]
fn a_namespace_limit_is_reported_with_its_remedy() {
    if !SandboxUser::Unprivileged.is_possible() {
        return;
    }
    // The limit of a separate user namespace applies to all processes in it.
    let (_directory, engine) = open_directory();
    for kind in ["pid", "mnt", "net"] {
        let mut command = Command::new("unshare");
        let script =
            format!("echo 0 > /proc/sys/user/max_{kind}_namespaces && exec \"$0\" namespaces");
        command
            .args(["--user", "--map-root-user", "sh", "-c", &script])
            .arg(&engine);
        let message = rejected(command, "{\"hosts\": {\"a\": \"a\"}}\n");
        let cure = format!("sysctl -w user.max_{kind}_namespaces=");
        assert!(
            message.contains("ENOSPC") && message.contains(&cure),
            "{message}"
        );
    }
}

#[test]
fn a_host_name_of_64_bytes_is_accepted() {
    if !SandboxUser::Current.is_possible() {
        return;
    }
    let name = "n".repeat(64);
    let sandbox = Sandbox::start(SandboxUser::Current, &json!({"hosts": {"a": name}}));
    assert_eq!(sandbox.run_in("a", "hostname"), name);
}
