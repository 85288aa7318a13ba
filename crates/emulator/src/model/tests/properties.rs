//! Properties for any traffic on any links.

use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Traffic {
    network: Network,
    /// Time since the previous packet, sender, shape.
    packets: Vec<(u64, u16, PacketShape)>,
}

fn any_link() -> impl Strategy<Value = Value> {
    (
        prop::sample::select(vec![1e6, 1e8, 9.5e8, 1e10]),
        prop::sample::select(vec![0.0, 0.0001, 0.02]),
        0_u64..200_000,
        prop::sample::select(vec![
            Value::Null,
            json!({"kind": "independent", "probability": 0.05}),
            json!({"kind": "bursty", "enter": 0.02, "leave": 0.3, "probability": 0.7}),
        ]),
        prop::sample::select(vec![0_u64, 38]),
        prop::sample::select(vec![0.0, 0.0, 0.0002]),
    )
        .prop_map(|(rate, delay, queue, loss, overhead, jitter)| {
            json!({
                "rate_bit_per_s": rate, "delay_s": delay, "queue_bytes": queue, "loss": loss,
                "overhead_bytes": overhead, "jitter_s": jitter,
            })
        })
}

fn any_shape() -> impl Strategy<Value = PacketShape> {
    (1_u16..=45, 100_u16..=1500, 60_u16..=1500).prop_map(|(segments, segment_bytes, last_bytes)| {
        PacketShape {
            segments,
            segment_bytes,
            last_bytes: last_bytes.min(segment_bytes),
        }
    })
}

fn any_changes() -> impl Strategy<Value = Value> {
    let set = prop::sample::select(vec![
        json!({"rate_bit_per_s": 5e7}),
        json!({"delay_s": 0.003}),
        json!({"up": false}),
        json!({"up": true}),
        json!({"loss": {"kind": "independent", "probability": 0.2}}),
        json!({"queue_bytes": 20_000, "rate_bit_per_s": 2e9}),
        json!({"jitter_s": 0.0005}),
    ]);
    let link = prop::sample::select(vec!["ar", "rs", "sc"]);
    prop::collection::vec((0.0..0.05, link, set), 0..6).prop_map(|changes| {
        let changes = changes.into_iter();
        changes
            .map(|(time, link, set)| json!({"time_s": time, "link": link, "set": set}))
            .collect()
    })
}

fn any_traffic() -> impl Strategy<Value = Traffic> {
    let packets = prop::collection::vec((0_u64..2_000_000, 0_u16..2, any_shape()), 1..60);
    (any_link(), any_link(), any_link(), any_changes(), packets).prop_map(
        |(first, middle, last, changes, packets)| {
            let mut network = funnel(&first, &middle, &last);
            network.changes = serde_json::from_value(changes).expect("changes");
            Traffic { network, packets }
        },
    )
}

/// Send all packets, polling after each packet if `punctual`, otherwise at the end only.
fn simulate(traffic: &Traffic, seed: u64, punctual: bool) -> (Account, EmulatorWorld, u64) {
    let mut world =
        EmulatorWorld::new(&traffic.network, seed).expect("a network that can be built");
    let mut account = Account::default();
    let (mut now_ns, mut sent) = (0, 0);
    world.go(0, Seconds::ZERO);
    for (number, (gap_ns, from, shape)) in (0..).zip(&traffic.packets) {
        now_ns += gap_ns;
        if punctual {
            account.poll(&mut world, now_ns);
        }
        send_from(&mut world, now_ns, InterfaceId(*from), number, *shape);
        sent += u64::from(shape.segments);
        let known = account.delivered() + account.dropped() + waiting(&world);
        assert!(
            !punctual || sent == known,
            "{sent} in, {known} accounted for"
        );
    }
    if !punctual {
        account.poll(&mut world, now_ns + 1_000_000_000_000);
    }
    account.drain(&mut world);
    (account, world, sent)
}

