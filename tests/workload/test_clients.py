"""Closed-loop clients: clients and servers of fetches, their number, and rejected scenarios."""

import tomllib
from collections import Counter

import pytest
from problemkit import reports

from venturi.errors import ScenarioError
from venturi.plan import plan_lines
from venturi.scenario import load_scenario, scenario_from
from venturi.study import study
from venturi.testbed.plan import hosts_obstacle
from venturi.workload import expand

SCENARIO = """
venturi = 1
name = "clients"

[testbed.router.core]
[testbed.host.c1]
[testbed.host.c2]
[testbed.host.s1]
[testbed.host.s2]
[testbed.host.origin]
[testbed.storage.web]
host = "origin"
path = "web"

[testbed.service.http]
kind = "nginx"
host = "origin"
storage = ["web"]

[workload]
kind = "clients"
mover = "wget"
source = "web"
size = "1 MB"
clients = 8
duration = "10 s"
ramp = "2 s"

[workload.group.two]
services = ["one", "other"]
clients = ["c1", "c2"]
labels = { processes = 2, affinity = "off" }

[testbed.service.one]
kind = "squid"
host = "s1"
options = { all_interfaces = true }

[testbed.service.other]
kind = "squid"
host = "s2"
options = { all_interfaces = true }

[testbed.service.unused]
kind = "squid"
host = "s2"
"""


def links():
    """Return links for two interfaces on each client and server, and one on the origin."""
    ends = [f"{host}-{nic}" for host in ("c1", "c2", "s1", "s2") for nic in (0, 1)] + ["origin-0"]
    return "".join(
        f'[testbed.link.{end}]\nbetween = ["{end[:-2]}", "core"]\nrate = "1 Gb/s"\ndelay = "1 ms"\n' for end in ends
    )


def made(changes=None):
    """Return the scenario with changed workload keys (None: removed)."""
    document = tomllib.loads(SCENARIO + links())
    for key, value in (changes or {}).items():
        if value is None:
            document["workload"].pop(key)
        else:
            document["workload"][key] = value
    return scenario_from(document)


def trials(plan):
    """Return (host, trial) of each trial of a plan."""
    return [(line.host, step) for line in plan.lines for step in line.steps if hasattr(step, "repetition")]


def fetches(trial):
    """Return the number of clients of each (call, service, server interface) in a trial."""
    children = trial.steps[0].children
    transfers = [getattr(child[0], "steps", child)[0] for child in children]
    return Counter((one.call, one.labels["service"], one.labels["server_nic"]) for one in transfers)


def test_one_to_one_pairing_divides_clients_among_the_interfaces_of_the_partner():
    found = dict(trials(expand(made({"pairing": "one to one"}))))
    assert fetches(found["c1"]) == {
        ("wget,proxy=http://s1.lab.test:3128,bind=c1.lab.test", "one", "eth0"): 4,
        ("wget,proxy=http://s1-eth1.lab.test:3128,bind=c1-eth1.lab.test", "one", "eth1"): 4,
    }
    assert {service for _, service, _ in fetches(found["c2"])} == {"other"}
    assert found["c1"].factors["clients_per_nic"] == 4


def test_a_proxy_has_the_url_of_its_service_port_at_its_own_interface():
    plan = expand(made({"pairing": "one to one"}))
    urls = {name: call.urls for name, call in plan.header.calls.items()}
    assert urls["wget,proxy=http://s1.lab.test:3128,bind=c1.lab.test"] == {"proxy": "one/http-proxy"}
    assert urls["wget,proxy=http://s1-eth1.lab.test:3128,bind=c1-eth1.lab.test"] == {}
    assert "found bind" in hosts_obstacle(plan.header)


def test_clients_of_proxies_can_run_on_existing_hosts():
    hosts = ("c1", "s1", "origin")
    document = tomllib.loads(SCENARIO)
    testbed = document["testbed"]
    testbed["host"] = {name: {"ssh": f"alice@{name}"} for name in hosts}
    testbed.pop("router", None)
    testbed["service"] = {
        name: {key: value for key, value in service.items() if key != "interface"}
        for name, service in testbed["service"].items()
        if service["host"] in hosts
    }
    proxies = [name for name, service in testbed["service"].items() if service["kind"] == "squid"]
    group, first = next(iter(document["workload"]["group"].items()))
    document["workload"]["group"] = {group: {**first, "services": proxies, "clients": ["c1"]}}
    document["workload"].pop("factors", None)
    plan = expand(scenario_from(document))
    assert hosts_obstacle(plan.header) is None
    assert [call.urls for call in plan.header.calls.values()] == [{"proxy": f"{name}/http-proxy"} for name in proxies]


def test_all_to_all_pairing_divides_clients_among_all_interfaces():
    plan = expand(made({"pairing": "all to all"}))
    for host, trial in trials(plan):
        assert Counter(fetches(trial).values()) == {2: 4}, host
        assert {call.partition("bind=")[2].partition(".")[0] for call, _, _ in fetches(trial)} == {
            host,
            f"{host}-eth1",
        }
        (first, *_), *_ = trial.steps[0].children
        assert (first.for_s, first.steps[0].source_via, first.steps[0].destination) == (10.0, "http/http", "null:")


