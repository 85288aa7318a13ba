//! Invalid plans end with an error that names the location, and never panic or hang.

use serde_json::{Value, json};
use venturi_plan::Plan;

use super::plans::{get, plan};
use super::simulate;
use crate::world::{Assumptions, WorldError};

/// Return the error of a plan that cannot run.
fn error_text(plan: Plan, world: Value) -> String {
    let assumptions: Assumptions = serde_json::from_value(world).expect("a world");
    match simulate(plan, assumptions) {
        Ok(_) => panic!("expected an error"),
        Err(error) => error.to_string(),
    }
}

fn check(change: impl FnOnce(&mut Value), steps: Value, expected: &[&str]) {
    let text = error_text(plan(0.01, change, &[("b", steps)]), json!({}));
    assert!(
        expected.iter().all(|part| text.contains(part)),
        "expected {expected:?}, found: {text}"
    );
}

#[test]
fn every_actor_in_a_circular_wait_is_named_with_its_counter() {
    let waits = |counter: &str, then: &str| json!([{"step": "wait", "counter": counter, "until": 1}, {"step": "signal", "counter": then, "add": 1}]);
    let actors = [
        ("a", waits("chicken", "egg")),
        ("b", waits("egg", "chicken")),
    ];
    let text = error_text(plan(0.0, |_| (), &actors), json!({}));
    assert!(
        text.contains("on a, actor `actor0` waits for")
            && text.contains("on b, actor `actor1` waits for"),
        "{text}"
    );
    assert!(text.contains("chicken") && text.contains("egg"), "{text}");
}

#[test]
fn actors_that_wait_for_each_others_pools_are_named_with_the_pool() {
    let pools = |header: &mut Value| header["pools"] = json!({"left": 1, "right": 1});
    let takes = |first: &str, second: &str| {
        json!([{"step": "acquire", "pool": first, "count": 1}, {"step": "pause", "duration_s": 1},
        {"step": "acquire", "pool": second, "count": 1}])
    };
    let actors = [("b", takes("left", "right")), ("b", takes("right", "left"))];
    let text = error_text(plan(0.0, pools, &actors), json!({}));
    assert!(
        text.contains("at 1 s")
            && text.contains("actor `actor0` waits")
            && text.contains("actor `actor1` waits")
            && text.contains("right"),
        "{text}"
    );
}

#[test]
fn a_capacity_of_zero_is_rejected_with_its_location() {
    let gets = || json!([get("get", 1)]);
    check(
        |it| it["hosts"]["b"]["lab"]["cpu_limit_cores"] = json!(0.0),
        gets(),
        &["hosts.b, its cores: expected a finite number above 0, found 0"],
    );
    check(
        |it| it["storages"]["src"]["spec"] = json!({"kind": "disk", "read_bytes_per_s": 0.0}),
        gets(),
        &["storages.src.spec.read_bytes_per_s: expected"],
    );
    check(
        |it| it["services"]["ftp"]["options"] = json!({"process_rate_bytes_per_s": 0.0}),
        gets(),
        &["services.ftp.options.process_rate_bytes_per_s: expected"],
    );
    let samples = |it: &mut Value| it["measure"]["interval_s"] = json!(1e-300);
    check(
        samples,
        gets(),
        &["measure.interval_s: expected at least a microsecond"],
    );
    let text = error_text(plan(0.0, |_| (), &[]), json!({"machine_cores": 0.0}));
    assert!(
        text.starts_with("world.machine_cores: expected a finite number above 0"),
        "{text}"
    );
}

#[test]
fn an_invalid_change_is_rejected_before_the_start_with_its_number() {
    let change = |set: Value| move |it: &mut Value| it["network"]["changes"] = json!([{"time_s": 1, "link": "a>b", "set": {"up": true}}, {"time_s": 50, "link": "a>b", "set": set}]);
    for (set, expected) in [
        (
            json!({"rate_bit_per_s": 0}),
            "network.changes[1].set.rate_bit_per_s: expected a finite number above 0, found 0",
        ),
        (
            json!({"delay_s": -1}),
            "network.changes[1].set.delay_s: expected a finite number of at least 0, found -1",
        ),
        (
            json!({"loss": {"kind": "independent", "probability": 2}}),
            "network.changes[1].set.loss: expected probabilities from 0 to 1, found 2",
        ),
    ] {
        check(change(set), json!([]), &[expected]);
    }
    let unknown =
        |it: &mut Value| it["network"]["changes"] = json!([{"time_s": 1, "link": "x", "set": {}}]);
    check(
        unknown,
        json!([]),
        &["network.changes[0].link: expected a link of the network, found `x`"],
    );
}

