"""Findings of runs, claims and their verdicts, and runs with few results."""

import json

import numpy as np
import pytest
from planted import planted_run, product, share_law

from venturi.analysis import analyse, as_plain
from venturi.analysis.claims import check_claims
from venturi.run import Finding

GRID = product(files=[1, 2, 5, 10, 20, 30], size_bytes=[10**6, 10**7])
COUNTS = {"read_call_bytes": 1.0, "write_call_bytes": 1.0, "read_disk_bytes": 1.0, "write_disk_bytes": 1.0}


def codes(analysis):
    return {finding.code: finding for finding in analysis.findings}


def test_a_clean_run_has_no_findings(tmp_path):
    analysis = analyse(planted_run(tmp_path, GRID, per_transfer=COUNTS))
    assert [finding for finding in analysis.findings if finding.severity == "warning"] == []
    assert analysis.conservation.received_ratio == analysis.conservation.write_call_ratio == 1.0


def test_planted_failures_are_counted_named_and_excluded_from_rates(tmp_path):
    fails = lambda f, repetition, slot: "No space left on device" if f["files"] == 30 and slot < 2 else None  # noqa: E731
    analysis = analyse(planted_run(tmp_path, GRID, fails=fails))
    lost = 2 * 2 * 6
    assert analysis.counts.transfers_failed == lost
    (failure,) = analysis.failures
    assert (failure.error, failure.count, failure.points) == ("No space left on device", lost, 2)
    assert f"{lost} of 816 transfers failed" in analysis.caveat
    assert "No space left on device" in codes(analysis)["transfers-failed"].evidence
    point = next(p for p in analysis.points if p.files == 30)
    assert (point.transfers_failed, point.transfers_ok) == (12, 28 * 6)
    assert point.throughput_bytes_per_s == pytest.approx(1e9 / 30, rel=0.02)


@pytest.mark.parametrize(
    ("fraction", "cache", "severity"), [(0.03, "as_is", "warning"), (0.03, "warm", "note"), (1.0, "as_is", None)]
)
def test_reads_from_the_page_cache_are_detected_by_the_bytes_read_from_disk(tmp_path, fraction, cache, severity):
    scenario = {"workload": {"kind": "sweep", "repeat": 6, "cache": cache}}
    analysis = analyse(
        planted_run(tmp_path, GRID, scenario=scenario, per_transfer={**COUNTS, "read_disk_bytes": fraction})
    )
    found = codes(analysis).get("page-cache")
    assert (found.severity if found else None) == severity
    if found:
        assert "read from disk: 3 %" in found.evidence
        assert "page cache" in analysis.caveat


@pytest.mark.parametrize(
    ("source", "read"),
    [("zero", 1.0), ("elsewhere", 1.0), ("gpfs", 0.0)],
    ids=["made up", "on another host", "by a server"],
)
def test_a_process_without_local_reads_has_no_page_cache_finding(tmp_path, source, read):
    counts = {**COUNTS, "read_call_bytes": read, "read_disk_bytes": 0.0}
    analysis = analyse(planted_run(tmp_path, GRID, per_transfer=counts, source=source))
    assert "page-cache" not in codes(analysis)
    assert analysis.conservation.read_disk_ratio is None


def test_a_warm_cache_in_a_cold_scenario_is_a_finding(tmp_path):
    scenario = {"workload": {"kind": "sweep", "repeat": 6, "cache": "cold"}}
    state = {"state": "warm", "method": "fadvise", "resident_ratio": 0.4}
    analysis = analyse(planted_run(tmp_path, GRID, scenario=scenario, cache=state))
    assert "72 of 72 trials; 40 % of the pages" in codes(analysis)["cache-not-cold"].evidence


@pytest.mark.parametrize(
    ("column", "fraction", "code"),
    [("write_call_bytes", 0.0, "kernel-count-differs"), ("received_bytes", 0.99, "bytes-differ")],
)
def test_disagreeing_byte_counts_are_a_finding(tmp_path, column, fraction, code):
    analysis = analyse(planted_run(tmp_path, GRID, per_transfer={**COUNTS, column: fraction}))
    assert code in codes(analysis)


def test_a_planted_drift_is_found_with_its_size_and_a_steady_run_has_none(tmp_path):
    count = iter(range(10**6))

    def slower(factors, rng):
        return share_law(factors, rng) * (1 + 0.3 * next(count) / 816)

    drifting = analyse(planted_run(tmp_path / "drift", GRID, slower))
    assert "drift" in codes(drifting)
    assert drifting.trend.ratio == pytest.approx(1 / 1.3, abs=0.03)
    assert "drift" not in codes(analyse(planted_run(tmp_path / "steady", GRID)))


