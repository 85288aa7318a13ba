"""Routes of testbeds: every public interface reaches every other by the shortest route, without loops."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from venturi import scenario
from venturi.errors import PlanError
from venturi.plan import Interface, Network, PlanLink
from venturi.scenario import load_scenario, scenario_from
from venturi.testbed.network import resolve_network
from venturi.testbed.paths import NetworkPaths, bottleneck_bit_per_s, path_links, path_rtt_s
from venturi.workload import expand

SCENARIOS = Path(__file__).parents[1] / "data" / "scenarios"


def network_of(document, scale=1.0):
    """Return the resolved network of a valid testbed."""
    problems = []
    resolved = resolve_network(scenario.TestbedTable.model_validate(document), scale, problems)
    assert problems == []
    return resolved


@st.composite
def drawn_testbed(draw, symmetric=True, interfaces=3):
    """Draw routers in a tree with additional links, hosts with several interfaces at any router, and delays with many ties."""
    delays = st.sampled_from(["0 s", "1 ms", "2 ms", "0.1 ms", "33.333 us"])
    routers = [f"r{i}" for i in range(draw(st.integers(1, 6)))]
    ends = [(routers[i], routers[draw(st.integers(0, i - 1))]) for i in range(1, len(routers))]
    more = st.tuples(st.sampled_from(routers), st.sampled_from(routers)).filter(lambda pair: pair[0] != pair[1])
    if len(routers) > 1:
        ends += draw(st.lists(more, max_size=5))
    hosts = [f"h{i}" for i in range(draw(st.integers(2, 6)))]
    for host in hosts:
        ends += [(host, draw(st.sampled_from(routers))) for _ in range(draw(st.integers(1, interfaces)))]
    links = {}
    for index, pair in enumerate(draw(st.permutations(ends))):
        delay = draw(delays) if symmetric else [draw(delays), draw(delays)]
        links[f"l{index}"] = {"between": pair, "rate": "1 Gb/s", "delay": delay}
    return {"host": {host: {} for host in hosts}, "router": {router: {} for router in routers}, "link": links}


def min_duration_s(network, origin, to):
    """Return the smallest delay between two interfaces, by relaxing all links as often as there are nodes."""
    best = {origin: 0.0}
    inner = {*network.routers, origin}
    for _ in range(len(network.routers) + 2):
        for link in network.links.values():
            if link.origin in best and link.origin in inner:
                best[link.to] = min(best.get(link.to, math.inf), best[link.origin] + link.delay_s)
    return best[to]


@given(drawn_testbed(symmetric=False))
@settings(max_examples=60, deadline=None)
def test_every_public_interface_reaches_every_other_by_the_shortest_route(testbed):
    resolved = network_of(testbed)
    network = resolved.network
    for origin, to in itertools.permutations(network.interfaces, 2):
        if network.interfaces[origin].host == network.interfaces[to].host:
            continue
        links = [network.links[name] for name in resolved.paths.links(origin, to)]
        assert links[0].origin == origin
        assert links[-1].to == to
        assert all(one.to == next_.origin for one, next_ in itertools.pairwise(links))
        assert len({link.origin for link in links}) == len(links)
        assert sum(link.delay_s for link in links) == pytest.approx(min_duration_s(network, origin, to), abs=1e-12)


@given(drawn_testbed(interfaces=1))
@settings(max_examples=60, deadline=None)
def test_symmetric_links_have_equal_round_trip_times_in_both_directions(testbed):
    paths = network_of(testbed).paths
    for one, other in itertools.combinations(testbed["host"], 2):
        assert paths.rtt_s(one, other) == paths.rtt_s(other, one)


@given(drawn_testbed(symmetric=False))
@settings(max_examples=60, deadline=None)
def test_a_host_uses_the_device_with_the_least_delay(testbed):
    resolved = network_of(testbed)
    for host, (to, end) in itertools.product(testbed["host"], resolved.network.interfaces.items()):
        if end.host != host:
            own = [name for name, interface in resolved.network.interfaces.items() if interface.host == host]
            delays = {name: min_duration_s(resolved.network, name, to) for name in own}
            used = resolved.network.links[resolved.paths.links(host, to)[0]].origin
            assert delays[used] == pytest.approx(min(delays.values()), abs=1e-12)


@given(drawn_testbed(), st.randoms())
@settings(max_examples=30, deadline=None)
def test_equal_testbeds_resolve_to_equal_networks(testbed, random):
    assert network_of(testbed).network == network_of(testbed).network
    links = list(testbed["link"].items())
    random.shuffle(links)
    routes = network_of(testbed | {"link": dict(links)})
    assert len(routes.network.links) == 2 * len(links)


def test_routes_of_equal_delay_are_chosen_by_hop_count_and_then_by_name():
    link = {"rate": "1 Gb/s", "delay": "1 ms"}
    free = {"rate": "1 Gb/s", "delay": "0 s"}
    testbed = {
        "host": {"a": {}, "b": {}},
        "router": {name: {} for name in ("r1", "r2", "x", "y", "z")},
        "link": {
            "l1": {"between": ["a", "r1"], **link}, "l2": {"between": ["b", "r2"], **link},
            "y1": {"between": ["r1", "y"], **free}, "y2": {"between": ["y", "r2"], **free},
            "x1": {"between": ["r1", "x"], **free}, "x2": {"between": ["x", "r2"], **free},
            "z1": {"between": ["y", "z"], **free}, "z2": {"between": ["z", "r2"], **free},
        },
    }  # fmt: skip
    assert network_of(testbed).paths.links("a", "b") == ("a>r1", "r1>x", "x>r2", "r2>b")


def test_the_testbed_of_report_004_has_the_published_hosts_sites_rates_and_rtts():
    # Report 004: table 1 (10 sites, 26 machines, access rates), table 5 (round-trip times from CNAF).
    header = expand(load_scenario(SCENARIOS / "alice-sites.toml")).header
    assert len(header.hosts) == 26
    assert len({host.lab.site for host in header.hosts.values()}) == 10
    cnaf = "dell26"
    assert [path_rtt_s(header, cnaf, host) for host in ("aliserv10", "psycho", "goliath")] == [0.025, 0.14, 0.02]
    rates = [
        bottleneck_bit_per_s(header, cnaf, host) for host in ("aliserv10", "antani", "goliath", "alifarm", "ccms")
    ]
    assert rates == [34e6, 8e6, 1e9, 16e6, 28e6]
    assert bottleneck_bit_per_s(header, "ccms", cnaf) == 16e6
    for one, other in itertools.permutations(header.hosts, 2):
        assert path_links(header, one, other)
    assert path_links(header, cnaf, cnaf) == ()
    assert bottleneck_bit_per_s(header, cnaf, cnaf) is None


def test_a_routing_loop_or_a_missing_route_gives_no_path():
    ends = {f"{host}.eth0": Interface(host, "eth0", f"10.77.0.{i}") for i, host in enumerate("ab", 1)}
    directed_links = [
        ("a.eth0", "r1"),
        ("r1", "a.eth0"),
        ("b.eth0", "r2"),
        ("r2", "b.eth0"),
        ("r1", "r2"),
        ("r2", "r1"),
    ]
    links = {f"{start}>{end}": PlanLink(start, end, 1e9, 0.001, 10**5) for start, end in directed_links}
    routes = {"r1": {"b.eth0": "r1>r2"}, "r2": {"b.eth0": "r2>r1"}}
    assert NetworkPaths(Network(ends, links, ("r1", "r2"), routes), {}).links("a", "b") is None
    assert NetworkPaths(Network(ends, links, ("r1", "r2"), {"r1": {}}), {}).links("a", "b") is None
    good = {"r1": {"*": "r1>r2"}, "r2": {"b.eth0": "r2>b.eth0"}}
    assert NetworkPaths(Network(ends, links, ("r1", "r2"), good), {}).links("a", "b") == (
        "a.eth0>r1",
        "r1>r2",
        "r2>b.eth0",
    )


def test_a_plan_without_a_network_rejects_path_queries():
    document = {"venturi": 1, "name": "x", "testbed": {"host": {"a": {}}, "storage": {"d": {"host": "a", "path": "d"}}},
                "workload": {"kind": "sweep", "mover": "read", "source": "d", "factors": {"size": ["1 kB"]}}}  # fmt: skip
    with pytest.raises(PlanError, match="expected a plan with a network"):
        path_rtt_s(expand(scenario_from(document)).header, "a", "a")


@given(drawn_testbed(symmetric=False))
@settings(max_examples=60, deadline=None)
def test_a_queue_of_1_bdp_is_sized_for_the_longest_path_through_its_link(testbed):
    for link in testbed["link"].values():
        link["queue"] = "1 BDP"
    resolved = network_of(testbed)
    longest = dict.fromkeys(resolved.network.links, 0.0)
    for origin, to in itertools.permutations(resolved.network.interfaces, 2):
        rtt_s = resolved.paths.rtt_s(origin, to)
        for name in resolved.paths.links(origin, to):
            longest[name] = max(longest[name], rtt_s)
    for name, link in resolved.network.links.items():
        assert link.queue_bytes == max(1500, round(1e9 / 8 * longest[name]))
