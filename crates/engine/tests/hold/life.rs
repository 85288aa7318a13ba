//! How a ground ends: always whole.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::testkit::{Hold, Traces, Who, mounts, open_folder, send, wait_for, wait_until};

/// Goes on for longer than any test, whatever it is asked.
const STUBBORN: &str = "trap '' TERM; echo; while :; do sleep 600; done";

fn killed_whole(who: Who) {
    if !who.is_possible() {
        return;
    }
    let (folder, _engine) = open_folder();
    let mut hold = Hold::start(
        who,
        &json!({"hosts": {"a": "a", "b": "b"}, "tmpfs": ["/run", folder.path()]}),
    );
    let mounted = folder.path().display().to_string();
    assert!(hold.ask("a", "cat /proc/self/mountinfo").contains(&mounted));
    let mut stubborn = hold.leave_in("a", STUBBORN);
    // One that has left its session and its parent, as a daemon does.
    let daemon = hold.ask("b", "setsid sh -c 'sleep 600 >/dev/null 2>&1 & echo $!'");
    let traces = hold.traces();
    let daemon = hold.child_of_init(daemon.parse().expect("a number"));
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
    let child = i32::try_from(hold.child.id()).expect("a pid");
    send(child, Signal::SIGKILL);
    // A zombie keeps its user namespace until it is reaped.
    wait_for(&mut stubborn);
    assert_eq!(hold.wait().signal(), Some(libc::SIGKILL));
    traces.wait_until_gone();
    assert!(!mounts().contains(&mounted));
}

#[test]
fn sigkill_leaves_no_process_no_namespace_and_no_mount() {
    killed_whole(Who::Caller);
}

#[test]
fn sigkill_leaves_nothing_of_an_ordinary_users_ground() {
    killed_whole(Who::Nobody);
}

#[test]
fn sigkill_of_the_controller_ends_everything() {
    if !Who::Caller.is_possible() {
        return;
    }
    // The controller is a shell that holds the other end of the pipe.
    let (folder, engine) = open_folder();
    let fifo = folder.path().join("order");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let script = r#"exec 9>"$1"; echo '{"hosts": {"a": "a"}}' >&9; echo; read -r forever"#;
    let mut controller = Command::new("sh")
        .args(["-c", script, "sh", &fifo.display().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("sh is there");
    let stdin = fs::File::open(&fifo).expect("the controller opens it too");
    let mut hold = Hold::adopt(&engine, stdin.into(), folder);
    assert_eq!(hold.begin()["record"], "ready");
    let traces = hold.traces();
    controller.kill().expect("our child");
    controller.wait().expect("our child");
    traces.wait_until_gone();
    assert_eq!(hold.wait().code(), Some(0));
}

#[test]
fn the_end_of_stdin_lets_processes_end_by_themselves() {
    if !Who::Caller.is_possible() {
        return;
    }
    let (folder, _engine) = open_folder();
    let will = folder.path().join("will");
    let mut hold = Hold::two_hosts(Who::Caller);
    let script = format!(
        "trap 'echo done > {}; exit' TERM; echo; while :; do sleep 0.01; done",
        will.display()
    );
    let mut polite = hold.leave_in("a", &script);
    let traces = hold.traces();
    let begun = Instant::now();
    hold.let_go();
    assert_eq!(hold.wait().code(), Some(0));
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "no grace is waited out when all are gone"
    );
    wait_for(&mut polite);
    assert_eq!(
        fs::read_to_string(&will).expect("it had its time"),
        "done\n"
    );
    traces.wait_until_gone();
}

#[test]
fn what_does_not_end_by_itself_is_killed_after_the_grace() {
    if !Who::Caller.is_possible() {
        return;
    }
    let mut hold = Hold::two_hosts(Who::Caller);
    let mut stubborn = hold.leave_in("b", STUBBORN);
    let traces = hold.traces();
    let begun = Instant::now();
    hold.let_go();
    assert_eq!(wait_for(&mut stubborn).signal(), Some(libc::SIGKILL));
    assert!(
        begun.elapsed() >= Duration::from_secs(2),
        "it had its grace"
    );
    assert_eq!(hold.wait().code(), Some(0));
    traces.wait_until_gone();
}

fn check_signal(signal: Signal, code: i32) {
    let mut hold = Hold::two_hosts(Who::Caller);
    let traces: Traces = hold.traces();
    send(i32::try_from(hold.child.id()).expect("a pid"), signal);
    assert_eq!(hold.wait().code(), Some(code), "{signal}");
    traces.wait_until_gone();
}

#[test]
fn signals_end_everything_and_are_told_by_the_exit_code() {
    if !Who::Caller.is_possible() {
        return;
    }
    check_signal(Signal::SIGTERM, 143);
    check_signal(Signal::SIGINT, 130);
    check_signal(Signal::SIGHUP, 129);
}

#[test]
fn the_end_of_a_part_is_the_end_of_the_whole_and_is_told() {
    if !Who::Caller.is_possible() {
        return;
    }
    let part: [fn(&Hold) -> i32; 2] = [Hold::init, |hold| hold.host("b")];
    for (part, named) in part.into_iter().zip(["PID 1", "host `b`"]) {
        let mut hold = Hold::two_hosts(Who::Caller);
        let traces = hold.traces();
        send(part(&hold), Signal::SIGKILL);
        let record = hold.record();
        let message = record["message"].as_str().expect("text");
        assert_eq!(record["record"], "fatal");
        assert!(
            message.contains(named) && message.contains("SIGKILL"),
            "{message}"
        );
        assert_eq!(hold.wait().code(), Some(2));
        traces.wait_until_gone();
    }
}

#[test]
fn many_hosts_are_one_line() {
    if !Who::Caller.is_possible() {
        return;
    }
    let names = (0..50).map(|number| (format!("h{number}"), json!(format!("h{number}.lab.test"))));
    let hosts = serde_json::Map::from_iter(names);
    let mut hold = Hold::start(Who::Caller, &json!({"hosts": hosts}));
    assert_eq!(hold.ready["pids"].as_object().expect("hosts").len(), 50);
    assert_eq!(hold.ask("h49", "hostname"), "h49.lab.test");
    let init = hold.init();
    hold.let_go();
    assert_eq!(hold.wait().code(), Some(0));
    wait_until("its end", || !crate::testkit::runs(init));
}
