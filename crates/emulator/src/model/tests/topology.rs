//! Several hops, and networks that cannot be built.

use super::*;

#[test]
fn packets_follow_the_routes_and_are_dropped_without_one() {
    let mut world = world(&funnel(&json!({}), &json!({}), &json!({})));
    let mut account = Account::default();
    let address = |text: &str| text.parse().expect("an address");
    let b = world.destination(address("10.77.0.2"));
    let unknown_host = world.destination(address("192.168.1.1"));
    assert_eq!(world.exit(InterfaceId(2), b), Some(InterfaceId(1)));
    assert_eq!(world.exit(InterfaceId(2), unknown_host), None);
    world.handle_packet(0, InterfaceId(2), PacketId(1), full(3), b);
    world.handle_packet(0, InterfaceId(2), PacketId(2), full(3), unknown_host);
    account.drain(&mut world);
    assert_eq!((account.delivered(), account.dropped()), (3, 3));
    assert_eq!(account.deliveries[0].0, PacketId(1));
    assert_eq!(world.counts().unrouted, 3);
}

#[test]
fn other_addresses_follow_the_wildcard_route() {
    let mut network = funnel(&json!({}), &json!({}), &json!({}));
    let routes = network.routes.get_mut("r").expect("routes");
    routes.insert("*".into(), "rb".into());
    let world = world(&network);
    let unknown_host = world.destination("192.168.1.1".parse().expect("an address"));
    assert_eq!(
        world.exit(InterfaceId(0), unknown_host),
        Some(InterfaceId(1))
    );
}

#[test]
fn an_invalid_network_is_rejected_with_location_and_reason() {
    let good = json!({
        "interfaces": {"a": interface("a", 1), "b": interface("b", 2)},
        "routers": ["r"],
        "links": {
            "ar": link("a", "r", json!({})), "ra": link("r", "a", json!({})),
            "br": link("b", "r", json!({})), "rb": link("r", "b", json!({})),
        },
        "routes": {"r": {"a": "ra", "b": "rb"}},
    });
    assert!(EmulatorWorld::new(&parse(good.clone()), 1).is_ok());
    for (location, value, expected) in [
        (
            "/links/ar/to",
            json!("x"),
            "network.links.ar.to: expected the name of an interface or a router, found `x`",
        ),
        (
            "/links/ar/from",
            json!("b"),
            "network.links: expected exactly one link from interface `a`, found 0",
        ),
        (
            "/links/ar/rate_bit_per_s",
            json!(0),
            "network.links.ar.rate_bit_per_s: expected 1000 to 10000000000000, found 0",
        ),
        (
            "/links/ar/delay_s",
            json!(-0.1),
            "network.links.ar.delay_s: expected 0 to 3600, found -0.1",
        ),
        (
            "/links/ar/loss",
            json!({"kind": "independent", "probability": 1.5}),
            "network.links.ar.loss.probability: expected 0 to 1, found 1.5",
        ),
        (
            "/routers/0",
            json!("a"),
            "network.routers: expected names different from the interfaces, found `a`",
        ),
        (
            "/routes/r/a",
            json!("br"),
            "network.routes.r.a: expected a link from `r`, found `br`",
        ),
        (
            "/interfaces/b/address",
            json!("10.77.0.1"),
            "network.interfaces: expected a different address for each, found 10.77.0.1 twice",
        ),
        (
            "/interfaces/b/mtu",
            json!(10),
            "network.interfaces.b.mtu: expected 68 to 65535 bytes, found 10",
        ),
        (
            "/interfaces/b/device",
            json!("a-name-that-is-too-long"),
            "network.interfaces.b.device: expected a device name of 1 to 15 bytes without space, `/`, `:` and `%`, found `a-name-that-is-too-long`",
        ),
    ] {
        let mut bad = good.clone();
        let (parent, key) = location.rsplit_once('/').expect("a path");
        match bad.pointer_mut(parent).expect(location) {
            Value::Array(list) => list[key.parse::<usize>().expect("a number")] = value,
            object => object[key] = value,
        }
        let error = EmulatorWorld::new(&parse(bad), 1).expect_err(location);
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_loop_of_routers_is_rejected() {
    let mut network = funnel(&json!({}), &json!({}), &json!({}));
    let routes = network.routes.get_mut("s").expect("routes");
    routes.insert("c".into(), "sr".into());
    let error = EmulatorWorld::new(&network, 1).expect_err("r and s send to each other");
    assert_eq!(
        error.to_string(),
        "network.routes: expected a route from `a` to `c` without a loop, found a loop of routers"
    );
}

#[test]
fn a_super_packet_takes_as_long_over_several_hops_as_its_segments_one_by_one() {
    // Slow after fast, fast after slow, equal: a run can enter a link while its later segments are
    // still on the previous link.
    for rates in [
        [1e9, 1e10, 1e9],
        [1e10, 1e9, 1e8],
        [1e8, 1e9, 1e10],
        [1e9, 1e9, 1e9],
        [1e8, 1e10, 1e8],
    ] {
        let [first, middle, last] = rates.map(|rate| json!({"rate_bit_per_s": rate}));
        let network = funnel(&first, &middle, &last);
        let arrival_ns = |shapes: &[PacketShape]| {
            let mut world = world(&network);
            let mut account = Account::default();
            for (packet, shape) in (0..).zip(shapes) {
                send(&mut world, 0, packet, *shape);
            }
            account.drain(&mut world);
            account.last_due_ns()
        };
        let together = arrival_ns(&[full(44)]);
        let apart = arrival_ns(&[full(1); 44]);
        assert!(
            together.abs_diff(apart) <= 50,
            "{rates:?}: {together} and {apart}"
        );
    }
}

#[test]
fn two_flows_share_a_link_and_its_capacity_is_not_lost() {
    // Each flow has 1 Gb/s, and the shared link exactly 2: it must transmit both without growing
    // delay.
    let fast = json!({"rate_bit_per_s": 2e9, "queue_bytes": 200_000});
    let mut world = world(&funnel(&json!({}), &fast, &fast));
    let mut account = Account::default();
    for number in 0..4000_u32 {
        let now_ns = u64::from(number) * 44 * 12_000;
        account.poll(&mut world, now_ns);
        send_from(&mut world, now_ns, InterfaceId(0), 2 * number, full(44));
        send_from(&mut world, now_ns, InterfaceId(1), 2 * number + 1, full(44));
    }
    account.drain(&mut world);
    assert_eq!(account.dropped(), 0);
    let sent_ns = 4000 * 44 * 12_000;
    assert!(
        account.last_due_ns() < sent_ns + 3_000_000 + 300_000,
        "{}",
        account.last_due_ns()
    );
}
