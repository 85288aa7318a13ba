"""Services that Venturi adds for copies between two hosts: only if they are necessary, and only with the storages of transfers."""

from __future__ import annotations

import pytest

from venturi.errors import ScenarioError
from venturi.plan import Parallel, Trial
from venturi.scenario import scenario_from
from venturi.workload import expand


def document(mover="venturi", **more):
    testbed = {
        "host": {"a": {"ssh": "alice@a.example.org"}, "b": {"ssh": "alice@b.example.org"}, "c": {}},
        "storage": {
            "sa": {"host": "a", "path": "/scratch/a"},
            "sb": {"host": "b", "path": "/scratch/b"},
            "other": {"host": "b", "path": "/scratch/other"},
        },
    }
    movers = [mover] if isinstance(mover, str) else mover
    workload = {
        "kind": "sweep", "source": "sa", "destination": "sb", "factors": {"mover": movers, "size": ["1 MB"]},
    }  # fmt: skip
    for key, value in more.items():
        table, _, name = key.partition("__")
        if table == "workload":
            workload[name] = value
        else:
            testbed.setdefault(table, {}).update(value)
    return {"venturi": 1, "name": "x", "testbed": testbed, "workload": workload}


def plan_of(*args, **more):
    return expand(scenario_from(document(*args, **more)))


def transfers_of(plan):
    found = []
    for line in plan.lines:
        for step in line.steps:
            if isinstance(step, Trial):
                found += [
                    (line.host, child[0])
                    for part in step.steps
                    if isinstance(part, Parallel)
                    for child in part.children
                ]
    return found


def vias_of(plan):
    return [(host, transfer.source_via, transfer.destination_via) for host, transfer in transfers_of(plan)]


def test_the_mover_venturi_gets_a_server_with_certificates_on_the_host_of_the_destination():
    plan = plan_of()
    (service,) = plan.header.services.values()
    assert list(plan.header.services) == ["venturi-serve-b"]
    assert (service.kind, service.host, service.interface, service.storages) == ("venturi-serve", "b", None, ("sb",))
    assert service.options["auth"] == "gsi"
    assert service.ports == (2811,)
    assert service.service_ports == {"gsiftp": "gsiftp://{host}:{port}{path}"}
    assert vias_of(plan) == [("a", None, "venturi-serve-b/gsiftp")]


@pytest.mark.parametrize("mover", ["scp", "sftp", "rsync", "rclone"])
def test_a_mover_over_ssh_uses_the_ssh_server_of_the_host(mover):
    plan = plan_of(mover)
    (service,) = plan.header.services.values()
    assert list(plan.header.services) == ["ssh-b"]
    assert (service.kind, service.host, service.storages) == ("ssh", "b", ("sb",))
    assert service.service_ports["ssh"] == "ssh://{host}:{port}{path}"
    assert vias_of(plan) == [("a", None, "ssh-b/ssh")]


def test_the_mover_runs_on_the_client_that_the_scenario_sets():
    assert vias_of(plan_of(workload__client="b")) == [("b", "venturi-serve-a/gsiftp", None)]
    assert vias_of(plan_of("rsync", workload__client="b")) == [("b", "ssh-a/ssh", None)]
    third = plan_of(workload__client="c")
    assert vias_of(third) == [("c", "venturi-serve-a/gsiftp", "venturi-serve-b/gsiftp")]
    assert list(third.header.services) == ["venturi-serve-a", "venturi-serve-b"]


def test_both_directions_need_one_server_only():
    plan = plan_of(workload__direction="two ways")
    assert list(plan.header.services) == ["venturi-serve-b"]
    assert vias_of(plan) == [("a", None, "venturi-serve-b/gsiftp"), ("a", "venturi-serve-b/gsiftp", None)]


