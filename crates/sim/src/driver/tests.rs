//! Tests of the driver: conformance suite, closed forms, and plans that cannot end.

mod caches;
mod columns;
mod fuzz;
mod mistakes;
mod outages;
mod plans;
mod routes;
mod servers;

use serde_json::{Value, json};
use venturi_plan::Plan;
use venturi_plan::conformance::{CASES, Case, IMPOSSIBLE_BYTES, MISSING_TOOL};

use self::plans::{get, plan};
use super::{SimLine, SimRecord, SimTransfer, Simulation};
use crate::cost::Costs;
use crate::world::{Assumptions, WorldError};

/// Maximum number of steps: more than any plan of these tests needs.
const MAX_STEPS: usize = 100_000;
/// Tolerance for sums of a few doubles.
const TOLERANCE: f64 = 1e-9;

fn simulate(
    plan: Plan,
    assumptions: Assumptions,
) -> Result<(Simulation, Vec<SimLine>), WorldError> {
    let mut simulation = Simulation::new(plan.header, plan.lines, assumptions)?;
    let mut lines = Vec::new();
    for _ in 0..MAX_STEPS {
        let goes_on = simulation.step()?;
        lines.extend(std::iter::from_fn(|| simulation.poll_line()));
        if !goes_on {
            return Ok((simulation, lines));
        }
    }
    panic!("expected an end within {MAX_STEPS} instants");
}

fn transfers(plan: Plan, assumptions: Assumptions) -> Vec<SimTransfer> {
    let (_, lines) = simulate(plan, assumptions).expect("a plan that ends");
    let transfer = |line: SimLine| match line.record {
        SimRecord::Transfer(transfer) => Some(*transfer),
        _ => None,
    };
    lines.into_iter().filter_map(transfer).collect()
}

fn ends(plan: Plan, assumptions: Assumptions) -> Vec<f64> {
    let end = |transfer: SimTransfer| transfer.record.end_s.expect("it was released").get();
    transfers(plan, assumptions).into_iter().map(end).collect()
}

fn check_ends(plan: Plan, expected: &[f64]) {
    let found = ends(plan, Assumptions::default());
    let same = |(found, expected): (&f64, &f64)| (found - expected).abs() < TOLERANCE;
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(same),
        "expected ends at {expected:?}, found {found:?}"
    );
}

fn changes(changes: Value) -> impl FnOnce(&mut Value) {
    |header| header["network"]["changes"] = changes
}

fn conform(case: &Case) -> Result<(), String> {
    let assumptions = Assumptions {
        missing_tools: [MISSING_TOOL.to_owned()].into(),
        storage_bytes: Some(IMPOSSIBLE_BYTES - 1),
        // The suite requires that transfers take time, and that larger reads take longer.
        storage_read_bytes_per_s: 1e6,
        storage_write_bytes_per_s: 1e6,
        ..Assumptions::default()
    };
    let plan = case.plan().map_err(|error| error.to_string())?;
    let (simulation, _) =
        simulate(plan, assumptions).map_err(|error| format!("{}: {error}", case.name))?;
    case.check(&simulation.trace)
}

