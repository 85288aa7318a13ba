"""The same route with other TCP settings and blocks: planted runs in which hosts of one site differ, and runs in which they do not."""

import dataclasses

import pytest
from planted_tools import Told, tool_run

from venturi.analysis import AnalyseOptions, analyse
from venturi.analysis.chapters.windows_tuning import tuning_table
from venturi.analysis.windows import window_points

SIZE = 1_000_000


@pytest.fixture
def about_with(tmp_path):
    """Return a function that says what is known of a run with these hosts in its testbed."""
    run = tool_run(tmp_path / "any", [Told("xrdcp", SIZE, [1.0])])
    about = analyse(run, AnalyseOptions(fits=False)).about
    return lambda hosts: dataclasses.replace(about, scenario={"testbed": {"host": hosts}})


def test_a_run_whose_hosts_have_the_same_settings_has_no_such_table(tmp_path, about_with):
    told = [Told("xrdcp", SIZE, [1.0]), Told("xrdcp", SIZE, [0.5], {"block_bytes": 2**20})]
    points = window_points(tool_run(tmp_path, told))
    assert tuning_table(points, about_with({})) is None
    assert tuning_table(points, about_with({"a": {"tcp": "wan"}, "b": {"tcp": "wan"}})) is None


def test_points_of_one_route_stand_beside_the_first_of_the_plan_with_what_was_changed(tmp_path, about_with):
    told = [
        Told("globus-url-copy", SIZE, [seconds], {"block_bytes": block}, connections=1, window_bytes=window)
        for seconds, block, window in (
            (4.0, 2**18, 2**16),
            (2.0, 2**20, 2**16),
            (1.0, 2**18, 2**19),
            (0.5, 2**20, 2**19),
        )
    ]
    points = window_points(tool_run(tmp_path, [*told, Told("xrdcp", SIZE, [1.0])]))
    # All calls go from a to b: of the third and fourth we say that they went to a second machine of the same site.
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