def test_all_required_storages_of_a_host_share_one_server():
    sweep = document()
    del sweep["workload"]["destination"]
    sweep["workload"]["factors"]["destination"] = ["other", "sb"]
    plan = expand(scenario_from(sweep))
    (service,) = plan.header.services.values()
    assert service.storages == ("sb", "other")  # in the order of the scenario
    assert plan.header.services == plan_of_order(["sb", "other"]).header.services


def plan_of_order(destinations):
    sweep = document()
    del sweep["workload"]["destination"]
    sweep["workload"]["factors"]["destination"] = destinations
    return expand(scenario_from(sweep))


def test_a_service_of_the_scenario_is_used_first():
    ftp = {"kind": "gridftp", "host": "b", "storage": ["sb"]}
    plan = plan_of(service={"ftp": ftp})
    assert list(plan.header.services) == ["ftp"]
    assert vias_of(plan) == [("a", None, "ftp/ftp")]
    # The only server is at the source, so the mover runs on the host of the destination.
    plan = plan_of(service={"ftp": {**ftp, "host": "a", "storage": ["sa"]}})
    assert list(plan.header.services) == ["ftp"]
    assert vias_of(plan) == [("b", "ftp/ftp", None)]


def test_an_implicit_service_has_unused_names_and_ports():
    ftp = {"kind": "gridftp", "host": "b", "storage": ["other"]}
    services = plan_of(service={"venturi-serve-b": ftp}).header.services
    assert list(services) == ["venturi-serve-b", "venturi-serve-b-2"]
    assert (services["venturi-serve-b"].ports, services["venturi-serve-b-2"].ports) == ((2811,), (2812,))


def test_an_ssh_server_of_the_scenario_has_only_its_own_storages():
    sshd = {"kind": "sshd", "host": "b", "storage": ["other"]}
    with pytest.raises(ScenarioError, match="expected a service with sb over ssh for scp on a, found none"):
        plan_of("scp", service={"sshd": sshd}, workload__client="a")


def test_the_implicit_server_of_one_mover_is_not_used_for_another():
    with pytest.raises(ScenarioError) as caught:
        plan_of(["venturi", "globus-url-copy"])
    assert "expected a service with sb over gsiftp or ftp for globus-url-copy on a, found none" in str(caught.value)
    assert 'of kind venturi-serve or gridftp with options = { auth = "gsi" }' in str(caught.value)


@pytest.mark.parametrize(
    ("mover", "kind"),
    [
        ("xrdcp", "of kind xrootd"),
        ("curl", "of kind venturi-serve or xrootd with options = { http = true }"),
        ("davix", "of kind venturi-serve or xrootd with options = { http = true, tls = true }"),
        ("globus-url-copy", 'of kind venturi-serve or gridftp with options = { auth = "gsi" }'),
        ("bbftp", "of kind sshd"),
    ],
)
def test_the_error_for_a_missing_service_names_the_kinds_that_the_mover_can_use(mover, kind):
    with pytest.raises(ScenarioError) as caught:
        plan_of(mover)
    assert f"for {mover} on a, found none; add one to testbed.service {kind}" in str(caught.value)
    assert "or set client to the host of the storage" in str(caught.value)


def test_the_error_for_a_local_mover_names_movers_that_copy_between_hosts():
    with pytest.raises(ScenarioError) as caught:
        plan_of("cp")
    message = (
        "found sb on b; use a mover that copies between hosts: venturi, scp, sftp, rsync, rclone, or a mover for"
    )
    assert message in str(caught.value)


@pytest.mark.parametrize("mover", ["rsync", "sftp"])
def test_a_mover_with_one_local_file_does_not_run_on_a_third_host(mover):
    with pytest.raises(
        ScenarioError, match=r"workload.client: expected the host of the source or of the destination"
    ):
        plan_of(mover, workload__client="c")


def test_options_of_the_mover_apply_to_its_implicit_service():
    plan = plan_of(workload__options={"streams": 4, "data_channel": "private"})
    assert vias_of(plan) == [("a", None, "venturi-serve-b/gsiftp")]
    with pytest.raises(ScenarioError, match="expected a copy from or to an HTTP server"):
        plan_of(workload__options={"proxy": "http://p:3128"})


