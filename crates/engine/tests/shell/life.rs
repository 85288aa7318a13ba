//! Lifetime of a shell: its start, its end for any reason, and the end of all its processes and files.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::testkit::{
    ShellProcess, command, kill, runs, scene, stubborn_server, wait_for_number, wait_until,
};

/// Starts a server that is hard to end. Returns the PIDs of its processes.
fn start_stubborn(shell: &mut ShellProcess, scene: &TempDir) -> Vec<i32> {
    let (script, files) = stubborn_server(scene.path());
    shell.start_server("stubborn", &script);
    take_numbers(&files)
}

/// Starts a program that runs longer than the test. Returns the PIDs of its processes.
fn run_long(shell: &mut ShellProcess, scene: &TempDir) -> Vec<i32> {
    let files: Vec<PathBuf> = ["running", "child"]
        .map(|name| scene.path().join(name))
        .into();
    let script = format!(
        "sh -c 'echo $$ > {}; exec sleep 1000' & echo $$ > {}; wait",
        files[1].display(),
        files[0].display()
    );
    shell.send(json!({"command": "run", "argv": ["sh", "-c", script], "timeout_s": 1000}));
    take_numbers(&files)
}

/// Reads the PIDs of running processes from files, and removes the files.
fn take_numbers(files: &[PathBuf]) -> Vec<i32> {
    let pids: Vec<i32> = files.iter().map(|path| wait_for_number(path)).collect();
    for path in files {
        std::fs::remove_file(path).expect("a file");
    }
    assert!(pids.iter().all(|pid| runs(*pid)));
    pids
}

/// A shell with a server that is hard to end and a program that runs longer than the test.
struct BusyShell {
    shell: ShellProcess,
    pids: Vec<i32>,
    directory: PathBuf,
}

impl BusyShell {
    fn start(scene: &TempDir) -> Self {
        let mut shell = ShellProcess::start(scene);
        let mut pids = start_stubborn(&mut shell, scene);
        pids.extend(run_long(&mut shell, scene));
        let directory = shell.directory();
        Self {
            shell,
            pids,
            directory,
        }
    }

    /// Waits for its end and checks that no process and no file is left. Returns its exit status.
    fn finish(self) -> ExitStatus {
        let (status, _) = self.shell.finish();
        check_nothing_left(&self.pids, &self.directory);
        status
    }
}

fn check_nothing_left(pids: &[i32], directory: &Path) {
    let left: Vec<&i32> = pids.iter().filter(|pid| runs(**pid)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!directory.exists());
}

fn wait_for_ends(pids: &[i32]) {
    for pid in pids {
        wait_until(&format!("the end of process {pid}"), || !runs(*pid));
    }
}

#[test]
fn hello_describes_the_shell_the_session_and_the_host() {
    let scene = scene();
    let shell = ShellProcess::start(&scene);
    let hello = &shell.hello;
    assert_eq!(hello["protocol"], 1);
    let engine = hello["engine"].as_str().expect("a text");
    assert!(engine.starts_with(env!("CARGO_PKG_VERSION")), "{engine}");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("/proc");
    assert_eq!(hello["properties"]["hostname"], host.trim());
    assert!(hello["clock"]["unix_ns"].as_u64() > Some(1_700_000_000_000_000_000));
    let metadata = std::fs::metadata(shell.directory()).expect("a directory");
    assert_eq!(metadata.mode() & 0o7777, 0o700);
    assert!(shell.directory().is_absolute() && shell.directory().ends_with("sessions/test"));
    assert!(runs(shell.pid()) && shell.pid() != shell.watchdog());
}

#[test]
fn the_end_command_cleans_up_before_the_last_reply() {
    let scene = scene();
    let mut busy = BusyShell::start(&scene);
    let result = busy.shell.call(json!({"command": "end"}));
    assert_eq!(result, json!({}));
    // The cleanup must be complete before the reply, not only before the exit.
    check_nothing_left(&busy.pids, &busy.directory);
    assert_eq!(busy.finish().code(), Some(0));
}

#[test]
fn a_command_that_runs_at_the_end_gets_a_reply() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let running =
        shell.send(json!({"command": "run", "argv": ["sleep", "1000"], "timeout_s": 1000}));
    shell.send(json!({"command": "end"}));
    assert_eq!(shell.reply(running)["error"]["kind"], "other");
}

#[test]
fn the_end_of_input_ends_everything() {
    let scene = scene();
    let mut busy = BusyShell::start(&scene);
    busy.shell.leave();
    assert_eq!(busy.finish().code(), Some(0));
}

#[test]
fn a_server_that_handles_sigterm_has_time_to_finish() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let (ready, done) = (scene.path().join("ready"), scene.path().join("done"));
    let script = format!(
        "trap 'echo 1 > {}; exit' TERM; echo 1 > {}; while :; do sleep 0.01; done",
        done.display(),
        ready.display()
    );
    shell.start_server("gentle", &script);
    wait_for_number(&ready);
    shell.call(json!({"command": "end"}));
    assert_eq!(wait_for_number(&done), 1);
}

