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
        user_ticks: 14,
        system_ticks: 15,
        threads: 20,
        start_ticks: 22,
        disk_wait_ticks: 42,
    };
    assert_eq!(Stat::parse(&text), Some(expected));
    assert!(expected.is_blocked() && expected.is_alive());
    assert_eq!(Stat::parse("7 (a"), None);
}

#[test]
fn a_busy_child_counts_as_one_busy_thread_and_its_bytes_are_counted() {
    // In a separate process: other tests have children, too.
    const ALONE: &str = "VENTURI_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "sampler::processes::tests::a_busy_child_counts_as_one_busy_thread_and_its_bytes_are_counted";
        let this = std::env::current_exe().expect("it runs");
        let alone = Command::new(this)
            .args(["--exact", name])
            .env(ALONE, "1")
            .output()
            .expect("it runs");
        let output = String::from_utf8_lossy(&alone.stdout);
        assert!(
            alone.status.success() && output.contains("1 passed"),
            "{output}"
        );
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
