//! `run`, `start` and `stop`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::testkit::{
    ENGINE, ShellProcess, kill, number, runs, scene, stubborn_server, wait_for_number, wait_until,
};

#[test]
fn a_program_returns_its_output_and_exit_code_and_has_no_input() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let result = shell.run(&["sh", "-c", "cat; echo out; echo err >&2; exit 3"]);
    let expected = json!({"exit_code": 3, "signal": null, "stdout": "out\n", "stderr": "err\n", "timed_out": false});
    assert_eq!(result, expected);
    let result = shell.run(&["sh", "-c", "kill -USR1 $$"]);
    assert_eq!(
        (&result["exit_code"], &result["signal"]),
        (&Value::Null, &json!(10))
    );
}

#[test]
fn a_program_gets_input_environment_and_directory() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let text = "a line\n".repeat(100_000);
    let result = shell.call(json!({"command": "run", "argv": ["cat"], "stdin": text}));
    assert_eq!(result["stdout"], text);
    let result = shell.call(
        json!({"command": "run", "argv": ["sh", "-c", "pwd; echo $A $LC_ALL $HOME; umask"],
        "environment": {"A": "value", "HOME": "/nowhere"}, "directory": "/usr"}),
    );
    assert_eq!(result["stdout"], "/usr\nvalue C /nowhere\n0077\n");
    let result = shell.run(&["pwd"]);
    let directory = format!("{}\n", shell.directory().display());
    assert_eq!(
        result["stdout"], directory,
        "the session directory by default"
    );
    let missing = json!({"command": "run", "argv": ["true"], "directory": "/no/such/directory"});
    assert_eq!(shell.kind(missing), "not_found");
}

#[test]
fn programs_of_administrators_are_found() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let path = |shell: &mut ShellProcess, environment: Value| {
        let result = shell.call(json!({"command": "run", "argv": ["sh", "-c", "echo $PATH"], "environment": environment}));
        result["stdout"].as_str().expect("a text").trim().to_owned()
    };
    let own = path(&mut shell, json!({}));
    for directory in ["/usr/local/sbin", "/usr/sbin", "/sbin"] {
        let count = own.split(':').filter(|entry| *entry == directory).count();
        assert_eq!(count, 1, "{directory} in {own}");
    }
    let given = path(&mut shell, json!({"PATH": "/bin:/usr/bin"}));
    assert_eq!(given, "/bin:/usr/bin:/usr/local/sbin:/usr/sbin:/sbin");
    let result = shell.run(&["venturi-engine", "version"]);
    assert_eq!(result["exit_code"], 0, "the engine finds itself: {result}");
}

#[test]
fn a_missing_program_is_a_result() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let plain = scene.path().join("plain");
    std::fs::write(&plain, "text").expect("a file");
    let plain = plain.to_str().expect("text");
    for (program, code) in [
        ("no-such-program", 127),
        ("/no/such/program", 127),
        (plain, 126),
    ] {
        let result = shell.run(&[program]);
        assert_eq!(result["exit_code"], code, "{result}");
        let stderr = result["stderr"].as_str().expect("a text");
        assert!(stderr.contains(program), "{stderr}");
    }
}

#[test]
fn at_its_limit_a_program_is_killed_with_its_descendants() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let (script, files) = stubborn_server(scene.path());
    let script = format!("echo started; {script}");
    // Long enough for all three processes to start on a busy host.
    let started = Instant::now();
    let number =
        shell.send(json!({"command": "run", "argv": ["sh", "-c", script], "timeout_s": 4}));
    let pids = files.each_ref().map(|path| wait_for_number(path));
    let result = shell.reply(number)["result"].clone();
    assert!(started.elapsed() >= Duration::from_secs(4));
    let expected = json!({"exit_code": null, "signal": 9, "stdout": "started\n", "stderr": "", "timed_out": true});
    assert_eq!(result, expected);
    assert!(!runs(pids[0]) && !runs(pids[1]));
    // The third process has no environment, so only the end of the session ends it.
    shell.call(json!({"command": "end"}));
    assert!(!runs(pids[2]));
}

#[test]
fn a_descendant_that_keeps_the_output_open_does_not_delay_the_result() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let result = shell.run(&["sh", "-c", "sleep 1000 & echo $!"]);
    let pid: i32 = result["stdout"]
        .as_str()
        .and_then(|text| text.trim().parse().ok())
        .expect("a PID");
    assert!(runs(pid), "it is not killed: {result}");
    shell.call(json!({"command": "end"}));
    assert!(!runs(pid));
}

