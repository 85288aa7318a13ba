//! Links that change while traffic runs.

use std::time::Duration;

use serde_json::json;

use crate::testkit::{EmulatorProcess, TIMEOUT, is_possible, pair};
use crate::traffic::{echo, round_trips};

#[test]
fn an_outage_blocks_all_packets_until_it_ends() {
    if !is_possible() {
        return;
    }
    let mut emulator = EmulatorProcess::new(&pair(&json!({}), &json!({})), &json!({}));
    echo(&emulator.b);
    assert_eq!(round_trips(&emulator.a, 3, TIMEOUT).len(), 3);
    emulator.change(&json!({"up": false}));
    assert_eq!(
        round_trips(&emulator.a, 3, Duration::from_millis(100)).len(),
        0
    );
    let counters = emulator.sample();
    assert_eq!(
        (
            counters["link.there.packets"],
            counters["link.there.outage_drops"]
        ),
        (3.0, 3.0)
    );
    emulator.change(&json!({"up": true}));
    assert_eq!(round_trips(&emulator.a, 3, TIMEOUT).len(), 3);
}

#[test]
fn a_change_of_the_delay_takes_effect_immediately() {
    if !is_possible() {
        return;
    }
    let mut emulator = EmulatorProcess::new(&pair(&json!({}), &json!({})), &json!({}));
    echo(&emulator.b);
    let before = round_trips(&emulator.a, 10, TIMEOUT);
    emulator.change(&json!({"delay_s": 0.055}));
    let after = round_trips(&emulator.a, 10, TIMEOUT);
    assert!(
        before[5] < Duration::from_millis(30) && before[0] >= Duration::from_millis(10),
        "{before:?}"
    );
    assert!(
        after[0] >= Duration::from_millis(60) && after[5] < Duration::from_millis(90),
        "{after:?}"
    );
}

#[test]
fn planned_changes_are_made_at_their_times_after_go() {
    if !is_possible() {
        return;
    }
    let mut network = pair(&json!({}), &json!({}));
    network["changes"] = json!([
        {"time_s": 0.2, "link": "there", "set": {"loss": {"kind": "independent", "probability": 1.0}}},
        // The interval is long enough to send data between the report of the first change and the
        // second change, even on a busy machine.
        {"time_s": 3.2, "link": "there", "set": {"loss": null}},
    ]);
    let mut emulator = EmulatorProcess::new(&network, &json!({}));
    echo(&emulator.b);
    assert_eq!(
        round_trips(&emulator.a, 2, TIMEOUT).len(),
        2,
        "no change before `go`"
    );
    emulator.send(&json!({"command": "go"}));
    let started = emulator.wait_for("event");
    assert_eq!(
        round_trips(&emulator.a, 1, Duration::from_millis(50)).len(),
        0,
        "all is lost"
    );
    let ended = emulator.wait_for("event");
    assert_eq!(ended["detail"]["set"], json!({"loss": null}));
    let time_s = |event: &serde_json::Value| event["time_s"].as_f64().expect("a time");
    // The reported times are the planned times, not the times of execution.
    assert!((time_s(&ended) - time_s(&started) - 3.0).abs() < 1e-6);
    assert_eq!(round_trips(&emulator.a, 2, TIMEOUT).len(), 2);
}

#[test]
fn a_resumed_plan_applies_past_changes_immediately_and_the_rest_at_their_times() {
    if !is_possible() {
        return;
    }
    let lost = json!({"kind": "independent", "probability": 1.0});
    let mut network = pair(&json!({}), &json!({}));
    network["changes"] = json!([
        {"time_s": 50.0, "link": "there", "set": {"up": false, "delay_s": 0.001}},
        {"time_s": 100.0, "link": "there", "set": {"loss": lost, "up": true}},
        {"time_s": 200.0, "link": "there", "set": {"loss": null}},
    ]);
    let mut emulator = EmulatorProcess::new(&network, &json!({}));
    echo(&emulator.b);
    emulator.send(&json!({"command": "go", "elapsed_s": 197.0}));
    let left = emulator.wait_for("event");
    assert_eq!(
        left["detail"]["set"],
        json!({"up": true, "delay_s": 0.001, "loss": lost})
    );
    assert_eq!(
        round_trips(&emulator.a, 1, Duration::from_millis(50)).len(),
        0,
        "all is lost"
    );
    let ended = emulator.wait_for("event");
    assert_eq!(ended["detail"]["set"], json!({"loss": null}));
    let time_s = |event: &serde_json::Value| event["time_s"].as_f64().expect("a time");
    assert!((time_s(&ended) - time_s(&left) - 3.0).abs() < 1e-6);
    assert_eq!(round_trips(&emulator.a, 2, TIMEOUT).len(), 2);
}

#[test]
fn a_plan_cannot_be_resumed_before_its_start() {
    if !is_possible() {
        return;
    }
    let mut emulator = EmulatorProcess::new(&pair(&json!({}), &json!({})), &json!({}));
    emulator.send(&json!({"command": "go", "elapsed_s": -1.0}));
    let message = emulator.wait_for("fatal")["message"].to_string();
    assert!(
        message.contains("expected an `elapsed_s` of at least 0, found -1"),
        "{message}"
    );
}
