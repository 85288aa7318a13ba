//! Effects of changes.

use super::*;

fn change(world: &mut EmulatorWorld, now_ns: u64, set: Value) {
    let link = world.link("there").expect("it is there");
    let set = serde_json::from_value(set).expect("a set");
    world
        .handle_change(now_ns, link, &set)
        .expect("values that a link can have");
}

#[test]
fn a_new_rate_applies_to_unsent_packets_and_the_rest_of_the_current_packet() {
    // 1 Mb/s: 12 ms a packet. After 6 ms half of the first is sent; the other half takes 3 ms at 2 Mb/s, each further
    // packet 6.
    let mut world = world(&pair(json!({"rate_bit_per_s": 1e6, "delay_s": 0.0})));
    let mut account = Account::default();
    send(&mut world, 0, 0, full(3));
    change(&mut world, 6_000_000, json!({"rate_bit_per_s": 2e6}));
    account.drain(&mut world);
    let due: Vec<_> = account
        .deliveries
        .iter()
        .map(|delivery| delivery.3)
        .collect();
    assert_eq!(due, [9_000_000, 15_000_000, 21_000_000]);
    assert_eq!(world.counters(30_000_000)[1].busy_ps, 21_000_000_000);
}

#[test]
fn a_run_that_becomes_longer_than_its_grain_by_a_new_rate_is_split() {
    // 40 ms of round trip: a grain of 200 µs, 16 segments at 1 Gb/s, one at 100 Mb/s.
    let mut world = world(&pair(json!({"delay_s": 0.039})));
    let mut account = Account::default();
    send(&mut world, 0, 0, full(16));
    change(&mut world, 0, json!({"rate_bit_per_s": 1e8}));
    account.drain(&mut world);
    let due: Vec<_> = account
        .deliveries
        .iter()
        .map(|delivery| delivery.3)
        .collect();
    assert_eq!(due.len(), 16);
    for (number, due_ns) in (1..).zip(due) {
        assert_eq!(due_ns, 39_000_000 + 120_000 * number);
    }
}

#[test]
fn an_outage_drops_queued_packets_and_keeps_packets_in_flight() {
    let mut world = world(&pair(json!({"rate_bit_per_s": 1e8, "delay_s": 0.01})));
    let mut account = Account::default();
    send(&mut world, 0, 0, full(10)); // 120 µs each
    change(&mut world, 300_000, json!({"up": false})); // two are sent
    send(&mut world, 400_000, 1, full(5));
    change(&mut world, 500_000, json!({"up": true}));
    send(&mut world, 600_000, 2, full(1));
    account.drain(&mut world);
    let delivered: Vec<_> = account
        .deliveries
        .iter()
        .map(|(packet, first, ..)| (packet.0, *first))
        .collect();
    assert_eq!(delivered, [(0, 0), (0, 1), (2, 0)]);
    assert_eq!(
        account.last_due_ns(),
        600_000 + 120_000 + 10_000_000,
        "the queue was empty again"
    );
    let counters = world.counters(20_000_000)[1];
    assert_eq!((counters.packets, counters.outage_drops), (3, 13));
    assert_eq!(counters.busy_ps, 420_000_000);
}

#[test]
fn a_shorter_delay_does_not_reorder_packets() {
    let mut world = world(&pair(json!({"delay_s": 0.05})));
    let mut account = Account::default();
    send(&mut world, 0, 0, full(1));
    change(&mut world, 20_000, json!({"delay_s": 0.001}));
    send(&mut world, 20_000, 1, full(1));
    send(&mut world, 60_000_000, 2, full(1));
    account.drain(&mut world);
    let due: Vec<_> = account
        .deliveries
        .iter()
        .map(|(packet, _, _, due)| (packet.0, *due))
        .collect();
    assert_eq!(due, [(0, 50_012_000), (1, 50_012_000), (2, 61_012_000)]);
}

#[test]
fn a_smaller_queue_keeps_its_packets_and_accepts_none_until_they_have_drained() {
    let mut world = world(&pair(json!({})));
    let mut account = Account::default();
    send(&mut world, 0, 0, full(100));
    change(&mut world, 0, json!({"queue_bytes": 15_000}));
    send(&mut world, 0, 1, full(1));
    account.poll(&mut world, 12_000 * 91);
    send(&mut world, 12_000 * 91, 2, full(1)); // nine are left
    account.drain(&mut world);
    assert_eq!(account.delivered(), 101);
    assert_eq!(account.fates[&(PacketId(1), 0)], None);
}

