//! What proxies and page caches keep, seen from the times that transfers take.

use serde_json::{Value, json};
use venturi_plan::Outcome;

use super::plans::plan;
use super::{Transfer, transfers};
use crate::cost::tests::che;
use crate::world::Assumptions;

const BYTES: u64 = 10_000;
/// Over the link it takes 0.01 s, from a cache 5 µs.
const HIT_S: f64 = 0.005;

/// Clients on `b` ask a proxy there for files of `a`: each `count` times, one after the other.
fn asked(options: Value, draw: Value, clients: usize, count: u64) -> Vec<Transfer> {
    let change = |header: &mut Value| {
        let call = &mut header["calls"]["get"];
        call["options"] = json!({"proxy": "http://b:3128"});
        header["services"]["squid"] = json!({"kind": "squid", "host": "b", "interface": "b.eth0", "places": [], "ports": [3128],
            "doors": {"http-proxy": "http://b.lab.test:{port}"}, "options": options});
        header["draws"] = json!({"which": draw});
    };
    let ask = json!({"step": "transfer", "call": "get", "slot": 0, "source": {"draw": "which"}, "source_via": "ftp/ftp",
        "destination": "null:", "files": 1, "bytes": BYTES});
    let steps = json!([{"step": "repeat", "count": count, "steps": [ask]}]);
    let actors: Vec<_> = (0..clients).map(|_| ("b", steps.clone())).collect();
    let assumptions = Assumptions {
        explain: false,
        ..Assumptions::default()
    };
    transfers(plan(0.0, change, &actors), assumptions)
}

fn one_of(files: usize) -> Value {
    let values: Vec<String> = (0..files).map(|file| format!("src:f{file}")).collect();
    json!({"kind": "choice", "values": values})
}

fn weighted(weights: &[f64]) -> Value {
    let values: Vec<String> = (0..weights.len())
        .map(|file| format!("src:f{file}"))
        .collect();
    json!({"kind": "weighted", "values": values, "weights": weights})
}

fn misses(found: &[Transfer]) -> usize {
    let took_s = |it: &Transfer| it.record.duration_s.expect("released").get();
    assert!(found.iter().all(|it| it.record.outcome == Outcome::Ok));
    found.iter().filter(|it| took_s(it) > HIT_S).count()
}

fn hit_ratio(found: &[Transfer]) -> f64 {
    1.0 - misses(found) as f64 / found.len() as f64
}

/// King 1971 for room for one of n files: the last one asked for is there, Σ p².
fn king_one(weights: &[f64]) -> f64 {
    let total: f64 = weights.iter().sum();
    weights.iter().map(|it| (it / total).powi(2)).sum()
}

/// King 1971 for room for two.
fn king_two(weights: &[f64]) -> f64 {
    let total: f64 = weights.iter().sum();
    let p: Vec<f64> = weights.iter().map(|it| it / total).collect();
    let pairs = (0..p.len()).flat_map(|i| (0..p.len()).map(move |j| (i, j)));
    pairs
        .filter(|(i, j)| i != j)
        .map(|(i, j)| p[i] * p[j] / (1.0 - p[i]) * (p[i] + p[j]))
        .sum()
}

#[test]
fn a_small_proxy_has_the_hits_of_the_exact_solution() {
    let weights = [5.0, 3.0, 2.0, 1.0, 1.0];
    for (room, expected) in [(1, king_one(&weights)), (2, king_two(&weights))] {
        let options = json!({"cache_memory_bytes": room * BYTES});
        // 10,000 requests: three standard errors are 0.015.
        let found = hit_ratio(&asked(options, weighted(&weights), 1, 10_000));
        assert!(
            (found - expected).abs() < 0.015,
            "{room}: {found} {expected}"
        );
    }
}

#[test]
fn a_large_proxy_has_the_hits_of_the_characteristic_time() {
    let weights: Vec<f64> = (1..=200).map(|rank| f64::powf(rank.into(), -0.8)).collect();
    let total: f64 = weights.iter().sum();
    let files: Vec<_> = weights
        .iter()
        .map(|weight| (weight / total, BYTES as f64))
        .collect();
    for room in [20_u64, 60, 120] {
        let expected = che::hit_ratio(&files, (room * BYTES) as f64);
        let all = asked(
            json!({"cache_memory_bytes": room * BYTES}),
            weighted(&weights),
            1,
            12_000,
        );
        // The first thousands fill it.
        let found = hit_ratio(&all[2_000..]);
        assert!(
            (found - expected).abs() < 0.02,
            "{room}: {found} {expected}"
        );
    }
}

