"""The table of services: what all kinds have in common, and the page that is made from it."""

import dataclasses
import subprocess
from pathlib import Path

import pytest

from testkit import wait_until
from venturi.errors import BackendError
from venturi.testbed.services.base import Package, ServiceSpec
from venturi.testbed.services.calls import complaint, patient
from venturi.testbed.services.programs import account, require
from venturi.testbed.services.reference import services_reference
from venturi.testbed.services.table import SERVICES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "services.md"
KINDS = sorted(SERVICES)


def spec_of(kind, **changes):
    service = SERVICES[kind]
    options = {option.key: option.default for option in service.options}
    return dataclasses.replace(
        ServiceSpec("one", kind, "a", "a.eth0", options=options, ports=service.default_ports[:1]), **changes
    )


def test_the_published_page_is_what_the_table_says():
    assert PAGE.read_text(encoding="utf-8") == services_reference(), "run: make reference"


@pytest.mark.parametrize("kind", KINDS)
def test_doors_and_needs_are_the_same_each_time_and_ask_nothing_of_the_machine(kind):
    service, spec = SERVICES[kind], spec_of(kind)
    assert service.kind == kind
    assert service.doors(spec, "a.lab.test") == service.doors(spec, "a.lab.test")
    assert service.needs(spec) == ()
    for template in service.doors(spec, "a.lab.test").values():
        assert "a.lab.test" in template.format(path="/lab/a/disk/x", relative="x", port=1)


@pytest.mark.parametrize("kind", KINDS)
def test_options_are_described_and_their_defaults_are_among_their_values(kind):
    for option in SERVICES[kind].options:
        assert option.meaning
        if option.kind == "choice":
            assert option.default in option.choices
        if option.kind in {"integer", "boolean"} and option.default is not None:
            assert option.parse(option.default) == option.default


def test_missing_programs_are_named_with_the_packages_that_bring_them(lab):
    room = lab.room("lacking", "iperf3")
    packages = [Package("sh", "dash"), Package("no-such-program", "no-such-package"), Package("no-such-one", "other")]
    with pytest.raises(BackendError) as raised:
        require(room, packages)
    assert str(raised.value) == (
        "lacking: expected the programs no-such-program, no-such-one on a, found none; "
        "install the Debian package no-such-package other"
    )


def test_the_account_is_the_one_that_servers_start_under(lab):
    room = lab.room("whose", "iperf3")
    assert account(room) == "root"
    lab.machines["a"].privileged = False
    try:
        assert account(room) == "nobody"
    finally:
        lab.machines["a"].privileged = True


def test_the_hosts_of_the_kit_know_each_other_and_are_apart(lab):
    assert lab.run("a", "getent", "hosts", "b.lab.test").stdout.split() == ["10.77.0.2", "b.lab.test", "b"]
    assert lab.run("a", "hostname").stdout == "a.lab.test\n"
    process = lab.machines["b"].start(["sh", "-c", "sleep 100 & exec sleep 100"], log=lab.folder / "sleeping")
    wait_until(lambda: process.poll() is None, "it to run")
    process.stop()
    assert process.poll() == -15


def test_a_client_that_asks_a_server_has_more_time_the_longer_it_was_waited_for():
    class Slow:
        def run(self, argv, *, timeout_s, environment):
            raise subprocess.TimeoutExpired(argv, timeout_s)

    told = []
    for waited_s in (0.0, 3.0, 30.0):
        with patient(waited_s):
            told.append(complaint(Slow(), ["ask"]))
    told.append(complaint(Slow(), ["ask"]))
    assert told == [f"ask: no answer within {seconds} s" for seconds in (2, 2, 15, 2)]
