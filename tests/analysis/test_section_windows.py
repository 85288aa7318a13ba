"""Throughput against the window: planted runs with the law min(link, n W / RTT), and runs without windows."""

from __future__ import annotations

import pytest
from planted_lab import SEGMENT
from planted_tools import LINK_BIT_PER_S, RTT_S, ToolOutput, tool_run

from venturi.analysis import AnalyseOptions, analyse
from venturi.analysis.sections.windows import windows_section
from venturi.analysis.windows import Route, WindowPoint, window_points

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
            ToolOutput(mover, SIZE, [0.99 * seconds, 1.01 * seconds], {"streams": streams, "window_bytes": window, "block_bytes": 2**18},
                 connections=streams, window_bytes=window, flow_bytes_per_s=rate / 8 / streams, held=0.9 if limit < LINK_BIT_PER_S else 0.0)
        )  # fmt: skip
    return points


def about(run):
    return analyse(run, AnalyseOptions(fits=False)).about


def table(section, name):
    found = next(table for table in section.tables if table.name == name)
    return [dict(zip((column.name for column in found.columns), row, strict=True)) for row in found.rows]


@pytest.fixture(scope="module")
def section(tmp_path_factory):
    run = tool_run(tmp_path_factory.mktemp("windows"), [*curve(1), *curve(4)], ALICE)
    return windows_section(run, about(run))


def test_below_saturation_n_streams_move_n_windows_per_round_trip(section):
    rows = table(section, "window-points")
    limited = [row for row in rows if row["held_by_window_ratio"] > 0.5]
    assert len(limited) == 6  # 16 to 128 KiB with one stream, 16 and 32 KiB with four
    for row in limited:
        assert row["flow_bit_per_s"] == pytest.approx(row["limit_bit_per_s"], rel=1e-9)
        assert row["limit_requested_bit_per_s"] == 8 * row["streams"] * row["requested_window_bytes"] / RTT_S
        assert row["flow_to_expected_ratio"] == pytest.approx(1)
    assert "delivered 1.00 to 1.00 of n · W / RTT" in section.sentence


@pytest.mark.parametrize(("window", "counted"), [(500, 500), (1000, 1000), (2500, 2000)])
def test_a_window_below_one_segment_has_a_limit(window, counted):
    point = WindowPoint(
        point=0, route=Route("a", "b", 1e9, 0.1), mover="cp", streams=2, block_bytes=None, size_bytes=SIZE, requested_bytes=None,
        trials=1, rate_bit_per_s=1.0, error_bit_per_s=None, connections=2.0, window_bytes=float(window), mss_bytes=1000.0,
    )  # fmt: skip
    assert point.limit_bit_per_s == pytest.approx(8 * 2 * counted / 0.1)
    assert point.expected_bit_per_s == point.limit_bit_per_s


def test_the_effective_window_is_taken_from_the_sockets_instead_of_the_request(tmp_path):
    points = [
        ToolOutput(
            "globus-url-copy",
            SIZE,
            [4.0],
            {"window_bytes": requested},
            connections=1,
            window_bytes=131_072,
            flow_bytes_per_s=5e6,
            held=0.9,
        )
        for requested in (2**20, 2**21)
    ]
    found = window_points(tool_run(tmp_path, points))
    assert [(point.requested_bytes, point.window_bytes) for point in found] == [(2**20, 131_072), (2**21, 131_072)]


def test_the_threshold_is_the_first_window_whose_streams_hold_the_bandwidth_delay_product(section):
    rows = {row["streams"]: row for row in table(section, "window-thresholds")}
    bdp = LINK_BIT_PER_S * RTT_S / 8
    assert [rows[n]["bdp_bytes"] for n in (1, 4)] == [bdp, bdp]
    assert [rows[n]["threshold_bytes"] for n in (1, 4)] == [2**18, 2**16]
    assert all(row["outcome"] == "reached" and 1 <= row["in_flight_to_bdp_ratio"] < 2 for row in rows.values())


def test_a_curve_that_keeps_rising_has_no_threshold(tmp_path):
    run = tool_run(tmp_path, curve(1, windows=WINDOWS[:4]))
    (row,) = table(windows_section(run, about(run)), "window-thresholds")
    assert (row["outcome"], row["threshold_bytes"]) == ("not reached", None)
    assert row["gain_ratio"] > 5


def test_the_error_is_the_standard_error_over_trials_and_absent_for_one_trial(section, tmp_path):
    row = table(section, "window-points")[0]
    rates = [8 * SIZE / (fraction * (8 * SIZE / row["limit_bit_per_s"] + LOGIN_S)) for fraction in (0.99, 1.01)]
    assert row["rate_bit_per_s"] == pytest.approx(sum(rates) / 2)
    assert row["error_bit_per_s"] == pytest.approx((rates[0] - rates[1]) / 2)
    one = [ToolOutput("globus-url-copy", SIZE, [4.0], {"window_bytes": window}) for window in WINDOWS[:2]]
    assert [point.error_bit_per_s for point in window_points(tool_run(tmp_path, one))] == [None, None]


def test_each_panel_has_one_curve_per_size_and_the_expected_law(section):
    (figure,) = section.figures
    assert figure.source == "004, figures 8 to 20"
    assert [panel.title.split(",")[0] for panel in figure.panels] == ["1 stream", "4 streams"]
    measured, law = figure.panels[0].series
    assert (measured.name, law.name) == ("20 MB", "n · W / RTT, or the link")
    assert law.y[-1] == LINK_BIT_PER_S
    assert all(low < y < high for low, y, high in zip(measured.low, measured.y, measured.high, strict=True))


def test_published_routes_are_compared_only_with_receivers_of_the_same_name(section):
    (row,) = table(section, "window-routes")
    assert (row["rtt_s"], row["rate_bit_per_s"], row["printed_rtt_s"]) == (RTT_S, LINK_BIT_PER_S, None)


def test_a_run_with_fewer_than_two_windows_has_no_windows_section(tmp_path):
    one = tool_run(tmp_path / "one", curve(1, windows=WINDOWS[:1]))
    none = tool_run(tmp_path / "none", [ToolOutput("cp", SIZE, [1.0], at="a")])
    assert windows_section(one, about(one)) is None
    assert windows_section(none, about(none)) is None


def test_without_sockets_effective_windows_are_absent(tmp_path):
    points = [ToolOutput("globus-url-copy", SIZE, [4.0], {"window_bytes": window}) for window in WINDOWS[:3]]
    run = tool_run(tmp_path, points)
    rows = table(windows_section(run, about(run)), "window-points")
    assert {row["window_in_effect_bytes"] for row in rows} == {row["limit_bit_per_s"] for row in rows} == {None}