#[test]
fn binary_output_is_text_with_replacements_and_long_output_is_cut() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let result = shell.run(&["printf", r"a\377\000b"]);
    assert_eq!(result["stdout"], "a\u{fffd}\u{0}b");
    let result = shell.run(&[
        "sh",
        "-c",
        "echo first; head -c 30000000 /dev/zero | tr '\\0' x; echo last",
    ]);
    let text = result["stdout"].as_str().expect("a text");
    assert!(text.starts_with("first\nx") && text.ends_with("xlast\n"));
    assert!(
        text.contains("bytes omitted") && text.len() < 9_000_000,
        "{}",
        text.len()
    );
}

#[test]
fn a_thousand_commands_are_in_flight_at_the_same_time() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let numbers: Vec<u64> = (0..1000)
        .map(|index: u32| {
            shell.send(match index % 4 {
                0 => json!({"command": "run", "argv": ["sleep", "0.2"]}),
                1 => json!({"command": "stat", "path": "/"}),
                2 => json!({"command": "put", "path": shell.directory().join(index.to_string()), "content": "eA=="}),
                _ => json!({"command": "clock"}),
            })
        })
        .collect();
    for number in numbers {
        let reply = shell.reply(number);
        assert!(reply.get("error").is_none(), "{reply}");
    }
    let listed = shell.call(json!({"command": "list", "path": shell.directory()}));
    let entries = listed["entries"].as_array().expect("a list");
    let files = entries
        .iter()
        .filter(|entry| entry["size_bytes"] == 1)
        .count();
    assert_eq!(files, 250, "{listed}");
}

#[test]
fn slow_commands_delay_neither_others_nor_the_clock() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let slow: Vec<u64> = (0..300)
        .map(|_| {
            shell.send(json!({"command": "run", "argv": ["sleep", "1000"], "timeout_s": 1000}))
        })
        .collect();
    let clock = shell.call(json!({"command": "clock"}));
    assert!(clock["unix_ns"].is_u64());
    shell.send(json!({"command": "end"}));
    for number in slow {
        assert_eq!(shell.reply(number)["error"]["kind"], "other");
    }
}

#[test]
fn a_number_in_use_is_rejected() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let go = scene.path().join("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.01; done", go.display());
    let run = json!({"command": "run", "number": 500, "argv": ["sh", "-c", script]});
    shell.text(&format!(
        "{run}\n{}\n",
        json!({"command": "stat", "number": 500, "path": "/"})
    ));
    assert_eq!(shell.reply(500)["error"]["kind"], "invalid");
    std::fs::write(&go, "").expect("a file");
    assert_eq!(shell.reply(500)["result"]["exit_code"], 0);
    shell.text(&format!(
        "{}\n",
        json!({"command": "stat", "number": 500, "path": "/"})
    ));
    assert_eq!(
        shell.reply(500)["result"]["kind"],
        "directory",
        "it is free again"
    );
}

#[test]
fn a_server_is_started_logged_and_stopped() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let log = scene.path().join("logs/server.log");
    let script = "echo out; echo err >&2; exec sleep 1000";
    let start =
        json!({"command": "start", "process": "one", "argv": ["sh", "-c", script], "log": log});
    let pid = number(&shell.call(start.clone())["pid"]);
    wait_until("the log", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text == "out\nerr\n")
    });
    assert!(runs(pid));
    assert_eq!(shell.kind(start.clone()), "exists");
    let stopped = shell.call(json!({"command": "stop", "process": "one"}));
    assert_eq!(stopped, json!({"exit_code": null, "signal": 15}));
    assert!(!runs(pid));
    assert_eq!(
        shell.kind(json!({"command": "stop", "process": "one"})),
        "not_found"
    );
    // The log is appended.
    shell.call(start);
    wait_until("the log", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text == "out\nerr\n".repeat(2))
    });
    let stopped = shell.call(json!({"command": "stop", "process": "one", "signal": 2}));
    assert_eq!(stopped["signal"], 2);
    let (_, records) = {
        shell.leave();
        shell.finish()
    };
    assert!(
        records.iter().all(|record| record["record"] != "ended"),
        "stopped, not ended: {records:?}"
    );
}

#[test]
fn a_server_that_ends_by_itself_is_reported() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    shell.start_server("quick", "exit 7");
    let ended = shell.record("ended");
    assert_eq!(
        ended,
        json!({"record": "ended", "process": "quick", "exit_code": 7, "signal": null})
    );
    let pid = shell.start_server("killed", "exec sleep 1000");
    kill(pid, libc::SIGKILL);
    let ended = shell.record("ended");
    assert_eq!(
        ended,
        json!({"record": "ended", "process": "killed", "exit_code": null, "signal": 9})
    );
    // Its name is free again, and it can also still be stopped.
    shell.start_server("quick", "exec sleep 1000");
    let stopped = shell.call(json!({"command": "stop", "process": "killed"}));
    assert_eq!(stopped, json!({"exit_code": null, "signal": 9}));
}

