"""Sweeps over a network: host of the mover, service ports, both directions at the same time, several files per call."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from venturi.errors import ScenarioError
from venturi.plan import DropCaches, Parallel, Pause, Prepare, Trial, plan_lines
from venturi.scenario import scenario_from
from venturi.workload import expand

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "reference" / "plan.schema.json").read_text())
LINK = {"rate": "1 Gb/s", "delay": "5 ms"}
TESTBED = {
    "host": {"a": {}, "b": {}, "c": {}},
    "router": {"r": {}},
    "link": {f"{h}-r": {"between": [h, "r"], **LINK} for h in "abc"},
    "storage": {
        "here": {"host": "a", "path": "here"}, "there": {"host": "b", "path": "there"}, "san": {"host": "a", "path": "san", "shared": ["b"]},
    },
    "service": {
        "ftp-a": {"kind": "gridftp", "host": "a", "storage": ["here", "san"]},
        "gsi-b": {"kind": "gridftp", "host": "b", "storage": ["there", "san"], "options": {"auth": "gsi"}},
        "iperf-b": {"kind": "iperf3", "host": "b"},
    },
}  # fmt: skip


def sweep(factors=None, *, testbed=None, top=None, **workload):
    """Return a sweep, by default with globus-url-copy from a to b."""
    factors = {"size": ["1 kB"], **(factors or {})}
    ends = {"mover": "globus-url-copy", "source": "here", "destination": "there"}
    ends = {key: value for key, value in ends.items() if key not in factors} | workload
    given = {key: value for key, value in ends.items() if value is not None}
    return scenario_from({"venturi": 1, "name": "s", **(top or {}), "testbed": {**TESTBED, **(testbed or {})},
                          "workload": {"kind": "sweep", **given, "factors": factors}})  # fmt: skip


def trials_of(scenario):
    return [(line.host, step) for line in expand(scenario).lines for step in line.steps if isinstance(step, Trial)]


def transfers_of(trial):
    (parallel,) = [step for step in trial.steps if isinstance(step, Parallel)]
    return [step for child in parallel.children for step in child]


def ends_of(scenario):
    """Return host, source_via and destination_via of the first transfer."""
    host, trial = trials_of(scenario)[0]
    first = transfers_of(trial)[0]
    return host, first.source_via, first.destination_via


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        # The client is at the source. It reaches the other end through the only service that serves it.
        ({}, ("a", None, "gsi-b/gsiftp")),
        ({"source_service": "ftp-a"}, ("b", "ftp-a/ftp", None)),
        ({"destination_service": "gsi-b"}, ("a", None, "gsi-b/gsiftp")),
        ({"source_service": "ftp-a", "destination_service": "gsi-b"}, ("a", "ftp-a/ftp", "gsi-b/gsiftp")),
        ({"client": "b"}, ("b", "ftp-a/ftp", None)),
        ({"client": "c"}, ("c", "ftp-a/ftp", "gsi-b/gsiftp")),
        ({"client": "a", "source_service": "ftp-a"}, ("a", "ftp-a/ftp", "gsi-b/gsiftp")),
        ({"source": "there", "destination": "here"}, ("b", None, "ftp-a/ftp")),
        ({"destination": "null", "client": "b"}, ("b", "ftp-a/ftp", None)),
        ({"destination": "null", "source_service": "ftp-a", "destination_service": "gsi-b"}, ("a", "ftp-a/ftp", "gsi-b/gsiftp")),
        # Both hosts have the storage.
        ({"source": "san"}, ("b", None, None)),
        ({"source": "san", "destination": "san", "client": "b"}, ("b", None, None)),
        ({"source": "san", "destination": "san", "source_service": "ftp-a", "destination_service": "gsi-b"},
         ("a", "ftp-a/ftp", "gsi-b/gsiftp")),
        ({"mover": "iperf3", "source": None, "destination": None, "client": "a"}, ("a", None, "iperf-b/iperf3")),
        ({"mover": "iperf3", "source": None, "destination": None, "client": "a", "source_service": "iperf-b"},
         ("a", "iperf-b/iperf3", None)),
    ],
)  # fmt: skip
def test_each_endpoint_is_a_local_file_or_behind_a_service_port(workload, expected):
    assert ends_of(sweep(**workload)) == expected


def test_the_destination_host_downloads_if_only_the_source_has_a_service():
    scenario = sweep(testbed={"service": {"ftp-a": {"kind": "gridftp", "host": "a", "storage": ["here"]}}})
    assert ends_of(scenario) == ("b", "ftp-a/ftp", None)


def test_a_memory_to_memory_transfer_uses_devices_behind_service_ports():
    scenario = sweep(source="zero", destination="null", source_service="ftp-a", destination_service="gsi-b", client="c",
                     options={"length": True})  # fmt: skip
    host, trial = trials_of(scenario)[0]
    (moved,) = transfers_of(trial)
    assert (host, moved.source, moved.destination) == ("c", "zero:", "null:")
    assert (moved.source_via, moved.destination_via) == ("ftp-a/ftp", "gsi-b/gsiftp")
    plan = expand(scenario)
    assert plan.header.datasets == {}
    assert plan.header.calls[moved.call].expect == "nothing"


@pytest.mark.parametrize(
    ("workload", "rests"),
    [({"mover": "iperf3", "source": None, "destination": None, "client": "a"}, [0.5]), ({}, [])],
)
def test_only_single_client_servers_get_a_pause_between_trials(workload, rests):
    for _, trial in trials_of(sweep(**workload)):
        assert [step.duration_s for step in trial.steps if isinstance(step, Pause)] == rests


def test_a_mover_uses_its_first_protocol_that_the_service_offers():
    services = {
        "web-b": {"kind": "xrootd", "host": "b", "storage": ["there"], "options": {"http": True}},
    }
    for mover, service_port in (("xrdcp", "root"), ("curl", "http")):
        assert ends_of(sweep(testbed={"service": services}, mover=mover)) == ("a", None, f"web-b/{service_port}")


def test_two_directions_give_a_forward_and_a_reverse_transfer_in_each_slot():
    scenario = sweep({"files": [2], "direction": ["one way", "two ways"]}, order="given", client="a", cache="cold")
    one, two = (trial for _, trial in trials_of(scenario))
    assert [dict(moved.labels) for moved in transfers_of(one)] == [{}, {}]
    found = [
        (m.slot, m.labels["direction"], m.source, m.source_via, m.destination, m.destination_via)
        for m in transfers_of(two)
    ]
    assert found == [
        (0, "forward", "here:sets/seed1/1kB/000000", None, "there:out/t0000001-000000", "gsi-b/gsiftp"),
        (0, "reverse", "there:sets/seed1/1kB/000000", "gsi-b/gsiftp", "here:out/t0000001-000000-back", None),
        (1, "forward", "here:sets/seed1/1kB/000001", None, "there:out/t0000001-000001", "gsi-b/gsiftp"),
        (1, "reverse", "there:sets/seed1/1kB/000001", "gsi-b/gsiftp", "here:out/t0000001-000001-back", None),
    ]
    assert two.steps[:-1] == (
        Prepare("here-1kB", 0, 2, "as_is"), Prepare("there-1kB", 0, 2, "as_is"),
        DropCaches("here-1kB", 0, 2), DropCaches("there-1kB", 0, 2),
    )  # fmt: skip
    header = expand(scenario).header
    assert (header.totals.transfers, header.totals.bytes) == (6, 6000)
    assert header.totals.disk_bytes == {"here": 4000, "there": 4000}


def test_two_directions_on_one_shared_storage_use_different_files():
    scenario = sweep(
        {"files": [3]}, source="san", destination="san", source_service="ftp-a", destination_service="gsi-b",
        direction="two ways",
    )  # fmt: skip
    _, trial = trials_of(scenario)[0]
    moved = transfers_of(trial)
    assert trial.steps[0] == Prepare("san-1kB", 0, 6, "as_is")
    assert len({m.source for m in moved}) == len({m.destination for m in moved}) == 6
    assert [(m.source_via, m.destination_via) for m in moved[:2]] == [
        ("ftp-a/ftp", "gsi-b/gsiftp"), ("gsi-b/gsiftp", "ftp-a/ftp"),
    ]  # fmt: skip


def test_one_call_can_move_many_files():
    scenario = sweep({"files": [2], "files_per_call": [1, 10]}, order="given", repeat=2)
    one, ten = [trial for _, trial in trials_of(scenario)][:2]
    assert [(m.files, m.bytes, m.source[-6:]) for m in transfers_of(one)] == [
        (1, 1000, "000000"),
        (1, 1000, "000001"),
    ]
    # Ranges wrap in a dataset of twenty files, and no range is split.
    assert [(m.files, m.bytes, m.source[-6:]) for m in transfers_of(ten)] == [
        (10, 10000, "000000"),
        (10, 10000, "000010"),
    ]
    assert ten.steps[0] == Prepare("here-1kB", 0, 20, "as_is")
    assert ten.factors == {"files": 2, "size_bytes": 1000, "files_per_call": 10}
    header = expand(scenario).header
    assert header.datasets["here-1kB"].files == 20
    assert header.totals.bytes == 2 * (2 * 1000 + 2 * 10000)
    assert header.totals.disk_bytes == {"here": 20_000, "there": 20_000}


def test_clients_and_services_can_be_factors_and_hosts_take_turns():
    factors = {"client": ["a", "c"], "source_service": ["ftp-a"]}
    plan = expand(sweep(factors, order="given", repeat=2))
    assert [line.host for line in plan.lines] == ["a", "c", "a", "c"]
    found = {trial.factors["client"]: transfers_of(trial)[0].source_via for _, trial in trials_of(sweep(factors))}
    assert found == {"a": "ftp-a/ftp", "c": "ftp-a/ftp"}


def test_a_client_behind_a_gateway_can_open_connections_but_not_accept_them():
    testbed = {
        "host": {"w": {}, "gw": {"nat": ["r"]}, "a": {}, "v": {}},
        "router": {"r": {}, "lan": {}},
        "link": {
            "w": {"between": ["w", "lan"], "private": ["w"], **LINK}, "in": {"between": ["gw", "lan"], "private": ["gw"], **LINK},
            "out": {"between": ["gw", "r"], **LINK}, "a": {"between": ["a", "r"], **LINK},
            "v": {"between": ["v", "v-net"], "private": ["v"], **LINK},
        },
        "storage": {"far": {"host": "a", "path": "x"}, "near": {"host": "w", "path": "x"}},
        "service": {"ftp": {"kind": "gridftp", "host": "a", "storage": ["far"]}, "in": {"kind": "gridftp", "host": "w", "storage": ["near"]}},
    }  # fmt: skip
    testbed["router"]["v-net"] = {}
    assert ends_of(sweep(testbed=testbed, source="far", destination="near", client="w")) == ("w", "ftp/ftp", None)
    with pytest.raises(ScenarioError) as caught:
        sweep(testbed=testbed, source="far", destination="near", client="a")
    assert str(caught.value).startswith(
        "scenario: workload.client: expected a route from a to w for globus-url-copy on a, found none (w.eth0 has a private"
        " address, and only w can open connections)"
    )
    with pytest.raises(ScenarioError) as caught:
        sweep(testbed=testbed, source="far", destination="null", client="v")
    assert str(caught.value).startswith(
        "scenario: workload.client: expected a route from v to a for globus-url-copy on v, found none (v has only private"
        " addresses and needs a host with nat)"
    )


def test_options_that_a_tool_cannot_express_are_reported_with_their_location():
    with pytest.raises(ScenarioError, match=r"workload\.options: globus-url-copy: expected restarts with"):
        sweep(options={"restart_interval": "1 s"})


OURS = {
    "a": {"kind": "venturi-serve", "host": "a", "storage": ["here"]},
    "b": {"kind": "venturi-serve", "host": "b", "storage": ["there"]},
}
WEB = {name: {**service, "options": {"http": True}} for name, service in OURS.items()}


@pytest.mark.parametrize(
    ("service", "options", "workload", "problem"),
    [
        (OURS, {"pipelining": 4097}, {}, "options.pipelining: expected a whole number, 1 to 4096, found 4097"),
        (OURS, {}, {"factors": {"streams": [1, 257]}}, "factors.streams[1]: expected a whole number, 1 to 256, found 257"),
        (OURS, {"window": "2 GiB"}, {}, 'options.window: expected a size from "4 KiB" to "1 GiB", found "2 GiB"'),
        (OURS, {"pacing": "1 Mb/s"}, {"client": "b"}, "options.pacing: expected an upload, because the sender limits the rate (for downloads: option pacing of "
         "venturi-serve), found ftp to a file"),
        (OURS, {}, {"client": "b", "factors": {"pacing": ["1 Mb/s"]}}, "factors.pacing: expected an upload"),
        (OURS, {}, {"direction": "two ways", "factors": {"pacing": ["1 Mb/s"]}}, "factors.pacing: expected an upload"),
        (OURS, {"method": "kernel"}, {}, "options.method: expected a copy within one host, found a file to ftp"),
        (OURS, {"direct": True}, {}, "options.direct: expected a copy within one host, found a file to ftp"),
        (OURS, {"streams": 4}, {"destination": "san"}, "options.streams: expected a copy from or to a server, found a file to a file"),
        (WEB, {"pipelining": 4}, {}, "options.pipelining: expected a copy from or to an FTP or GridFTP server, found a file to http"),
        (WEB, {"stripe": True}, {}, "options.stripe: expected a copy from or to an FTP or GridFTP server, found a file to http"),
        (OURS | {"b": WEB["b"]}, {}, {"client": "c"}, "destination_service: expected two FTP servers or two HTTP servers, found ftp to http"),
    ],
)  # fmt: skip
def test_invalid_options_of_our_mover_are_reported_by_the_plan(service, options, workload, problem):
    with pytest.raises(ScenarioError) as caught:
        sweep(testbed={"service": service}, mover="venturi", options=options, **workload)
    assert str(caught.value).startswith(f"scenario: workload.{problem}")


def test_valid_options_of_our_mover_are_planned():
    for service, options in (
        (OURS, {"pacing": "1 Mb/s", "pipelining": 4096, "streams": 256}),
        (WEB, {"streams": 4, "method": "auto"}),
    ):
        assert ends_of(sweep(testbed={"service": service}, mover="venturi", options=options))[0] == "a"
    assert ends_of(sweep(mover="venturi", destination="san", options={"method": "kernel", "direct": True}))[0] == "a"


SERVERS = {
    "root": {"kind": "xrootd", "host": "b", "storage": ["there"], "options": {"http": True}},
    "cache": {"kind": "xrootd-cache", "host": "c", "storage": ["there"], "options": {"origin": "root"}},
    "web": {"kind": "nginx", "host": "b", "storage": ["there"]},
    "front": {"kind": "xrootd-redirector", "host": "c", "storage": ["here", "there"], "options": {"shared": True}},
    "speed": {"kind": "iperf3", "host": "b", "ports": 2},
}


@pytest.mark.parametrize(
    ("workload", "problem"),
    [
        ({"mover": "xrdcp", "destination_service": "cache"},
         "destination_service: expected a service that writes there, found cache of kind xrootd-cache: it caches files for readers and accepts no uploads"),
        ({"mover": "xrdcp", "destination_service": "front"},
         "destination_service: expected a service that writes there, found front of kind xrootd-redirector: with shared = true it creates a new file "
         "on any of its storages (here, there), where clients do not find it"),
        ({"mover": "xrdcp", "destination": "null", "destination_service": "root"},
         "destination_service: expected a service that writes /dev/null, found root of kind xrootd: it serves files of its storages, not devices"),
        ({"mover": "curl", "destination": "null", "destination_service": "web"},
         "destination_service: expected a service that writes /dev/null, found web of kind nginx: it serves files of its storages, not devices"),
        ({"mover": "xrdcp", "source": "there", "source_service": "root", "destination": "null", "files_per_call": 3, "client": "a"},
         'destination: expected a storage (xrdcp copies a list to a directory only), found "null"'),
        ({"mover": "iperf3", "source": None, "destination": None, "client": "a", "destination_service": "speed", "factors": {"files": [3]}},
         "factors.files: expected 2 at most (speed: one iperf3 per port), found 3; increase testbed.service.speed.ports"),
    ],
)  # fmt: skip
def test_endpoints_that_a_server_does_not_support_are_rejected(workload, problem):
    with pytest.raises(ScenarioError) as caught:
        sweep(testbed={"service": SERVERS}, **workload)
    assert str(caught.value).startswith(f"scenario: workload.{problem}")


def test_the_only_service_that_accepts_uploads_is_used():
    servers = {name: SERVERS[name] for name in ("root", "cache")}
    assert ends_of(sweep(testbed={"service": servers}, mover="xrdcp")) == ("a", None, "root/root")
    with pytest.raises(ScenarioError, match=r"expected one service with there .* found root and cache; set "):
        sweep(testbed={"service": servers}, mover="xrdcp", source="there", destination="null", client="a")


def test_a_plan_over_a_network_is_reproducible_and_matches_the_schema():
    factors = {"files": [1, 2], "direction": ["one way", "two ways"], "files_per_call": [1, 5], "streams": [1, 4]}
    scenario = sweep(factors, repeat=2, top={"scale": 0.5})
    lines = list(plan_lines(expand(scenario)))
    assert lines == list(plan_lines(expand(scenario_from(json.loads(json.dumps(scenario.document()))))))
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for line in lines:
        validator.validate(json.loads(line))
    header = json.loads(lines[0])
    assert header["network"]["links"]["a>r"]["rate_bit_per_s"] == 5e8
    for key in ("client", "source_service", "destination_service"):
        assert key not in scenario.document()["workload"]


def counters_of(scenario):
    return expand(scenario).header.measure.counters


def test_tcp_is_sampled_by_default_unless_one_host_copies_only_local_files():
    """A connection needs a service, another host, or a tool that Venturi does not know."""
    alone = {
        "host": {"a": {}},
        "storage": {"disk": {"host": "a", "path": "disk"}},
    }
    local = {"kind": "sweep", "mover": "cp", "source": "disk", "destination": "disk", "factors": {"size": ["1 kB"]}}
    copy = {"venturi": 1, "name": "s", "testbed": alone, "workload": local}
    families = ("cpu", "disk", "memory", "nic", "pressure", "process")
    assert counters_of(scenario_from(copy)) == families
    assert counters_of(sweep()) == (*families, "tcp")
    own = {"mover": {"mine": {"argv": ["mine", "{source}", "{destination}"]}}, "workload": {**local, "mover": "mine"}}
    assert counters_of(scenario_from(copy | own)) == (*families, "tcp")


@pytest.mark.parametrize("given", [[], ["nic"], ["tcp", "process"]])
def test_the_plan_has_the_counters_of_the_scenario(given):
    assert counters_of(sweep(top={"measure": {"counters": given}})) == tuple(given)
