"""Several runs in the form of table IV: totals over each run's own grid and over the points that all runs have."""

from __future__ import annotations

import io
import json

import pytest
from planted import planted_run, product
from rich.console import Console

from venturi import report
from venturi.analysis import AnalyseOptions, Analysis, analyse, compare_scenarios
from venturi.errors import SampleError

NO_FITS = AnalyseOptions(fits=False)


def planted(base, name, rate, files=(1, 2, 4), **others) -> Analysis:
    points = product(files=files, size_bytes=[10**8, 10**9], **others)

    def law(factors, rng):
        slow = 1 / factors.get("streams", 1)
        return factors["size_bytes"] * factors["files"] / rate * slow * (1 + 0.001 * rng.standard_normal())

    return analyse(planted_run(base / name, points, law, name=name), NO_FITS)


def test_rows_have_totals_and_ratios_to_the_first_and_the_previous_row(tmp_path):
    scenarios = compare_scenarios(
        [planted(tmp_path, "one", 8e8), planted(tmp_path, "two", 4e8), planted(tmp_path, "three", 1e8)]
    )
    assert [row.run for row in scenarios.rows] == ["one", "two", "three"]
    assert [row.of_first for row in scenarios.rows][1:] == pytest.approx([0.5, 0.125], rel=0.01)
    assert [row.of_previous for row in scenarios.rows][1:] == pytest.approx([0.5, 0.25], rel=0.01)
    for row in scenarios.rows[1:]:
        assert row.of_first_error is not None and 0 < row.of_first_error < 0.01 * row.of_first
    # files × throughput per file is the total rate, because n files share it.
    assert scenarios.rows[0].whole.mean_bytes_per_s == pytest.approx(8e8, rel=0.01)


def test_different_grids_are_compared_over_their_common_points(tmp_path):
    wide = planted(tmp_path, "wide", 8e8, files=(1, 2, 4, 8))
    narrow = planted(tmp_path, "narrow", 8e8, files=(1, 2))
    scenarios = compare_scenarios([wide, narrow])
    assert scenarios.common_points == 4
    assert [row.whole.points for row in scenarios.rows] == [8, 4]
    assert [row.common.points for row in scenarios.rows if row.common] == [4, 4]


def test_an_additional_factor_gives_one_row_per_value(tmp_path):
    streams = planted(tmp_path, "streams", 4e8, streams=[1, 2])
    scenarios = compare_scenarios([planted(tmp_path, "one", 8e8), streams])
    assert [row.whole.others.get("streams") for row in scenarios.rows] == [None, 1, 2]
    assert scenarios.rows[2].of_first == pytest.approx(1.0, rel=0.01)


def test_runs_without_a_common_point_have_no_ratio_and_the_sentence_reports_it(tmp_path):
    scenarios = compare_scenarios([planted(tmp_path, "a", 1e8, files=(1,)), planted(tmp_path, "b", 1e8, files=(2,))])
    assert scenarios.common_points == 0
    assert all(row.common is None and row.of_first is None for row in scenarios.rows)
    assert "no point in common" in scenarios.sentence


def test_a_run_without_successful_transfers_is_rejected_by_name(tmp_path):
    points = product(files=[1], size_bytes=[10**6])
    failed = analyse(planted_run(tmp_path / "f", points, fails=lambda *_: "disk on fire", name="broken"), NO_FITS)
    with pytest.raises(SampleError, match="broken: expected points with a throughput, found none"):
        compare_scenarios([planted(tmp_path, "good", 1e8), failed])


def test_all_output_formats_show_every_row(tmp_path):
    scenarios = compare_scenarios(
        [planted(tmp_path, name, rate) for name, rate in (("p", 3e8), ("q", 2e8), ("r", 1e8))]
    )
    plain = json.loads(report.json(scenarios))
    assert (plain["format"], [row["run"] for row in plain["rows"]]) == ("venturi-scenarios", ["p", "q", "r"])
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(report.terminal(scenarios))
    page = report.html(scenarios)
    for text in (console.export_text(), page):
        assert all(name in text for name in ("p", "q", "r", "300 MB/s", "100 MB/s"))
