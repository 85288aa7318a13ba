//! Contents of proxies and page caches, inferred from the durations of transfers.

use serde_json::{Value, json};
use venturi_plan::Outcome;

use super::plans::plan;
use super::{SimTransfer, transfers};
use crate::cost::tests::che;
use crate::world::Assumptions;

const BYTES: u64 = 10_000;
/// Threshold for a hit: a transfer over the link takes 0.01 s, from a cache 5 µs.
const HIT_S: f64 = 0.005;

/// Run clients on `b` that request files of `a` from a proxy on `b`, `count` times each, one after
/// the other.
fn responses(options: Value, draw: Value, clients: usize, count: u64) -> Vec<SimTransfer> {
    let by_option = json!({"options": {"proxy": "http://b:3128"}});
    responses_by(by_option, options, draw, clients, count)
}

/// As [`responses`], but these keys of the call name the proxy.
fn responses_by(
    keys: Value,
    options: Value,
    draw: Value,
    clients: usize,
    count: u64,
) -> Vec<SimTransfer> {
    let change = |header: &mut Value| {
        let call = &mut header["calls"]["get"];
        for (key, value) in keys.as_object().expect("keys and values") {
            call[key] = value.clone();
        }
        header["services"]["squid"] = json!({"kind": "squid", "host": "b", "interface": "b.eth0", "storages": [], "ports": [3128],
            "service_ports": {"http-proxy": "http://b.lab.test:{port}"}, "options": options});
        header["draws"] = json!({"which": draw});
    };
    let query = json!({"step": "transfer", "call": "get", "slot": 0, "source": {"draw": "which"}, "source_via": "ftp/ftp",
        "destination": "null:", "files": 1, "bytes": BYTES});
    let steps = json!([{"step": "repeat", "count": count, "steps": [query]}]);
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

fn misses(found: &[SimTransfer]) -> usize {
    let took_s = |it: &SimTransfer| it.record.duration_s.expect("released").get();
    assert!(found.iter().all(|it| it.record.outcome == Outcome::Ok));
    found.iter().filter(|it| took_s(it) > HIT_S).count()
}

fn hit_ratio(found: &[SimTransfer]) -> f64 {
    1.0 - misses(found) as f64 / found.len() as f64
}

/// Return the hit ratio of a cache for one of n files (King 1971): the last requested file is in
/// it, Σ p².
fn king_one(weights: &[f64]) -> f64 {
    let total: f64 = weights.iter().sum();
    weights.iter().map(|it| (it / total).powi(2)).sum()
}

/// Return the hit ratio of a cache for two files (King 1971).
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
fn a_proxy_given_by_service_port_behaves_like_one_given_by_url() {
    let ends = |keys: Value| -> Vec<f64> {
        let found = responses_by(keys, json!({}), one_of(3), 2, 20);
        let end_s = |it: &SimTransfer| it.record.end_s.expect("it ended").get();
        found.iter().map(end_s).collect()
    };
    let by_url = ends(json!({"options": {"proxy": "http://b:3128"}}));
    assert_eq!(by_url.len(), 40);
    assert_eq!(ends(json!({"urls": {"proxy": "squid/http-proxy"}})), by_url);
    let both =
        json!({"options": {"proxy": "http://elsewhere:1"}, "urls": {"proxy": "squid/http-proxy"}});
    assert_eq!(ends(both), by_url);
    assert_ne!(ends(json!({})), by_url, "without a proxy");
}

#[test]
fn a_small_proxy_has_the_exact_hit_ratio() {
    let weights = [5.0, 3.0, 2.0, 1.0, 1.0];
    for (slots, expected) in [(1, king_one(&weights)), (2, king_two(&weights))] {
        let options = json!({"cache_memory_bytes": slots * BYTES});
        // 10,000 requests: three standard errors are 0.015.
        let found = hit_ratio(&responses(options, weighted(&weights), 1, 10_000));
        assert!(
            (found - expected).abs() < 0.015,
            "{slots}: {found} {expected}"
        );
    }
}

#[test]
fn a_large_proxy_has_the_hit_ratio_of_the_characteristic_time() {
    let weights: Vec<f64> = (1..=200).map(|rank| f64::powf(rank.into(), -0.8)).collect();
    let total: f64 = weights.iter().sum();
    let files: Vec<_> = weights
        .iter()
        .map(|weight| (weight / total, BYTES as f64))
        .collect();
    for slots in [20_u64, 60, 120] {
        let expected = che::hit_ratio(&files, (slots * BYTES) as f64);
        let all = responses(
            json!({"cache_memory_bytes": slots * BYTES}),
            weighted(&weights),
            1,
            12_000,
        );
        // The first 2,000 requests fill the cache.
        let found = hit_ratio(&all[2_000..]);
        assert!(
            (found - expected).abs() < 0.02,
            "{slots}: {found} {expected}"
        );
    }
}

#[test]
fn each_instance_fetches_an_object_separately_and_sharing_workers_fetch_it_once() {
    let misses_of = |options: Value| misses(&responses(options, one_of(1), 1, 400));
    assert_eq!(misses_of(json!({})), 1);
    assert_eq!(misses_of(json!({"instances": 10})), 10);
    assert_eq!(misses_of(json!({"workers": 4})), 1);
    assert_eq!(misses_of(json!({"workers": 4, "shared_cache": false})), 4);
    assert_eq!(misses_of(json!({"instances": 3, "workers": 4})), 3);
    // Limited processes are distinguished in the same way.
    assert_eq!(
        misses_of(json!({"instances": 10, "process_rate_bytes_per_s": 1e8})),
        10
    );
}

#[test]
fn an_object_beyond_the_limit_or_the_memory_is_fetched_each_time() {
    assert_eq!(
        misses(&responses(
            json!({"object_limit_bytes": BYTES - 1}),
            one_of(1),
            1,
            20
        )),
        20
    );
    assert_eq!(
        misses(&responses(
            json!({"cache_memory_bytes": BYTES - 1}),
            one_of(1),
            1,
            20
        )),
        20
    );
    assert_eq!(
        misses(&responses(
            json!({"object_limit_bytes": BYTES, "cache_memory_bytes": BYTES}),
            one_of(1),
            1,
            20
        )),
        1
    );
}

#[test]
fn a_request_for_an_object_in_flight_shares_the_fetch_if_the_proxy_allows_it() {
    let misses_of = |collapsed: bool| {
        misses(&responses(
            json!({"collapsed_forwarding": collapsed}),
            one_of(1),
            20,
            5,
        ))
    };
    assert_eq!((misses_of(true), misses_of(false)), (1, 20));
}

/// Read files of `a`, whose disk is ten times slower than the link: 0.1 s if a file is not in
/// memory.
fn read_again(memory_bytes: u64, draw: Value, count: u64) -> Vec<SimTransfer> {
    let change = |header: &mut Value| {
        header["hosts"]["a"]["memory_bytes"] = json!(memory_bytes);
        header["storages"]["src"]["spec"] = json!({"kind": "disk", "read_bytes_per_s": 1e5});
        header["draws"] = json!({"which": draw});
    };
    let query = json!({"step": "transfer", "call": "get", "slot": 0, "source": {"draw": "which"}, "source_via": "ftp/ftp",
        "destination": "null:", "files": 1, "bytes": BYTES});
    let steps = json!([{"step": "repeat", "count": count, "steps": [query]}]);
    transfers(plan(0.0, change, &[("b", steps)]), Assumptions::default())
}

#[test]
fn a_page_cache_keeps_recently_used_files_within_the_memory_of_its_host() {
    let from_disk = |found: &[SimTransfer]| {
        let slow = |it: &&SimTransfer| it.record.duration_s.expect("released").get() > 0.05;
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
fn warm_files_stay_in_memory_while_there_is_space_until_they_are_dropped() {
    let change = |header: &mut Value| {
        header["hosts"]["a"]["memory_bytes"] = json!(3 * BYTES);
        header["storages"]["src"]["spec"] = json!({"kind": "disk", "read_bytes_per_s": 1e5});
        header["datasets"] = json!({"set": {"storage": "src", "path": "sets", "files": 5, "size_bytes": BYTES, "seed": 1}});
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
    // The last three of five files stay. Reading 0 replaces 2, the least recently used. 4 is not
    // dropped.
    assert_eq!(slow, [false, false, true, false, true]);
}
