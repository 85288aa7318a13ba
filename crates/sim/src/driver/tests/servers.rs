//! Copies between two servers: destinations of their commands, and servers that redirect clients to
//! service ports of others.

use serde_json::{Value, json};

use super::plans::{get, plan};
use super::{SimTransfer, TOLERANCE, simulate, transfers};
use crate::world::Assumptions;

const DELAY_S: f64 = 0.01;

/// Run a copy from `ftp` on host `a` to `sink` on host `b`, requested by a host.
fn copy(host: &str, via: &str, change: impl FnOnce(&mut Value)) -> Vec<SimTransfer> {
    let copy = json!({"step": "transfer", "call": "get", "slot": 0, "source": "src:x", "source_via": via,
        "destination": "dst:x", "destination_via": "sink/ftp", "files": 1, "bytes": 1000});
    let with_sink = |header: &mut Value| {
        let mut sink = header["services"]["ftp"].clone();
        sink["host"] = json!("b");
        sink["interface"] = json!("b.eth0");
        sink["storages"] = json!(["dst"]);
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

fn took_s(found: &[SimTransfer]) -> Vec<f64> {
    let of = |it: &SimTransfer| it.record.duration_s.expect("it was released").get();
    found.iter().map(of).collect()
}

#[test]
fn commands_to_two_servers_take_the_round_trips_of_the_farther_one() {
    // From each end, the other server is 20 ms away and its own has no delay: 10 round trips, a
    // login, 1 ms of bytes.
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
fn a_redirecting_server_assigns_service_ports_in_turn_after_its_own_session() {
    let found = copy("a", "srm/srm", |header| {
        let mut srm = header["services"]["ftp"].clone();
        let other = srm.clone();
        srm["kind"] = json!("srm");
        srm["options"] = json!({"doors": "ftp, other"});
        srm["service_ports"] = json!({"srm": "srm://a.lab.test:{port}{path}"});
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
fn bytes_share_the_cores_of_client_and_server() {
    // 10 µs of CPU time per byte on 0.1 cores: 10 kB/s together, instead of 1 MB/s of the link.
    for (host, costs) in [
        ("a", json!({"services": {"ftp": {"byte_core_s": 1e-5}}})),
        (
            "b",
            json!({"calls": {"get": [{"source": "ftp", "destination": "file", "cost": {"byte_core_s": 1e-5}}]}}),
        ),
    ] {
        let world: Assumptions =
            serde_json::from_value(json!({ "costs": costs })).expect("a test's own world");
        let limited =
            |header: &mut Value| header["hosts"][host]["lab"]["cpu_limit_cores"] = json!(0.1);
        let each = json!([get("get", 5000)]);
        let found = transfers(
            plan(0.0, limited, &[("b", each.clone()), ("b", each)]),
            world,
        );
        for took in took_s(&found) {
            assert!((took - 1.0).abs() < 1e-2, "{host}: {took}");
        }
        for one in &found {
            let largest = one.bottleneck.iter().max_by(|x, y| x.1.total_cmp(y.1));
            assert_eq!(
                largest.map(|it| it.0.as_ref()),
                Some(format!("cpu:{host}").as_str())
            );
        }
    }
}

#[test]
fn contending_sessions_share_the_rate_of_the_scalability_law() {
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
fn contending_sessions_without_a_rate_are_rejected_by_name() {
    let world = json!({"costs": {"services": {"ftp": {"contention": 0.5}}}});
    let world = serde_json::from_value(world).expect("a test's own world");
    let plan = plan(0.0, |_| (), &[("b", json!([get("get", 1)]))]);
    let rejected = simulate(plan, world).expect_err("no rate");
    let text = rejected.to_string();
    assert!(
        text.starts_with(
            "world.costs.services.ftp: expected process_bytes_per_s together with contention and \
             coherency, found none"
        ),
        "{text}"
    );
}