/// Return the number of segments in the network, including dropped segments that were not polled.
fn waiting(world: &EmulatorWorld) -> u64 {
    world.undelivered() + world.unpolled()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_segment_is_delivered_or_counted_as_dropped(traffic in any_traffic()) {
        let (account, mut world, sent) = simulate(&traffic, 1, true);
        prop_assert_eq!(account.delivered() + account.dropped(), sent);
        prop_assert_eq!(world.undelivered(), 0);
        let counters = world.counters(u64::MAX / 2000);
        let drops: u64 = counters.iter().map(|link| link.queue_drops + link.loss_drops + link.outage_drops).sum();
        prop_assert_eq!(drops, account.dropped());
        let last = world.link("sc").expect("it is there");
        prop_assert_eq!(counters[usize::from(last.0)].packets, account.delivered());
    }

    #[test]
    fn packets_of_one_sender_keep_their_order(traffic in any_traffic()) {
        let (account, ..) = simulate(&traffic, 1, true);
        prop_assert!(account.deliveries.is_sorted_by_key(|(.., due_ns)| *due_ns));
        for sender in [0, 1] {
            let mine = account.deliveries.iter().filter(|(packet, ..)| traffic.packets[packet.0 as usize].1 == sender);
            prop_assert!(mine.is_sorted_by_key(|(packet, first, ..)| (packet.0, *first)));
        }
    }

    #[test]
    fn a_queue_never_exceeds_its_limit_by_more_than_a_packet(mut traffic in any_traffic()) {
        traffic.network.changes.clear();
        let (_, mut world, _) = simulate(&traffic, 1, true);
        for (link, counters) in traffic.network.links.values().zip(world.counters(u64::MAX / 2000)) {
            let max = link.queue_bytes.get() + 1500 + u64::from(link.overhead_bytes);
            prop_assert!(counters.queue_high_bytes <= max, "{} of {max}", counters.queue_high_bytes);
        }
    }

    #[test]
    fn the_same_seed_produces_the_same_fates_for_any_polling_times(traffic in any_traffic()) {
        let (account, mut world, _) = simulate(&traffic, 1, true);
        let (late_account, mut late_world, _) = simulate(&traffic, 1, false);
        let fates = |account: &Account| -> Vec<_> {
            account.fates.iter().map(|(segment, outcome)| (*segment, outcome.is_some())).collect()
        };
        prop_assert_eq!(fates(&account), fates(&late_account));
        let end_ns = u64::MAX / 2000;
        prop_assert_eq!(world.counters(end_ns), late_world.counters(end_ns));
    }

    #[test]
    fn no_segment_arrives_earlier_than_delay_and_an_empty_link_allow(
        shape in any_shape(), first in any_link(), middle in any_link(), last in any_link()
    ) {
        let network = funnel(&first, &middle, &last);
        let mut world = EmulatorWorld::new(&network, 1).expect("a network");
        let mut account = Account::default();
        send(&mut world, 0, 0, shape);
        account.drain(&mut world);
        for ((_, segment), outcome) in &account.fates {
            let Some(due_ns) = outcome else { continue };
            let bytes = if segment + 1 == shape.segments { shape.last_bytes } else { shape.segment_bytes };
            let min: f64 = ["ar", "rs", "sc"].iter().map(|name| {
                let link = &network.links[*name];
                let delay = if link.jitter_s.get() > 0.0 { 0.0 } else { link.delay_s.get() };
                delay + f64::from(u32::from(bytes) + link.overhead_bytes) * 8.0 / link.rate_bit_per_s
            }).sum();
            prop_assert!(*due_ns as f64 >= min * 1e9 - 10.0, "{due_ns} before {}", min * 1e9);
        }
    }
}

#[test]
fn another_seed_loses_different_segments() {
    let network = pair(json!({"loss": {"kind": "independent", "probability": 0.1}}));
    let fates = |seed| {
        let mut world = EmulatorWorld::new(&network, seed).expect("a network");
        let mut account = Account::default();
        send(&mut world, 0, 0, full(600));
        account.drain(&mut world);
        account
            .fates
            .into_values()
            .map(|outcome| outcome.is_some())
            .collect::<Vec<_>>()
    };
    assert_eq!(fates(1), fates(1));
    assert_ne!(fates(1), fates(2));
}
