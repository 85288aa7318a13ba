//! The counters of the links against those of the kernel at both ends.

use serde_json::json;

use crate::testkit::{Wire, is_possible, pair};
use crate::traffic::transfer;

#[test]
fn without_offload_packets_and_bytes_are_those_of_the_devices_at_both_ends() {
    if !is_possible() {
        return;
    }
    let network = pair(
        &json!({"queue_bytes": 10_000_000}),
        &json!({"offload": false}),
    );
    let mut wire = Wire::new(&network, &json!({}));
    transfer(&wire, 2_000_000);
    // The last acknowledgements are on their way for some milliseconds: the counters of the kernel stand still then.
    let (_, settled) = wire.settled();
    let (sent, received) = (wire.a.sent(), wire.b.received());
    let (answered, taken) = (wire.b.sent(), wire.a.received());
    let done = wire.stop();
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
    assert_eq!(count("back"), answered);
    assert_eq!(answered, taken);
    assert_eq!(settled["wire.tun_dropped"], 0.0);
}

#[test]
fn with_offload_packets_are_the_segments_that_the_kernel_counts() {
    if !is_possible() {
        return;
    }
    let network = pair(
        &json!({"rate_bit_per_s": 1e9, "queue_bytes": 10_000_000}),
        &json!({}),
    );
    let mut wire = Wire::new(&network, &json!({}));
    transfer(&wire, 10_000_000);
    let (segments, counters) = wire.settled();
    let (super_packets, _) = wire.a.sent();
    assert_eq!(counters["link.there.packets"], segments as f64);
    assert!(
        super_packets * 5 < segments,
        "{super_packets} for {segments}: the host did not offload"
    );
    // Payload, and the headers of each segment: 20 of IP, 20 of TCP, 12 of timestamps; some more with the
    // connection's first ones, and what a busy machine made the sender repeat.
    let least = 10_000_000 + 52 * segments;
    let most = least + 200 + 1448 * wire.a.tcp_counter("RetransSegs");
    assert!(
        (least..=most).contains(&(counters["link.there.bytes"] as u64)),
        "{counters:?}"
    );
    let busy_s = counters["link.there.busy_s"];
    assert!((busy_s / (counters["link.there.bytes"] * 8e-9) - 1.0).abs() < 1e-6);
    assert!(wire.findings("wire-overrun") == 0);
}

#[test]
fn what_the_queue_has_no_room_for_is_counted_and_the_queue_keeps_its_limit() {
    if !is_possible() {
        return;
    }
    let mut wire = Wire::new(
        &pair(&json!({"queue_bytes": 30_000}), &json!({})),
        &json!({}),
    );
    transfer(&wire, 3_000_000);
    let (segments, counters) = wire.settled();
    let count = |name: &str| counters[&format!("link.there.{name}")] as u64;
    assert!(count("queue_drops") > 0);
    assert_eq!(count("packets") + count("queue_drops"), segments);
    let done = wire.stop();
    let high = done["links"]["there"]["queue_high_bytes"].as_u64();
    assert!(
        high.is_some_and(|bytes| (28_500..=31_500).contains(&bytes)),
        "{done}"
    );
}