#[test]
fn silence_ends_everything() {
    let scene = scene();
    // Long enough for the server to start on a busy host, because the test sends nothing from here
    // on.
    let mut shell = ShellProcess::start_with(&scene, &["--silence-s", "4"]);
    let pids = start_stubborn(&mut shell, &scene);
    let directory = shell.directory();
    let (status, _) = shell.finish();
    assert_eq!(status.code(), Some(1));
    check_nothing_left(&pids, &directory);
}

#[test]
fn heartbeats_and_partial_lines_prevent_the_silence_timeout() {
    let scene = scene();
    let mut shell = ShellProcess::start_with(&scene, &["--silence-s", "2"]);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(3) {
        shell.text("{\"command\": \"heartbeat\"}\n");
        std::thread::sleep(Duration::from_millis(100));
    }
    for character in "{\"command\": \"clock\", \"number\": 77}".chars() {
        shell.text(&character.to_string());
        std::thread::sleep(Duration::from_millis(100));
    }
    shell.text("\n");
    let reply = shell.reply(77);
    assert!(reply["result"]["monotonic_ns"].is_u64(), "{reply}");
    assert!(started.elapsed() > Duration::from_secs(6));
}

#[test]
fn a_running_shell_sends_alive_records() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let started = Instant::now();
    shell.record("alive");
    let elapsed = started.elapsed();
    assert!(elapsed > Duration::from_secs(8) && elapsed < Duration::from_secs(60));
}

#[test]
fn the_death_of_the_shell_ends_everything() {
    let scene = scene();
    let busy = BusyShell::start(&scene);
    kill(busy.shell.pid(), libc::SIGKILL);
    assert_eq!(busy.finish().code(), Some(128 + libc::SIGKILL));
}

#[test]
fn the_death_of_the_watchdog_ends_everything() {
    let scene = scene();
    let busy = BusyShell::start(&scene);
    kill(busy.shell.watchdog(), libc::SIGKILL);
    let pid = busy.shell.pid();
    let (status, _) = busy.shell.finish();
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    wait_for_ends(&[pid]);
    check_nothing_left(&busy.pids, &busy.directory);
}

#[test]
fn the_next_session_removes_a_session_whose_processes_were_all_killed() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let (script, files) = stubborn_server(scene.path());
    shell.start_server("stubborn", &script);
    let mut pids: Vec<i32> = files.iter().map(|path| wait_for_number(path)).collect();
    // A daemon with a changed environment and without a living ancestor cannot be recognised.
    let bare = pids.pop().expect("three files");
    let owned = scene.path().join("owned");
    shell.call(json!({"command": "make_directory", "path": owned, "owned": true}));
    std::fs::write(owned.join("file"), "x").expect("a file");
    let directory = shell.directory();
    let pid = shell.pid();
    kill(shell.watchdog(), libc::SIGSTOP);
    kill(pid, libc::SIGKILL);
    kill(shell.watchdog(), libc::SIGKILL);
    let (status, _) = shell.finish();
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    // Its output ends some microseconds before it releases the lock.
    wait_for_ends(&[pid]);
    assert!(directory.exists() && pids.iter().all(|pid| runs(*pid)));

    let other = ShellProcess::start_by(command(&scene, "other"));
    wait_for_ends(&pids);
    assert!(!directory.exists() && !owned.exists());
    assert!(other.directory().exists());
    kill(bare, libc::SIGKILL);
}

#[test]
fn the_same_session_can_start_again_after_a_kill() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let pid = shell.start_server("sleeper", "exec sleep 1000");
    kill(shell.pid(), libc::SIGKILL);
    // Immediately, while the watchdog cleans up.
    let mut again = ShellProcess::start(&scene);
    wait_for_ends(&[pid]);
    again.start_server("sleeper", "exec sleep 1000");
    assert!(again.directory().join("sleeper.log").exists());
}

#[test]
fn a_session_in_use_is_rejected_and_left_alone() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let output = command(&scene, "test")
        .stdin(Stdio::null())
        .output()
        .expect("the engine is built");
    assert_eq!(output.status.code(), Some(2));
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one record");
    assert_eq!(record["record"], "fatal");
    let message = record["message"].as_str().expect("a text");
    assert!(message.contains("sessions/test"), "{message}");
    assert_eq!(shell.run(&["true"])["exit_code"], 0);
}

#[test]
fn sessions_next_to_each_other_do_not_disturb_each_other() {
    let scene = scene();
    let mut one = ShellProcess::start(&scene);
    let pid = one.start_server("sleeper", "exec sleep 1000");
    let mut other = ShellProcess::start_by(command(&scene, "other"));
    other.call(json!({"command": "end"}));
    other.finish();
    assert!(runs(pid) && one.directory().exists());
}

