"""Services of a scenario in a plan: addresses, ports, service ports, start order, and the backends of a plan."""

from __future__ import annotations

import json

import pytest

from venturi import scenario
from venturi.plan import plan_lines, read_header
from venturi.scenario import scenario_from
from venturi.testbed.plan import (
    SMALLEST_DISK_BYTES,
    backend_obstacle,
    default_backend,
    hosts_obstacle,
    lab_obstacle,
    resolve_testbed,
    sim_obstacle,
)
from venturi.workload import expand

LINK = {"rate": "1 Gb/s", "delay": "1 ms"}


def parts_of(testbed, scale=1.0):
    problems = []
    parts = resolve_testbed(scenario.TestbedTable.model_validate(testbed), scale, problems)
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


def test_a_service_uses_the_first_interface_of_its_host_unless_it_names_another():
    services = {
        "one": {"kind": "gridftp", "host": "a", "storage": ["here"]},
        "two": {"kind": "gridftp", "host": "a", "interface": "eth1", "options": {"auth": "gsi", "block": "1 MiB"}},
    }
    found = parts_of(pair(service=services)).services
    assert (found["one"].interface, found["one"].storages) == ("a.eth0", ("here",))
    assert found["one"].service_ports == {"ftp": "ftp://{host}:{port}{path}"}
    assert found["two"].interface == "a.eth1"
    assert found["two"].service_ports == {"gsiftp": "gsiftp://{host}:{port}{path}"}
    assert found["two"].options["block_bytes"] == 1 << 20
    assert found["two"].options["data_nodes"] is None


def test_services_of_one_kind_on_one_host_have_separate_ports():
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


def test_a_host_without_links_serves_on_its_loopback_device():
    testbed = {
        "host": {"node": {}},
        "storage": {"gpfs": {"host": "node", "path": "gpfs"}},
        "service": {"ftp": {"kind": "gridftp", "host": "node", "storage": ["gpfs"]}},
    }
    parts = parts_of(testbed)
    assert parts.services["ftp"].interface is None
    assert parts.services["ftp"].service_ports == {"ftp": "ftp://{host}:{port}{path}"}
    assert (parts.network.interfaces, parts.network.links) == ({}, {})
    assert parts.hosts["node"].lab.default_device is None


def test_a_service_starts_after_the_services_that_it_refers_to():
    nodes = {f"node{i}": {"kind": "gridftp-node", "host": "b"} for i in (1, 2)}
    front = {"kind": "gridftp", "host": "a", "options": {"data_nodes": "node1,node2"}, "after": ["kdc", "node2"]}
    services = {"front": front, **nodes, "kdc": {"kind": "kdc", "host": "b"}}
    assert parts_of(pair(service=services)).services["front"].after == ("node1", "node2", "kdc")


def test_a_server_of_a_mounted_file_system_starts_after_the_mount():
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
    assert parts_of(testbed).services["ftp"].storages == ("here",)


