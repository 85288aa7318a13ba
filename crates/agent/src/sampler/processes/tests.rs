use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::clock::monotonic_ns;

/// Starts a shell with this script, which runs until it is killed.
fn child(script: &str) -> Child {
    let child = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    child.expect("there is a shell")
}

fn groups() -> ProcessGroups {
    let servers = PlanServers::new(&crate::testing::start("{}"));
    ProcessGroups::new(servers, Pid::from_raw(0))
}

/// Reads until the condition holds; returns the counters of the last reading.
fn read_until(
    groups: &mut ProcessGroups,
    holds: impl Fn(&SampledCounters) -> bool,
) -> SampledCounters {
    let start = Instant::now();
    loop {
        let mut counters = SampledCounters::new();
        groups.due_ns = 0;
        groups.read_into(monotonic_ns(), &mut counters);
        if holds(&counters) {
            return counters;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{counters:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn fields_of_a_process_are_counted_from_the_end_of_its_name() {
    let numbers: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
    let text = format!("7 (a) D (b) D {}", numbers.join(" "));
    let expected = Stat {
        state: b'D',
        parent: 4,
        user_ticks: 14 + 16,
        system_ticks: 15 + 17,
        threads: 20,
        start_ticks: 22,
        disk_wait_ticks: 42,
    };
    assert_eq!(Stat::parse(&text), Some(expected));
    assert!(expected.is_blocked() && expected.is_alive());
    assert_eq!(Stat::parse("7 (a"), None);
}

/// Runs this test again in a separate process, because other tests have children, too. Returns whether this is that process.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "VENTURI_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let alone = Command::new(std::env::current_exe().expect("it runs"))
        .args(["--exact", &format!("sampler::processes::tests::{test}")])
        .env(ALONE, "1")
        .output()
        .expect("it runs");
    let output = String::from_utf8_lossy(&alone.stdout);
    assert!(
        alone.status.success() && output.contains("1 passed"),
        "{output}"
    );
    false
}

/// Bytes that `head` writes in the tests below.
const HEAD_BYTES: f64 = 1_000_000.0;

#[test]
fn the_bytes_of_a_child_are_counted_once_before_and_after_its_end() {
    if !is_alone("the_bytes_of_a_child_are_counted_once_before_and_after_its_end") {
        return;
    }
    let mut groups = groups();
    let written = |counters: &SampledCounters| {
        counters
            .get("process.mover.write_call_bytes")
            .copied()
            .unwrap_or_default()
    };
    // The subshell waits for `head`, and the shell for the subshell.
    let mut shell = child("(head -c 1000000 /dev/zero; read line); read line");
    let mut stdin = shell.stdin.take().expect("a pipe");
    let running = read_until(&mut groups, |counters| written(counters) >= HEAD_BYTES);
    assert_eq!(running["process.mover.processes"], 2.0);
    let expected = HEAD_BYTES..HEAD_BYTES + 10_000.0;
    assert!(expected.contains(&written(&running)), "{running:?}");
    stdin.write_all(b"\n").expect("the subshell reads");
    let ended = read_until(&mut groups, |counters| {
        counters["process.mover.processes"] == 1.0
    });
    assert!(expected.contains(&written(&ended)), "{ended:?}");
    shell.kill().expect("our child");
    shell.wait().expect("our child");
}

#[test]
fn a_child_between_two_readings_is_counted() {
    if !is_alone("a_child_between_two_readings_is_counted") {
        return;
    }
    let mut groups = groups();
    let mut shell = child("read line; head -c 1000000 /dev/zero; echo done >&2; read line");
    let before = read_until(&mut groups, |counters| {
        counters.get("process.mover.processes") == Some(&1.0)
    });
    assert!(before["process.mover.write_call_bytes"] < HEAD_BYTES);
    let (mut stdin, stderr) = (shell.stdin.take(), shell.stderr.take());
    stdin
        .as_mut()
        .expect("a pipe")
        .write_all(b"\n")
        .expect("the shell reads");
    let mut line = String::new();
    BufReader::new(stderr.expect("a pipe"))
        .read_line(&mut line)
        .expect("the shell writes");
    let mut counters = SampledCounters::new();
    groups.read_all(monotonic_ns(), &mut counters);
    assert!(
        counters["process.mover.write_call_bytes"] >= HEAD_BYTES,
        "{counters:?}"
    );
    shell.kill().expect("our child");
    shell.wait().expect("our child");
}

#[test]
fn the_counts_of_a_child_are_subtracted_only_if_they_are_included() {
    let child = Counts {
        user_ticks: 2,
        system_ticks: 1,
        io: Some([0, 5, 0, 9]),
    };
    let with_child = Counts {
        user_ticks: 3,
        system_ticks: 1,
        io: Some([4, 5, 4, 10]),
    };
    let own = Counts {
        user_ticks: 1,
        system_ticks: 0,
        io: Some([4, 0, 4, 1]),
    };
    assert_eq!(with_child.without(&child), Some(own));
    assert_eq!(own.without(&child), None, "the parent ignores SIGCHLD");
}

#[test]
fn a_busy_child_counts_as_one_busy_thread_and_its_bytes_are_counted() {
    if !is_alone("a_busy_child_counts_as_one_busy_thread_and_its_bytes_are_counted") {
        return;
    }
    let mut groups = groups();
    let mut counters = SampledCounters::new();
    groups.read_into(monotonic_ns(), &mut counters);
    assert!(counters.is_empty(), "no child was ever seen: {counters:?}");

    let mut busy = child("head -c 1000000 /dev/zero; while :; do :; done");
    let counters = read_until(&mut groups, |counters| {
        counters
            .get("process.mover.user_s")
            .is_some_and(|user_s| *user_s > 0.2)
    });
    assert_eq!(counters["process.mover.processes"], 1.0);
    assert!(counters["process.mover.write_call_bytes"] <= 1_100_000.0);
    let cpu_s = counters["process.mover.user_s"] + counters["process.mover.system_s"];
    if let Some(busiest_s) = counters.get("process.mover.busiest_thread_s") {
        // One thread: it is the busiest in every interval. Two ticks of 10 ms are the resolution of `user_s`, and
        // the short life of `head` is in both.
        assert!((busiest_s - cpu_s).abs() < 0.1, "{busiest_s} and {cpu_s}");
    }
    busy.kill().expect("our child");
    busy.wait().expect("our child");
    let after = read_until(&mut groups, |counters| {
        counters["process.mover.processes"] == 0.0
    });
    assert!(
        after["process.mover.user_s"] >= counters["process.mover.user_s"],
        "the sum stays"
    );
}

#[test]
fn an_expensive_reading_is_not_repeated_immediately() {
    let mut groups = groups();
    let mut counters = SampledCounters::new();
    let now_ns = monotonic_ns();
    groups.read_into(now_ns, &mut counters);
    assert!(groups.due_ns > now_ns);
    groups.latest_ns = 0;
    groups.read_into(groups.due_ns - 1, &mut counters);
    assert_eq!(groups.latest_ns, 0, "it did not read");
}
