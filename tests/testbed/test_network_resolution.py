"""Links, hosts and changes of a scenario in a plan: names, addresses, rates, queues, settings."""

from __future__ import annotations

import pytest
from test_network_routes import network_of

from venturi.plan import BurstyLoss, IndependentLoss
from venturi.testbed.profiles import PROFILES, problem_of_setting

GIGABIT = {"rate": "1 Gb/s", "delay": "5 ms"}


def star(*hosts, **changes):
    """Return a testbed of hosts at one router; ``changes`` has more keys for the link of each host."""
    links = {f"{h}-r": {"between": [h, "r"], **GIGABIT, **changes.get(h, {})} for h in hosts}
    return {"host": {host: {} for host in hosts}, "router": {"r": {}}, "link": links}


def test_each_link_end_at_a_host_is_the_next_or_the_named_interface():
    testbed = {
        "host": {"b": {}, "a": {}},
        "router": {"r1": {}, "r2": {}},
        "link": {
            "l1": {"between": ["a", "r1"], **GIGABIT}, "l2": {"between": ["a.eth0", "r2"], **GIGABIT},
            "l3": {"between": ["r1", "b"], **GIGABIT}, "l4": {"between": ["a", "r1"], **GIGABIT},
            "l5": {"between": ["r1", "r2"], **GIGABIT}, "l6": {"between": ["r1", "r2"], **GIGABIT},
        },
    }  # fmt: skip
    network = network_of(testbed).network
    # Sorted by host in the order of the file, and then by number.
    assert [(name, i.host, i.device, i.address) for name, i in network.interfaces.items()] == [
        ("b.eth0", "b", "eth0", "10.77.0.1"), ("a.eth0", "a", "eth0", "10.77.0.2"), ("a.eth1", "a", "eth1", "10.77.0.3"),
        ("a.eth2", "a", "eth2", "10.77.0.4"),
    ]  # fmt: skip
    assert {name: (link.origin, link.to) for name, link in network.links.items() if name.startswith(("a", "r1>r2"))} == {
        "a>r1": ("a.eth1", "r1"), "a.eth0>r2": ("a.eth0", "r2"), "a>r1@l4": ("a.eth2", "r1"),
        "r1>r2": ("r1", "r2"), "r1>r2@l6": ("r1", "r2"),
    }  # fmt: skip


def test_addresses_continue_in_the_next_subnet():
    network = network_of(star(*(f"h{i}" for i in range(300)))).network
    addresses = [interface.address for interface in network.interfaces.values()]
    assert addresses[0] == "10.77.0.1"
    assert addresses[253:255] == ["10.77.0.254", "10.77.1.1"]
    assert len(set(addresses)) == 300


def test_the_two_directions_of_a_link_can_differ():
    testbed = star("a", "b", a={"rate": ["28 Mb/s", "16 Mb/s"], "delay": ["5 ms", "7 ms"]})
    links = network_of(testbed).network.links
    assert [(links[n].rate_bit_per_s, links[n].delay_s) for n in ("a>r", "r>a")] == [(28e6, 0.005), (16e6, 0.007)]


def test_a_round_trip_time_is_divided_between_the_two_directions():
    testbed = star("a", "b")
    testbed["link"]["a-r"] = {"between": ["a", "r"], "rate": "1 Gb/s", "rtt": "53 ms"}
    links = network_of(testbed).network.links
    assert {links[name].delay_s for name in ("a>r", "r>a")} == {0.0265}


@pytest.mark.parametrize(
    ("written", "scale", "expected"),
    [
        # The largest RTT through the link of a is 2 × (5 + 20) ms, which is not that to b: 10 Gb/s × 50 ms / 8 = 62.5
        # MB.
        ({"rate": "10 Gb/s", "queue": "1 BDP"}, 1, 62_500_000),
        ({"rate": "10 Gb/s", "queue": "0.25 BDP"}, 1, 15_625_000),
        ({"rate": "10 Gb/s"}, 1, 62_500_000),
        ({"rate": "10 Gb/s", "queue": "1 BDP"}, 0.01, 625_000),
        ({"rate": "10 Gb/s", "queue": "100 kB"}, 0.5, 50_000),
        # 1 Mb/s × 50 ms / 8 = 6250 B. The default is 64 packets, and the minimum is one.
        ({"rate": "1 Mb/s"}, 1, 64 * 1500),
        ({"rate": "1 Mb/s", "mtu": 9000}, 1, 64 * 9000),
        ({"rate": "1 Mb/s", "queue": "1 BDP"}, 1, 6250),
        ({"rate": "1 Mb/s", "queue": "0.1 BDP"}, 1, 1500),
        ({"rate": "1 Mb/s", "queue": "2 kB", "overhead": "38 B"}, 0.1, 1538),
    ],
)
def test_a_queue_has_a_fixed_size_or_follows_the_largest_round_trip_time_of_its_link(written, scale, expected):
    testbed = star("a", "b", "c", a=written, c={"delay": "20 ms"})
    links = network_of(testbed, scale).network.links
    assert {links[name].queue_bytes for name in ("a>r", "r>a")} == {expected}


