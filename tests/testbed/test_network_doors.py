"""Services of a scenario in a plan: addresses, ports, doors, what starts before what; and which backend a plan is for."""

from __future__ import annotations

import json

import pytest

from venturi import scenario
from venturi.plan import plan_lines, read_header
from venturi.scenario import scenario_from
from venturi.testbed.plan import SMALLEST_DISK_BYTES, resolve_testbed, why_not_in_lab, why_not_on_hosts
from venturi.workload import expand

LINK = {"rate": "1 Gb/s", "delay": "1 ms"}


def parts_of(testbed, scale=1.0):
    problems = []
    parts = resolve_testbed(scenario.Testbed.model_validate(testbed), scale, problems)
    assert problems == []
    return parts


def pair(**more):
    """Return a testbed of two hosts at one router, a with two interfaces, and one storage each."""
    return {
        "host": {"a": {}, "b": {}},
        "router": {"r": {}},
        "link": {
            "a0": {"between": ["a", "r"], **LINK}, "a1": {"between": ["a", "r"], **LINK}, "b0": {"between": ["b", "r"], **LINK},
        },
        "storage": {"here": {"host": "a", "path": "data"}, "there": {"host": "b", "path": "data"}},
        **more,
    }  # fmt: skip


def test_a_service_is_on_the_first_interface_of_its_host_unless_it_says_which():
    services = {
        "one": {"kind": "gridftp", "host": "a", "storage": ["here"]},
        "two": {"kind": "gridftp", "host": "a", "interface": "eth1", "options": {"auth": "gsi", "block": "1 MiB"}},
    }
    found = parts_of(pair(service=services)).services
    assert (found["one"].interface, found["one"].places) == ("a.eth0", ("here",))
    assert found["one"].doors == {"ftp": "ftp://a.lab.test:{port}{path}"}
    assert found["two"].interface == "a.eth1"
    assert found["two"].doors == {"gsiftp": "gsiftp://a-eth1.lab.test:{port}{path}"}
    assert found["two"].options["block_bytes"] == 1 << 20
    assert found["two"].options["data_nodes"] is None


def test_services_of_one_kind_on_one_host_have_ports_of_their_own():
    kind = {"kind": "gridftp"}
    services = {
        "one": {**kind, "host": "a", "ports": 2}, "two": {**kind, "host": "a"}, "far": {**kind, "host": "b"},
        "own": {**kind, "host": "a", "ports": [2812, 5000]},
        "many": {**kind, "host": "b", "ports": 20},
    }  # fmt: skip
    found = {name: service.ports for name, service in parts_of(pair(service=services)).services.items()}
    assert found["own"] == (2812, 5000)
    assert found["one"] == (2811, 2813)
    assert found["two"] == (2814,)
    assert found["far"] == (2811,)
    assert found["many"] == tuple(range(2812, 2832))


def test_a_host_without_links_serves_itself_on_its_loopback_device():
    testbed = {
        "host": {"node": {}},
        "storage": {"gpfs": {"host": "node", "path": "gpfs"}},
        "service": {"ftp": {"kind": "gridftp", "host": "node", "storage": ["gpfs"]}},
    }
    parts = parts_of(testbed)
    assert parts.services["ftp"].interface is None
    assert parts.services["ftp"].doors == {"ftp": "ftp://node.lab.test:{port}{path}"}
    assert (parts.network.interfaces, parts.network.links) == ({}, {})
    assert parts.hosts["node"].lab.default_device is None


def test_what_a_service_refers_to_starts_before_it():
    nodes = {f"node{i}": {"kind": "gridftp-node", "host": "b"} for i in (1, 2)}
    front = {"kind": "gridftp", "host": "a", "options": {"data_nodes": "node1,node2"}, "after": ["kdc", "node2"]}
    services = {"front": front, **nodes, "kdc": {"kind": "kdc", "host": "b"}}
    assert parts_of(pair(service=services)).services["front"].after == ("node1", "node2", "kdc")


def test_what_serves_a_mounted_file_system_starts_after_the_mount():
    services = {
        "ftp": {"kind": "gridftp", "host": "a", "storage": ["here"]},
        "master": {"kind": "moosefs-master", "host": "b"},
        "chunks": {"kind": "moosefs-chunkserver", "host": "b", "storage": ["there"], "options": {"master": "master"}},
        "mount": {"kind": "moosefs-mount", "host": "a", "storage": ["here"], "options": {"master": "master"}},
    }
    found = parts_of(pair(service=services)).services
    assert found["ftp"].after == ("mount",)
    assert found["chunks"].after == ("master",)


