//! Rows of columns: bulk rows compared with single ones, queues of servers, timeouts, and caches
//! without these files.

use serde_json::{Value, json};
use venturi_plan::Header;

use super::TOLERANCE;
use super::plans::plan;
use crate::driver::columns::{TransferColumns, TransferResults, TransferRow, simulate};
use crate::world::Assumptions;

/// Payload rate of the links in these plans.
const BYTES_PER_S: f64 = 1e6;

fn header(change: impl FnOnce(&mut Value)) -> Header {
    plan(0.02, change, &[]).header
}

fn routes() -> Vec<TransferRow> {
    let route = |call: &str| json!({"host": "b", "call": call, "source": "src:x", "source_via": "ftp/ftp", "destination": "dst:x"});
    serde_json::from_value(json!([route("get"), route("narrow")])).expect("two ways")
}

fn world(explain: bool, costs: Value) -> Assumptions {
    serde_json::from_value(json!({"explain": explain, "costs": costs})).expect("a test's own world")
}

fn moved(header: Header, world: Assumptions, rows: &[(f64, u32, f64)]) -> TransferResults {
    let columns = TransferColumns {
        start_s: rows.iter().map(|row| row.0).collect(),
        route: rows.iter().map(|row| row.1).collect(),
        bytes: rows.iter().map(|row| row.2).collect(),
    };
    simulate(header, world, &routes(), columns).expect("valid rows")
}

fn check_ends(found: &TransferResults, expected: &[f64]) {
    let same = |(found, expected): (&f64, &f64)| {
        (found - expected).abs() < TOLERANCE || (found.is_nan() && expected.is_nan())
    };
    assert!(
        found.end_s.len() == expected.len() && found.end_s.iter().zip(expected).all(same),
        "expected ends at {expected:?}, found {:?}",
        found.end_s
    );
}

/// Return start, route and size of a row: different values, at four fifths of the capacity of the
/// link. Some rows start together, and they are not in order.
fn mixed(number: u32) -> (f64, u32, f64) {
    let fraction = f64::from(number * 7919 % 1009) / 1009.0;
    let start_s = f64::from((number * 37 % 400) / 2) * 1.25;
    let route = u32::from(number.is_multiple_of(5));
    (start_s, route, (200_000.0 + 600_000.0 * fraction).round())
}

#[test]
fn compact_rows_end_like_single_transfers_with_the_same_bottleneck() {
    let cost = json!({"start_s": 0.1, "session_round_trips": 3.0, "file_core_s": 0.05, "byte_core_s": 1e-8});
    let calls = json!({"get": [{"source": "ftp", "destination": "file", "cost": cost}],
        "narrow": [{"source": "ftp", "destination": "file", "cost": cost}]});
    let rows: Vec<_> = (0..400).map(mixed).collect();
    let carried = |explain, costs| moved(header(|_| ()), world(explain, costs), &rows);
    let plain = carried(false, json!({"calls": calls}));
    let brief = carried(true, json!({"calls": calls}));
    // A queue without waits makes them single transfers.
    let single = carried(
        true,
        json!({"calls": calls, "services": {"ftp": {"sessions": 1000}}}),
    );
    check_ends(&brief, &single.end_s);
    assert_eq!(plain.end_s, brief.end_s);
    assert!(plain.bottleneck.is_empty() && plain.end_s.iter().all(|end_s| end_s.is_finite()));
    assert_eq!(brief.peak_live, single.peak_live);
    let names = |of: &TransferResults| -> Vec<String> {
        let name = |code: &u32| of.names[*code as usize].to_string();
        of.bottleneck.iter().map(name).collect()
    };
    assert_eq!(names(&brief), names(&single));
    for name in ["link:a>b", "window"] {
        let count = names(&brief).iter().filter(|it| *it == name).count();
        assert!(count > 50, "{name}: {count}");
    }
}

#[test]
fn rows_wait_in_a_queue_for_a_server_with_one_session() {
    let costs = json!({"services": {"ftp": {"sessions": 1}}});
    let rows = [(0.0, 0, 2e6), (0.5, 0, 1e6), (0.25, 0, 3e6)];
    // First come, first served; the link carries one transfer at a time.
    let expected = [2e6, 6e6, 5e6].map(|bytes| bytes / BYTES_PER_S);
    for explain in [false, true] {
        let found = moved(
            plan(0.0, |_| (), &[]).header,
            world(explain, costs.clone()),
            &rows,
        );
        check_ends(&found, &expected);
        if explain {
            let bottleneck = found
                .bottleneck
                .iter()
                .map(|code| &*found.names[*code as usize]);
            // The third waits for 1.75 s and moves for 3, the second waits for 4.5 s and moves for 1.
            assert_eq!(
                bottleneck.collect::<Vec<_>>(),
                ["link:a>b", "queue", "link:a>b"]
            );
        }
    }
}

#[test]
fn a_row_that_exceeds_its_timeout_has_no_end_and_frees_the_link() {
    let short = |header: &mut Value| header["calls"]["narrow"]["timeout_s"] = json!(1.0);
    for explain in [false, true] {
        let rows = [(0.0, 0, 5e6), (0.0, 1, 1e9)];
        let found = moved(
            plan(0.0, short, &[]).header,
            world(explain, json!({})),
            &rows,
        );
        // Half of the link for one second, all of it for the rest.
        check_ends(&found, &[5.5, f64::NAN]);
    }
}

#[test]
fn rows_do_not_share_cached_files() {
    let proxy = |header: &mut Value| {
        header["calls"]["get"]["options"] = json!({"proxy": "http://b:3128"});
        header["services"]["squid"] = json!({"kind": "squid", "host": "b", "interface": "b.eth0", "storages": [], "ports": [3128],
            "service_ports": {"http-proxy": "http://b.lab.test:{port}"}, "options": {}});
    };
    let rows = [(0.0, 0, 1e6), (2.0, 0, 1e6), (4.0, 0, 1e6)];
    let found = moved(plan(0.0, proxy, &[]).header, world(false, json!({})), &rows);
    for (end_s, (start_s, ..)) in found.end_s.iter().zip(rows) {
        assert!(
            end_s - start_s >= 1.0 - TOLERANCE,
            "{start_s} to {end_s}: not over the link"
        );
    }
}

#[test]
fn impossible_rows_and_routes_are_rejected_with_their_location() {
    let rejected = |columns: TransferColumns, routes: &[TransferRow]| {
        let done = simulate(header(|_| ()), Assumptions::default(), routes, columns);
        done.expect_err("it cannot be").to_string()
    };
    let one = |start_s, route, bytes| TransferColumns {
        start_s: vec![start_s],
        route: vec![route],
        bytes: vec![bytes],
    };
    let mut nowhere = routes();
    nowhere[1].host = "c".into();
    for (columns, routes, expected) in [
        (one(-1.0, 0, 1.0), routes(), "row 0, start_s"),
        (one(0.0, 2, 1.0), routes(), "row 0, route"),
        (one(0.0, 0, 0.5), routes(), "row 0, bytes"),
        (one(0.0, 0, 1.0), nowhere, "routes[1].host"),
    ] {
        let found = rejected(columns, &routes);
        assert!(found.contains(expected), "{found}");
    }
}
