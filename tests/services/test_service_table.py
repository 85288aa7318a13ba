"""The table of services: common properties of all kinds, and the page generated from it."""

import dataclasses
import subprocess
from pathlib import Path

import pytest

from testkit import wait_until
from venturi.errors import BackendError
from venturi.testbed.services.base import Package, ServiceSpec
from venturi.testbed.services.client_calls import client_timeout_s, run_error
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


def test_the_published_page_matches_the_service_table():
    assert PAGE.read_text(encoding="utf-8") == services_reference(), "run: make reference"


@pytest.mark.parametrize("kind", KINDS)
def test_service_ports_and_needs_are_deterministic_and_independent_of_the_host(kind):
    service, spec = SERVICES[kind], spec_of(kind)
    assert service.kind == kind
    assert service.service_ports(spec, "a.lab.test") == service.service_ports(spec, "a.lab.test")
    assert service.needs(spec) == ()
    for template in service.service_ports(spec, "a.lab.test").values():
        assert "a.lab.test" in template.format(path="/lab/a/disk/x", relative="x", port=1)


@pytest.mark.parametrize("kind", KINDS)
def test_options_are_described_and_their_defaults_are_among_their_values(kind):
    for option in SERVICES[kind].options:
        assert option.meaning
        if option.kind == "choice":
            assert option.default in option.choices
        if option.kind in {"integer", "boolean"} and option.default is not None:
            assert option.parse(option.default) == option.default


def test_missing_programs_are_named_with_their_packages(lab):
    context = lab.context("lacking", "iperf3")
    packages = [Package("sh", "dash"), Package("no-such-program", "no-such-package"), Package("no-such-one", "other")]
    with pytest.raises(BackendError) as raised:
        require(context, packages)
    assert str(raised.value) == (
        "lacking: expected the programs no-such-program, no-such-one on a, found none; "
        "install the Debian package no-such-package other"
    )


def test_the_account_of_servers_depends_on_the_privileges_of_the_shell(lab):
    context = lab.context("whose", "iperf3")
    assert account(context) == "root"
    lab.shells["a"].privileged = False
    try:
        assert account(context) == "nobody"
    finally:
        lab.shells["a"].privileged = True


def test_hosts_of_the_kit_resolve_each_other_and_have_their_own_names(lab):
    assert lab.run("a", "getent", "hosts", "b.lab.test").stdout.split() == ["10.77.0.2", "b.lab.test", "b"]
    assert lab.run("a", "hostname").stdout == "a.lab.test\n"
    process = lab.shells["b"].start(["sh", "-c", "sleep 100 & exec sleep 100"], log=lab.directory / "sleeping")
    wait_until(lambda: process.poll() is None, "it to run")
    process.stop()
    assert process.poll() == -15


def test_the_client_timeout_grows_with_the_time_waited_for_the_server():
    class Slow:
        def run(self, argv, *, timeout_s, environment):
            raise subprocess.TimeoutExpired(argv, timeout_s)

    output = []
    for waited_s in (0.0, 3.0, 30.0):
        with client_timeout_s(waited_s):
            output.append(run_error(Slow(), ["ask"]))
    output.append(run_error(Slow(), ["ask"]))
    assert output == [f"ask: no response within {seconds} s" for seconds in (2, 2, 15, 2)]