#[test]
fn the_end_of_a_server_follows_the_reply_to_its_start() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    for round in 0..50 {
        let name = format!("server-{round}");
        let log = shell.directory().join("log");
        let number =
            shell.send(json!({"command": "start", "process": name, "argv": ["true"], "log": log}));
        // `record` keeps replies, so the reply must have arrived before `ended`.
        assert_eq!(shell.record("ended")["process"], name.as_str());
        assert!(shell.has_reply(number));
    }
}

#[test]
fn stop_ends_descendants_that_left_the_group() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let (script, files) = stubborn_server(scene.path());
    shell.start_server("stubborn", &script);
    let pids = files.each_ref().map(|path| wait_for_number(path));
    let started = Instant::now();
    let stopped = shell.call(json!({"command": "stop", "process": "stubborn", "grace_s": 0.5}));
    assert_eq!(stopped, json!({"exit_code": null, "signal": 9}));
    assert!(started.elapsed() >= Duration::from_millis(500));
    assert!(!runs(pids[0]) && !runs(pids[1]));
}

#[test]
fn a_daemon_can_be_stopped_after_its_parent_has_ended() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let file = scene.path().join("pid");
    let script = format!(
        "(setsid sh -c 'echo $$ > {}; exec sleep 1000' &)",
        file.display()
    );
    shell.start_server("daemon", &script);
    let pid = wait_for_number(&file);
    assert_eq!(shell.record("ended")["exit_code"], 0);
    assert!(runs(pid));
    let log = shell.directory().join("log");
    let again = json!({"command": "start", "process": "daemon", "argv": ["true"], "log": log});
    assert_eq!(shell.kind(again), "exists", "the daemon runs");
    let stopped = shell.call(json!({"command": "stop", "process": "daemon"}));
    assert_eq!(stopped, json!({"exit_code": 0, "signal": null}));
    assert!(!runs(pid));
}

#[test]
fn a_server_that_cannot_start_is_an_error() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let log = shell.directory().join("log");
    let start = |argv: &[&str], log: &std::path::Path| json!({"command": "start", "process": "one", "argv": argv, "log": log});
    assert_eq!(shell.kind(start(&["no-such-program"], &log)), "not_found");
    assert_eq!(shell.kind(start(&["/no/such/program"], &log)), "not_found");
    assert_eq!(shell.kind(start(&["/etc/passwd"], &log)), "permission");
    assert_eq!(
        shell.kind(start(&["true"], std::path::Path::new("/proc/none/log"))),
        "not_found"
    );
    for stop in [
        json!({"command": "stop", "process": "one", "signal": 0}),
        json!({"command": "stop", "process": "one", "signal": 99}),
        json!({"command": "stop", "process": "one", "grace_s": -1}),
    ] {
        assert_eq!(shell.kind(stop), "invalid");
    }
    shell.call(start(&["true"], &log));
    assert_eq!(shell.record("ended")["process"], "one");
}

#[test]
fn children_do_not_inherit_files_or_signals() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let result = shell.run(&[
        "sh",
        "-c",
        "ls /proc/self/fd | wc -l; grep -E 'Sig(Blk|Ign)' /proc/self/status; ulimit -n",
    ]);
    let lines: Vec<&str> = result["stdout"].as_str().expect("a text").lines().collect();
    // 0, 1, 2, and the directory that `ls` reads.
    assert_eq!(lines[0].trim(), "4", "{result}");
    for line in &lines[1..3] {
        // Signals from 32 on belong to the C library.
        let set = line
            .rsplit('\t')
            .next()
            .and_then(|set| u64::from_str_radix(set, 16).ok());
        assert_eq!(set.expect("a set of signals") & 0x7fff_ffff, 0, "{result}");
    }
    let usual = std::process::Command::new("sh")
        .args(["-c", "ulimit -n"])
        .output()
        .expect("sh");
    assert_eq!(lines[3], String::from_utf8_lossy(&usual.stdout).trim());
}

#[test]
fn the_example_of_the_help_works() {
    let help = std::process::Command::new(ENGINE)
        .args(["shell", "--help"])
        .output()
        .expect("the engine is built");
    let help = String::from_utf8(help.stdout).expect("text");
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    // Commands of the example are in separate lines, or between the quotes of `echo`.
    let commands: Vec<Value> = help
        .lines()
        .filter_map(|line| {
            let from = line.find("{\"command\"")?;
            let to = line
                .rfind('}')
                .filter(|_| from == 0)
                .unwrap_or_else(|| line.rfind("}'").expect("a quote"));
            Some(
                serde_json::from_str(&line[from..=to])
                    .unwrap_or_else(|error| panic!("{error} in {line}")),
            )
        })
        .collect();
    assert_eq!(commands.len(), 4, "{help}");
    for mut command in commands {
        if command.get("log").is_some() {
            command["log"] = json!(scene.path().join("log"));
        }
        shell.call(command);
    }
    assert_eq!(shell.finish().0.code(), Some(0));
}
