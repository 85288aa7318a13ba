"""Error messages for invalid testbeds."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from malformed import details
from malformed_testbed import EDITS, MESSAGES, document

from venturi.errors import ScenarioError
from venturi.scenario import scenario_from
from venturi.workload import expand


@pytest.mark.parametrize("name", EDITS)
def test_reports_every_error_of_a_testbed_with_location_and_next_step(name):
    with pytest.raises(ScenarioError) as caught:
        scenario_from(document(EDITS[name]), "s.toml")
    messages = str(caught.value).splitlines()
    assert [details(line) for line in messages] == [details(f"s.toml: {line}") for line in MESSAGES[name]]
    assert all(re.search(r", found .*; .+", line) for line in messages)


def test_the_valid_testbed_has_no_errors():
    assert expand(scenario_from(document({}))).header.network is not None


def test_no_message_about_a_testbed_contains_jargon_of_the_validator():
    text = " ".join(line for lines in MESSAGES.values() for line in lines)
    for word in ("Input should", "Value error", "validation error", "pydantic", "Field required", "another value"):
        assert word not in text


_STORAGES = [
    "testbed.host.a", "testbed.host.a.ssh", "testbed.host.a.connect", "testbed.host.a.address", "testbed.host.a.open_ports",
    "testbed.host.a.environment", "testbed.service.ftp-a.url", "testbed.service.ftp-a.host", "testbed.host.a.cpus", "testbed.host.a.nat", "testbed.host.a.tcp", "testbed.router", "testbed.router.core",
    "testbed.link", "testbed.link.a-core", "testbed.link.a-core.between", "testbed.link.a-core.rate", "testbed.link.a-core.delay",
    "testbed.link.a-core.queue", "testbed.link.a-core.loss", "testbed.link.a-core.private", "testbed.change", "testbed.tcp",
    "testbed.tcp.mine", "testbed.storage.disk.kind", "testbed.storage.disk.shared", "testbed.service", "testbed.service.ftp-a",
    "testbed.service.ftp-a.ports", "testbed.service.ftp-a.options", "testbed.service.ftp-a.storage", "workload.client",
    "workload.source_service", "workload.direction", "workload.files_per_call", "workload.factors.client",
]  # fmt: skip
_WORDS = st.sampled_from(
    ["1 Gb/s", "1 BDP", "5 ms", "a", "a.eth0", "core", "b-core", "gridftp", "ftp-a", "disk", "auth", "enter", "leave", "at", "link",
     "0.5", "two ways", "net.ipv4.tcp_sack", "zero", ""]
)  # fmt: skip
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | _WORDS | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS | st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(_STORAGES), _VALUES, min_size=1, max_size=2))
@settings(deadline=None, max_examples=300)
def test_arbitrary_values_of_a_testbed_fail_only_with_a_scenario_error_without_jargon(edits):
    ordered = dict(sorted(edits.items(), key=lambda item: item[0].count(".")))
    try:
        written = document(ordered)
    except (TypeError, AttributeError):
        return  # a path below a value that is not a table
    try:
        expand(scenario_from(written))
    except ScenarioError as error:
        for where, what in error.problems:
            assert where
            assert "expected" in what
            assert "found" in what
            assert "another value" not in what
