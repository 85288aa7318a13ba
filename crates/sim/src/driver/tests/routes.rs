//! Transfers counted by route, compared with the same transfers recorded individually.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use venturi_plan::{Outcome, Plan};

use super::plans::plan;
use super::{SimLine, SimRecord, SimTransfer};
use crate::driver::{RELATIVE_ERROR, RouteRecord};
use crate::world::Assumptions;

/// Period of transfer starts, in seconds. With the rates below, the link is almost fully loaded.
const DURATION_S: f64 = 2000.0;
const INTERVAL_S: f64 = 50.0;

fn open_loop(call: &str, per_s: f64, bytes: Value) -> Value {
    let transfer = json!({"step": "transfer", "call": call, "slot": 0, "source": "src:x", "source_via": "ftp/ftp",
        "destination": "dst:x", "files": 1, "bytes": bytes});
    json!({"step": "arrivals", "rate_per_s": [[0, per_s], [DURATION_S, per_s]], "gap": {"draw": "gap"}, "steps": [transfer]})
}

/// Run two trials, one with two concurrent sizes and calls, one with random sizes, with costs in
/// addition to bytes.
fn simulated(recorded: &str, change: impl FnOnce(&mut Value)) -> Vec<SimLine> {
    let trial = |id: &str, steps: Value| json!({"step": "trial", "id": id, "point": 0, "repetition": 0, "block": 0, "factors": {}, "steps": steps});
    let both = json!([{"step": "parallel", "children": [
        [open_loop("get", 0.4, json!(1_000_000))], [open_loop("narrow", 0.05, json!(4_000_000))]]}]);
    let actors = [
        ("b", json!([trial("t0000000", both)])),
        (
            "b",
            json!([trial(
                "t0000001",
                json!([open_loop("get", 0.1, json!({"draw": "size"}))])
            )]),
        ),
    ];
    let header = |header: &mut Value| {
        header["draws"] = json!({"gap": {"kind": "exponential", "mean": 1.0},
            "size": {"kind": "choice", "values": [500_000, 2_000_000]}});
        header["measure"] =
            json!({"interval_s": INTERVAL_S, "counters": ["nic"], "transfers": recorded});
        change(header);
    };
    let cost = json!({"start_s": 0.1, "session_round_trips": 3.0, "file_core_s": 0.05, "byte_core_s": 1e-8});
    let costs = json!({"calls": {"get": [{"source": "ftp", "destination": "file", "cost": cost}],
        "narrow": [{"source": "ftp", "destination": "file", "cost": cost}]}});
    let assumptions = Assumptions {
        costs: serde_json::from_value(costs).expect("costs"),
        ..Assumptions::default()
    };
    let plan: Plan = plan(0.02, header, &actors);
    let (_, lines) = super::simulate(plan, assumptions).expect("a plan that ends");
    lines
}

fn each(lines: &[SimLine]) -> BTreeMap<(String, u64), Vec<&SimTransfer>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for line in lines {
        if let SimRecord::Trial(trial) = &line.record {
            for one in &trial.record.transfers {
                let key = (
                    one.record.call.to_string(),
                    one.record.requested_bytes.get(),
                );
                found.entry(key).or_default().push(one);
            }
        }
    }
    found
}

fn routes(lines: &[SimLine]) -> BTreeMap<(String, u64), &RouteRecord> {
    let trials = lines.iter().filter_map(|line| match &line.record {
        SimRecord::Trial(trial) => Some(trial),
        _ => None,
    });
    trials
        .inspect(|trial| {
            assert!(
                trial.record.transfers.is_empty(),
                "none is recorded for itself"
            )
        })
        .flat_map(|trial| &trial.routes)
        .map(|route| {
            (
                (route.route_key.call.to_string(), route.route_key.size_bytes),
                route,
            )
        })
        .collect()
}

/// Set samples that are closer together than changes of the bottleneck.
fn often(header: &mut Value) {
    header["measure"]["interval_s"] = json!(0.2);
}

fn near(found: f64, expected: f64, relative: f64, what: &str) {
    let error = (found - expected).abs() / expected.abs().max(1e-300);
    assert!(error <= relative, "{what}: {found}, expected {expected}");
}