LINKS = {"b": {"between": ["b", "core"], "rate": "1 Gb/s"}, "a": {"between": ["a", "core"], "rate": "1 Gb/s"}}


def test_with_links_an_implicit_service_is_on_the_first_interface():
    plan = plan_of(link=LINKS, router={"core": {}})
    assert plan.header.services["venturi-serve-b"].interface == "b.eth0"


def test_the_mover_runs_on_the_host_that_can_open_connections():
    private = {**LINKS, "b": {**LINKS["b"], "private": ["b"]}}
    testbed = {"link": {**private, "gate": {"between": ["g", "core"], "rate": "1 Gb/s"}}, "router": {"core": {}}}
    testbed["link"]["b"] = {"between": ["b", "g"], "rate": "1 Gb/s", "private": ["b", "g"]}
    plan = plan_of(**testbed, host={"g": {"nat": ["core"]}})
    assert list(plan.header.services) == ["venturi-serve-a"]
    assert vias_of(plan) == [("b", "venturi-serve-a/gsiftp", None)]


def test_hosts_without_a_route_get_no_service():
    with pytest.raises(ScenarioError, match="expected a route from a to b for venturi on a, found none"):
        plan_of(
            link={"a": LINKS["a"], "b": {"between": ["b", "far"], "rate": "1 Gb/s"}}, router={"core": {}, "far": {}}
        )


def test_a_copy_within_a_host_gets_no_service():
    sweep = document()
    sweep["workload"]["source"] = "other"
    assert expand(scenario_from(sweep)).header.services == {}


def test_peers_get_a_server_on_each_host():
    testbed = document()["testbed"]
    del testbed["storage"]["other"], testbed["host"]["c"]
    testbed["host"] = {name: {**host, "site": f"site-{name}"} for name, host in testbed["host"].items()}
    workload = {
        "kind": "peers", "mover": "venturi", "sizes": ["1 MB"], "transfers": 1,
        "site": {"site-a": {"bandwidth": "1 Gb/s"}, "site-b": {"bandwidth": "1 Gb/s"}},
    }  # fmt: skip
    plan = expand(scenario_from({"venturi": 1, "name": "x", "testbed": testbed, "workload": workload}))
    assert list(plan.header.services) == ["venturi-serve-b", "venturi-serve-a"]
    assert {service.storages for service in plan.header.services.values()} == {("sa",), ("sb",)}


@pytest.mark.parametrize("mover", ["http-load", "wget", "curl", "davix"])
def test_a_mover_that_needs_a_server_is_rejected_for_local_files(mover):
    sweep = document(mover)
    sweep["workload"] |= {"destination": "other", "source": "sb"}
    if mover == "http-load":
        del sweep["workload"]["destination"]
    with pytest.raises(ScenarioError) as caught:
        scenario_from(sweep)
    assert "workload.source_service: expected a service with sb over" in str(caught.value)
    assert "set client to the host" not in str(caught.value)
    sweep["testbed"]["service"] = {"web": {"kind": "nginx", "host": "b", "storage": ["sb"]}}
    assert vias_of(expand(scenario_from(sweep)))[0][:2] == ("b", "web/http")


def test_every_suggested_kind_has_the_protocol():
    from venturi.testbed.services.base import ServiceSpec
    from venturi.testbed.services.table import SERVICES
    from venturi.workload.implicit_services import SUGGESTIONS

    for protocol, (kinds, options) in SUGGESTIONS.items():
        for name in kinds:
            kind = SERVICES[name]
            assert {option.name for option in kind.options} >= set(options)
            values = {option.key: option.default for option in kind.options} | dict(options)
            spec = ServiceSpec("s", name, "a", "a.eth0", ("sa",), values, (), kind.default_ports[:1])
            assert protocol in kind.service_ports(spec, "{host}"), (protocol, name)
