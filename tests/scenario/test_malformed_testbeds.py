"""What is said about testbeds with mistakes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from malformed_testbed import EDITS, SAID, document

from venturi.errors import ScenarioError
from venturi.scenario import scenario_from
from venturi.workload import expand


@pytest.mark.parametrize("name", EDITS)
def test_every_mistake_of_a_testbed_is_told_with_its_place_and_what_was_expected(name):
    with pytest.raises(ScenarioError) as caught:
        scenario_from(document(EDITS[name]), "s.toml")
    assert str(caught.value).splitlines() == [f"s.toml: {line}" for line in SAID[name]]


def test_the_good_testbed_has_no_mistake():
    assert expand(scenario_from(document({}))).header.network is not None


def test_no_message_about_a_testbed_speaks_the_language_of_the_validator():
    told = " ".join(line for lines in SAID.values() for line in lines)
    for word in ("Input should", "Value error", "validation error", "pydantic", "Field required", "another value"):
        assert word not in told


_PLACES = [
    "testbed.host.a", "testbed.host.a.cpus", "testbed.host.a.nat", "testbed.host.a.tcp", "testbed.router", "testbed.router.core",
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


@given(st.dictionaries(st.sampled_from(_PLACES), _VALUES, min_size=1, max_size=2))
@settings(deadline=None, max_examples=300)
def test_no_value_in_any_place_of_a_testbed_makes_loading_fail_otherwise_or_speak_jargon(edits):
    ordered = dict(sorted(edits.items(), key=lambda item: item[0].count(".")))
    try:
        written = document(ordered)
    except (TypeError, AttributeError):
        return  # a place below a value that is no table
    try:
        expand(scenario_from(written))
    except ScenarioError as error:
        for where, what in error.problems:
            assert where
            assert "expected" in what
            assert "found" in what
            assert "another value" not in what
