"""Costs of movers and services: defaults, what a scenario says, and how both come into a plan and to the engine."""

import dataclasses
import json
import typing
from pathlib import Path

import jsonschema
import pytest

from venturi.backend.sim import world_of
from venturi.cost import (
    FILE,
    Cost,
    HostCost,
    Measured,
    MeasuredService,
    MoverCost,
    MoverRule,
    ServiceCost,
    StorageCost,
    default_of_mover,
    default_of_service,
)
from venturi.cost.world import costs_of
from venturi.errors import ScenarioError
from venturi.mover.base import resolve_options
from venturi.mover.table import BUILT_IN
from venturi.plan import plan_lines, read_header
from venturi.scenario import scenario_from
from venturi.scenario.cost import HostTable, MoverTable, ServiceTable, StorageTable, key_of
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

SAID = {
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
        for it in costs_of(header)["calls"][name]
        if (it["source"], it["destination"]) == (source, destination)
    ]
    return found


def test_a_plan_says_of_costs_what_the_scenario_says_and_nothing_else(tmp_path):
    plain = next(iter(plan_lines(expand(scenario_from(DOCUMENT)))))
    assert "cost" not in json.loads(plain)
    header = header_of(with_costs(SAID))
    assert header.cost == Cost(
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
    assert world_of(header)["machine_cores"] == 6.0 and "machine_cores" not in world_of(header_of(DOCUMENT))
    file = tmp_path / "plan.jsonl"
    file.write_text("\n".join(plan_lines(expand(scenario_from(with_costs(SAID))))) + "\n")
    assert read_header(file).cost == header.cost
    # The schema is made from the types of the engine.
    schema = json.loads((ROOT / "docs" / "reference" / "plan.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(file.read_text().splitlines()[0]))


def test_a_scenario_with_costs_written_out_is_the_same_scenario():
    scenario = scenario_from(with_costs(SAID))
    assert scenario_from(scenario.document()) == scenario
    assert "cost" not in scenario_from(DOCUMENT).document()["testbed"]


def test_what_the_scenario_says_is_above_the_defaults_parameter_by_parameter_and_later_rules_above_earlier_ones():
    plain, said = header_of(DOCUMENT), header_of(with_costs(SAID))
    for fast, trips in ((False, 20.0), (True, 30.0)):
        before, after = cost_of_call(plain, fast), cost_of_call(said, fast)
        assert (after["session_round_trips"], after["start_s"]) == (trips, 0.009)
        assert after["file_round_trips"] == before["file_round_trips"]
    assert cost_of_call(said, fast=True)["pipelining"] == 4 and "pipelining" not in cost_of_call(said, fast=False)
    # The rule for gsiftp has no say in uploads.
    assert cost_of_call(said, fast=False, source=FILE, destination="gsiftp")["session_round_trips"] != 20.0


def test_costs_for_the_engine_have_defaults_of_services_and_what_the_scenario_says():
    assert costs_of(header_of(DOCUMENT))["services"] == {"gridftp": {"auth_core_s": 0.213, "auth_scatter": 0.58}}
    costs = costs_of(header_of(with_costs(SAID)))
    assert costs["services"] == {
        "gridftp": {"auth_core_s": 0.15, "auth_scatter": 0.58, "sessions": 10, "process_bytes_per_s": 1e8}
    }
    assert costs["places"] == {"there": {"read_bytes_per_s": 2e8, "seek_s": 0.008, "read_ahead_bytes": 1000000}}
    assert costs["hosts"] == {"a": {"cores": 4.0, "rtt_exponent": -0.5}}


def test_a_mover_of_the_scenarios_own_costs_what_the_scenario_says_at_any_door():
    own = {"argv": ["get", "{source}", "{destination}"], "speaks": ["gsiftp"]}
    document = with_costs({"mover": {"own": {"source": "gsiftp", "session_round_trips": 3}}}) | {
        "mover": {"own": own}
    }
    document["workload"] = {**document["workload"], "mover": "own", "factors": {"size": ["1 kB"]}}
    (calls,) = costs_of(header_of(document))["calls"].values()
    assert {"source": "gsiftp", "destination": FILE, "cost": {"session_round_trips": 3.0}} in calls


def test_a_host_that_is_left_out_takes_its_costs_with_it():
    document = with_costs(SAID, without=["a"])
    document["testbed"]["storage"] = {**document["testbed"]["storage"], "other": {"host": "b", "path": "other"}}
    document["workload"] = {**document["workload"], "mover": "cp", "source": "here", "destination": "other"}
    document["workload"]["factors"] = {"size": ["1 kB"]}
    cost = scenario_from(document).testbed.cost
    assert (cost.host, cost.storage, cost.service) == ({}, {}, {}) and set(cost.mover) == set(SAID["mover"])


@pytest.mark.parametrize(
    ("cost", "problem"),
    [
        (
            {"mover": {"x": {"mover": "xrdcpp"}}},
            'testbed.cost.mover.x.mover: expected one of the movers: cp, *, found "xrdcpp" (did you mean xrdcp?)',
        ),
        ({"mover": {"xrdcpp": {}}}, "testbed.cost.mover.xrdcpp: expected one of the movers: *"),
        (
            {"mover": {"cp": {"source": "http"}}},
            'testbed.cost.mover.cp.source: expected one of the ends of cp: file, found "http"',
        ),
        (
            {"mover": {"cp": {"options": {"fsinc": True}}}},
            'testbed.cost.mover.cp.options.fsinc: expected one of the options of cp: fsync, reflink, found "fsinc" (did you mean fsync?)',
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
            'testbed.cost.service.gridftpp: expected one of the services: gridftp, found "gridftpp" (did you mean gridftp?)',
        ),
        (
            {"storage": {"nowhere": {}}},
            'testbed.cost.storage.nowhere: expected one of the storages: there, here, found "nowhere" (did you mean here?)',
        ),
        ({"host": {"c": {}}}, 'testbed.cost.host.c: expected one of the hosts: a, b, found "c"'),
        ({"host": {"a": {"cores": 0}}}, "testbed.cost.host.a.cores: expected more than 0, found 0"),
        (
            {"storage": {"there": {"seek": "8 ms"}}},
            "testbed.cost.storage.there: expected seek and read_ahead together, found one without the other",
        ),
        (
            {"storage": {"there": {"half_users": 2, "coherency": 0.1}}},
            "testbed.cost.storage.there: expected one model of a storage (seek, half_users, contention and coherency), found half_users and *",
        ),
        ({"hosts": {}}, "testbed.cost.hosts: expected one of the keys *, found hosts (did you mean host?)"),
    ],
)
def test_what_is_wrong_with_a_table_of_costs_is_said_at_its_place(cost, problem):
    (found,) = problems(cost)
    begin, star, end = problem.partition("*")
    assert found.startswith(begin) and (not star or found.endswith(end)), found
    assert star or found == problem


@pytest.mark.parametrize(
    ("table", "parameters", "besides"),
    [
        (MoverTable, MoverCost, {"mover", "source", "destination", "options"}),
        (ServiceTable, ServiceCost, set()),
        (StorageTable, StorageCost, set()),
        (HostTable, HostCost, set()),
    ],
)
def test_a_scenario_can_say_every_parameter_and_no_other(table, parameters, besides):
    assert set(table.model_fields) - besides == {key_of(part.name) for part in dataclasses.fields(parameters)}


def test_every_default_is_of_ends_that_its_mover_has_of_options_that_it_has_and_says_where_it_is_from():
    seen = 0
    for mover in BUILT_IN.values():
        ends = {*mover.speaks, FILE}
        keys = resolve_options(mover, {})
        for entry in getattr(mover, "costs", ()):
            seen += 1
            assert isinstance(entry.sources, tuple) and isinstance(entry.destinations, tuple)
            assert {*entry.sources, *entry.destinations} <= ends, mover.name
            assert set(entry.options) <= set(keys), mover.name
            assert len(entry.origin) > 5, mover.name
            values = [value for value in dataclasses.astuple(entry.cost) if value is not None]
            assert values and all(value >= 0 for value in values), mover.name
    for kind in SERVICES.values():
        for entry in getattr(kind, "costs", ()):
            seen += 1
            assert set(entry.options) <= {option.key for option in kind.options} and len(entry.origin) > 5
    assert seen > 20


def test_a_call_that_was_not_measured_has_no_default():
    gridftp = BUILT_IN["globus-url-copy"]
    options = resolve_options(gridftp, {})
    assert default_of_mover(gridftp.costs, options, FILE, FILE) is None
    assert default_of_mover((), options, "ftp", FILE) is None
    assert default_of_service((), {}) == ServiceCost()


def test_later_entries_are_above_earlier_ones_and_options_must_be_there():
    entries = (
        Measured(("ftp",), (FILE,), MoverCost(start_s=1.0, file_s=2.0), "here"),
        Measured(("ftp",), (FILE,), MoverCost(file_s=3.0), "here", {"fast": True}),
    )
    assert default_of_mover(entries, {"fast": True}, "ftp", FILE) == MoverCost(start_s=1.0, file_s=3.0)
    assert default_of_mover(entries, {"fast": False}, "ftp", FILE) == MoverCost(start_s=1.0, file_s=2.0)
    assert default_of_mover(entries, {}, "ftp", FILE) == MoverCost(start_s=1.0, file_s=2.0)
    service = (MeasuredService(ServiceCost(auth_core_s=0.2), "here", {"auth": "gsi"}),)
    assert default_of_service(service, {"auth": "none"}) == ServiceCost()


def test_login_with_certificates_costs_the_round_trips_that_a_capture_counted():
    # Of packets, for a file of no bytes: direction changes on all connections, 8 anonymous and 14 with GSI without data-channel authentication,
    # 16 with; the two handshakes and the farewell come besides, and are the same for all.
    gridftp = BUILT_IN["globus-url-copy"]

    def trips(source, **options):
        cost = default_of_mover(gridftp.costs, resolve_options(gridftp, options), source, FILE)
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
def test_defaults_tell_what_many_small_files_took_on_another_machine(source, destination, options, measured_s):
    # 500 files of 10 kB in one call at 20.8 ms, which is one window each: one run each through a delay line, with another processor.
    gridftp = BUILT_IN["globus-url-copy"]
    cost = default_of_mover(gridftp.costs, resolve_options(gridftp, options), source, destination)
    call_s = cost.start_s + cost.start_core_s + cost.session_round_trips * 0.0208
    file_s = cost.file_s + cost.file_core_s + cost.file_round_trips * 0.0208
    auth_s = SERVICES["gridftp"].costs[0].cost.auth_core_s if "gsiftp" in (source, destination) else 0.0
    assert call_s + auth_s + 500 * file_s == pytest.approx(measured_s, rel=0.1)


def test_parameters_are_amounts_flags_or_whole_numbers():
    for kind in (MoverCost, ServiceCost, StorageCost, HostCost):
        for name, hint in typing.get_type_hints(kind).items():
            assert hint in (float | None, int | None, bool | None), name
