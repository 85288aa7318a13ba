"""Two runs side by side, with planted ratios."""

import numpy as np
import pytest
from planted import planted_run, product, share_law

from venturi.analysis import analyse, compare
from venturi.errors import SampleError

GRID = product(files=[1, 2, 5, 10], size_bytes=[10**6, 10**7])


def twice(factors, rng):
    return share_law(factors, rng) / 2


def test_a_run_at_twice_the_speed_is_faster_at_every_point_with_twice_the_total(tmp_path):
    slow, fast = planted_run(tmp_path / "a", GRID, seed=1), planted_run(tmp_path / "b", GRID, twice, seed=2)
    result = compare(slow, fast)
    assert result.verdicts == {"faster": len(GRID)}
    assert result.overall.contains(2.0)
    assert result.total.ratio == pytest.approx(2.0, rel=0.02)
    assert abs(result.total.ratio - 2) < 4 * result.total.error
    assert compare(fast, slow).verdicts == {"slower": len(GRID)}


def test_two_equivalent_runs_are_the_same_within_the_margin(tmp_path):
    one, other = (planted_run(tmp_path / str(seed), GRID, seed=seed, repeat=20) for seed in (3, 4))
    result = compare(one, other, margin=0.05)
    # 2 % of scatter over 20 trials: intervals of about ±1.3 %, well inside the margin.
    assert result.verdicts == {"same within margin": len(GRID)}
    assert 0.98 < result.overall.estimate < 1.02


def test_runs_with_one_mover_each_are_matched_by_the_other_factors(tmp_path):
    cp = planted_run(tmp_path / "a", [{**point, "mover": "cp"} for point in GRID])
    other = planted_run(tmp_path / "b", [{**point, "mover": "rsync"} for point in GRID], twice)
    result = compare(cp, other)
    assert len(result.points) == len(GRID)
    assert "mover" not in result.points[0].factors
    assert ("mover", "cp", "rsync") in {(d.where, d.first, d.second) for d in result.differences}


def test_points_of_only_one_run_are_counted_and_totals_use_common_points(tmp_path):
    more = product(files=[1, 2, 5, 10, 45], size_bytes=[10**6, 10**7])
    result = compare(planted_run(tmp_path / "a", more), planted_run(tmp_path / "b", GRID))
    assert result.unmatched == (2, 0)
    assert (result.total.points, result.total.files_high) == (8, 10)


def test_runs_without_a_common_point_report_it(tmp_path):
    a, b = planted_run(tmp_path / "a", GRID), planted_run(tmp_path / "b", product(files=[3], size_bytes=[10**9]))
    result = compare(a, b)
    assert "no point in common" in result.sentence
    assert (result.total, result.overall, result.points) == (None, None, ())


def test_differences_of_scenario_and_environment_are_listed_and_clocks_are_not(tmp_path):
    a = planted_run(tmp_path / "a", GRID, metadata={"kernel": "6.1", "clock": {"offset_s": 0.1}})
    b = planted_run(tmp_path / "b", GRID, metadata={"kernel": "6.8", "clock": {"offset_s": 0.2}}, repeat=7)
    found = {d.where: (d.first, d.second) for d in compare(a, b).differences}
    assert found["node1: kernel"] == ("6.1", "6.8")
    assert found["scenario: workload.repeat"] == ("6", "7")
    assert not any("clock" in where for where in found)


def test_a_run_with_one_trial_per_point_gives_no_ratio(tmp_path):
    result = compare(planted_run(tmp_path / "a", GRID, repeat=1), planted_run(tmp_path / "b", GRID))
    assert result.verdicts == {"cannot tell": len(GRID)}
    assert all(point.throughput is None for point in result.points)


def test_analyses_compare_like_their_runs_and_a_zero_margin_is_rejected(tmp_path):
    a, b = planted_run(tmp_path / "a", GRID), planted_run(tmp_path / "b", GRID, twice)
    from_runs, from_analyses = compare(a, b), compare(analyse(a), analyse(b))
    assert [p.throughput for p in from_runs.points] == [p.throughput for p in from_analyses.points]
    with pytest.raises(SampleError, match="margin"):
        compare(a, b, margin=0)
    assert np.isfinite(from_runs.overall.estimate)
