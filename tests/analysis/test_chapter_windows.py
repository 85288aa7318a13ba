"""Throughput against the window: planted runs whose law is min(link, n W / RTT), and runs that say nothing of windows."""

from __future__ import annotations

import pytest
from planted_lab import SEGMENT
from planted_tools import LINK_BIT_PER_S, RTT_S, Told, tool_run

from venturi.analysis import AnalyseOptions, analyse
from venturi.analysis.chapters.windows import windows_chapter
from venturi.analysis.windows import window_points

WINDOWS = [2**power for power in range(14, 21)]
SIZE = 20_000_000
LOGIN_S = 0.2
ALICE = {"study": "alice/matrix"}


def curve(streams, *, mover="globus-url-copy", windows=WINDOWS):
    """Points of a curve that saturates exactly at a window of link x RTT / streams."""
    points = []
    for window in windows:
        filled = window // SEGMENT * SEGMENT
        limit = 8 * streams * filled / RTT_S
        rate = min(limit, LINK_BIT_PER_S)
        seconds = 8 * SIZE / rate + LOGIN_S
        points.append(
            Told(mover, SIZE, [0.99 * seconds, 1.01 * seconds], {"streams": streams, "window_bytes": window, "block_bytes": 2**18},
                 connections=streams, window_bytes=window, flow_bytes_per_s=rate / 8 / streams, held=0.9 if limit < LINK_BIT_PER_S else 0.0)
        )  # fmt: skip
    return points


def about(run):
    return analyse(run, AnalyseOptions(fits=False)).about


def table(chapter, name):
    found = next(table for table in chapter.tables if table.name == name)
    return [dict(zip((column.name for column in found.columns), row, strict=True)) for row in found.rows]


@pytest.fixture(scope="module")
def chapter(tmp_path_factory):
    run = tool_run(tmp_path_factory.mktemp("windows"), [*curve(1), *curve(4)], ALICE)
    return windows_chapter(run, about(run))


def test_below_saturation_n_windows_flow_a_round_trip(chapter):
    rows = table(chapter, "window-points")
    limited = [row for row in rows if row["held_by_window_ratio"] > 0.5]
    assert len(limited) == 6  # 16 to 128 KiB with one stream, 16 and 32 KiB with four
    for row in limited:
        assert row["flow_bit_per_s"] == pytest.approx(row["limit_bit_per_s"], rel=1e-9)
        assert row["limit_asked_bit_per_s"] == 8 * row["streams"] * row["window_asked_bytes"] / RTT_S
        assert row["flow_to_expected_ratio"] == pytest.approx(1)
    assert "delivered 1.00 to 1.00 of n · W / RTT" in chapter.sentence


def test_the_window_in_effect_is_that_of_the_sockets_and_not_the_one_asked_for(tmp_path):
    points = [
        Told(
            "globus-url-copy",
            SIZE,
            [4.0],
            {"window_bytes": asked},
            connections=1,
            window_bytes=131_072,
            flow_bytes_per_s=5e6,
            held=0.9,
        )
        for asked in (2**20, 2**21)
    ]
    found = window_points(tool_run(tmp_path, points))
    assert [(point.asked_bytes, point.window_bytes) for point in found] == [(2**20, 131_072), (2**21, 131_072)]


def test_the_threshold_is_the_first_window_whose_streams_hold_the_bandwidth_delay_product(chapter):
    rows = {row["streams"]: row for row in table(chapter, "window-thresholds")}
    bdp = LINK_BIT_PER_S * RTT_S / 8
    assert [rows[n]["bdp_bytes"] for n in (1, 4)] == [bdp, bdp]
    assert [rows[n]["threshold_bytes"] for n in (1, 4)] == [2**18, 2**16]
    assert all(row["outcome"] == "reached" and 1 <= row["in_flight_to_bdp_ratio"] < 2 for row in rows.values())


def test_a_curve_that_goes_on_rising_has_no_threshold(tmp_path):
    run = tool_run(tmp_path, curve(1, windows=WINDOWS[:4]))
    (row,) = table(windows_chapter(run, about(run)), "window-thresholds")
    assert (row["outcome"], row["threshold_bytes"]) == ("not reached", None)
    assert row["gain_ratio"] > 5


def test_the_error_is_the_standard_error_over_the_trials_and_absent_of_one(chapter, tmp_path):
    row = table(chapter, "window-points")[0]
    rates = [8 * SIZE / (share * (8 * SIZE / row["limit_bit_per_s"] + LOGIN_S)) for share in (0.99, 1.01)]
    assert row["rate_bit_per_s"] == pytest.approx(sum(rates) / 2)
    assert row["error_bit_per_s"] == pytest.approx((rates[0] - rates[1]) / 2)
    one = [Told("globus-url-copy", SIZE, [4.0], {"window_bytes": window}) for window in WINDOWS[:2]]
    assert [point.error_bit_per_s for point in window_points(tool_run(tmp_path, one))] == [None, None]


def test_each_panel_has_a_curve_a_size_and_the_law_beside_it(chapter):
    (figure,) = chapter.figures
    assert figure.source == "004, figures 8 to 20"
    assert [panel.title.split(",")[0] for panel in figure.panels] == ["1 stream", "4 streams"]
    measured, law = figure.panels[0].series
    assert (measured.name, law.name) == ("20 MB", "n · W / RTT, or the link")
    assert law.y[-1] == LINK_BIT_PER_S
    assert all(low < y < high for low, y, high in zip(measured.low, measured.y, measured.high, strict=True))


def test_published_routes_stand_beside_a_receiving_host_of_that_name_only(chapter):
    (row,) = table(chapter, "window-routes")
    assert (row["rtt_s"], row["rate_bit_per_s"], row["printed_rtt_s"]) == (RTT_S, LINK_BIT_PER_S, None)


def test_a_run_with_one_window_or_none_has_no_such_chapter(tmp_path):
    one = tool_run(tmp_path / "one", curve(1, windows=WINDOWS[:1]))
    none = tool_run(tmp_path / "none", [Told("cp", SIZE, [1.0], at="a")])
    assert windows_chapter(one, about(one)) is None
    assert windows_chapter(none, about(none)) is None


def test_without_sockets_windows_in_effect_are_absent_and_not_those_asked_for(tmp_path):
    points = [Told("globus-url-copy", SIZE, [4.0], {"window_bytes": window}) for window in WINDOWS[:3]]
    run = tool_run(tmp_path, points)
    rows = table(windows_chapter(run, about(run)), "window-points")
    assert {row["window_in_effect_bytes"] for row in rows} == {row["limit_bit_per_s"] for row in rows} == {None}
