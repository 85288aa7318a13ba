//! Tests of parsing and running workloads, and of queueing theory (`queues`).

mod queues;

use super::*;

fn parsed(text: &str) -> Result<Workload, String> {
    Workload::parse(text.as_bytes()).map_err(|error| error.to_string())
}

const HEAD: &str = "1\n1e9 0.25\n2\n1 0 0\n0 0\n";

#[test]
fn a_flow_takes_the_latency_of_its_route_and_is_limited_by_share_or_window() {
    let workload = parsed(&format!("{HEAD}open 2 1\n1 0 1 1e9\n")).unwrap();
    assert_eq!(
        run(&workload, FlowSettings::default()).unwrap().end_s,
        [2.25]
    );
    let window = FlowSettings {
        window_bytes: Some(1e8),
        ..FlowSettings::default()
    };
    // 1e8 bytes / (2 · 0.25 s) = 2e8 bytes/s
    assert_eq!(run(&workload, window).unwrap().end_s, [6.25]);
}

#[test]
fn a_replay_ends_like_its_original_run_and_like_the_full_refill() {
    let text = "3\n1e9 0.01\n2e9 0.01\n1e9 0.01\n3\n1 0 0\n1 1 1 2\n0 1 1\nclosed 3 6\n\
        0 0 0 1 3e8\n1 0.1 0 2 4e8\n2 0.2 1 2 7e8\n0 0.1 1 2 5e8\n1 0 1 1 6e8\n2 0.3 0 1 1e8\n";
    let workload = parsed(text).unwrap();
    let outcome = run(&workload, FlowSettings::default()).unwrap();
    let replay = workload.replay(&outcome).unwrap();
    let mut written = Vec::new();
    replay.write(&mut written).unwrap();
    let read = Workload::parse(written.as_slice()).unwrap();
    assert_eq!(
        read.kind.clone(),
        parsed(std::str::from_utf8(&written).unwrap()).unwrap().kind
    );
    assert_eq!(
        read.replay(&WorkloadResult::default()),
        Some(read.clone()),
        "open arrivals are their own replay"
    );
    let mut expected = outcome.end_s.clone();
    expected.sort_by(f64::total_cmp);
    for reference in [false, true] {
        let mut found = run(
            &read,
            FlowSettings {
                reference,
                ..FlowSettings::default()
            },
        )
        .unwrap()
        .end_s;
        found.sort_by(f64::total_cmp);
        for (found, expected) in found.iter().zip(&expected) {
            assert!(
                (found - expected).abs() <= 1e-12 * expected,
                "{found} instead of {expected}"
            );
        }
    }
}

#[test]
fn jobs_alternate_between_reading_and_computing_on_the_available_cores() {
    // Two jobs of two chunks on one core: both read at 5e8 bytes/s, then compute at half a core, and so again.
    let text = "2\n1e9 0\n1e9 0\n2\n1 0 0\n0 1 1\nbatch 2 2 2 0 2e9 1\n1e9 3\n1e9 3\n";
    let outcome = run(&parsed(text).unwrap(), FlowSettings::default()).unwrap();
    assert_eq!(outcome.end_s, [16.0, 16.0]);
}

#[test]
fn an_invalid_workload_is_rejected_with_its_line() {
    for (text, line, found) in [
        ("", 1, "the end of the file"),
        ("x\n", 1, "`x`"),
        ("1\n-1 0\n", 2, "`-1 0`"),
        ("1\n1e9 0\n1\n1 1 0\n", 4, "`1 1 0`"),
        (&format!("{HEAD}shut 1 1\n"), 6, "`shut 1 1`"),
        (&format!("{HEAD}open 2 1\n0 0 2 1e9\n"), 7, "`0 0 2 1e9`"),
        (&format!("{HEAD}open 2 1\n0 0 1 NaN\n"), 7, "`0 0 1 NaN`"),
        (
            &format!("{HEAD}open 2 2\n0 0 1 1e9\n"),
            8,
            "the end of the file",
        ),
        (
            &format!("{HEAD}closed 1 1\n1 0 0 1 1e9\n"),
            7,
            "`1 0 0 1 1e9`",
        ),
        (&format!("{HEAD}batch 1 1 0 0 1e9 1\n"), 6, "0 chunks"),
    ] {
        let message = parsed(text).unwrap_err();
        assert!(
            message.starts_with(&format!("line {line}: expected ")) && message.contains(found),
            "{message}"
        );
    }
}