#[test]
fn each_instance_fetches_an_object_for_itself_and_workers_that_share_fetch_it_once() {
    let misses_of = |options: Value| misses(&asked(options, one_of(1), 1, 400));
    assert_eq!(misses_of(json!({})), 1);
    assert_eq!(misses_of(json!({"instances": 10})), 10);
    assert_eq!(misses_of(json!({"workers": 4})), 1);
    assert_eq!(misses_of(json!({"workers": 4, "shared_cache": false})), 4);
    assert_eq!(misses_of(json!({"instances": 3, "workers": 4})), 3);
    // Limited processes are told apart just so.
    assert_eq!(
        misses_of(json!({"instances": 10, "process_rate_bytes_per_s": 1e8})),
        10
    );
}

#[test]
fn an_object_beyond_the_limit_or_the_memory_is_fetched_each_time() {
    assert_eq!(
        misses(&asked(
            json!({"object_limit_bytes": BYTES - 1}),
            one_of(1),
            1,
            20
        )),
        20
    );
    assert_eq!(
        misses(&asked(
            json!({"cache_memory_bytes": BYTES - 1}),
            one_of(1),
            1,
            20
        )),
        20
    );
    assert_eq!(
        misses(&asked(
            json!({"object_limit_bytes": BYTES, "cache_memory_bytes": BYTES}),
            one_of(1),
            1,
            20
        )),
        1
    );
}

#[test]
fn who_asks_for_what_is_on_its_way_shares_the_fetch_where_the_proxy_says_so() {
    let misses_of = |collapsed: bool| {
        misses(&asked(
            json!({"collapsed_forwarding": collapsed}),
            one_of(1),
            20,
            5,
        ))
    };
    assert_eq!((misses_of(true), misses_of(false)), (1, 20));
}

/// Reads of files of `a`, whose disk takes ten times as long as the link: 0.1 s where a file is not in memory.
fn read_again(memory_bytes: u64, draw: Value, count: u64) -> Vec<Transfer> {
    let change = |header: &mut Value| {
        header["hosts"]["a"]["memory_bytes"] = json!(memory_bytes);
        header["places"]["src"]["storage"] = json!({"kind": "disk", "read_bytes_per_s": 1e5});
        header["draws"] = json!({"which": draw});
    };
    let ask = json!({"step": "transfer", "call": "get", "slot": 0, "source": {"draw": "which"}, "source_via": "ftp/ftp",
        "destination": "null:", "files": 1, "bytes": BYTES});
    let steps = json!([{"step": "repeat", "count": count, "steps": [ask]}]);
    transfers(plan(0.0, change, &[("b", steps)]), Assumptions::default())
}

#[test]
fn a_page_cache_keeps_what_was_used_last_and_no_more_than_the_memory_of_its_host() {
    let from_disk = |found: &[Transfer]| {
        let slow = |it: &&Transfer| it.record.duration_s.expect("released").get() > 0.05;
        found.iter().filter(slow).count() as f64 / found.len() as f64
    };
    let weights = [5.0, 3.0, 2.0, 1.0, 1.0];
    let found = 1.0 - from_disk(&read_again(2 * BYTES, weighted(&weights), 10_000));
    assert!(
        (found - king_two(&weights)).abs() < 0.015,
        "{found} {}",
        king_two(&weights)
    );
    let all = read_again(5 * BYTES, weighted(&weights), 1_000);
    assert_eq!(from_disk(&all) * 1_000.0, 5.0);
}

#[test]
fn files_that_were_made_warm_are_in_memory_as_far_as_there_is_room_and_until_they_are_dropped() {
    let change = |header: &mut Value| {
        header["hosts"]["a"]["memory_bytes"] = json!(3 * BYTES);
        header["places"]["src"]["storage"] = json!({"kind": "disk", "read_bytes_per_s": 1e5});
        header["datasets"] = json!({"set": {"place": "src", "path": "sets", "files": 5, "size_bytes": BYTES, "seed": 1}});
    };
    let read = |number: u64| {
        json!({"step": "transfer", "call": "get", "slot": 0, "source": format!("src:sets/{number:06}"),
        "source_via": "ftp/ftp", "destination": "null:", "files": 1, "bytes": BYTES})
    };
    let steps = json!([{"step": "prepare", "dataset": "set", "first": 0, "files": 5, "cache": "warm"}, read(4), read(3), read(0),
        {"step": "drop_caches", "dataset": "set", "first": 0, "files": 4}, read(4), read(3)]);
    let found = transfers(plan(0.0, change, &[("a", steps)]), Assumptions::default());
    let slow: Vec<bool> = found
        .iter()
        .map(|it| it.record.duration_s.expect("released").get() > 0.05)
        .collect();
    // Of five the last three stay; reading 0 takes the place of 2, which is used least; 4 is not dropped.
    assert_eq!(slow, [false, false, true, false, true]);
}
