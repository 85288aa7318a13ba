//! Rows of columns: told in brief beside one by one, lines before servers, limits of time, and caches that have none of them.

use serde_json::{Value, json};
use venturi_plan::Header;

use super::TOLERANCE;
use super::plans::plan;
use crate::driver::columns::{Columns, Moved, Way, carry_out};
use crate::world::Assumptions;

/// Of the links in these plans.
const BYTES_PER_S: f64 = 1e6;

fn header(change: impl FnOnce(&mut Value)) -> Header {
    plan(0.02, change, &[]).header
}

fn ways() -> Vec<Way> {
    let way = |call: &str| json!({"host": "b", "call": call, "source": "src:x", "source_via": "ftp/ftp", "destination": "dst:x"});
    serde_json::from_value(json!([way("get"), way("narrow")])).expect("two ways")
}

fn world(explain: bool, costs: Value) -> Assumptions {
    serde_json::from_value(json!({"explain": explain, "costs": costs})).expect("a test's own world")
}

fn moved(header: Header, world: Assumptions, rows: &[(f64, u32, f64)]) -> Moved {
    let columns = Columns {
        start_s: rows.iter().map(|row| row.0).collect(),
        way: rows.iter().map(|row| row.1).collect(),
        bytes: rows.iter().map(|row| row.2).collect(),
    };
    carry_out(header, world, &ways(), columns).expect("rows that can be carried out")
}

fn check_ends(found: &Moved, expected: &[f64]) {
    let same = |(found, expected): (&f64, &f64)| {
        (found - expected).abs() < TOLERANCE || (found.is_nan() && expected.is_nan())
    };
    assert!(
        found.end_s.len() == expected.len() && found.end_s.iter().zip(expected).all(same),
        "expected ends at {expected:?}, found {:?}",
        found.end_s
    );
}

/// Starts, ways and sizes that do not repeat, at four fifths of what the link carries; some rows at one time, and none in order.
fn mixed(number: u32) -> (f64, u32, f64) {
    let share = f64::from(number * 7919 % 1009) / 1009.0;
    let start_s = f64::from((number * 37 % 400) / 2) * 1.25;
    let way = u32::from(number.is_multiple_of(5));
    (start_s, way, (200_000.0 + 600_000.0 * share).round())
}

#[test]
fn rows_told_in_brief_end_when_they_do_that_walk_one_by_one_and_are_bound_by_the_same() {
    let cost = json!({"start_s": 0.1, "session_round_trips": 3.0, "file_core_s": 0.05, "byte_core_s": 1e-8});
    let calls = json!({"get": [{"source": "ftp", "destination": "file", "cost": cost}],
        "narrow": [{"source": "ftp", "destination": "file", "cost": cost}]});
    let rows: Vec<_> = (0..400).map(mixed).collect();
    let carried = |explain, costs| moved(header(|_| ()), world(explain, costs), &rows);
    let plain = carried(false, json!({"calls": calls}));
    let brief = carried(true, json!({"calls": calls}));
    // A line in which nobody ever waits makes them walk.
    let single = carried(
        true,
        json!({"calls": calls, "services": {"ftp": {"sessions": 1000}}}),
    );
    check_ends(&brief, &single.end_s);
    assert_eq!(plain.end_s, brief.end_s);
    assert!(plain.bound.is_empty() && plain.end_s.iter().all(|end_s| end_s.is_finite()));
    assert_eq!(brief.peak_live, single.peak_live);
    let names = |of: &Moved| -> Vec<String> {
        let name = |code: &u32| of.names[*code as usize].to_string();
        of.bound.iter().map(name).collect()
    };
    assert_eq!(names(&brief), names(&single));
    for name in ["link:a>b", "window"] {
        let count = names(&brief).iter().filter(|it| *it == name).count();
        assert!(count > 50, "{name}: {count}");
    }
}

#[test]
fn rows_stand_in_line_before_a_server_of_one_session() {
    let costs = json!({"services": {"ftp": {"sessions": 1}}});
    let rows = [(0.0, 0, 2e6), (0.5, 0, 1e6), (0.25, 0, 3e6)];
    // First come, first served; the link carries one at a time.
    let expected = [2e6, 6e6, 5e6].map(|bytes| bytes / BYTES_PER_S);
    for explain in [false, true] {
        let found = moved(
            plan(0.0, |_| (), &[]).header,
            world(explain, costs.clone()),
            &rows,
        );
        check_ends(&found, &expected);
        if explain {
            let bound = found.bound.iter().map(|code| &*found.names[*code as usize]);
            // The third waits for 1.75 s and moves for 3, the second waits for 4.5 s and moves for 1.
            assert_eq!(bound.collect::<Vec<_>>(), ["link:a>b", "queue", "link:a>b"]);
        }
    }
}

#[test]
fn a_row_that_takes_longer_than_its_call_may_has_no_end_and_leaves_the_link_to_others() {
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
fn no_row_finds_the_file_of_another_in_a_cache() {
    let proxy = |header: &mut Value| {
        header["calls"]["get"]["options"] = json!({"proxy": "http://b:3128"});
        header["services"]["squid"] = json!({"kind": "squid", "host": "b", "interface": "b.eth0", "places": [], "ports": [3128],
            "doors": {"http-proxy": "http://b.lab.test:{port}"}, "options": {}});
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
fn rows_and_ways_that_cannot_be_are_refused_with_their_place() {
    let refused = |columns: Columns, ways: &[Way]| {
        let done = carry_out(header(|_| ()), Assumptions::default(), ways, columns);
        done.expect_err("it cannot be").to_string()
    };
    let one = |start_s, way, bytes| Columns {
        start_s: vec![start_s],
        way: vec![way],
        bytes: vec![bytes],
    };
    let mut nowhere = ways();
    nowhere[1].host = "c".into();
    for (columns, ways, expected) in [
        (one(-1.0, 0, 1.0), ways(), "row 0, start_s"),
        (one(0.0, 2, 1.0), ways(), "row 0, way"),
        (one(0.0, 0, 0.5), ways(), "row 0, bytes"),
        (one(0.0, 0, 1.0), nowhere, "ways[1].host"),
    ] {
        let found = refused(columns, &ways);
        assert!(found.contains(expected), "{found}");
    }
}
