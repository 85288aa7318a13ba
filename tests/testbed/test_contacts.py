"""The list of hosts and servers that a run contacts, and the necessary consent."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from venturi.cli.consent import require_consent, state_directory
from venturi.errors import PlanError
from venturi.plan.header import Host
from venturi.scenario import scenario_from
from venturi.testbed.contacts import find_contacts
from venturi.workload import expand

DOCUMENT = {
    "venturi": 1,
    "name": "two",
    "testbed": {
        "host": {
            "a": {"ssh": "alice@a.example.org"},
            "b": {
                "connect": ["podman", "exec", "-i", "my dtn"],
                "address": "b-data.example.org",
                "open_ports": "50000-50100",
                "environment": {"X509_USER_PROXY": "/tmp/x509up_u1000"},
            },
            "c": {},
        },
        "storage": {"sa": {"host": "a", "path": "/scratch/a"}, "sb": {"host": "b", "path": "/scratch/b"}},
        "service": {"perf": {"kind": "iperf3", "url": "tcp://perf.example.org:5201"}},
    },
    "workload": {
        "kind": "sweep",
        "source": "sa",
        "destination": "sb",
        "factors": {"mover": ["venturi", "scp"], "size": ["10 MB"]},
    },
}


def plan_of(document=DOCUMENT):
    return expand(scenario_from(document))


def test_contacts_include_connections_programs_services_storages_ports_and_servers():
    contacts = find_contacts(plan_of())
    assert contacts.bytes == 20_000_000
    assert [host.name for host in contacts.hosts] == ["a", "b", "c"]
    a, b, c = contacts.hosts
    assert (a.connection, a.programs, a.services) == (
        ("ssh", "alice@a.example.org"),
        ("sh", "venturi-engine", "scp", "ssh"),
        (),
    )
    assert [(storage.name, storage.path, storage.disk_bytes) for storage in a.storages] == [
        ("sa", "/scratch/a", 10_000_000)
    ]
    assert (b.connection, b.address, b.programs, b.open_ports) == (
        ("podman", "exec", "-i", "my dtn"),
        "b-data.example.org",
        (),
        (50000, 50100),
    )
    assert [(service.kind, service.storages) for service in b.services] == [
        ("venturi-serve", ("sb",)),
        ("ssh", ("sb",)),
    ]
    assert (c.connection, c.key, c.programs, c.storages) == ((), None, (), ())
    assert contacts.keys == (
        "ssh alice@a.example.org",
        "podman exec -i 'my dtn'",
        "tcp://perf.example.org:5201",
    )


def test_the_terminal_list_and_the_json_document_have_the_same_content():
    contacts = find_contacts(plan_of())
    assert contacts.lines() == [
        ("host a", "reached by: ssh alice@a.example.org"),
        ("", "runs sh, venturi-engine, scp, ssh"),
        ("", "stores sa in /scratch/a, 10 MB at the peak"),
        ("host b", "reached by: podman exec -i 'my dtn', data connections to b-data.example.org"),
        ("", "starts venturi-serve-b of kind venturi-serve on ports 50000-50100 with sb"),
        ("", "uses its ssh server with sb"),
        ("", "stores sb in /scratch/b, 10 MB at the peak"),
        ("", "sets X509_USER_PROXY=/tmp/x509up_u1000"),
        ("host c", "this machine"),
        ("server perf", "tcp://perf.example.org:5201 (iperf3)"),
    ]
    written = contacts.to_json()
    assert list(written["hosts"]) == ["a", "b", "c"]
    assert written["hosts"]["b"] == {
        "connection": ["podman", "exec", "-i", "my dtn"],
        "address": "b-data.example.org",
        "programs": [],
        "services": {
            "venturi-serve-b": {"kind": "venturi-serve", "programs": [], "storages": ["sb"], "open_to_all": False},
            "ssh-b": {"kind": "ssh", "programs": [], "storages": ["sb"], "open_to_all": False},
        },
        "storages": {"sb": {"path": "/scratch/b", "disk_bytes": 10_000_000}},
        "open_ports": [50000, 50100],
        "environment": {"X509_USER_PROXY": "/tmp/x509up_u1000"},
    }
    assert written["servers"] == {"perf": {"kind": "iperf3", "urls": ["tcp://perf.example.org:5201"], "storages": []}}


def test_a_service_of_the_scenario_is_listed_with_its_programs():
    document = json.loads(json.dumps(DOCUMENT))
    document["testbed"]["service"]["web"] = {"kind": "nginx", "host": "a", "storage": ["sa"]}
    (service,) = find_contacts(plan_of(document)).hosts[0].services
    assert service.programs[0] == "nginx"


@pytest.mark.parametrize(
    ("service", "open_to_all"),
    [
        ({"kind": "iperf3"}, True),
        ({"kind": "nuttcp"}, True),
        ({"kind": "nginx"}, False),
        ({"kind": "nginx", "options": {"open": True}}, True),
        ({"kind": "xrootd", "options": {"open": True, "auth": "gsi"}}, False),
        ({"kind": "xrootd", "options": {"open": True, "auth": "gsi", "http": True}}, True),
        ({"kind": "sshd"}, False),
    ],
)
def test_the_list_names_services_without_access_control(service, open_to_all):
    document = json.loads(json.dumps(DOCUMENT))
    storage = [] if service["kind"] in ("iperf3", "nuttcp") else ["sa"]
    document["testbed"]["service"]["server"] = {"host": "a", "storage": storage, **service}
    contacts = find_contacts(plan_of(document))
    (found,) = [one for one in contacts.hosts[0].services if one.name == "server"]
    assert found.open_to_all == open_to_all
    (text,) = [text for _, text in contacts.lines() if text.startswith("starts server ")]
    assert text.endswith(", open to clients from all addresses without authentication") == open_to_all


def test_the_host_targets_of_a_run_replace_the_targets_of_the_plan():
    plan = plan_of()
    hosts = {**plan.header.hosts, "a": Host(ssh="bob@other.example.org"), "b": Host()}
    assert find_contacts(plan, hosts).keys == ("ssh bob@other.example.org", "tcp://perf.example.org:5201")


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "venturi" / "contacts.json"


def test_consent_on_the_command_line_is_remembered(state):
    contacts = find_contacts(plan_of())
    with pytest.raises(PlanError) as caught:
        require_consent(contacts, yes=False)
    assert "first contact with ssh alice@a.example.org, podman exec -i 'my dtn', tcp://perf.example.org:5201" in str(
        caught.value
    )
    assert "`venturi plan` prints for the scenario, then add --yes" in str(caught.value)
    assert not state.exists()
    require_consent(contacts, yes=True)
    require_consent(contacts, yes=False)
    assert json.loads(state.read_text()) == {"contacts": list(contacts.keys)}
    document = json.loads(json.dumps(DOCUMENT))
    document["testbed"]["host"]["c"] = {"ssh": "c.example.org"}
    with pytest.raises(PlanError, match=r"first contact with ssh c.example.org: expected consent"):
        require_consent(find_contacts(plan_of(document)), yes=False)


def test_a_local_run_never_prompts(state):
    document = json.loads(json.dumps(DOCUMENT))
    document["testbed"] = {"host": {"a": {}}, "storage": {"sa": {"host": "a", "path": "d"}}}
    document["workload"] = {"kind": "sweep", "mover": "read", "source": "sa", "factors": {"size": ["1 kB"]}}
    require_consent(find_contacts(plan_of(document)), yes=False)
    assert not state.exists()


@pytest.mark.parametrize("content", ["", "[]", '{"contacts": "ssh a"}', '{"contacts": [1, null]}', "[" * 100_000])
def test_a_damaged_consent_file_does_not_count_as_consent(state, content):
    state.parent.mkdir()
    state.write_text(content)
    with pytest.raises(PlanError, match="first contact with"):
        require_consent(find_contacts(plan_of()), yes=False)
    require_consent(find_contacts(plan_of()), yes=True)
    require_consent(find_contacts(plan_of()), yes=False)


def test_the_state_directory_is_below_the_home_directory_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_directory() == tmp_path / ".local" / "state" / "venturi"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert state_directory() == tmp_path / ".local" / "state" / "venturi"


PROMPT = """\
import json, sys
from venturi.cli.consent import require_consent
from venturi.scenario import scenario_from
from venturi.testbed.contacts import find_contacts
from venturi.workload import expand
require_consent(find_contacts(expand(scenario_from(json.loads(sys.argv[1])))), yes=False)
print("started")
"""


@pytest.mark.parametrize(("reply", "started"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_the_first_contact_prints_the_list_and_a_prompt_on_a_terminal(state, reply, started):
    controller, terminal = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", PROMPT, json.dumps(DOCUMENT)],
            stdin=terminal,
            stderr=terminal,
            stdout=subprocess.PIPE,
        )
        os.close(terminal)
        os.write(controller, reply.encode())
        stdout = process.communicate(timeout=60)[0]
        text = os.read(controller, 65536).decode()
    finally:
        os.close(controller)
    assert "reached by: ssh alice@a.example.org" in text
    assert "Start the run on these hosts and servers? [y/N]" in text
    assert stdout.strip() == (b"started" if started else b"")
    assert state.exists() == started
    assert ("no host was contacted" in text) == (not started)