def test_the_scale_reduces_disk_size_down_to_a_minimum():
    disk = {"host": "a", "path": "d", "kind": "disk", "size": "4 GB", "read_rate": "500 MB/s", "write_rate": "1 Gb/s"}
    sizes = {
        scale: parts_of(pair(storage={"disk": disk}), scale).storages["disk"].spec for scale in (1.0, 0.1, 0.001)
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


SERVICE = {"ftp": {"kind": "gridftp", "host": "a", "storage": ["here"]}}
KDC = {"kdc": {"kind": "kdc", "host": "a"}}


@pytest.mark.parametrize(
    ("testbed", "default"),
    [
        (BARE, "hosts"),
        (pair(), "lab"),
        ({**BARE, "service": SERVICE}, "hosts"),
        ({**BARE, "service": KDC}, "lab"),
        (pair(service=SERVICE), "lab"),
        ({**BARE, "storage": {"here": {"host": "a", "path": "d", "kind": "tmpfs", "size": "1 MB"}}}, "lab"),
        ({**BARE, "host": {"a": {"cpu_limit": 1.5}}}, "lab"),
        ({**BARE, "host": {"a": {"tcp": "wan"}}}, "lab"),
        ({**BARE, "host": {"a": {"ssh": "user@a"}}}, "hosts"),
        ({**BARE, "host": {"a": {"ssh": "user@a", "cpu_limit": 1.5}}, "service": SERVICE}, "hosts"),
        ({**pair(service=SERVICE), "host": {"a": {"connect": ["podman", "exec", "-i", "dtn"]}, "b": {}}}, "hosts"),
    ],
)  # fmt: skip
def test_the_testbed_determines_the_default_backend(testbed, default):
    scenario = scenario_from({"venturi": 1, "name": "x", "testbed": testbed, "workload": WORKLOAD})
    header = expand(scenario).header
    assert default_backend(scenario.testbed, header) == default
    assert backend_obstacle(header, default) is None
    # Links and limits are expectations of existing hosts; the lab ignores ssh and connect.
    assert (hosts_obstacle(header) is None) == ("kdc" not in header.services)
    assert lab_obstacle(header) is None
    assert sim_obstacle(header) is None
    described = testbed != BARE and testbed["host"] != {"a": {"ssh": "user@a"}}
    assert (header.network is not None) == described
    assert all((host.lab is not None) == described for host in header.hosts.values())


@pytest.mark.parametrize(
    ("service", "reason"),
    [
        ({"kind": "kdc"}, "testbed.service.s: kdc runs only in a lab"),
        ({"kind": "srm", "options": {"doors": "g"}, "storage": ["here"]}, "testbed.service.s: srm runs only in a lab"),
        ({"kind": "moosefs-master"}, "testbed.service.s: "),
        ({"kind": "gridftp", "storage": ["here"], "options": {"trace": "packets"}}, 'trace = "packets" works only in a lab'),
    ],
)  # fmt: skip
def test_the_hosts_backend_rejects_lab_services_with_the_reason(service, reason):
    gridftp = {"g": {"kind": "gridftp", "host": "a", "storage": ["here"], "options": {"auth": "gsi"}}}
    services = {"s": {"host": "a", **service}, **(gridftp if service["kind"] == "srm" else {})}
    obstacle = hosts_obstacle(header_of({**BARE, "service": services}))
    assert reason in obstacle
    assert "use --on lab" in obstacle


def test_the_lab_and_the_simulation_require_links_between_hosts_with_services():
    hosts = {"a": {"ssh": "user@a"}, "b": {"ssh": "user@b"}}
    header = header_of({"host": hosts, "storage": BARE["storage"], "service": SERVICE})
    assert hosts_obstacle(header) is None
    assert "expected links between the hosts (they are the network of the lab), found none" in lab_obstacle(header)
    assert "they are the network of the simulation" in sim_obstacle(header)


def test_the_lab_and_the_simulation_reject_existing_servers():
    service = {"perf": {"kind": "iperf3", "url": "tcp://perf.example.org:5201"}}
    header = header_of(pair(service=service))
    assert hosts_obstacle(header) is None
    for obstacle in (lab_obstacle(header), sim_obstacle(header)):
        assert "found perf, an existing server; use --on hosts" in obstacle


def test_the_lab_requires_valid_host_names():
    header = header_of({**BARE, "host": {"Node_1": {}}, "storage": {"here": {"host": "Node_1", "path": "d"}}})
    assert hosts_obstacle(header) is None
    assert "testbed.host.Node_1: expected a name of small letters" in lab_obstacle(header)


@pytest.mark.parametrize(
    ("kind", "url", "storages", "expected"),
    [
        ("iperf3", "tcp://perf.example.org:5201", [], {"iperf3": "tcp://perf.example.org:5201"}),
        ("squid", "http://proxy.example.org:3128", [], {"http-proxy": "http://proxy.example.org:3128"}),
        ("gridftp", "ftp://[2001:db8::1]:2811", ["here"], {"ftp": "ftp://[2001:db8::1]:2811{path}"}),
        ("gridftp", "gsiftp://g.example.org/data/", ["here"], {"gsiftp": "gsiftp://g.example.org/data/{relative}"}),
        ("gridftp", "ftp://g.example.org/", ["here"], {"ftp": "ftp://g.example.org/{relative}"}),
        ("nginx", "https://w.example.org/x", ["here"], {"https": "https://w.example.org/x/{relative}"}),
        ("xrootd", "root://x.example.org", ["here"], {"root": "root://x.example.org/{path}"}),
        ("xrootd", "root://x.example.org//eos/y", ["here"], {"root": "root://x.example.org//eos/y/{relative}"}),
        ("sshd", "ssh://alice@b.example.org:2222", ["here"], {"ssh": "ssh://alice@b.example.org:2222{path}"}),
    ],
)  # fmt: skip
def test_an_existing_server_has_a_service_port_with_its_url(kind, url, storages, expected):
    service = parts_of({**BARE, "service": {"s": {"kind": kind, "url": url, "storage": storages}}}).services["s"]
    assert (service.host, service.interface, service.service_ports) == (None, None, expected)


def test_the_plan_header_of_a_lab_testbed_survives_writing_and_reading(tmp_path):
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
    assert (again.hosts, again.storages, again.services, again.network) == (
        plan.header.hosts, plan.header.storages, plan.header.services, plan.header.network,
    )  # fmt: skip
    resolved = scenario_from(json.loads(json.dumps(again.scenario)))
    assert list(plan_lines(expand(resolved))) == list(plan_lines(plan))
