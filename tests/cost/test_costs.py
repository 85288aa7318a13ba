"""Costs of movers and services: defaults, values of a scenario, and how both reach the plan and the engine."""

import dataclasses
import json
import typing
from pathlib import Path

import jsonschema
import pytest

from venturi.backend.sim import engine_assumptions
from venturi.cost import (
    FILE,
    CostParameters,
    HostCost,
    MeasuredCost,
    MeasuredService,
    MoverCost,
    MoverRule,
    ServiceCost,
    StorageCost,
    find_mover_default,
    find_service_default,
)
from venturi.cost.engine_inputs import resolve_plan_costs
from venturi.errors import ScenarioError
from venturi.mover.base import resolve_options
from venturi.mover.table import BUILT_IN
from venturi.plan import plan_lines, read_header
from venturi.scenario import scenario_from
from venturi.scenario.cost import HostCostTable, MoverCostTable, ServiceCostTable, StorageCostTable, scenario_key
from venturi.testbed.services.table import SERVICES
from venturi.workload import expand

ROOT = Path(__file__).parents[2]

DOCUMENT = {
    "venturi": 1,
    "name": "costs",
    "testbed": {
        "host": {"a": {}, "b": {}},
        "router": {"core": {}},
        "link": {
            "a": {"between": ["a", "core"], "rate": "1 Gb/s", "delay": "5 ms"},
            "b": {"between": ["b", "core"], "rate": "1 Gb/s", "delay": "5 ms"},
        },
        "storage": {"there": {"host": "a", "path": "data"}, "here": {"host": "b", "path": "data"}},
        "service": {"gridftp": {"kind": "gridftp", "host": "a", "storage": ["there"], "options": {"auth": "gsi"}}},
    },
    "workload": {
        "kind": "sweep",
        "mover": "globus-url-copy",
        "source": "there",
        "destination": "here",
        "factors": {"size": ["1 kB"], "fast": [False, True]},
    },
}

COSTS = {
    "mover": {
        "logins": {"mover": "globus-url-copy", "source": "gsiftp", "session_round_trips": 20, "start": "9 ms"},
        "globus-url-copy": {
            "options": {"fast": True},
            "session_round_trips": 30,
            "pipelining": 4,
            "in_flight": "1 MiB",
        },
    },
    "service": {"gridftp": {"auth_core": "150 ms", "sessions": 10, "process_rate": "800 Mb/s"}},
    "storage": {"there": {"read_rate": "200 MB/s", "seek": "8 ms", "read_ahead": "1 MB"}},
    "host": {"a": {"cores": 4, "rtt_exponent": -0.5}},
    "machine_cores": 6,
}


def with_costs(cost, **testbed):
    return {**DOCUMENT, "testbed": {**DOCUMENT["testbed"], "cost": cost, **testbed}}


def header_of(document):
    return expand(scenario_from(document)).header


def problems(cost):
    with pytest.raises(ScenarioError) as caught:
        scenario_from(with_costs(cost))
    return [line.removeprefix("scenario: ") for line in str(caught.value).splitlines()]


def cost_of_call(header, fast, source="gsiftp", destination=FILE):
    (name,) = [name for name, call in header.calls.items() if call.options["fast"] == fast]
    (found,) = [
        it["cost"]
        for it in resolve_plan_costs(header)["calls"][name]
        if (it["source"], it["destination"]) == (source, destination)
    ]
    return found


