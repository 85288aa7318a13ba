"""Sweeps with tools declared in a scenario, and unrequested effects of tools."""

from __future__ import annotations

import pytest

from venturi.errors import ScenarioError
from venturi.plan import Parallel, Trial
from venturi.scenario import scenario_from
from venturi.workload import expand

TESTBED = {
    "host": {"a": {}, "b": {}},
    "router": {"r": {}},
    "link": {f"{h}-r": {"between": [h, "r"], "rate": "1 Gb/s", "delay": "1 ms"} for h in "ab"},
    "storage": {"here": {"host": "a", "path": "here"}, "there": {"host": "b", "path": "there"}},
    "service": {
        "ftp-a": {"kind": "gridftp", "host": "a", "storage": ["here"]},
        "iperf-b": {"kind": "iperf3", "host": "b"},
        "nuttcp-b": {"kind": "nuttcp", "host": "b"},
    },
}
DIRECTORY = {
    "argv": ["globus-url-copy", "-fast", "-pp", "{source}", "{destination}"],
    "protocols": ["ftp"],
    "local": "file://{path}",
    "lists": True,
}


def sweep(*, tools=None, **workload):
    """Return a sweep in a network of two hosts."""
    top = {"venturi": 1, "name": "s", "testbed": TESTBED, "mover": tools or {}}
    return scenario_from({**top, "workload": {"kind": "sweep", **workload}})


def first_transfer(plan):
    """Return the first transfer of a plan."""
    steps = [step for line in plan.lines for step in line.steps if isinstance(step, Trial)]
    (parallel,) = [step for step in steps[0].steps if isinstance(step, Parallel)]
    return parallel.children[0][0]


def test_a_custom_tool_uses_service_ports_and_accepts_directories():
    scenario = sweep(tools={"folder": DIRECTORY}, source="here", destination="there", client="b",
                     files_per_call=5, factors={"mover": ["folder"], "size": ["1 kB"]})  # fmt: skip
    assert scenario_from(scenario.document()).document() == scenario.document()
    plan = expand(scenario)
    transfer = first_transfer(plan)
    assert (transfer.files, transfer.source_via, transfer.destination_via) == (5, "ftp-a/ftp", None)
    assert plan.header.calls[transfer.call].local == "file://{path}"


@pytest.mark.parametrize(("lists", "argv", "taken"), [
    (None, ["x", "{list}"], True), (None, ["x", "{source}", "{destination}"], False), (False, ["x", "{list}"], False),
])  # fmt: skip
def test_a_custom_tool_with_a_list_argument_accepts_lists_unless_it_forbids_them(lists, argv, taken):
    template = {"argv": argv, "protocols": ["ftp"]} | ({} if lists is None else {"lists": lists})
    requested = {"source": "here", "destination": "there", "client": "b", "files_per_call": 5,
             "factors": {"mover": ["x"], "size": ["1 kB"]}}  # fmt: skip
    if taken:
        assert first_transfer(expand(sweep(tools={"x": template}, **requested))).files == 5
        return
    with pytest.raises(ScenarioError, match=r"files_per_call: expected 1 \(x accepts one file per call\), found 5"):
        expand(sweep(tools={"x": template}, **requested))


@pytest.mark.parametrize("local", ["file://", "{path}{path}", "{path}{host}"])
def test_the_template_of_a_local_file_must_contain_the_path_once_and_no_other_field(local):
    with pytest.raises(ScenarioError, match=r"mover\.folder\.local: expected a text with \{path\} in it"):
        sweep(tools={"folder": {**DIRECTORY, "local": local}}, source="here", destination="there",
              factors={"mover": ["folder"], "size": ["1 kB"]})  # fmt: skip


@pytest.mark.parametrize("mover", ["iperf3", "nuttcp"])
def test_size_zero_is_rejected_for_tools_that_would_move_bytes_anyway(mover):
    ends = {"mover": mover, "client": "a", "destination_service": f"{mover.rstrip('3')}-b"}
    with pytest.raises(
        ScenarioError, match=rf"workload\.factors\.size: expected 1 B or more \(for {mover}, .* found 0 B"
    ):
        expand(sweep(**ends, factors={"size": ["1 MB", "0 B"]}))
    assert expand(sweep(**ends, factors={"size": ["0 B"]}, options={"time": "1 s"})).header.totals.trials > 0


def test_a_filter_on_the_rate_compares_rates():
    plan = expand(
        sweep(client="a", destination_service="iperf-b", sweep={"filter": ["rate <= '2 MB/s'"]},
              factors={"mover": ["iperf3"], "size": ["1 MB"], "rate": ["1 MB/s", "2 MB/s", "3 MB/s"]}, repeat=1)
    )  # fmt: skip
    assert plan.header.totals.trials == 2
    with pytest.raises(ScenarioError, match="a rate"):
        expand(
            sweep(client="a", destination_service="iperf-b", sweep={"filter": ["rate <= '2 s'"]},
                  factors={"mover": ["iperf3"], "size": ["1 MB"], "rate": ["1 MB/s", "3 MB/s"]})
        )  # fmt: skip
