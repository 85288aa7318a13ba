"""The plan of a scenario does not depend on the backend: URLs have no lab names, and ssh and connect only affect the hosts."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path

import pytest

from venturi.plan import plan_lines
from venturi.scenario import load_scenario, scenario_from
from venturi.study import studies, study
from venturi.testbed.plan import backend_obstacle, default_backend
from venturi.workload import expand

MAX_LINES = 2_000
"""Number of lines of a plan to compare; studies have millions."""


def lines_of(scenario):
    return list(itertools.islice(plan_lines(expand(scenario)), MAX_LINES))


def study_scenario(name):
    chosen = study(name)
    return load_scenario(chosen.scenario_path, overrides=chosen.overrides(quick=True, full=False, on=None))


@pytest.mark.parametrize("name", studies())
def test_the_plan_of_a_study_does_not_depend_on_the_backend(name):
    scenario = study_scenario(name)
    header = expand(scenario).header
    assert not [
        url for service in header.services.values() for url in service.service_ports.values() if "lab.test" in url
    ]
    assert all("{host}" in url for service in header.services.values() for url in service.service_ports.values())
    chosen = study(name).on or default_backend(scenario.testbed, header)
    assert backend_obstacle(header, chosen) is None
    if scenario.measure.transfers == "each":
        assert backend_obstacle(header, "lab") is None


# If workers are remote, jobs drop cold caches on each worker, because the workers do not share a kernel.
@pytest.mark.parametrize("name", [name for name in studies() if study_scenario(name).workload.kind != "jobs"])
def test_existing_hosts_change_only_the_hosts_of_a_plan(name):
    """The same testbed with ssh, connect, address, ports and variables has the same steps, services and network."""
    scenario = study_scenario(name)
    document = scenario.document()
    remote = copy.deepcopy(document)
    for index, (host, table) in enumerate(remote["testbed"].get("host", {}).items()):
        table |= {"ssh": f"alice@{host}.example.org"} if index % 2 else {"connect": ["podman", "exec", "-i", host]}
        table |= {"address": f"{host}-data.example.org", "open_ports": "50000-50100", "cache": "/scratch/venturi"}
        table["environment"] = {"X509_USER_PROXY": "/tmp/x509up_u1000"}
    lab, hosts = (
        lines_of(scenario_from(written, directory=Path(study(name).scenario_path).parent))
        for written in (document, remote)
    )
    assert lab[1:] == hosts[1:]
    headers = [json.loads(lines[0]) for lines in (lab, hosts)]
    assert {key: part for key, part in headers[0].items() if key not in ("hosts", "scenario")} == {
        key: part for key, part in headers[1].items() if key not in ("hosts", "scenario")
    }
    for host, part in headers[1]["hosts"].items():
        assert {key: part[key] for key in headers[0]["hosts"][host] if key not in ("ssh",)} == {
            key: value for key, value in headers[0]["hosts"][host].items() if key not in ("ssh",)
        }
        assert part["open_ports"] == [50000, 50100]
    remote_scenario = scenario_from(remote, directory=Path(study(name).scenario_path).parent)
    assert default_backend(remote_scenario.testbed, expand(remote_scenario).header) == "hosts"