def test_outliers_are_labelled_and_kept(tmp_path):
    count = iter(range(10**6))

    def law(factors, rng):
        return share_law(factors, rng) * (5 if next(count) == 7 else 1)

    analysis = analyse(planted_run(tmp_path, product(files=[1], size_bytes=[10**8]), law, repeat=20))
    (point,) = analysis.points
    assert point.outliers == 1
    assert point.throughput_without_outliers_bytes_per_s > point.throughput_bytes_per_s
    assert "outliers" in codes(analysis)


def test_findings_of_the_run_are_counted_and_not_reported_twice(tmp_path):
    findings = [
        Finding("start-spread", "node1", "ptrace is not allowed", "allow it", trial=f"t{i:07d}") for i in range(3)
    ]
    analysis = analyse(planted_run(tmp_path, GRID, findings=findings))
    found = [finding for finding in analysis.findings if finding.code == "start-spread"]
    assert [(finding.count, finding.evidence) for finding in found] == [(3, "ptrace is not allowed")]


def test_counters_become_traces_of_the_planted_rates(tmp_path):
    law = lambda f, rng: 2.0 * (1 + 0.01 * rng.standard_normal())  # noqa: E731
    analysis = analyse(planted_run(tmp_path, product(files=[1, 2], size_bytes=[10**6]), law, samples=True))
    (series,) = analysis.series
    traces = {trace.name: trace for trace in series.traces}
    assert np.allclose(traces["processor"].mean, 0.25)
    assert np.allclose(traces["disk written"].mean, 1e8)
    assert np.allclose(traces["disk read"].high, 5e7)
    assert "network received" not in traces
    assert analysis.conservation.device_written_bytes == pytest.approx(1e8 * series.busy[-1][1], rel=0.05)


def test_the_steady_state_of_a_long_trial_is_found(tmp_path):
    analysis = analyse(
        planted_run(tmp_path, product(files=[1], size_bytes=[10**9]), lambda f, rng: 12.0, repeat=2, samples=True)
    )
    (steady,) = analysis.steady
    assert steady.counter == "disk written"
    assert steady.steady_bytes_per_s == pytest.approx(1e8, rel=1e-6)


# --- claims


@pytest.fixture(scope="module")
def against_cnaf(tmp_path_factory):
    law = lambda f, rng: (0.01 + f["files"] * f["size_bytes"] / 1e9) * (1 + 0.01 * rng.standard_normal())  # noqa: E731
    run = planted_run(tmp_path_factory.mktemp("cnaf"), product(files=[1, 2, 5, 10, 20, 45], size_bytes=[10**6, 10**7, 10**8, 10**9]),
                      law, scenario={"study": "cnaf/cp"})  # fmt: skip
    return analyse(run)


def test_true_claims_agree_and_false_claims_disagree_with_evidence(against_cnaf):
    verdicts = {claim.id: claim for claim in against_cnaf.claims}
    assert verdicts["falls-with-files"].verdict == "agrees"
    assert verdicts["steepest-below-10-files"].verdict == "agrees"
    assert verdicts["falls-with-size"].verdict == "disagrees"  # because of the fixed cost, throughput rises with size
    assert verdicts["falls-with-size"].evidence.startswith("6 of 6 curves disagree; ")


def test_published_values_are_compared_with_ours(against_cnaf):
    (total,) = against_cnaf.published_totals
    assert total.total_bytes_per_s == 0.76e9
    assert total.ratio == pytest.approx(total.ours.mean_bytes_per_s / 0.76e9)
    by_axis = {fit.against: fit for fit in against_cnaf.published_fits}
    assert (by_axis["files"].mean_r2_table, by_axis["files"].mean_r2_text) == (0.93, 0.97)
    assert by_axis["size"].ours_best.family == "setup"
    assert "000-E14" in {erratum.id for erratum in against_cnaf.errata}


def test_a_claim_cannot_be_checked_without_repetitions_without_curves_or_without_a_check(tmp_path, against_cnaf):
    once = analyse(planted_run(tmp_path, GRID, repeat=1, scenario={"study": "cnaf/cp"}))
    of_curves = [claim for claim in once.claims if claim.published is None]
    assert {claim.verdict for claim in of_curves} == {"not tested"}
    assert all("repetitions" in claim.evidence for claim in of_curves)
    assert {claim.verdict for claim in once.claims if claim.published} == {"not tested"}  # the run has no such table
    unknown = [
        {"id": "a", "text": "t", "check": "sings", "against": "files"},
        {"id": "b", "text": "t", "check": "flat", "against": "streams"},
    ]
    assert [claim.verdict for claim in check_claims(unknown, against_cnaf.curves, 0.95)] == [
        "cannot tell",
        "cannot tell",
    ]


