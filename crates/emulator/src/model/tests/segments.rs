//! The segments inside a super-packet: queue and loss apply to each separately.

use super::*;

#[test]
fn eleven_of_45_segments_pass_a_queue_with_capacity_for_10() {
    // The rule is: a segment is admitted while the backlog is at most the limit. Ten fill it, the eleventh is the one
    // packet more.
    let mut world = world(&pair(json!({"queue_bytes": 15_000})));
    let mut account = Account::default();
    send(&mut world, 0, 0, full(45));
    account.drain(&mut world);
    let passed: Vec<_> = account
        .fates
        .iter()
        .filter(|(_, arrival_ns)| arrival_ns.is_some())
        .map(|((_, segment), _)| *segment)
        .collect();
    assert_eq!(passed, (0..11).collect::<Vec<_>>());
    assert_eq!(account.dropped(), 34);
    let counters = world.counters(account.last_due_ns())[1];
    assert_eq!((counters.packets, counters.queue_drops), (11, 34));
    assert!(counters.queue_high_bytes <= 15_000 + 1500);
}

#[test]
fn random_loss_removes_single_segments_from_super_packets() {
    let network = pair(json!({
        "loss": {"kind": "independent", "probability": 0.02}, "queue_bytes": 100_000_000, "rate_bit_per_s": 1e10,
    }));
    let mut world = world(&network);
    let mut account = Account::default();
    let packets = 2000_u32;
    for packet in 0..packets {
        let now_ns = u64::from(packet) * 60_000;
        account.poll(&mut world, now_ns);
        send(&mut world, now_ns, packet, full(45));
    }
    account.drain(&mut world);
    let lost_of = |packet| {
        let segments = account
            .fates
            .range((PacketId(packet), 0)..=(PacketId(packet), 44));
        segments
            .filter(|(_, arrival_ns)| arrival_ns.is_none())
            .count()
    };
    let touched =
        (0..packets).filter(|packet| lost_of(*packet) > 0).count() as f64 / f64::from(packets);
    let whole = (0..packets).filter(|packet| lost_of(*packet) == 45).count();
    assert_eq!(whole, 0, "no super-packet is lost as one");
    // 1 − 0.98^45 = 0.597; standard error 0.011.
    assert!((touched - 0.597).abs() < 0.05, "{touched}");
    let fraction = account.dropped() as f64 / account.fates.len() as f64;
    assert!((fraction - 0.02).abs() < 0.0024, "{fraction}"); // five standard errors
}

#[test]
fn a_late_delivery_includes_all_arrived_segments_that_fit() {
    // 100 Mb/s: 120 µs per segment, more than the grain, so each is a separate run.
    let network = pair(json!({"rate_bit_per_s": 1e8}));
    let mut punctual = Account::default();
    let mut on_time = world(&network);
    send(&mut on_time, 0, 0, full(40));
    punctual.drain(&mut on_time);
    assert_eq!(punctual.deliveries.len(), 40);
    let mut late = Account::default();
    let mut behind = world(&network);
    send(&mut behind, 0, 0, full(40));
    late.poll(&mut behind, 1_000_000_000);
    assert_eq!(late.deliveries, [(PacketId(0), 0, 40, 1_120_000)]);
}

#[test]
fn runs_to_an_interface_without_offload_are_not_merged() {
    let mut network = pair(json!({"rate_bit_per_s": 1e8}));
    network
        .interfaces
        .get_mut("b")
        .expect("it is there")
        .offload = false;
    let mut world = world(&network);
    let mut account = Account::default();
    send(&mut world, 0, 0, full(40));
    account.poll(&mut world, 1_000_000_000);
    assert_eq!(account.deliveries.len(), 40);
}

#[test]
fn a_captured_link_reports_each_segment_that_was_sent_and_not_lost() {
    let network =
        pair(json!({"loss": {"kind": "independent", "probability": 0.1}, "queue_bytes": 60_000}));
    let mut world = world(&network);
    let mut account = Account::default();
    let link = world.link("there").expect("it is there");
    world.capture(0, link, true);
    for packet in 0..200 {
        send(&mut world, u64::from(packet) * 100_000, packet, full(30));
        account.poll(&mut world, u64::from(packet) * 100_000);
    }
    account.drain(&mut world);
    let counters = world.counters(account.last_due_ns())[1];
    assert_eq!(account.captured, counters.packets);
    assert_eq!(account.captured, account.delivered());
    assert!(counters.queue_drops > 0 && counters.loss_drops > 0);
}