def test_a_shared_storage_is_served_by_each_of_its_hosts():
    testbed = pair(service={"ftp": {"kind": "gridftp", "host": "b", "storage": ["here"]}})
    testbed["storage"]["here"]["shared"] = ["b"]
    assert parts_of(testbed).services["ftp"].places == ("here",)


def test_a_disk_shrinks_with_the_scale_but_not_to_nothing():
    disk = {"host": "a", "path": "d", "kind": "disk", "size": "4 GB", "read_rate": "500 MB/s", "write_rate": "1 Gb/s"}
    sizes = {
        scale: parts_of(pair(storage={"disk": disk}), scale).places["disk"].storage for scale in (1.0, 0.1, 0.001)
    }
    assert (sizes[1.0].kind, sizes[1.0].size_bytes) == ("disk", 4 * 10**9)
    assert (sizes[0.1].size_bytes, sizes[0.1].read_bytes_per_s, sizes[0.1].write_bytes_per_s) == (
        4 * 10**8,
        5e7,
        1.25e7,
    )
    assert sizes[0.001].size_bytes == SMALLEST_DISK_BYTES


WORKLOAD = {"kind": "sweep", "mover": "read", "source": "here", "factors": {"size": ["1 kB"]}}
BARE = {"host": {"a": {}}, "storage": {"here": {"host": "a", "path": "d"}}}


def header_of(testbed):
    return expand(scenario_from({"venturi": 1, "name": "x", "testbed": testbed, "workload": WORKLOAD})).header


def test_a_testbed_of_hosts_that_exist_has_no_network_and_can_be_made_too():
    header = header_of(BARE)
    assert header.network is None
    assert header.hosts["a"].lab is None
    assert why_not_on_hosts(header) is None
    assert why_not_in_lab(header) is None


@pytest.mark.parametrize(
    ("testbed", "what"),
    [
        (pair(), "links"),
        ({**BARE, "service": {"ftp": {"kind": "gridftp", "host": "a"}}}, "services"),
        (pair(service={"ftp": {"kind": "gridftp", "host": "a"}}), "links and services"),
        ({**BARE, "storage": {"here": {"host": "a", "path": "d", "kind": "tmpfs", "size": "1 MB"}}}, "file systems of their own"),
        ({**BARE, "host": {"a": {"cpu_limit": 1.5}}}, "limits of hosts"),
        ({**BARE, "host": {"a": {"tcp": "wan"}}}, "limits of hosts"),
    ],
)  # fmt: skip
def test_a_testbed_that_is_made_is_for_the_lab_alone(testbed, what):
    header = header_of(testbed)
    assert header.network is not None
    assert all(host.lab is not None for host in header.hosts.values())
    assert why_not_in_lab(header) is None
    assert why_not_on_hosts(header) == (
        f"expected a plan for hosts that exist, found one with {what}, which only the lab makes; use --on lab"
    )


def test_a_host_reached_by_ssh_is_not_made():
    header = header_of({**BARE, "host": {"a": {"ssh": "user@a"}}})
    assert "found a, which is reached by ssh; use --on hosts" in why_not_in_lab(header)


def test_the_header_of_a_made_testbed_is_read_back_equal(tmp_path):
    testbed = pair(
        service={"ftp": {"kind": "gridftp", "host": "a", "storage": ["here"]}},
        change=[
            {"at": "1 s", "link": "a0", "loss": {"enter": 0.1, "leave": 0.2}},
            {"at": "2 s", "link": "a0", "loss": 0},
        ],
    )
    document = {"venturi": 1, "name": "x", "testbed": testbed, "workload": WORKLOAD}
    plan = expand(scenario_from(document))
    path = tmp_path / "plan.jsonl"
    path.write_text("\n".join(plan_lines(plan)) + "\n", encoding="utf-8")
    again = read_header(path)
    assert (again.hosts, again.places, again.services, again.network) == (
        plan.header.hosts, plan.header.places, plan.header.services, plan.header.network,
    )  # fmt: skip
    resolved = scenario_from(json.loads(json.dumps(again.scenario)))
    assert list(plan_lines(expand(resolved))) == list(plan_lines(plan))
