//! Links that change while traffic runs.

use std::time::Duration;

use serde_json::json;

use crate::testkit::{PATIENCE, Wire, is_possible, pair};
use crate::traffic::{echo, round_trips};

#[test]
fn an_outage_stops_all_until_it_ends() {
    if !is_possible() {
        return;
    }
    let mut wire = Wire::new(&pair(&json!({}), &json!({})), &json!({}));
    echo(&wire.b);
    assert_eq!(round_trips(&wire.a, 3, PATIENCE).len(), 3);
    wire.change(&json!({"up": false}));
    assert_eq!(round_trips(&wire.a, 3, Duration::from_millis(100)).len(), 0);
    let counters = wire.sample();
    assert_eq!(
        (
            counters["link.there.packets"],
            counters["link.there.outage_drops"]
        ),
        (3.0, 3.0)
    );
    wire.change(&json!({"up": true}));
    assert_eq!(round_trips(&wire.a, 3, PATIENCE).len(), 3);
}

#[test]
fn a_change_of_the_delay_is_felt_at_once() {
    if !is_possible() {
        return;
    }
    let mut wire = Wire::new(&pair(&json!({}), &json!({})), &json!({}));
    echo(&wire.b);
    let before = round_trips(&wire.a, 10, PATIENCE);
    wire.change(&json!({"delay_s": 0.055}));
    let after = round_trips(&wire.a, 10, PATIENCE);
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
        // So much later that what is sent when the first is told of is sent before the second, also on a busy machine.
        {"time_s": 3.2, "link": "there", "set": {"loss": null}},
    ]);
    let mut wire = Wire::new(&network, &json!({}));
    echo(&wire.b);
    assert_eq!(
        round_trips(&wire.a, 2, PATIENCE).len(),
        2,
        "no change before `go`"
    );
    wire.say(&json!({"command": "go"}));
    let begun = wire.wait_for("event");
    assert_eq!(
        round_trips(&wire.a, 1, Duration::from_millis(50)).len(),
        0,
        "all is lost"
    );
    let ended = wire.wait_for("event");
    assert_eq!(ended["detail"]["set"], json!({"loss": null}));
    let time_s = |event: &serde_json::Value| event["time_s"].as_f64().expect("a time");
    // The times told are those of the plan, not those at which somebody got round to it.
    assert!((time_s(&ended) - time_s(&begun) - 3.0).abs() < 1e-6);
    assert_eq!(round_trips(&wire.a, 2, PATIENCE).len(), 2);
}

#[test]
fn a_plan_that_is_gone_on_with_has_what_its_past_has_left_at_once_and_the_rest_in_what_is_left_of_its_time()
 {
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
    let mut wire = Wire::new(&network, &json!({}));
    echo(&wire.b);
    wire.say(&json!({"command": "go", "elapsed_s": 197.0}));
    let left = wire.wait_for("event");
    assert_eq!(
        left["detail"]["set"],
        json!({"up": true, "delay_s": 0.001, "loss": lost})
    );
    assert_eq!(
        round_trips(&wire.a, 1, Duration::from_millis(50)).len(),
        0,
        "all is lost"
    );
    let ended = wire.wait_for("event");
    assert_eq!(ended["detail"]["set"], json!({"loss": null}));
    let time_s = |event: &serde_json::Value| event["time_s"].as_f64().expect("a time");
    assert!((time_s(&ended) - time_s(&left) - 3.0).abs() < 1e-6);
    assert_eq!(round_trips(&wire.a, 2, PATIENCE).len(), 2);
}

#[test]
fn a_plan_cannot_be_gone_on_with_before_its_beginning() {
    if !is_possible() {
        return;
    }
    let mut wire = Wire::new(&pair(&json!({}), &json!({})), &json!({}));
    wire.say(&json!({"command": "go", "elapsed_s": -1.0}));
    let message = wire.wait_for("fatal")["message"].to_string();
    assert!(
        message.contains("expected an `elapsed_s` that is not negative, found -1"),
        "{message}"
    );
}