def test_a_flat_curve_agrees_with_flat_and_refutes_a_fall(tmp_path):
    law = lambda f, rng: f["size_bytes"] / 1e8 * (1 + 0.005 * rng.standard_normal())  # noqa: E731
    analysis = analyse(planted_run(tmp_path, product(files=[1, 2, 5, 10], size_bytes=[10**7]), law, repeat=10))
    claims = [
        {"id": check, "text": "t", "check": check, "against": "files"}
        for check in ("flat", "decreasing", "increasing")
    ]
    verdicts = [claim.verdict for claim in check_claims(claims, analysis.curves, 0.95)]
    assert verdicts == ["agrees", "disagrees", "disagrees"]


# --- runs with few results

EMPTY = {"points": product(files=[1], size_bytes=[10**6]), "done": 0}
ALL_FAILED = {"points": product(files=[2], size_bytes=[10**6]), "fails": lambda f, r, s: "Permission denied"}
ONE_POINT = {"points": product(files=[4], size_bytes=[10**7])}
ONCE = {"points": GRID, "repeat": 1}
ZERO_SIZE = {"points": product(files=[1, 2], size_bytes=[0])}
UNFINISHED = {"points": GRID, "done": 10}


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (EMPTY, "Nothing was measured: no trial has finished."),
        (ALL_FAILED, "Nothing was measured: all 12 transfers failed."),
        (ONE_POINT, "With files of 10 MB, 4 cp in parallel move"),
        (ONCE, "Too few repetitions"),
        (ONCE, "(one trial)"),
        (ZERO_SIZE, "a fixed cost and not a rate"),
        (UNFINISHED, "10 of 72 planned trials"),
    ],
    ids=["empty", "all failed", "one point", "once", "once, why no interval", "zero size", "unfinished"],
)
def test_the_summary_is_correct_for_runs_with_little_data(tmp_path, case, expected):
    case = dict(case)
    analysis = analyse(planted_run(tmp_path, case.pop("points"), **case))
    assert expected in analysis.sentence
    json.dumps(as_plain(analysis), allow_nan=False)


def test_the_summary_of_a_stopped_run_compares_equal_sizes(tmp_path):
    """Few small files and many large ones are not comparable, although both are in the table."""
    sizes = product(files=[1], size_bytes=[10**6]) + product(files=[2, 8], size_bytes=[10**8])
    analysis = analyse(planted_run(tmp_path, sizes))
    assert "With files of 100 MB, 2 cp in parallel move" in analysis.sentence
    assert "and 8 in parallel" in analysis.sentence


def test_saturation_is_reported_at_measured_numbers_of_files(tmp_path):
    """One size saturates at 2 files and the other at 4. No trial had 3 files."""

    def law(factors, rng):
        best = 2 if factors["size_bytes"] == 10**6 else 4
        return factors["size_bytes"] * max(factors["files"], best) / 1e9 * (1 + 0.001 * rng.standard_normal())

    analysis = analyse(planted_run(tmp_path, product(files=[1, 2, 4, 8], size_bytes=[10**6, 10**7]), law))
    assert "total stops rising at 2 to 4 files" in analysis.sentence


def test_totals_are_named_with_readable_factor_values(tmp_path):
    points = [
        factors | {"block_bytes": block}
        for block in (4096, 2**20)
        for factors in product(files=[1, 2], size_bytes=[10**6])
    ]
    names = [total.name for total in analyse(planted_run(tmp_path, points)).totals]
    assert names == ["block 4 KiB", "block 1 MiB"]


def test_one_repetition_gives_rates_without_errors_or_intervals(tmp_path):
    analysis = analyse(planted_run(tmp_path, GRID, repeat=1))
    assert all(
        point.throughput_bytes_per_s and point.interval is None and point.error_bytes_per_s is None
        for point in analysis.points
    )
    assert all("once" in " ".join(point.absent) for point in analysis.points)


def test_the_same_run_gives_the_same_analysis_and_its_json_form_is_versioned(tmp_path):
    run = planted_run(tmp_path, GRID, repeat=14)
    first, second = as_plain(analyse(run)), as_plain(analyse(run))
    assert first == second
    assert (first["format"], first["version"]) == ("venturi-analysis", 1)
    assert "trials" not in first
    assert first["counts"]["trials"] == 12 * 14
