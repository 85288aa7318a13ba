//! End of a namespace sandbox, which is always complete.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::testkit::{
    Sandbox, SandboxUser, Traces, mounts, open_directory, send, wait_for, wait_until,
};

/// Runs longer than any test and ignores SIGTERM.
const STUBBORN: &str = "trap '' TERM; echo; while :; do sleep 600; done";

fn assert_kill_ends_all(user: SandboxUser) {
    if !user.is_possible() {
        return;
    }
    let (directory, _engine) = open_directory();
    let mut sandbox = Sandbox::start(
        user,
        &json!({"hosts": {"a": "a", "b": "b"}, "tmpfs": ["/run", directory.path()]}),
    );
    let mounted = directory.path().display().to_string();
    assert!(
        sandbox
            .run_in("a", "cat /proc/self/mountinfo")
            .contains(&mounted)
    );
    let mut stubborn = sandbox.leave_in("a", STUBBORN);
    // A process that has left its session and its parent, like a daemon.
    let daemon = sandbox.run_in("b", "setsid sh -c 'sleep 600 >/dev/null 2>&1 & echo $!'");
    let traces = sandbox.traces();
    let daemon = sandbox.child_of_init(daemon.parse().expect("a number"));
    assert!(
        traces
            .processes
            .contains(&daemon.expect("PID 1 has inherited it"))
    );
    assert!(
        traces.processes.len() >= 5,
        "PID 1, two hosts, two sleepers: {traces:?}"
    );
    assert!(traces.namespaces.len() >= 4, "{traces:?}");
    let child = i32::try_from(sandbox.child.id()).expect("a pid");
    send(child, Signal::SIGKILL);
    // A zombie keeps its user namespace until it is reaped.
    wait_for(&mut stubborn);
    assert_eq!(sandbox.wait().signal(), Some(libc::SIGKILL));
    traces.wait_until_removed();
    assert!(!mounts().contains(&mounted));
}

#[test]
fn sigkill_leaves_no_process_namespace_or_mount() {
    assert_kill_ends_all(SandboxUser::Current);
}

#[test]
fn sigkill_leaves_no_remains_of_an_ordinary_users_sandbox() {
    assert_kill_ends_all(SandboxUser::Unprivileged);
}

#[test]
fn sigkill_of_the_controller_ends_everything() {
    if !SandboxUser::Current.is_possible() {
        return;
    }
    // The controller is a shell that has the other end of the pipe.
    let (directory, engine) = open_directory();
    let fifo = directory.path().join("order");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let script = r#"exec 9>"$1"; echo '{"hosts": {"a": "a"}}' >&9; echo; read -r forever"#;
    let mut controller = Command::new("sh")
        .args(["-c", script, "sh", &fifo.display().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("sh is there");
    let stdin = fs::File::open(&fifo).expect("the controller opens it too");
    let mut sandbox = Sandbox::adopt(&engine, stdin.into(), directory);
    assert_eq!(sandbox.wait_ready()["record"], "ready");
    let traces = sandbox.traces();
    controller.kill().expect("our child");
    controller.wait().expect("our child");
    traces.wait_until_removed();
    assert_eq!(sandbox.wait().code(), Some(0));
}

#[test]
fn processes_can_exit_by_themselves_after_the_end_of_stdin() {
    if !SandboxUser::Current.is_possible() {
        return;
    }
    let (directory, _engine) = open_directory();
    let will = directory.path().join("will");
    let mut sandbox = Sandbox::two_hosts(SandboxUser::Current);
    let script = format!(
        "trap 'echo done > {}; exit' TERM; echo; while :; do sleep 0.01; done",
        will.display()
    );
    let mut polite = sandbox.leave_in("a", &script);
    let traces = sandbox.traces();
    let started = Instant::now();
    sandbox.close_stdin();
    assert_eq!(sandbox.wait().code(), Some(0));
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "no grace is waited out when all are gone"
    );
    wait_for(&mut polite);
    assert_eq!(
        fs::read_to_string(&will).expect("it had its time"),
        "done\n"
    );
    traces.wait_until_removed();
}

#[test]
fn processes_that_do_not_exit_are_killed_after_the_grace_period() {
    if !SandboxUser::Current.is_possible() {
        return;
    }
    let mut sandbox = Sandbox::two_hosts(SandboxUser::Current);
    let mut stubborn = sandbox.leave_in("b", STUBBORN);
    let traces = sandbox.traces();
    let started = Instant::now();
    sandbox.close_stdin();
    assert_eq!(wait_for(&mut stubborn).signal(), Some(libc::SIGKILL));
    assert!(
        started.elapsed() >= Duration::from_secs(2),
        "it had its grace"
    );
    assert_eq!(sandbox.wait().code(), Some(0));
    traces.wait_until_removed();
}

fn check_signal(signal: Signal, code: i32) {
    let mut sandbox = Sandbox::two_hosts(SandboxUser::Current);
    let traces: Traces = sandbox.traces();
    send(i32::try_from(sandbox.child.id()).expect("a pid"), signal);
    assert_eq!(sandbox.wait().code(), Some(code), "{signal}");
    traces.wait_until_removed();
}

#[test]
fn signals_end_everything_and_are_reported_by_the_exit_code() {
    if !SandboxUser::Current.is_possible() {
        return;
    }
    check_signal(Signal::SIGTERM, 143);
    check_signal(Signal::SIGINT, 130);
    check_signal(Signal::SIGHUP, 129);
}

#[test]
fn the_death_of_one_part_ends_the_sandbox_and_is_reported() {
    if !SandboxUser::Current.is_possible() {
        return;
    }
    let part: [fn(&Sandbox) -> i32; 2] = [Sandbox::init, |sandbox| sandbox.host("b")];
    for (part, named) in part.into_iter().zip(["PID 1", "host `b`"]) {
        let mut sandbox = Sandbox::two_hosts(SandboxUser::Current);
        let traces = sandbox.traces();
        send(part(&sandbox), Signal::SIGKILL);
        let record = sandbox.record();
        let message = record["message"].as_str().expect("text");
        assert_eq!(record["record"], "fatal");
        assert!(
            message.contains(named) && message.contains("SIGKILL"),
            "{message}"
        );
        assert_eq!(sandbox.wait().code(), Some(2));
        traces.wait_until_removed();
    }
}

#[test]
fn fifty_hosts_are_started_by_one_line() {
    if !SandboxUser::Current.is_possible() {
        return;
    }
    let names = (0..50).map(|number| (format!("h{number}"), json!(format!("h{number}.lab.test"))));
    let hosts = serde_json::Map::from_iter(names);
    let mut sandbox = Sandbox::start(SandboxUser::Current, &json!({"hosts": hosts}));
    assert_eq!(sandbox.ready["pids"].as_object().expect("hosts").len(), 50);
    assert_eq!(sandbox.run_in("h49", "hostname"), "h49.lab.test");
    let init = sandbox.init();
    sandbox.close_stdin();
    assert_eq!(sandbox.wait().code(), Some(0));
    wait_until("its end", || !crate::testkit::runs(init));
}
