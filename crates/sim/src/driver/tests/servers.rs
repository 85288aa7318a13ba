//! Copies between two servers: where their commands go, and servers that send clients to doors of others.

use serde_json::{Value, json};

use super::plans::{get, plan};
use super::{TOLERANCE, Transfer, carry_out, transfers};
use crate::world::Assumptions;

const DELAY_S: f64 = 0.01;

/// A copy from `ftp` on host `a` to `sink` on host `b`, asked for by a host.
fn copy(host: &str, via: &str, change: impl FnOnce(&mut Value)) -> Vec<Transfer> {
    let copy = json!({"step": "transfer", "call": "get", "slot": 0, "source": "src:x", "source_via": via,
        "destination": "dst:x", "destination_via": "sink/ftp", "files": 1, "bytes": 1000});
    let with_sink = |header: &mut Value| {
        let mut sink = header["services"]["ftp"].clone();
        sink["host"] = json!("b");
        sink["interface"] = json!("b.eth0");
        sink["places"] = json!(["dst"]);
        header["services"]["sink"] = sink;
        change(header);
    };
    let call = |source: &str| {
        json!({"source": source, "destination": "ftp", "cost": {"start_s": 0, "start_core_s": 0, "session_round_trips": 10,
        "file_round_trips": 0, "keeps_connection": true}})
    };
    let world: Assumptions = serde_json::from_value(json!({"costs": {
        "calls": {"get": [call("ftp"), call("srm")]},
        "services": {"ftp": {"auth_core_s": 0.5}, "other": {"auth_core_s": 2}, "srm": {"session_core_s": 0.25}}}}))
    .expect("a test's own world");
    let twice = json!([copy, copy]);
    transfers(plan(DELAY_S, with_sink, &[(host, twice)]), world)
}

fn took_s(found: &[Transfer]) -> Vec<f64> {
    let of = |it: &Transfer| it.record.duration_s.expect("it was released").get();
    found.iter().map(of).collect()
}

#[test]
fn commands_to_two_servers_take_the_round_trips_of_the_farther_one() {
    // From either end the other one is 20 ms away, and its own server is not: 10 round trips, a login, 1 ms of bytes.
    for host in ["a", "b"] {
        for took in took_s(&copy(host, "ftp/ftp", |_| ())) {
            assert!(
                (took - (0.2 + 0.5 + 0.001)).abs() < 1e-3 + TOLERANCE,
                "{took}"
            );
        }
    }
}

#[test]
fn a_server_that_sends_elsewhere_hands_out_its_doors_in_turn_and_its_own_session_comes_before() {
    let found = copy("a", "srm/srm", |header| {
        let mut srm = header["services"]["ftp"].clone();
        let other = srm.clone();
        srm["kind"] = json!("srm");
        srm["options"] = json!({"doors": "ftp, other"});
        srm["doors"] = json!({"srm": "srm://a.lab.test:{port}{path}"});
        header["services"]["srm"] = srm;
        header["services"]["other"] = other;
    });
    let mut found = took_s(&found);
    found.sort_by(f64::total_cmp);
    for (took, login_s) in found.into_iter().zip([0.5, 2.0]) {
        assert!(
            (took - (0.2 + 0.25 + login_s + 0.001)).abs() < 1e-3 + TOLERANCE,
            "{took}"
        );
    }
}

#[test]
fn sessions_that_get_in_each_others_way_have_together_what_the_law_of_scalability_says() {
    let cost = json!({"process_bytes_per_s": 100e3, "contention": 0.5, "coherency": 0.1});
    let world = json!({"costs": {"services": {"ftp": cost}}});
    let world: Assumptions = serde_json::from_value(world).expect("a test's own world");
    for (sessions, law) in [(1, 1.0), (2, 2.0 / 1.7), (4, 4.0 / 3.7)] {
        let actors: Vec<_> = (0..sessions)
            .map(|_| ("b", json!([get("get", 50_000)])))
            .collect();
        let found = transfers(plan(0.0, |_| (), &actors), world.clone());
        let expected = f64::from(sessions) * 50e3 / (100e3 * law);
        for took in took_s(&found) {
            assert!((took - expected).abs() < TOLERANCE, "{sessions}: {took}");
        }
    }
}

#[test]
fn sessions_that_get_in_each_others_way_at_a_rate_that_nobody_knows_are_refused_by_name() {
    let world = json!({"costs": {"services": {"ftp": {"contention": 0.5}}}});
    let world = serde_json::from_value(world).expect("a test's own world");
    let plan = plan(0.0, |_| (), &[("b", json!([get("get", 1)]))]);
    let refused = carry_out(plan, world).expect_err("no rate");
    let text = refused.to_string();
    assert!(
        text.starts_with(
            "world.costs.services.ftp: expected process_bytes_per_s beside contention and coherency, found none"
        ),
        "{text}"
    );
}