#[test]
fn missing_and_circular_routes_are_rejected_with_their_location() {
    let routers = |routes: Value| {
        move |header: &mut Value| {
            let link = |from: &str, to: &str| json!({"from": from, "to": to, "rate_bit_per_s": 1e6, "delay_s": 0.0, "queue_bytes": 1});
            let network = &mut header["network"];
            network["routers"] = json!(["r", "s"]);
            network["links"] = json!({"a>r": link("a.eth0", "r"), "r>s": link("r", "s"), "s>r": link("s", "r"), "s>b": link("s", "b.eth0"),
                "b>s": link("b.eth0", "s"), "r>a": link("r", "a.eth0")});
            network["routes"] = routes;
        }
    };
    let circle = json!({"r": {"*": "r>s"}, "s": {"*": "s>r"}});
    check(
        routers(circle),
        json!([get("get", 1)]),
        &["expected a route from `b.eth0`", "loop"],
    );
    let nowhere = json!({"r": {}, "s": {}});
    check(
        routers(nowhere),
        json!([get("get", 1)]),
        &["expected a route from `b.eth0`", "`s`"],
    );
}

#[test]
fn a_plan_for_existing_servers_or_without_links_is_rejected_with_the_missing_part() {
    check(
        |it| it["services"]["ftp"]["host"] = json!(null),
        json!([get("get", 1)]),
        &["services.ftp.host: expected a host of the plan, found none"],
    );
    check(
        |it| it["storages"]["src"]["host"] = json!("nowhere"),
        json!([get("get", 1)]),
        &["storages.src.host: expected a host of the plan, found `nowhere`"],
    );
    let no_network = |it: &mut Value| {
        it["network"] = json!(null);
        it["services"]["ftp"]["interface"] = json!(null);
    };
    check(
        no_network,
        json!([get("get", 1)]),
        &["expected links between the hosts of the plan", "`a`"],
    );
}

#[test]
fn numbers_out_of_bounds_are_errors_with_their_location() {
    let error_of = |steps: Value| error_text(plan(0.01, |_| (), &[("b", steps)]), json!({}));
    let text = error_of(json!([get("get", 1 << 63)]));
    assert!(
        text.starts_with("actor actor0, task") && text.contains("at most 2^53 bytes"),
        "{text}"
    );
    let text = error_of(json!([{"step": "pause", "duration_s": 1e30}]));
    assert!(
        text.contains(
            "actor `actor0`, step `pause`: expected a number of at least 0 and at most 1e10"
        ),
        "{text}"
    );
    let text = error_of(json!([{"step": "compute", "core_s": -1.0}]));
    assert!(
        text.contains("actor `actor0`, step `compute`: expected a number of at least 0"),
        "{text}"
    );
    for cost in [
        json!({"start_s": 1e30}),
        json!({"start_s": 1e300}),
        json!({"file_core_s": 1e300, "start_core_s": 1e300}),
    ] {
        let costs =
            json!({"calls": {"get": [{"source": "ftp", "destination": "file", "cost": cost}]}});
        let slow = |header: &mut Value| header["calls"]["get"]["timeout_s"] = json!(1e300);
        let text = error_text(
            plan(0.01, slow, &[("b", json!([get("get", 1)]))]),
            json!({"costs": costs}),
        );
        assert!(text.contains("within 10000000000 s"), "{text}");
    }
    let costs = json!({"hosts": {"b": {"rtt_exponent": 1e300}}});
    let text = error_text(
        plan(0.01, |_| (), &[("b", json!([get("get", 1)]))]),
        json!({"costs": costs}),
    );
    assert!(
        text.contains(
            "the cost of the call `get` from `ftp` to `file`: expected a fraction of links above 0"
        ),
        "{text}"
    );
    assert!(Plan::read(br#"{"format": 1e300}"#.as_slice()).is_err());
}

#[test]
fn loops_without_duration_are_errors_for_any_step() {
    let sets = |header: &mut Value| {
        header["datasets"] =
            json!({"set": {"storage": "dst", "path": "s", "files": 1, "size_bytes": 1, "seed": 1}})
    };
    for step in [
        get("get", 0),
        json!({"step": "compute", "core_s": 0.0}),
        json!({"step": "prepare", "dataset": "set", "first": 0, "files": 1, "cache": "as_is"}),
        json!({"step": "pause", "duration_s": 0.0}),
        json!({"step": "signal", "counter": "x", "add": 1}),
    ] {
        for limit in [json!({"until_s": 10}), json!({"count": 1_000_000_000})] {
            let mut again = json!({"step": "repeat", "steps": [step]});
            again
                .as_object_mut()
                .expect("a map")
                .extend(limit.as_object().expect("a map").clone());
            let text = error_text(plan(0.0, sets, &[("b", json!([again]))]), json!({}));
            assert!(text.contains("time"), "{step}: {text}");
        }
    }
}

#[test]
fn an_excessive_rate_of_arrivals_is_an_error_not_a_hang() {
    let arrivals = json!([{"step": "arrivals", "rate_per_s": [[0.0, 1e300], [10.0, 1e300]], "gap": 1.0, "steps": [get("get", 1)]}]);
    let error = simulate(
        plan(0.0, |_| (), &[("b", arrivals)]),
        Assumptions::default(),
    )
    .expect_err("an error");
    assert!(
        matches!(error, WorldError::Endless { .. } | WorldError::Plan { .. }),
        "{error}"
    );
}