#[test]
fn an_invalid_session_is_a_fatal_record() {
    let scene = scene();
    let output = command(&scene, "../test")
        .stdin(Stdio::null())
        .output()
        .expect("the engine is built");
    assert_eq!(output.status.code(), Some(2));
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one record");
    assert_eq!(record["record"], "fatal");
}

#[test]
fn a_signal_to_the_process_ends_everything() {
    for (signal, code) in [
        (libc::SIGTERM, 143),
        (libc::SIGHUP, 129),
        (libc::SIGINT, 130),
    ] {
        let scene = scene();
        let busy = BusyShell::start(&scene);
        kill(busy.shell.watchdog(), signal);
        assert_eq!(busy.finish().code(), Some(code));
    }
}

#[test]
fn a_controller_that_closes_the_output_ends_everything() {
    let scene = scene();
    let mut child = command(&scene, "test")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the engine is built");
    let sessions = scene.path().join("sessions/test");
    wait_until("the session", || sessions.join("processes").exists());
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut stdin, b"{\"command\": \"clock\", \"number\": 1}\n")
        .expect("a shell");
    let status = child.wait().expect("our child");
    assert_eq!(status.code(), Some(1));
    assert!(!sessions.exists());
}

#[test]
fn invalid_lines_get_replies_and_the_shell_continues() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    shell.text("{\"command\": \"clock\", \n\n[1]\n\u{1}\u{2}\n{\"command\": \"clock\"}\n");
    for _ in 0..4 {
        let record = shell.record("result");
        assert!(record["number"].is_null());
        assert_eq!(record["error"]["kind"], "invalid", "{record}");
    }
    for command in [
        json!({"command": "dance"}),
        json!({"command": "run"}),
        json!({"command": "run", "argv": "ls"}),
        json!({"command": "run", "argv": []}),
        json!({"command": "run", "argv": ["ls"], "timeout_s": -1}),
        json!({"command": "run", "argv": ["ls"], "tiemout_s": 1}),
        json!({"command": "run", "argv": ["ls"], "environment": {"A=B": "x"}}),
        json!({"command": "run", "argv": ["ls"], "directory": "relative"}),
        json!({"command": "run", "argv": ["a\u{0}b"]}),
        json!({"command": "stat", "path": "relative"}),
        json!({"command": "stat", "path": "/a\u{0}b"}),
    ] {
        assert_eq!(shell.kind(command.clone()), "invalid", "{command}");
    }
    assert_eq!(shell.run(&["true"])["exit_code"], 0);
}

#[test]
fn a_torn_last_line_is_ignored() {
    let scene = scene();
    let mark = scene.path().join("mark");
    let mut shell = ShellProcess::start(&scene);
    let command = json!({"command": "run", "number": 1, "argv": ["touch", mark]});
    shell.text(&command.to_string());
    shell.leave();
    let (status, records) = shell.finish();
    assert_eq!(status.code(), Some(0));
    assert!(records.is_empty() && !mark.exists(), "{records:?}");
}

#[test]
fn the_clock_is_the_clock_of_this_machine() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let unix_ns = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        u64::try_from(now.expect("after 1970").as_nanos()).expect("before 2554")
    };
    let before = unix_ns();
    let clock = shell.call(json!({"command": "clock"}));
    let found = clock["unix_ns"].as_u64().expect("a number");
    assert!((before..=unix_ns()).contains(&found));
}

#[test]
fn a_kill_at_any_moment_leaves_no_process_and_no_file() {
    const ROUNDS: u64 = 20;
    let scene = scene();
    for round in 0..ROUNDS {
        let mut shell = ShellProcess::start(&scene);
        let directory = shell.directory();
        let token = format!("100{round}.{}", std::process::id());
        for number in 0..20 {
            let script = format!("trap '' TERM; setsid sleep {token} & sleep {token}");
            let log = directory.join("log");
            shell.send(json!({"command": "start", "process": number.to_string(), "argv": ["sh", "-c", script], "log": log}));
        }
        // Some servers run, one is being forked, others wait.
        std::thread::sleep(Duration::from_millis(2 * round));
        let victim = if round % 2 == 0 {
            shell.pid()
        } else {
            shell.watchdog()
        };
        let pids = [shell.pid(), shell.watchdog()];
        kill(victim, libc::SIGKILL);
        shell.finish();
        wait_for_ends(&pids);
        let left = processes_with(&token);
        assert!(left.is_empty(), "round {round}: {left:?}");
        assert!(!directory.exists(), "round {round}");
    }
}

/// PIDs of running processes with this argument.
fn processes_with(argument: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let with = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let has = line
            .split(|byte| *byte == 0)
            .any(|word| word == argument.as_bytes());
        (has && runs(pid)).then_some(pid)
    };
    entries.filter_map(with).collect()
}