#[test]
fn every_conformance_case_produces_its_events_in_order() {
    let wrong: Vec<_> = CASES
        .iter()
        .filter_map(|case| conform(case).err())
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn transfers_share_a_link_fairly_until_the_shorter_one_ends() {
    // T_k = (s_1 + … + s_(k-1) + (n-k+1) s_k) / C
    let actors = [
        ("b", json!([get("get", 1_000_000)])),
        ("b", json!([get("get", 2_000_000)])),
    ];
    check_ends(plan(0.0, |_| (), &actors), &[2.0, 3.0]);
}

#[test]
fn a_change_of_rate_takes_effect_at_its_time() {
    let half = json!([{"time_s": 1.0, "link": "a>b", "set": {"rate_bit_per_s": 1.052 * 4e6}}]);
    check_ends(
        plan(0.0, changes(half), &[("b", json!([get("get", 2_000_000)]))]),
        &[3.0],
    );
}

#[test]
fn a_timed_transfer_without_requested_bytes_runs_at_the_rate_of_the_link() {
    let timed = |header: &mut Value| {
        header["calls"]["timed"] = header["calls"]["get"].clone();
        header["calls"]["timed"]["options"] = json!({"time_s": 2.0});
    };
    let found = transfers(
        plan(0.0, timed, &[("b", json!([get("timed", 0)]))]),
        Assumptions::default(),
    );
    // 1 MB/s of payload, for 2 s.
    assert_eq!(found[0].tool_report.tool_bytes, Some(2_000_000));
    assert_eq!(found[0].tool_report.tool_rate_bytes_per_s, Some(1e6));
}

#[test]
fn the_bottleneck_of_a_transfer_is_reported_by_fractions_of_its_time() {
    let found = transfers(
        plan(0.0, |_| (), &[("b", json!([get("get", 1_000_000)]))]),
        Assumptions::default(),
    );
    assert_eq!(
        found[0]
            .bottleneck
            .iter()
            .map(|(name, fraction)| (&**name, *fraction))
            .collect::<Vec<_>>(),
        [("link:a>b", 1.0)]
    );
    // 10 kB of window at 0.1 s: 100 kB/s, so 1 MB takes 10 s plus the wait of slow start.
    let found = transfers(
        plan(0.05, |_| (), &[("b", json!([get("narrow", 1_000_000)]))]),
        Assumptions::default(),
    );
    let took_s = found[0].record.duration_s.expect("it was released").get();
    assert!(
        (found[0].bottleneck["window"] * took_s - 10.0).abs() < TOLERANCE,
        "{:?}",
        found[0].bottleneck
    );
    let all: f64 = found[0].bottleneck.values().sum();
    assert!((all - 1.0).abs() < TOLERANCE, "{:?}", found[0].bottleneck);
}

#[test]
fn each_connection_paced_by_its_sender_has_the_paced_rate() {
    let paced_s = |by: &str, streams: u32| {
        let change = |header: &mut Value| {
            let options = match by {
                "server" => &mut header["services"]["ftp"]["options"],
                _ => &mut header["calls"]["get"]["options"],
            };
            *options = json!({"pacing_bytes_per_s": 100_000});
            header["calls"]["get"]["options"]["streams"] = json!(streams);
        };
        let found = transfers(
            plan(0.0, change, &[("b", json!([get("get", 1_000_000)]))]),
            Assumptions::default(),
        );
        let took_s = found[0].record.duration_s.expect("it was released").get();
        found[0].bottleneck["pacing"] * took_s
    };
    for by in ["server", "client"] {
        assert!((paced_s(by, 1) - 10.0).abs() < TOLERANCE, "{by}");
        assert!((paced_s(by, 4) - 2.5).abs() < TOLERANCE, "{by}");
    }
}

#[test]
fn transfers_wait_in_a_queue_while_all_sessions_of_a_server_are_in_use() {
    let costs: Costs =
        serde_json::from_value(json!({"services": {"ftp": {"sessions": 1}}})).expect("costs");
    let actors = [
        ("b", json!([get("get", 1_000_000)])),
        ("b", json!([get("get", 2_000_000)])),
    ];
    let found = transfers(
        plan(0.0, |_| (), &actors),
        Assumptions {
            costs,
            ..Assumptions::default()
        },
    );
    let end = |transfer: &SimTransfer| transfer.record.end_s.map(|end| end.get());
    assert_eq!(
        found.iter().map(end).collect::<Vec<_>>(),
        [Some(1.0), Some(3.0)]
    );
    assert!((found[1].bottleneck["queue"] - 1.0 / 3.0).abs() < TOLERANCE);
}

#[test]
fn computing_shares_the_cores_of_its_host() {
    let compute = |core_s: f64| json!([{"step": "compute", "core_s": core_s}]);
    let (simulation, _) = simulate(
        plan(
            0.0,
            |_| (),
            &[
                ("a", compute(1.0)),
                ("a", compute(1.0)),
                ("b", compute(1.5)),
            ],
        ),
        Assumptions::default(),
    )
    .expect("it ends");
    assert!(
        (simulation.now_s() - 2.0).abs() < TOLERANCE,
        "{}",
        simulation.now_s()
    );
}

#[test]
fn hosts_of_a_lab_share_the_cores_of_their_machine() {
    let compute = json!([{"step": "compute", "core_s": 1.5}]);
    let (simulation, _) = simulate(
        plan(0.0, |_| (), &[("a", compute.clone()), ("b", compute)]),
        Assumptions {
            machine_cores: Some(1.0),
            ..Assumptions::default()
        },
    )
    .expect("it ends");
    assert!(
        (simulation.now_s() - 3.0).abs() < TOLERANCE,
        "{}",
        simulation.now_s()
    );
}

#[test]
fn a_host_learns_of_a_counter_after_its_latency() {
    let signals =
        json!([{"step": "pause", "duration_s": 2}, {"step": "signal", "counter": "go", "add": 1}]);
    let waits = json!([{"step": "wait", "counter": "go", "until": 1}, get("get", 0)]);
    let assumptions = Assumptions {
        counter_latency_s: 0.25,
        ..Assumptions::default()
    };
    assert_eq!(
        ends(
            plan(0.0, |_| (), &[("a", signals), ("b", waits)]),
            assumptions
        ),
        [2.25]
    );
}

#[test]
fn links_count_every_byte_including_headers() {
    let sampled =
        |header: &mut Value| header["measure"] = json!({"interval_s": 0.4, "counters": ["nic"]});
    let (_, lines) = simulate(
        plan(0.0, sampled, &[("b", json!([get("get", 1_000_000)]))]),
        Assumptions::default(),
    )
    .expect("it ends");
    let samples: Vec<(f64, f64, f64)> = lines
        .iter()
        .filter_map(|line| match &line.record {
            SimRecord::Sample(sample) => sample.counters.get("link.a>b.bytes").map(|bytes| {
                (
                    sample.time_s.get(),
                    *bytes,
                    sample.counters["link.a>b.busy_s"],
                )
            }),
            _ => None,
        })
        .collect();
    assert_eq!(samples[0], (0.0, 0.0, 0.0));
    let (time_s, bytes, busy_s) = samples[samples.len() - 1];
    assert_eq!((time_s, bytes), (1.0, 1_052_000.0));
    assert!((busy_s - 1.0).abs() < TOLERANCE);
    let received = lines.iter().rev().find_map(|line| match &line.record {
        SimRecord::Sample(sample) if &*line.host == "b" => {
            sample.counters.get("nic.eth0.rx_bytes").copied()
        }
        _ => None,
    });
    assert_eq!(received, Some(1_052_000.0));
}

#[test]
fn the_same_plan_produces_the_same_lines() {
    let once = || {
        let actors = [
            ("b", json!([get("narrow", 1_234_567), get("get", 7)])),
            ("b", json!([get("get", 2_000_003)])),
        ];
        simulate(plan(0.013, |_| (), &actors), Assumptions::default())
            .expect("it ends")
            .1
    };
    assert_eq!(once(), once());
}

#[test]
fn a_plan_that_waits_forever_is_an_error_that_names_the_waiting_actors() {
    let waits = json!([{"step": "wait", "counter": "never", "until": 1}]);
    let error = simulate(plan(0.0, |_| (), &[("b", waits)]), Assumptions::default())
        .expect_err("nobody signals");
    let text = error.to_string();
    assert!(
        text.contains("on b, actor `actor0` waits for") && text.contains("never"),
        "{text}"
    );
}

#[test]
fn a_host_without_a_route_to_the_server_is_an_error_with_the_location() {
    let cut = |header: &mut Value| header["hosts"]["b"]["lab"]["default_device"] = Value::Null;
    let error = simulate(
        plan(0.0, cut, &[("b", json!([get("get", 1)]))]),
        Assumptions::default(),
    )
    .expect_err("no way");
    assert!(
        error.to_string().contains("`b` has no route to 10.77.0.1"),
        "{error}"
    );
}

#[test]
fn a_link_without_a_rate_is_rejected_with_its_location_in_the_plan() {
    let flat = |header: &mut Value| header["network"]["links"]["a>b"]["rate_bit_per_s"] = json!(0);
    let error = simulate(plan(0.0, flat, &[]), Assumptions::default()).expect_err("a rate of 0");
    assert!(
        error
            .to_string()
            .starts_with("network.links.a>b.rate_bit_per_s: expected"),
        "{error}"
    );
}

#[test]
fn a_loop_without_duration_is_an_error_not_a_hang() {
    let again = json!([{"step": "repeat", "until_s": 10, "steps": [get("get", 0)]}]);
    assert!(simulate(plan(0.0, |_| (), &[("b", again)]), Assumptions::default()).is_err());
}
