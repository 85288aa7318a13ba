//! Outages: when transfers continue, and when tools abort and retry.

use serde_json::{Value, json};
use venturi_plan::Outcome;

use super::plans::{get, plan};
use super::{SimTransfer, TOLERANCE, changes, transfers};
use crate::cost::Costs;
use crate::world::Assumptions;

/// Let the link from `a` to `b` go down and up at these times, alternately.
fn outages(times_s: &[f64]) -> Value {
    let change = |(number, time_s): (usize, &f64)| json!({"time_s": time_s, "link": "a>b", "set": {"up": number % 2 == 1}});
    times_s.iter().enumerate().map(change).collect()
}

/// Run a transfer of 1 MB, which takes 1 s, with a tool of this cost.
fn one(times_s: &[f64], cost: Value) -> SimTransfer {
    let cost = json!({"calls": {"get": [{"source": "ftp", "destination": "file", "cost": cost}]}});
    let costs: Costs = serde_json::from_value(cost).expect("costs");
    let assumptions = Assumptions {
        costs,
        ..Assumptions::default()
    };
    let actors = [("b", json!([get("get", 1_000_000)]))];
    let plan = plan(0.0, changes(outages(times_s)), &actors);
    transfers(plan, assumptions).remove(0)
}

fn check(found: &SimTransfer, outcome: Outcome, end_s: f64, received: u64) {
    let record = &found.record;
    let (end, bytes) = (record.end_s.expect("released").get(), record.received_bytes);
    assert!(
        record.outcome == outcome && (end - end_s).abs() < TOLERANCE,
        "expected {outcome:?} at {end_s}, found {:?} at {end}: {:?}",
        record.outcome,
        record.error
    );
    assert_eq!(bytes.map(|bytes| bytes.get()), Some(received));
}

#[test]
fn lost_packets_are_sent_again_after_doubling_timeouts() {
    // Retransmissions 0.2, 0.6, 1.4 and 3.0 s after 0.5; the path is up at 2.5.
    let found = one(&[0.5, 2.5], json!({}));
    check(&found, Outcome::Ok, 4.0, 1_000_000);
    assert!(
        (found.bottleneck["outage"] - 3.0 / 4.0).abs() < TOLERANCE,
        "{:?}",
        found.bottleneck
    );
    let all: f64 = found.bottleneck.values().sum();
    assert!((all - 1.0).abs() < TOLERANCE, "{:?}", found.bottleneck);
}

#[test]
fn a_path_that_breaks_again_before_the_next_packet_costs_one_more_timeout() {
    // The packet of 3.5 s is lost too; the next one is sent 6.2 s after 0.5. An outage without a
    // packet costs nothing.
    check(
        &one(&[0.5, 2.5, 3.4, 3.6], json!({})),
        Outcome::Ok,
        7.2,
        1_000_000,
    );
    check(
        &one(&[0.5, 2.5, 2.7, 2.9], json!({})),
        Outcome::Ok,
        4.0,
        1_000_000,
    );
}

#[test]
fn a_connection_started_in_an_outage_is_tried_each_second_at_first() {
    check(&one(&[0.0, 4.5], json!({})), Outcome::Ok, 6.0, 1_000_000);
    // After 19 and 35 s.
    check(&one(&[0.0, 19.5], json!({})), Outcome::Ok, 36.0, 1_000_000);
}

#[test]
fn a_tool_gives_up_at_its_timeout_and_keeps_the_received_bytes() {
    let found = one(&[0.5], json!({"stall_timeout_s": 10.0}));
    check(&found, Outcome::Failed, 10.5, 500_000);
    let error = found.record.error.expect("a reason");
    assert!(error.contains("no bytes arrived for 10 s"), "{error}");
    // TCP waits for 924.6 s, longer than the timeout of the call.
    check(&one(&[0.5], json!({})), Outcome::Timeout, 100.0, 500_000);
    // Outages shorter than its timeout have no effect.
    check(
        &one(&[0.5, 2.5], json!({"stall_timeout_s": 3.5})),
        Outcome::Ok,
        4.0,
        1_000_000,
    );
}

#[test]
fn a_tool_that_retries_pauses_and_resumes_if_possible() {
    // Aborted at 1.5 and, after a pause of 1 s, at 3.5; the third attempt after 2 s finds the path
    // up.
    let cost = |keeps: bool| json!({"stall_timeout_s": 1.0, "retries": 3, "retry_pause_s": 1.0, "resumes": keeps});
    let found = one(&[0.5, 4.0], cost(true));
    check(&found, Outcome::Ok, 6.0, 1_000_000);
    assert!(
        (found.bottleneck["retry"] - 0.5).abs() < TOLERANCE,
        "{:?}",
        found.bottleneck
    );
    check(&one(&[0.5, 4.0], cost(false)), Outcome::Ok, 6.5, 1_000_000);
}

#[test]
fn the_number_of_attempts_is_limited() {
    let cost = json!({"stall_timeout_s": 1.0, "retries": 2, "retry_pause_s": 1.0, "resumes": true});
    let found = one(&[0.5], cost);
    // 0.5 + 1, pause 1, 1, pause 2, 1.
    check(&found, Outcome::Failed, 6.5, 500_000);
    assert!(
        found
            .record
            .error
            .expect("a reason")
            .contains("failed attempts: 3")
    );
}

#[test]
fn options_of_a_call_set_the_number_of_retries() {
    let restarts = |header: &mut Value| {
        header["network"]["changes"] = outages(&[0.5]);
        header["calls"]["get"]["options"] = json!({"restarts": 1, "restart_interval_s": 5.0});
    };
    let costs = json!({"calls": {"get": [{"source": "ftp", "destination": "file", "cost": {"stall_timeout_s": 1.0}}]}});
    let assumptions = Assumptions {
        costs: serde_json::from_value(costs).expect("costs"),
        ..Assumptions::default()
    };
    let plan = plan(0.0, restarts, &[("b", json!([get("get", 1_000_000)]))]);
    check(&transfers(plan, assumptions)[0], Outcome::Failed, 7.5, 0);
}

#[test]
fn a_continued_plan_starts_at_its_time_and_skips_finished_trials() {
    let trial = |id: &str| json!({"step": "trial", "id": id, "point": 0, "repetition": 0, "block": 0, "factors": {}, "steps": [get("get", 1_000_000)]});
    let actors = [("b", json!([trial("t0000000"), trial("t0000001")]))];
    let plan = plan(0.0, changes(outages(&[1.0, 5.0, 20.0])), &actors);
    let assumptions = Assumptions {
        start_s: 10.0,
        skip: ["t0000000".parse().expect("an id")].into(),
        ..Assumptions::default()
    };
    let (simulation, lines) = super::simulate(plan, assumptions).expect("it ends");
    let trials: Vec<_> = lines
        .iter()
        .filter_map(|line| match &line.record {
            super::SimRecord::Trial(trial) => Some((
                trial.record.trial.to_string(),
                trial.record.start_s.get(),
                trial.record.end_s.get(),
            )),
            _ => None,
        })
        .collect();
    assert_eq!(trials, [("t0000001".to_owned(), 10.0, 11.0)]);
    assert_eq!(simulation.now_s(), 11.0);
}