def test_the_scale_multiplies_rates_but_not_delays_or_packet_sizes():
    whole, small = (network_of(star("a", "b", a={"jitter": "1 ms"}), scale).network for scale in (1.0, 0.01))
    assert small.links["a>r"].rate_bit_per_s == whole.links["a>r"].rate_bit_per_s / 100
    assert (small.links["a>r"].delay_s, small.links["a>r"].jitter_s) == (0.005, 0.001)
    assert small.interfaces == whole.interfaces


def test_loss_is_independent_or_bursty_and_0_means_no_loss():
    losses = {
        "a": 0.001,
        "b": {"enter": 0.001, "leave": 0.1, "probability": 0.5},
        "c": 0,
        "d": {"enter": 0.1, "leave": 1},
    }
    links = network_of(star(*losses, **{h: {"loss": loss} for h, loss in losses.items()})).network.links
    assert [links[f"{host}>r"].loss for host in losses] == [
        IndependentLoss(0.001), BurstyLoss(0.001, 0.1, 0.5), None, BurstyLoss(0.1, 1.0, 1.0),
    ]  # fmt: skip
    assert links["r>b"].loss == links["b>r"].loss


def test_changes_are_sorted_by_time_and_apply_to_the_named_directions():
    testbed = star("a", "b", a={"rate": "1 Gb/s", "queue": "1 BDP"})
    testbed["change"] = [
        {"at": "20 s", "link": "a-r", "up": False},
        {"at": "10 s", "link": "a-r", "rate": ["100 Mb/s", "50 Mb/s"], "queue": "1 BDP"},
        {"at": "10 s", "link": "r>b", "loss": 0, "delay": "1 ms", "jitter": "1 us", "reorder": 0.5},
    ]
    changes = network_of(testbed, 0.1).network.changes
    assert [(change.time_s, change.link, change.set) for change in changes] == [
        (10.0, "a>r", {"rate_bit_per_s": 1e7, "queue_bytes": 25_000}),
        (10.0, "r>a", {"rate_bit_per_s": 5e6, "queue_bytes": 12_500}),
        (10.0, "r>b", {"delay_s": 0.001, "jitter_s": 1e-6, "loss": None, "reorder_probability": 0.5}),
        (20.0, "a>r", {"up": False}),
        (20.0, "r>a", {"up": False}),
    ]


def test_a_host_has_a_default_device_and_routes_for_other_addresses():
    testbed = {
        "host": {"a": {}, "b": {}, "c": {}, "d": {}},
        "router": {"lan": {}, "san": {}},
        "link": {
            **{f"{h}-lan": {"between": [h, "lan"], **GIGABIT} for h in "abcd"},
            **{f"{h}-san": {"between": [h, "san"], **GIGABIT} for h in "ab"},
        },
    }
    resolved = network_of(testbed)
    assert resolved.hosts["a"].default_device == "eth0"
    # b has two addresses, and the second is only on the other network.
    assert resolved.hosts["a"].routes == {resolved.network.interfaces["b.eth1"].address: "eth1"}
    assert resolved.paths.links("a", "b.eth1") == ("a>san", "san>b")
    assert resolved.paths.links("c", "b.eth1") is None
    assert resolved.hosts["c"].routes == {}


def test_two_hosts_can_be_linked_without_a_router():
    testbed = {
        "host": {"a": {}, "b": {}},
        "link": {"one": {"between": ["a", "b"], **GIGABIT}, "two": {"between": ["a", "b"], "rate": "1 Gb/s", "delay": "1 ms"}},
    }  # fmt: skip
    resolved = network_of(testbed)
    assert list(resolved.network.links) == ["a>b", "b>a", "a>b@two", "b>a@two"]
    # Each link is its own network, so only its peer reaches an address at its end.
    assert resolved.paths.links("a", "b.eth0") == ("a>b",)
    assert resolved.paths.links("b", "a.eth1") == ("b>a@two",)
    assert resolved.paths.rtt_s("a", "b.eth1") == 0.002
    assert resolved.network.routes == {}