#[test]
fn planned_changes_apply_at_their_times_even_if_polled_late() {
    let mut network = pair(json!({"rate_bit_per_s": 1e6, "delay_s": 0.0}));
    network.changes = serde_json::from_value(json!([
        {"time_s": 0.012, "link": "there", "set": {"rate_bit_per_s": 1e6}},
        {"time_s": 0.006, "link": "there", "set": {"rate_bit_per_s": 2e6}},
    ]))
    .expect("changes");
    let mut world = world(&network);
    let mut account = Account::default();
    world.go(1_000_000, Seconds::ZERO);
    send(&mut world, 1_000_000, 0, full(2));
    account.poll(&mut world, 60_000_000_000);
    let due: Vec<_> = account.fates.values().flatten().collect();
    // 6 ms at 1 Mb/s, then 6 ms at 2 Mb/s: 1500 bytes after 9 ms, and 750 more. The other 750 take 6 ms again.
    assert_eq!(due, [&10_000_000, &19_000_000]);
}

#[test]
fn a_resumed_plan_starts_with_its_past_changes_and_does_not_repeat_them() {
    let mut network = pair(json!({"rate_bit_per_s": 1e6, "delay_s": 0.0}));
    network.changes = serde_json::from_value(json!([
        {"time_s": 10.0, "link": "there", "set": {"rate_bit_per_s": 4e6, "up": false}},
        {"time_s": 20.0, "link": "there", "set": {"up": true}},
        {"time_s": 30.0, "link": "there", "set": {"rate_bit_per_s": 2e6}},
        {"time_s": 40.0, "link": "there", "set": {"rate_bit_per_s": 1e6}},
    ]))
    .expect("changes");
    let mut world = world(&network);
    let mut account = Account::default();
    send(&mut world, 0, 0, full(2)); // before the clock is started: 12 ms each
    world.go(6_000_000, Seconds::new(39.991));
    account.drain(&mut world);
    let due: Vec<_> = account.fates.values().flatten().collect();
    // The outage is over and drops nothing. 2 Mb/s apply for the last 9 ms of 40 s: 3 ms for the
    // rest of the first packet, 6 for the second.
    assert_eq!(due, [&9_000_000, &15_000_000]);
    send(&mut world, 60_000_000_000, 1, full(1));
    account.drain(&mut world);
    assert_eq!(account.fates[&(PacketId(1), 0)], Some(60_012_000_000));
}

#[test]
fn past_changes_are_reported_as_one_change_for_each_link() {
    let mut network = pair(json!({}));
    network.changes = serde_json::from_value(json!([
        {"time_s": 1.0, "link": "there", "set": {"rate_bit_per_s": 2e6, "loss": {"kind": "independent", "probability": 0.5}}},
        {"time_s": 2.0, "link": "back", "set": {"up": false}},
        {"time_s": 3.0, "link": "there", "set": {"loss": null, "delay_s": 0.5}},
        {"time_s": 4.0, "link": "back", "set": {"up": true}},
    ]))
    .expect("changes");
    let mut world = world(&network);
    world.go(7, Seconds::new(4.0));
    let reported: Vec<_> = std::iter::from_fn(|| world.poll(u64::MAX - 1))
        .map(|output| match output {
            NetworkOutput::Changed { time_ns, link, set } => {
                let set = serde_json::to_value(set).expect("JSON");
                (time_ns, world_name(link), set)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        reported,
        [
            (7, "back", json!({"up": false})),
            (
                7,
                "there",
                json!({"rate_bit_per_s": 2e6, "loss": null, "delay_s": 0.5})
            ),
            (7, "back", json!({"up": true})), // due now, so not in the past
        ]
    );
}

/// The links of a pair, in the order of their names.
fn world_name(link: LinkId) -> &'static str {
    ["back", "there"][usize::from(link.0)]
}

#[test]
fn an_invalid_link_value_is_rejected_with_its_location() {
    let mut world = world(&pair(json!({})));
    let link = world.link("there").expect("it is there");
    let set = serde_json::from_value(json!({"rate_bit_per_s": -1.0})).expect("a set");
    let error = world
        .handle_change(0, link, &set)
        .expect_err("a negative rate");
    assert_eq!(
        error.to_string(),
        "network.there.rate_bit_per_s: expected 1000 to 10000000000000, found -1"
    );
}
