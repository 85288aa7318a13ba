//! One link: times, bounds, counters.

use super::*;

#[test]
fn serialisation_is_exact_over_a_million_packets_at_awkward_rates() {
    for rate in [1e9, 7.3e9, 123_456_789.0] {
        let network = pair(
            json!({"rate_bit_per_s": rate, "queue_bytes": 10_000_000_000_u64, "delay_s": 0.25}),
        );
        let mut world = world(&network);
        let mut account = Account::default();
        for packet in 0..20_000 {
            send(&mut world, 0, packet, full(50));
        }
        account.drain(&mut world);
        let exact_ns = 1e6 * 1500.0 * 8.0 / rate * 1e9 + 250e6;
        let found_ns = account.last_due_ns() as f64;
        assert!(
            (found_ns - exact_ns).abs() <= 2.0,
            "{rate}: {found_ns} for {exact_ns}"
        );
        let busy_ps = world.counters(account.last_due_ns())[1].busy_ps as f64;
        assert!((busy_ps * 1e-3 - (exact_ns - 250e6)).abs() <= 2.0);
    }
}

#[test]
fn overhead_counts_for_transmission_time_and_queue_size() {
    let network = pair(json!({"overhead_bytes": 38, "delay_s": 0.0, "rate_bit_per_s": 1e9}));
    let mut world = world(&network);
    let mut account = Account::default();
    send(&mut world, 0, 0, full(10));
    assert_eq!(world.counters(0)[1].queue_high_bytes, 15_380);
    account.drain(&mut world);
    assert_eq!(account.last_due_ns(), 15_380 * 8);
    assert_eq!(world.counters(200_000)[1].bytes, 15_380);
}

#[test]
fn a_queue_without_capacity_accepts_a_packet_only_if_the_link_is_idle() {
    let mut world = world(&pair(json!({"queue_bytes": 0})));
    let mut account = Account::default();
    send(&mut world, 0, 0, full(1));
    send(&mut world, 6_000, 1, full(1));
    send(&mut world, 12_000, 2, full(1));
    account.drain(&mut world);
    let delivered: Vec<_> = account
        .deliveries
        .iter()
        .map(|(packet, ..)| packet.0)
        .collect();
    assert_eq!(delivered, [0, 2]);
}

#[test]
fn the_queue_drains_at_the_rate_of_the_link() {
    // The capacity is 20 packets of 12 µs each. Of 30 packets at the same time, 21 pass (20 wait,
    // one is being sent). After 120 µs, 10 more fit.
    let mut world = world(&pair(json!({"queue_bytes": 30_000})));
    let mut account = Account::default();
    send(&mut world, 0, 0, full(30));
    assert_eq!(world.counters(0)[1].queue_drops, 9);
    account.poll(&mut world, 120_000);
    send(&mut world, 120_000, 1, full(30));
    account.drain(&mut world);
    let counters = world.counters(10_000_000)[1];
    assert_eq!((counters.packets, counters.queue_drops), (31, 29));
    assert_eq!(counters.queue_high_bytes, 31_500);
}

#[test]
fn counters_are_those_of_the_transmitter_not_of_the_receiver() {
    let mut world = world(&pair(json!({"delay_s": 1.0})));
    send(&mut world, 0, 0, full(10));
    let counters = world.counters(66_000)[1];
    // 66 µs: five packets of 12 µs and half of the sixth. A run is counted when its last packet is sent; the grain
    // is 200 µs here.
    assert_eq!((counters.packets, counters.busy_ps), (0, 66_000_000));
    let counters = world.counters(120_000)[1];
    assert_eq!(
        (counters.packets, counters.bytes, counters.busy_ps),
        (10, 15_000, 120_000_000)
    );
    assert_eq!(world.poll(900_000_000), None, "nothing has arrived yet");
}

#[test]
fn the_high_water_mark_restarts_from_the_current_queue() {
    let mut world = world(&pair(json!({})));
    send(&mut world, 0, 0, full(40));
    assert_eq!(world.counters(0)[1].queue_high_bytes, 60_000);
    world.restart_high_water(240_000);
    assert_eq!(world.counters(240_000)[1].queue_high_bytes, 30_000);
}

#[test]
fn jitter_keeps_the_order_with_the_requested_mean_and_deviation() {
    let network = pair(json!({"delay_s": 0.01, "jitter_s": 0.001}));
    let mut world = world(&network);
    let mut account = Account::default();
    let spacing_ns = 20_000_000;
    let packets = 4000_u32;
    for packet in 0..packets {
        let now_ns = u64::from(packet) * spacing_ns;
        account.poll(&mut world, now_ns);
        send(&mut world, now_ns, packet, full(1));
    }
    account.drain(&mut world);
    let delays: Vec<f64> = account
        .deliveries
        .iter()
        .map(|(packet, _, _, due_ns)| (due_ns - u64::from(packet.0) * spacing_ns) as f64)
        .collect();
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    let variance = delays.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / delays.len() as f64;
    // Standard errors for 4000 draws, a little correlated: 20 µs for the mean and 1.5 % for the deviation; four of
    // each.
    assert!((mean - 10_012_000.0).abs() < 80_000.0, "{mean}");
    assert!(
        (variance.sqrt() / 1e6 - 1.0).abs() < 0.06,
        "{}",
        variance.sqrt()
    );
    assert!(account.deliveries.is_sorted_by_key(|(packet, ..)| packet.0));
}

#[test]
fn reordering_makes_its_fraction_of_packets_late_and_loses_none() {
    let network = pair(json!({"reorder_probability": 0.02, "delay_s": 0.01}));
    let mut world = world(&network);
    let mut account = Account::default();
    for packet in 0..2000 {
        let now_ns = u64::from(packet) * 600_000;
        account.poll(&mut world, now_ns);
        send(&mut world, now_ns, packet, full(40));
    }
    account.drain(&mut world);
    assert_eq!(account.delivered(), 80_000);
    let arrival = |arrival_ns: &Option<u64>| arrival_ns.expect("delivered");
    let mut latest = 0;
    let mut overtaken = 0;
    for due_ns in account.fates.values().map(arrival) {
        overtaken += u64::from(due_ns < latest);
        latest = latest.max(due_ns);
    }
    assert!(overtaken > 0, "some packets were overtaken");
    let late = account
        .fates
        .iter()
        .filter(|((packet, segment), arrival_ns)| {
            let straight_ns = u64::from(packet.0) * 600_000 + 10_000_000;
            // If a run is delivered as one packet, all segments arrive with the last one.
            let latest_ns = straight_ns + 12_000 * (u64::from(*segment) + 1) + 110_000;
            arrival(arrival_ns) > latest_ns
        })
        .count() as f64;
    // Packets late by less than the grain of 110 µs, of up to 1 ms, are not visible: 11 %. That leaves 0.89 × 0.02 of
    // 80 000, with a standard error of 38.
    assert!((1240.0..1610.0).contains(&late), "{late}");
}
