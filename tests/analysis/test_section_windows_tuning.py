"""The same route with other TCP settings and blocks: planted runs with different and with equal hosts of one site."""

import dataclasses

import pytest
from planted_tools import ToolOutput, tool_run

from venturi.analysis import AnalyseOptions, analyse
from venturi.analysis.sections.windows_tuning import tuning_table
from venturi.analysis.windows import window_points

SIZE = 1_000_000


@pytest.fixture
def about_with(tmp_path):
    """Return a function that returns the metadata of a run with these hosts in its testbed."""
    run = tool_run(tmp_path / "any", [ToolOutput("xrdcp", SIZE, [1.0])])
    about = analyse(run, AnalyseOptions(fits=False)).about
    return lambda hosts: dataclasses.replace(about, scenario={"testbed": {"host": hosts}})


def test_a_run_with_equal_host_settings_has_no_tuning_table(tmp_path, about_with):
    output = [ToolOutput("xrdcp", SIZE, [1.0]), ToolOutput("xrdcp", SIZE, [0.5], {"block_bytes": 2**20})]
    points = window_points(tool_run(tmp_path, output))
    assert tuning_table(points, about_with({})) is None
    assert tuning_table(points, about_with({"a": {"tcp": "wan"}, "b": {"tcp": "wan"}})) is None


def test_points_of_one_route_are_compared_with_the_first_and_list_the_changes(tmp_path, about_with):
    output = [
        ToolOutput("globus-url-copy", SIZE, [seconds], {"block_bytes": block}, connections=1, window_bytes=window)
        for seconds, block, window in (
            (4.0, 2**18, 2**16),
            (2.0, 2**20, 2**16),
            (1.0, 2**18, 2**19),
            (0.5, 2**20, 2**19),
        )
    ]
    points = window_points(tool_run(tmp_path, [*output, ToolOutput("xrdcp", SIZE, [1.0])]))
    # All calls are from a to b. For the third and fourth point, pretend that they went to another machine of the same
    # site.
    tuned = dataclasses.replace(points[0].route, receiver="b-tuned")
    moved = [dataclasses.replace(point, route=tuned) if point.point in (2, 3) else point for point in points]
    hosts = {"a": {"site": "CNAF"}, "b": {"site": "Prague"}, "b-tuned": {"site": "Prague", "tcp": "wan"}}
    table = tuning_table(moved, about_with(hosts))
    rows = [dict(zip([column.name for column in table.columns], row, strict=True)) for row in table.rows]
    assert {row["route"] for row in rows} == {"CNAF to Prague"}
    assert [(row["changed"], row["tcp"], row["block_bytes"]) for row in rows] == [
        ("I/O block", "default", 2**20),
        ("TCP settings", "default to wan", 2**18),
        ("TCP settings and I/O block", "default to wan", 2**20),
    ]
    assert [row["gain_ratio"] for row in rows] == pytest.approx([2, 4, 8])
    windows = [(row["first_window_bytes"], row["window_in_effect_bytes"]) for row in rows]
    assert windows == [(2**16, 2**16), (2**16, 2**19), (2**16, 2**19)]
    assert all(row["first_bit_per_s"] == pytest.approx(8 * SIZE / 4) for row in rows)