def test_hosts_of_a_point_start_together_after_the_previous_point_has_ended():
    lines = [line for line in expand(made({"repeat": 3})).lines if len(line.steps) == 3]
    assert [line.steps[0].until for line in lines] == [0, 0, 2, 2, 4, 4]
    assert all((line.steps[0].counter, line.steps[2].counter) == ("clients.turn", "clients.turn") for line in lines)
    assert [line.steps[1].id for line in lines] == [f"t{number:07d}" for number in range(6)]
    assert [(line.steps[1].point, line.steps[1].repetition) for line in lines] == [(0, r) for r in (0, 0, 1, 1, 2, 2)]


def test_a_load_generator_is_called_once_for_each_interface():
    plan = expand(made({"mover": "http-load", "duration": None, "fetches": 5, "ramp": "0 s", "think": "1 s"}))
    for _, trial in trials(plan):
        transfers = [child[0] for child in trial.steps[0].children]
        assert [one.bytes for one in transfers] == [2 * 5 * 1_000_000] * 4
    call = next(iter(plan.header.calls.values()))
    assert (call.options["clients"], call.options["fetches"], call.options["think_s"]) == (2, 5, 1.0)
    assert (plan.header.totals.transfers, plan.header.totals.bytes) == (8, 2 * 8 * 5 * 1_000_000)


def test_only_servers_that_a_point_uses_are_in_the_plan():
    assert set(expand(made()).header.services) == {"http", "one", "other"}


def test_the_plan_is_reproducible_from_the_scenario_and_from_its_document():
    scenario = made({"repeat": 2, "factors": {"pairing": ["one to one", "all to all"], "clients": [8, 16]}})
    again = scenario_from(scenario.document())
    assert list(plan_lines(expand(scenario))) == list(plan_lines(expand(scenario))) == list(plan_lines(expand(again)))


def test_scaled_clients_keep_the_configured_number_as_their_factor():
    ((_, trial), *_) = trials(expand(made({"clients": 3000, "clients_scale": 0.004, "pairing": "all to all"})))
    assert (trial.factors["clients"], trial.factors["clients_per_nic"]) == (3000, 3)


REJECTED = [
    ({"clients": 9}, "workload.clients: expected a multiple of 4 (interfaces of the servers of c1, all to all), found 9"),
    ({"clients": None}, "workload.clients: expected a whole number from 1 to 100000, found nothing"),
    ({"fetches": 3}, "workload.duration: expected duration or fetches, found both"),
    ({"ramp": "10 s"}, "workload.ramp: expected less than duration (10 s), found 10 s"),
    ({"source": "wep"}, 'workload.source: expected one of the storages: web, found "wep"; did you mean web?'),
    ({"mover": "cp"}, "workload.mover: expected one of the movers that read over HTTP"),
    ({"filter": ["cleints > 3"]}, "workload.filter[0]: expected one of the factors and labels"),
    ({"filter": ["clients > 8"]}, "workload.filter: expected at least one point that passes all filters, found none"),
    ({"factors": {"size": ["1 MB"]}}, "workload.factors.size: expected one of the factors: group, pairing, clients, mover"),
    ({"options": {"proxi": "x"}}, "workload.options: expected one of the options of wget"),
    ({"source_service": "one"}, "workload.source_service: expected one of the services with web over HTTP: http"),
    ({"group": {"g": {"services": ["one"], "clients": ["c1", "c2"]}}, "pairing": "one to one"},
     "workload.pairing: expected equal numbers of services and client hosts, found 1 services for 2 client hosts in g"),
    ({"group": {"g": {"services": ["noone"], "clients": ["c9"]}}}, "workload.group.g.clients[0]: expected one of the hosts"),
    ({"clients": 40_000}, "workload.clients: expected at most 10000 (wget runs one process per client), found 40000"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), REJECTED)
def test_rejects_invalid_workload_with_location(changes, message):
    with pytest.raises(ScenarioError) as caught:
        made(changes)
    assert reports(message, caught.value)


def test_the_study_has_the_published_points_and_numbers_of_clients():
    published = study("ani/squid").published.table("002-squid")
    scenario = load_scenario(study("ani/squid").scenario_path)
    seen = {}
    for _, trial in trials(expand(scenario)):
        factors = trial.factors
        key = tuple(factors[name] for name in ("direction", "processes", "affinity", "pairing", "clients"))
        seen[key] = factors["clients_per_nic"]
        assert sum(fetches(trial).values()) == factors["clients"]
    rows = {
        tuple(row[name] for name in ("direction", "processes", "affinity", "pairing", "clients_per_machine")):
            row["clients_per_machine_and_nic"] for row in published.rows
    }  # fmt: skip
    assert seen == rows and len(rows) == 48