fn check(route: &RouteRecord, each: &[&SimTransfer]) {
    let sum = |of: &dyn Fn(&SimTransfer) -> f64| each.iter().map(|one| of(one)).sum::<f64>();
    let seconds = |it: Option<venturi_plan::Seconds>| it.expect("it was released").get();
    assert_eq!(route.transfers, each.len() as u64);
    let good = each.iter().filter(|one| one.record.outcome == Outcome::Ok);
    assert_eq!(
        route.outcomes.get(&Outcome::Ok).copied().unwrap_or(0),
        good.count() as u64
    );
    assert_eq!(
        route.requested_bytes as f64,
        sum(&|one| one.record.requested_bytes.get() as f64)
    );
    let received = |one: &SimTransfer| one.record.received_bytes.map_or(0.0, |it| it.get() as f64);
    near(
        route.received_bytes.unwrap_or(0) as f64,
        sum(&received),
        1e-12,
        "bytes",
    );
    near(
        route.duration_s,
        sum(&|one| seconds(one.record.duration_s)),
        1e-12,
        "time",
    );
    let mut took: Vec<f64> = each
        .iter()
        .map(|one| seconds(one.record.duration_s))
        .collect();
    took.sort_by(f64::total_cmp);
    near(
        route.min_duration_s.expect("some"),
        took[0],
        1e-12,
        "shortest",
    );
    near(
        route.max_duration_s.expect("some"),
        took[took.len() - 1],
        1e-12,
        "longest",
    );
    for (fraction, found) in [
        (0.5, route.p50_s),
        (0.9, route.p90_s),
        (0.95, route.p95_s),
        (0.99, route.p99_s),
    ] {
        let exact = took[((fraction * took.len() as f64).ceil() as usize).max(1) - 1];
        near(
            found.expect("some"),
            exact,
            RELATIVE_ERROR * (1.0 + 1e-9),
            "quantile",
        );
    }
    // Named stages are summed. The bottleneck of bytes is read at each arrival and each sample,
    // here ten times per transfer.
    let mut bottleneck: BTreeMap<&str, f64> = BTreeMap::new();
    for one in each {
        for (name, fraction) in &one.bottleneck {
            *bottleneck.entry(name).or_default() +=
                fraction * seconds(one.record.duration_s) / route.duration_s;
        }
    }
    near(route.bottleneck.values().sum(), 1.0, 1e-9, "all that bound");
    for (name, fraction) in bottleneck {
        let found = route.bottleneck.get(name).copied().unwrap_or(0.0);
        assert!(
            (found - fraction).abs() < 0.05,
            "{name}: {found}, expected {fraction}"
        );
    }
}

/// Return times and values of a counter of a host.
fn samples(lines: &[SimLine], host: &str, counter: &str) -> Vec<(f64, f64)> {
    let sample = |line: &SimLine| match &line.record {
        _ if &*line.host != host => None,
        SimRecord::Sample(sample) => Some((sample.time_s.get(), *sample.counters.get(counter)?)),
        _ => None,
    };
    lines.iter().filter_map(sample).collect()
}

#[test]
fn routes_match_the_totals_of_their_transfers() {
    let (one, other) = (simulated("each", often), simulated("routes", often));
    let (each, routes) = (each(&one), routes(&other));
    assert_eq!(
        each.keys().collect::<Vec<_>>(),
        routes.keys().collect::<Vec<_>>()
    );
    assert!(each.len() == 4 && each.values().all(|some| some.len() > 50));
    for (key, route) in &routes {
        check(route, &each[key]);
    }
}

#[test]
fn links_count_the_same_bytes_and_no_interval_differs_by_more_than_a_transfer() {
    let (one, other) = (simulated("each", |_| ()), simulated("routes", |_| ()));
    for (host, counter) in [
        ("network", "link.a>b.bytes"),
        ("network", "link.a>b.busy_s"),
        ("b", "nic.eth0.rx_bytes"),
    ] {
        let (exact, found) = (samples(&one, host, counter), samples(&other, host, counter));
        let end = |it: &[(f64, f64)]| it.last().map_or(0.0, |(_, value)| *value);
        near(end(&found), end(&exact), 1e-9, counter);
        let exact: BTreeMap<u64, f64> =
            exact.iter().map(|(s, value)| (*s as u64, *value)).collect();
        let whole = end(&found);
        for (time_s, value) in found {
            if let Some(exact) = exact.get(&(time_s as u64)) {
                // Bytes in flight at a sample, some MB of a thousand, are assumed to move evenly.
                assert!(
                    (value - exact).abs() < 0.01 * whole,
                    "{counter} at {time_s}"
                );
            }
        }
    }
    let live = samples(&other, "network", "transfers.live");
    let in_flight = |at_s: f64| {
        let spans = each(&one).into_values().flatten();
        let within = |it: &&SimTransfer| {
            let (start, end) = (it.record.start_s.unwrap(), it.record.end_s.unwrap());
            start.get() <= at_s && at_s < end.get()
        };
        spans.filter(within).count() as f64
    };
    assert!(live.len() > 40);
    for (time_s, found) in live {
        assert_eq!(found, in_flight(time_s), "under way at {time_s}");
    }
}

#[test]
fn transfers_that_exceed_their_timeout_are_ended_and_counted_with_their_bytes() {
    let short = |header: &mut Value| {
        often(header);
        header["calls"]["narrow"]["timeout_s"] = json!(9.0);
    };
    let (one, other) = (simulated("each", short), simulated("routes", short));
    let (each, routes) = (each(&one), routes(&other));
    let key = ("narrow".to_owned(), 4_000_000);
    check(routes[&key], &each[&key]);
    let ended = routes[&key].outcomes.get(&Outcome::Timeout);
    assert!(ended.is_some_and(|count| *count > 10), "{ended:?}");
    let moved = routes[&key]
        .received_bytes
        .expect("a destination is counted");
    assert!(moved > 0 && moved < routes[&key].requested_bytes);
}

#[test]
fn a_transfer_without_load_takes_as_long_as_predicted() {
    let rare =
        |header: &mut Value| header["draws"]["gap"] = json!({"kind": "choice", "values": [25.0]});
    let lines = simulated("routes", rare);
    let route = routes(&lines)[&("get".to_owned(), 1_000_000)].clone();
    assert!(route.transfers > 10);
    near(
        route.min_duration_s.expect("some"),
        route.unloaded_s.expect("they are all alike"),
        1e-9,
        "alone",
    );
}
