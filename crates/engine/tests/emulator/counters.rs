//! Counters of the links, compared with kernel counters at both ends.

use serde_json::json;

use crate::testkit::{EmulatorProcess, is_possible, pair};
use crate::traffic::transfer;

#[test]
fn without_offload_packets_and_bytes_match_the_devices_at_both_ends() {
    if !is_possible() {
        return;
    }
    let network = pair(
        &json!({"queue_bytes": 10_000_000}),
        &json!({"offload": false}),
    );
    let mut emulator = EmulatorProcess::new(&network, &json!({}));
    transfer(&emulator, 2_000_000);
    // Wait for the last acknowledgements, which are in flight for some milliseconds, until the
    // kernel counters do not change.
    let (_, final_counters) = emulator.final_counters();
    let (sent, received) = (emulator.a.sent(), emulator.b.received());
    let (echoed, taken) = (emulator.b.sent(), emulator.a.received());
    let done = emulator.stop();
    let count = |link: &str| {
        let link = &done["links"][link];
        (
            link["packets"].as_u64().expect("a count"),
            link["bytes"].as_u64().expect("a count"),
        )
    };
    assert!(
        sent.0 > 1380,
        "{sent:?} are too few packets for 2 MB without offload"
    );
    assert_eq!(count("there"), sent);
    assert_eq!(sent, received);
    assert_eq!(count("back"), echoed);
    assert_eq!(echoed, taken);
    assert_eq!(final_counters["emulator.tun_dropped"], 0.0);
}

#[test]
fn with_offload_packets_are_the_segments_counted_by_the_kernel() {
    if !is_possible() {
        return;
    }
    let network = pair(
        &json!({"rate_bit_per_s": 1e9, "queue_bytes": 10_000_000}),
        &json!({}),
    );
    let mut emulator = EmulatorProcess::new(&network, &json!({}));
    transfer(&emulator, 10_000_000);
    let (segments, counters) = emulator.final_counters();
    let (super_packets, _) = emulator.a.sent();
    assert_eq!(counters["link.there.packets"], segments as f64);
    assert!(
        super_packets * 5 < segments,
        "{super_packets} for {segments}: the host did not offload"
    );
    // Payload, and the headers of each segment: 20 of IP, 20 of TCP, 12 of timestamps. The first
    // segments of a connection have larger headers, and a busy machine can cause retransmissions.
    let least = 10_000_000 + 52 * segments;
    let most = least + 200 + 1448 * emulator.a.tcp_counter("RetransSegs");
    assert!(
        (least..=most).contains(&(counters["link.there.bytes"] as u64)),
        "{counters:?}"
    );
    let busy_s = counters["link.there.busy_s"];
    assert!((busy_s / (counters["link.there.bytes"] * 8e-9) - 1.0).abs() < 1e-6);
    assert!(emulator.findings("emulator-overrun") == 0);
}

#[test]
fn queue_drops_are_counted_and_the_queue_stays_within_its_limit() {
    if !is_possible() {
        return;
    }
    let mut emulator = EmulatorProcess::new(
        &pair(&json!({"queue_bytes": 30_000}), &json!({})),
        &json!({}),
    );
    transfer(&emulator, 3_000_000);
    let (segments, counters) = emulator.final_counters();
    let count = |name: &str| counters[&format!("link.there.{name}")] as u64;
    assert!(count("queue_drops") > 0);
    assert_eq!(count("packets") + count("queue_drops"), segments);
    let done = emulator.stop();
    let high = done["links"]["there"]["queue_high_bytes"].as_u64();
    assert!(
        high.is_some_and(|bytes| (28_500..=31_500).contains(&bytes)),
        "{done}"
    );
}