def test_a_plan_has_exactly_the_costs_of_the_scenario(tmp_path):
    plain = next(iter(plan_lines(expand(scenario_from(DOCUMENT)))))
    assert "cost" not in json.loads(plain)
    header = header_of(with_costs(COSTS))
    assert header.cost == CostParameters(
        (
            MoverRule("globus-url-copy", MoverCost(session_round_trips=20.0, start_s=0.009), "gsiftp"),
            MoverRule(
                "globus-url-copy",
                MoverCost(session_round_trips=30.0, pipelining=4, in_flight_bytes=1048576),
                options={"fast": True},
            ),
        ),
        {"gridftp": ServiceCost(auth_core_s=0.15, sessions=10, process_bytes_per_s=1e8)},
        {"there": StorageCost(read_bytes_per_s=2e8, seek_s=0.008, read_ahead_bytes=1000000)},
        {"a": HostCost(cores=4.0, rtt_exponent=-0.5)},
        6.0,
    )
    assert engine_assumptions(header)["machine_cores"] == 6.0 and "machine_cores" not in engine_assumptions(
        header_of(DOCUMENT)
    )
    file = tmp_path / "plan.jsonl"
    file.write_text("\n".join(plan_lines(expand(scenario_from(with_costs(COSTS))))) + "\n")
    assert read_header(file).cost == header.cost
    # The schema is generated from the types of the engine.
    schema = json.loads((ROOT / "docs" / "reference" / "plan.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(file.read_text().splitlines()[0]))


def test_a_scenario_with_costs_survives_writing_and_reading():
    scenario = scenario_from(with_costs(COSTS))
    assert scenario_from(scenario.document()) == scenario
    assert "cost" not in scenario_from(DOCUMENT).document()["testbed"]


def test_scenario_costs_override_single_defaults_and_later_rules_override_earlier_ones():
    plain, message = header_of(DOCUMENT), header_of(with_costs(COSTS))
    for fast, trips in ((False, 20.0), (True, 30.0)):
        before, after = cost_of_call(plain, fast), cost_of_call(message, fast)
        assert (after["session_round_trips"], after["start_s"]) == (trips, 0.009)
        assert after["file_round_trips"] == before["file_round_trips"]
    assert cost_of_call(message, fast=True)["pipelining"] == 4 and "pipelining" not in cost_of_call(
        message, fast=False
    )
    # The rule for gsiftp does not apply to uploads.
    assert cost_of_call(message, fast=False, source=FILE, destination="gsiftp")["session_round_trips"] != 20.0


def test_engine_costs_combine_service_defaults_with_the_scenario():
    assert resolve_plan_costs(header_of(DOCUMENT))["services"] == {
        "gridftp": {"auth_core_s": 0.213, "auth_scatter": 0.58}
    }
    costs = resolve_plan_costs(header_of(with_costs(COSTS)))
    assert costs["services"] == {
        "gridftp": {"auth_core_s": 0.15, "auth_scatter": 0.58, "sessions": 10, "process_bytes_per_s": 1e8}
    }
    assert costs["storages"] == {"there": {"read_bytes_per_s": 2e8, "seek_s": 0.008, "read_ahead_bytes": 1000000}}
    assert costs["hosts"] == {"a": {"cores": 4.0, "rtt_exponent": -0.5}}


def test_a_custom_mover_of_a_scenario_has_the_costs_of_the_scenario():
    own = {"argv": ["get", "{source}", "{destination}"], "protocols": ["gsiftp"]}
    document = with_costs({"mover": {"own": {"source": "gsiftp", "session_round_trips": 3}}}) | {
        "mover": {"own": own}
    }
    document["workload"] = {**document["workload"], "mover": "own", "factors": {"size": ["1 kB"]}}
    (calls,) = resolve_plan_costs(header_of(document))["calls"].values()
    assert {"source": "gsiftp", "destination": FILE, "cost": {"session_round_trips": 3.0}} in calls


def test_the_costs_of_a_removed_host_are_removed():
    document = with_costs(COSTS, without=["a"])
    document["testbed"]["storage"] = {**document["testbed"]["storage"], "other": {"host": "b", "path": "other"}}
    document["workload"] = {**document["workload"], "mover": "cp", "source": "here", "destination": "other"}
    document["workload"]["factors"] = {"size": ["1 kB"]}
    cost = scenario_from(document).testbed.cost
    assert (cost.host, cost.storage, cost.service) == ({}, {}, {}) and set(cost.mover) == set(COSTS["mover"])


@pytest.mark.parametrize(
    ("cost", "problem"),
    [
        (
            {"mover": {"x": {"mover": "xrdcpp"}}},
            'testbed.cost.mover.x.mover: expected one of the movers: cp, *, found "xrdcpp"; did you mean xrdcp?',
        ),
        ({"mover": {"xrdcpp": {}}}, "testbed.cost.mover.xrdcpp: expected one of the movers: *"),
        (
            {"mover": {"cp": {"source": "http"}}},
            'testbed.cost.mover.cp.source: expected one of the endpoints of cp: file, found "http"',
        ),
        (
            {"mover": {"cp": {"options": {"fsinc": True}}}},
            'testbed.cost.mover.cp.options.fsinc: expected one of the options of cp: fsync, reflink, found "fsinc"; did you mean fsync?',
        ),
        (
            {"mover": {"cp": {"options": {"fsync": 1}}}},
            "testbed.cost.mover.cp.options.fsync: expected true or false, found 1",
        ),
        ({"mover": {"cp": {"start": 3}}}, 'testbed.cost.mover.cp.start: expected a time such as "10 s", found 3'),
        ({"mover": {"cp": {"start": "-3 ms"}}}, "testbed.cost.mover.cp.start: expected *"),
        (
            {"mover": {"cp": {"session_round_trips": -1}}},
            "testbed.cost.mover.cp.session_round_trips: expected 0 or more, found -1",
        ),
        ({"mover": {"cp": {"pipelining": 0}}}, "testbed.cost.mover.cp.pipelining: expected 1 or more, found 0"),
        (
            {"service": {"gridftpp": {}}},
            'testbed.cost.service.gridftpp: expected one of the services: gridftp, found "gridftpp"; did you mean gridftp?',
        ),
        (
            {"storage": {"nowhere": {}}},
            'testbed.cost.storage.nowhere: expected one of the storages: there, here, found "nowhere"; did you mean here?',
        ),
        ({"host": {"c": {}}}, 'testbed.cost.host.c: expected one of the hosts: a, b, found "c"'),
        ({"host": {"a": {"cores": 0}}}, "testbed.cost.host.a.cores: expected more than 0, found 0"),
        (
            {"storage": {"there": {"seek": "8 ms"}}},
            "testbed.cost.storage.there: expected seek and read_ahead together, found one of them",
        ),
        (
            {"storage": {"there": {"half_users": 2, "coherency": 0.1}}},
            "testbed.cost.storage.there: expected one model of a storage (seek, half_users, contention and coherency), found half_users and *",
        ),
        ({"hosts": {}}, "testbed.cost.hosts: expected one of the keys *, found hosts; did you mean host?"),
    ],
)
def test_invalid_costs_are_reported_with_their_location(cost, problem):
    (found,) = problems(cost)
    start, star, rest = problem.partition("*")
    assert found.startswith(start) and rest in found, found
    assert star or found.startswith(problem)


@pytest.mark.parametrize(
    ("table", "parameters", "besides"),
    [
        (MoverCostTable, MoverCost, {"mover", "source", "destination", "options"}),
        (ServiceCostTable, ServiceCost, set()),
        (StorageCostTable, StorageCost, set()),
        (HostCostTable, HostCost, set()),
    ],
)
def test_a_scenario_can_set_exactly_the_existing_cost_parameters(table, parameters, besides):
    assert set(table.model_fields) - besides == {scenario_key(part.name) for part in dataclasses.fields(parameters)}


def test_every_default_has_valid_endpoints_and_options_and_names_its_origin():
    seen = 0
    for mover in BUILT_IN.values():
        endpoints = {*mover.protocols, FILE}
        keys = resolve_options(mover, {})
        for entry in getattr(mover, "costs", ()):
            seen += 1
            assert isinstance(entry.sources, tuple) and isinstance(entry.destinations, tuple)
            assert {*entry.sources, *entry.destinations} <= endpoints, mover.name
            assert set(entry.options) <= set(keys), mover.name
            assert len(entry.origin) > 5, mover.name
            values = [value for value in dataclasses.astuple(entry.cost) if value is not None]
            assert values and all(value >= 0 for value in values), mover.name
    for kind in SERVICES.values():
        for entry in getattr(kind, "costs", ()):
            seen += 1
            assert set(entry.options) <= {option.key for option in kind.options} and len(entry.origin) > 5
    assert seen > 20


def test_an_unmeasured_call_has_no_default():
    gridftp = BUILT_IN["globus-url-copy"]
    options = resolve_options(gridftp, {})
    assert find_mover_default(gridftp.costs, options, FILE, FILE) is None
    assert find_mover_default((), options, "ftp", FILE) is None
    assert find_service_default((), {}) == ServiceCost()


def test_later_default_entries_override_earlier_ones_if_their_options_match():
    entries = (
        MeasuredCost(("ftp",), (FILE,), MoverCost(start_s=1.0, file_s=2.0), "here"),
        MeasuredCost(("ftp",), (FILE,), MoverCost(file_s=3.0), "here", {"fast": True}),
    )
    assert find_mover_default(entries, {"fast": True}, "ftp", FILE) == MoverCost(start_s=1.0, file_s=3.0)
    assert find_mover_default(entries, {"fast": False}, "ftp", FILE) == MoverCost(start_s=1.0, file_s=2.0)
    assert find_mover_default(entries, {}, "ftp", FILE) == MoverCost(start_s=1.0, file_s=2.0)
    service = (MeasuredService(ServiceCost(auth_core_s=0.2), "here", {"auth": "gsi"}),)
    assert find_service_default(service, {"auth": "none"}) == ServiceCost()


def test_a_login_with_certificates_costs_the_round_trips_of_a_packet_capture():
    # Packets of an empty file: direction changes on all connections are 8 for anonymous, 14 for GSI without and 16 with
    # data-channel authentication. The two handshakes and the connection close are extra and equal for all.
    gridftp = BUILT_IN["globus-url-copy"]

    def trips(source, **options):
        cost = find_mover_default(gridftp.costs, resolve_options(gridftp, options), source, FILE)
        return cost.session_round_trips + cost.file_round_trips

    plain = trips("ftp")
    assert trips("gsiftp", data_channel="nodcau") - plain == pytest.approx(14 - 8, abs=1)
    assert trips("gsiftp") - plain == pytest.approx(16 - 8, abs=1)
    assert trips("gsiftp", fast=True) - plain == pytest.approx(18 - 8, abs=1)


@pytest.mark.parametrize(
    ("source", "destination", "options", "measured_s"),
    [
        ("ftp", FILE, {}, 32.1),
        ("ftp", FILE, {"fast": True}, 11.4),
        ("gsiftp", FILE, {}, 59.8),
        ("gsiftp", FILE, {"fast": True}, 11.9),
        (FILE, "gsiftp", {"fast": True}, 33.5),
    ],
)
def test_defaults_predict_the_measured_times_of_many_small_files_on_another_machine(
    source, destination, options, measured_s
):
    # 500 files of 10 kB in one call, with a round-trip time of 20.8 ms and one window per file. Each was measured once
    # through a delay line on another CPU.
    gridftp = BUILT_IN["globus-url-copy"]
    cost = find_mover_default(gridftp.costs, resolve_options(gridftp, options), source, destination)
    call_s = cost.start_s + cost.start_core_s + cost.session_round_trips * 0.0208
    file_s = cost.file_s + cost.file_core_s + cost.file_round_trips * 0.0208
    auth_s = SERVICES["gridftp"].costs[0].cost.auth_core_s if "gsiftp" in (source, destination) else 0.0
    assert call_s + auth_s + 500 * file_s == pytest.approx(measured_s, rel=0.1)


def test_parameters_are_floats_integers_or_booleans():
    for kind in (MoverCost, ServiceCost, StorageCost, HostCost):
        for name, hint in typing.get_type_hints(kind).items():
            assert hint in (float | None, int | None, bool | None), name