def test_hosts_behind_a_gateway_reach_the_outside_and_are_unreachable_from_it():
    testbed = {
        "host": {"w1": {}, "w2": {}, "gw": {"nat": ["campus"]}, "far": {}},
        "router": {"lan": {}, "campus": {}},
        "link": {
            "w1-lan": {"between": ["w1", "lan"], "private": ["w1"], **GIGABIT},
            "w2-lan": {"between": ["w2", "lan"], "private": ["w2"], **GIGABIT},
            "gw-lan": {"between": ["gw", "lan"], "private": ["gw"], **GIGABIT},
            "gw-campus": {"between": ["gw", "campus"], "rate": "100 Mb/s", "delay": "1 ms"},
            "far-campus": {"between": ["far", "campus"], **GIGABIT},
        },
    }
    resolved = network_of(testbed)
    network, paths = resolved.network, resolved.paths
    addresses = {name: interface.address for name, interface in network.interfaces.items()}
    assert addresses == {"w1.eth0": "192.168.0.1", "w2.eth0": "192.168.0.2", "gw.eth0": "192.168.0.3", "gw.eth1": "10.77.0.1",
                         "far.eth0": "10.77.0.2"}  # fmt: skip
    assert resolved.hosts["gw"].nat == ("eth1",)
    assert network.routes["lan"]["far.eth0"] == "lan>gw"
    assert "w1.eth0" not in network.routes["campus"]
    assert paths.links("w1", "far") == ("w1>lan", "lan>gw", "gw>campus", "campus>far")
    assert paths.links("far", "w1") is None
    assert paths.links("w1", "w2") == ("w1>lan", "lan>w2")
    # Replies go to the gateway's address and arrive through it: 2 × (5 + 5 + 1 + 5) ms.
    assert paths.rtt_s("w1", "far") == 0.032
    assert paths.bottleneck_bit_per_s("w1", "far") == 1e8
    # The queue of the outer link is sized for the inner hosts: 100 Mb/s × 32 ms / 8.
    assert network.links["gw>campus"].queue_bytes == 400_000


def test_a_host_linked_directly_to_its_gateway_reaches_the_outside():
    testbed = {
        "host": {"w1": {}, "gw": {"nat": ["campus"]}, "far": {}},
        "router": {"campus": {}},
        "link": {
            "w1-gw": {"between": ["w1", "gw"], "private": ["w1", "gw"], **GIGABIT},
            "gw-campus": {"between": ["gw", "campus"], **GIGABIT},
            "far-campus": {"between": ["far", "campus"], **GIGABIT},
        },
    }
    paths = network_of(testbed).paths
    assert paths.links("w1", "far") == ("w1>gw", "gw>campus", "campus>far")
    assert paths.links("far", "w1") is None


def test_a_private_network_uses_the_nearer_gateway_and_a_nested_one_reaches_the_outside():
    link = {"rate": "1 Gb/s"}
    testbed = {
        "host": {
            "w": {},
            "g1": {"nat": ["core"]},
            "g2": {"nat": ["core"]},
            "inner": {},
            "g3": {"nat": ["lan"]},
            "far": {},
        },
        "router": {"lan": {}, "core": {}, "cell": {}},
        "link": {
            "w": {"between": ["w", "lan"], "private": ["w"], **link},
            "g1-lan": {"between": ["g1", "lan"], "private": ["g1"], "delay": "2 ms", **link},
            "g2-lan": {"between": ["g2", "lan"], "private": ["g2"], "delay": "1 ms", **link},
            "g1-core": {"between": ["g1", "core"], **link},
            "g2-core": {"between": ["g2", "core"], **link},
            "g3-lan": {"between": ["g3", "lan"], "private": ["g3"], **link},
            "g3-cell": {"between": ["g3", "cell"], "private": ["g3"], **link},
            "inner": {"between": ["inner", "cell"], "private": ["inner"], **link},
            "far": {"between": ["far", "core"], **link},
        },
    }
    paths = network_of(testbed).paths
    assert paths.links("w", "far") == ("w>lan", "lan>g2", "g2>core", "core>far")
    assert paths.links("inner", "far") == (
        "inner>cell", "cell>g3", "g3>lan", "lan>g2", "g2>core", "core>far",
    )  # fmt: skip
    assert paths.links("inner", "w") == ("inner>cell", "cell>g3", "g3>lan", "lan>w")
    assert paths.rtt_s("inner", "far") == 0.002


def test_tcp_profiles_set_host_sysctls_independently_of_congestion_control():
    testbed = star("a", "b", "c")
    testbed["host"] = {"a": {}, "b": {"tcp": "wan", "congestion_control": "reno"}, "c": {"tcp": "mine"}}
    testbed["tcp"] = {"mine": {"net.ipv4.tcp_sack": 0, "net": {"ipv4": {"tcp_wmem": "4096  16384 65536"}}}}
    hosts = network_of(testbed).hosts
    assert [hosts[name].congestion_control for name in "abc"] == ["cubic", "reno", "cubic"]
    assert hosts["a"].sysctls == PROFILES["default"]
    assert hosts["b"].sysctls["net.ipv4.tcp_rmem"] == "4096 87380 33554432"
    assert hosts["c"].sysctls == {"net.ipv4.tcp_sack": "0", "net.ipv4.tcp_wmem": "4096 16384 65536"}


def test_every_built_in_profile_has_valid_host_settings():
    assert [problem_of_setting(name) for settings in PROFILES.values() for name in settings] == [None] * 5
