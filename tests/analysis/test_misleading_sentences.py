"""Sentences of reports that were once misleading: each test plants a case and pins the necessary fact."""

import json
import math

import numpy as np
import pytest
from planted import planted_run, product
from planted_lab import NETWORK, RATE_BIT_PER_S, World, lab_run

from venturi.analysis import AnalyseOptions, analyse
from venturi.analysis.claims import ClaimContext, StudyConditions, check_claims, study_conditions
from venturi.analysis.claims.conditions import MIN_CURVE_TRIALS
from venturi.analysis.curves import MIN_FIT_POINTS, MIN_FIT_TRIALS
from venturi.analysis.link_rates import LinkRates, link_rates
from venturi.analysis.reasons import readable_reason
from venturi.analysis.section import Column, ReportSection, Table
from venturi.analysis.sections.routes import limit_use
from venturi.analysis.totals import failure_text
from venturi.run import RunWriter
from venturi.scenario import load_scenario
from venturi.study import study

NO_FITS = AnalyseOptions(fits=False)
GRID = product(files=[1, 2, 5, 10, 20, 30], size_bytes=[10**6, 10**7])
CACHED = {"read_call_bytes": 1.0, "write_call_bytes": 1.0, "read_disk_bytes": 0.03, "write_disk_bytes": 1.0}


def codes(analysis):
    return {finding.code: finding for finding in analysis.findings}


# --- 1: "none failed" over a selection


def test_a_section_claims_no_failure_only_if_no_transfer_of_the_run_failed(tmp_path):
    fails = lambda f, repetition, slot: "reset" if f["files"] == 30 and slot < 2 else None  # noqa: E731
    failing = planted_run(tmp_path / "failing", GRID, fails=fails)
    assert failure_text(failing, 0, "of them") == "24 of 816 transfers in the whole run failed"
    assert failure_text(failing, 24, "of them") == "24 of them failed"
    assert (
        failure_text(failing, 20, "of them") == "20 of them failed, and 24 of 816 transfers in the whole run failed"
    )
    assert failure_text(planted_run(tmp_path / "good", GRID), 0, "of them") == "none failed"


# --- 2: fits of too few points or trials, and fits without explanatory power


@pytest.mark.parametrize(
    ("files", "repeat", "word"),
    [([1, 5, 10], 6, f"3 points, {MIN_FIT_POINTS}"), ([1, 5, 10, 20], 2, f"0 points with {MIN_FIT_TRIALS} trials")],
)
def test_a_fit_needs_points_and_trials_and_the_report_gives_the_reason(tmp_path, files, repeat, word):
    analysis = analyse(planted_run(tmp_path, product(files=files, size_bytes=[10**7]), repeat=repeat))
    (curve,) = [curve for curve in analysis.curves if curve.against == "files"]
    assert curve.fits == ()
    assert word in curve.reason
    assert (analysis.families, analysis.best_families) == ((), ())
    assert "R²" not in analysis.sentence


def test_a_curve_without_dependence_has_no_fit(tmp_path):
    files = [1, 2, 5, 10, 20, 30]
    scatter = dict(zip(files, (1, -1, 1, -1, 1, -1), strict=True))  # not a function of the number of files

    def law(factors, rng):
        return factors["size_bytes"] / 1e8 * (1 + 0.01 * scatter[factors["files"]] + 0.001 * rng.standard_normal())

    analysis = analyse(planted_run(tmp_path, product(files=files, size_bytes=[10**7]), law))
    (curve,) = analysis.curves
    assert curve.independent
    assert curve.fits == ()
    assert "no dependence" in curve.reason
    assert "dependence of throughput per file on the number of parallel files" in analysis.sentence
    assert "R²" not in analysis.sentence


# --- 3: raw JSON as a reason


def test_the_failure_reason_is_the_error_message_of_the_copy_events(tmp_path):
    start = json.dumps({"event": "start", "format": "venturi-copy", "version": 2, "padding": "x" * 400})
    error = {
        "event": "error",
        "path": "a/b",
        "expected": "a file",
        "found": "no such file",
        "advice": "check the path",
    }

    def fails(factors, repetition, slot):
        end = json.dumps(
            {"event": "end", "outcome": "failed", "duration_s": repetition}
        )  # differs from trial to trial
        return "\n".join((start, json.dumps(error), end)) if factors["files"] == 30 and slot == 0 else None

    analysis = analyse(planted_run(tmp_path, GRID, fails=fails), NO_FITS)
    (failure,) = analysis.failures
    assert (failure.error, failure.count) == ("a/b: expected a file, found no such file; check the path", 12)
    assert "{" not in codes(analysis)["transfers-failed"].evidence


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("No space left on device", "No space left on device"),
        (
            '{"event":"start"}\nconnection reset by peer\n{"event":"end","outcome":"failed"}',
            "connection reset by peer",
        ),
        ('exit code 1: {"event":"end","outcome":"rejected","reason":"no certificate"}', "no certificate"),
        (
            '{"event":"error","expected":"a reply","found":"the end of the conn',
            "expected a reply, found the end of the conn",
        ),
        ('{"event":"end","outcome":"failed"}', "the tool printed events, but no error"),
        ("expected {braces} in text", "expected {braces} in text"),
    ],
)
def test_failure_reasons_are_readable(text, reason):
    assert readable_reason(text) == reason


# --- 4: simulated runs


def simulated(run):
    run.backend = "sim"
    return run


def test_a_report_of_a_simulation_does_not_mention_machines_or_emulation(tmp_path):
    count = iter(range(10**6))
    world = World(seconds=lambda factors, direction: 1.0 + 0.01 * next(count))
    run = simulated(lab_run(tmp_path, product(files=[1, 2], size_bytes=[10**6]), world, repeat=8))
    analysis = analyse(run, NO_FITS)
    assert "drift" in codes(analysis)
    assert "few-repetitions" not in codes(analysis)
    assert "a simulated network" in analysis.setting
    texts = [analysis.sentence, *analysis.not_tested, *(f"{f.evidence} {f.advice}" for f in analysis.findings)]
    for word in ("emulated", "quiet machine", "idle machine", "disk that fills", "shared one machine"):
        assert not [text for text in texts if word in text]


def test_a_simulation_with_one_trial_per_point_has_no_finding_about_repetitions(tmp_path):
    analysis = analyse(simulated(planted_run(tmp_path, GRID, repeat=1)), NO_FITS)
    assert "few-repetitions" not in codes(analysis)
    assert "repetitions" not in analysis.caveat


# --- 5 and 6: planned changes of links

UPGRADE = {"time_s": 9.0, "link": "a>r", "set": {"rate_bit_per_s": 2 * RATE_BIT_PER_S}}


def upgraded(tmp_path, monkeypatch, factor=0.5, slower=0.0):
    """Return a run with trials of one second.

    From 9 s on, the link is twice as fast and trials take ``factor`` of a second.
    """
    monkeypatch.setitem(NETWORK, "changes", [UPGRADE])
    clock = [1.0]

    def seconds(factors, direction):
        took = (1.0 if clock[0] < 9.0 else factor) * (1 + slower * clock[0])
        clock[0] += took + 0.2
        return took

    size = int(0.9 * RATE_BIT_PER_S / 8)
    return lab_run(tmp_path, product(files=[1], size_bytes=[size]), World(seconds=seconds), repeat=24)


def test_a_planned_upgrade_is_not_reported_as_drift(tmp_path, monkeypatch):
    analysis = analyse(upgraded(tmp_path, monkeypatch), NO_FITS)
    assert "drift" not in codes(analysis)
    assert analysis.trend is None or analysis.trend.ratio == pytest.approx(1.0, abs=0.02)


def test_a_drift_with_a_planned_upgrade_is_found(tmp_path, monkeypatch):
    analysis = analyse(upgraded(tmp_path, monkeypatch, slower=0.02), NO_FITS)
    assert "drift" in codes(analysis)
    assert 0.5 < analysis.trend.ratio < 0.97


def test_link_use_is_relative_to_the_link_rate_at_that_time(tmp_path, monkeypatch):
    run = upgraded(tmp_path, monkeypatch)
    assert link_rates(run).at("a>r", 8.9) == RATE_BIT_PER_S
    assert link_rates(run).at("a>r", 9.0) == 2 * RATE_BIT_PER_S
    uses = [use for use in analyse(run, NO_FITS).link_use if use.link == "a>r"]
    assert uses
    assert all(RATE_BIT_PER_S < use.rate_bit_per_s <= 2 * RATE_BIT_PER_S for use in uses)
    assert all(use.full_bit_per_s <= 1.02 * use.rate_bit_per_s for use in uses)


def test_a_rate_over_a_window_is_weighted_by_time():
    rates = LinkRates({"l": ((-math.inf, 1.0), (10.0, 3.0))})
    assert rates.mean("l", 5.0, 15.0) == pytest.approx(2.0)
    assert rates.mean("l", 0.0, 10.0) == pytest.approx(1.0)
    assert (rates.highest("l", 0.0, 10.0), rates.highest("l", 0.0, 11.0)) == (1.0, 3.0)
    assert rates.mean("other", 0.0, 1.0) is None


def test_link_use_in_each_interval_is_limited_to_the_capacity_and_keeps_all_bytes():
    rng = np.random.default_rng(1)
    width = np.full(200, 0.5)
    busy = width * rng.uniform(0.2, 1.5, 200)
    limited = limit_use(busy, width)
    assert (limited <= width * (1 + 1e-12)).all()
    assert limited.sum() == pytest.approx(busy.sum())


# --- 7: the page cache


def test_a_source_in_memory_has_no_page_cache_finding(tmp_path):
    metadata = {"kernel": "6.1", "storages": {"gpfs": {"type": "tmpfs"}}}
    analysis = analyse(planted_run(tmp_path, GRID, per_transfer=CACHED, metadata=metadata), NO_FITS)
    assert analysis.about.environment["node1"]["storages.gpfs.type"] == "tmpfs"
    assert "page-cache" not in codes(analysis)
    assert "page cache" not in analysis.caveat


def test_a_run_limited_by_its_destination_disk_has_no_page_cache_warning(tmp_path):
    law = lambda f, rng: f["files"] * f["size_bytes"] / 1e8 * (1 + 0.02 * rng.standard_normal())  # noqa: E731
    analysis = analyse(planted_run(tmp_path, GRID, law, per_transfer=CACHED, samples=True), NO_FITS)
    assert analysis.conservation.device_written_bytes > 0.5 * analysis.conservation.received_bytes
    assert codes(analysis)["page-cache"].severity == "note"
    assert "destination" in codes(analysis)["page-cache"].evidence
    assert "page cache" not in analysis.caveat


# --- 8: claims of a full study in a smaller run


def conditions_of(name, *overrides, on=None, quick=False):
    chosen = study(name)
    document = load_scenario(
        chosen.scenario_path, [*chosen.overrides(quick=quick, on=on or chosen.on), *overrides]
    ).document()
    about = type(
        "About", (), {"scenario": document, "scale": document["scale"], "backend": on or chosen.on or "hosts"}
    )
    return study_conditions(about, chosen)


@pytest.mark.parametrize(
    ("name", "claim", "word"),
    [
        ("what-if/data-to-jobs", "tier-2-gives-more-than-it-had-to", "workload.events"),
        ("what-if/processes", "the-link-limits-then", "clients"),
        ("alice/matrix", "004-houston-gains-a-factor-of-5", "window"),
        ("cnaf/cp", "steepest-below-10-files", "files"),
    ],
)
def test_a_quick_run_does_not_test_claims_that_need_the_full_study(name, claim, word):
    (row,) = [row for row in study(name).published.claims if row["id"] == claim]
    assert word in conditions_of(name, quick=True).missing(row)
    assert conditions_of(name).missing(row) == ""


@pytest.mark.parametrize("name", ["alice/flat", "fiu/xrootd", "ani/squid", "infn-gpfs/group2"])
@pytest.mark.parametrize("on", ["lab", "sim"])
def test_the_default_variant_of_a_study_meets_all_conditions(name, on):
    found = conditions_of(name, on=on)
    assert (found.amounts, found.levels, found.scale) == ({}, {}, None)


def test_additional_factor_values_are_not_missing_conditions():
    found = conditions_of("cnaf/cp", "workload.factors.files=[1, 2, 5, 10, 15, 20, 25, 30, 35, 40, 45, 60]")
    assert found.levels == {}


def test_a_claim_without_its_conditions_is_not_tested_and_names_them():
    table = Table("t", "T", (Column("rate_bit_per_s", "Rate"),), ((5.0,),))
    sections = (ReportSection("s", "S", "", (table,)),)
    claim = {"id": "c", "text": "t", "table": "t", "check": "at_least", "of": "rate_bit_per_s", "limit": 9.0}

    def check(conditions):
        return check_claims([claim], (), 0.95, ClaimContext({}, sections=sections, conditions=conditions))[0]

    assert check(StudyConditions()).verdict == "disagrees"
    found = check(StudyConditions(amounts={"workload.events": (4000, 200)}))
    assert found.verdict == "not tested"
    assert "workload.events = 200 instead of 4000" in found.evidence


def test_a_claim_about_curves_needs_repetitions():
    few = StudyConditions(repeat=(200, 2))
    assert str(MIN_CURVE_TRIALS) in few.missing({"check": "decreasing", "against": "files"})
    assert few.missing({"check": "increasing", "table": "t", "of": "x", "against": "files"}) == ""


# --- 9: ties


def peak(rows, values):
    table = Table("t", "T", (Column("group", "Group"), Column("rate_bit_per_s", "Rate")), rows)
    claim = {"id": "c", "text": "t", "table": "t", "check": "peak_at", "of": "rate_bit_per_s", "against": "group", "values": values}  # fmt: skip
    return check_claims([claim], (), 0.95, ClaimContext({}, sections=(ReportSection("s", "S", "", (table,)),)))[0]


def test_equal_values_are_no_evidence_for_a_peak():
    assert peak((("a", 1.0), ("b", 1.0), ("c", 1.0 + 1e-15)), ["b"]).verdict == "not tested"
    assert "tie" in peak((("a", 1.0), ("b", 1.0)), ["b"]).evidence
    assert peak((("a", 1.0), ("b", 2.0)), ["b"]).verdict == "agrees"
    assert peak((("a", 1.0), ("b", 2.0), ("c", 2.0)), ["b", "c"]).verdict == "agrees"
    assert peak((("a", 3.0), ("b", 2.0), ("c", 3.0)), ["b"]).verdict == "disagrees"


def test_an_increase_within_rounding_error_is_not_an_increase():
    table = Table(
        "t", "T", (Column("files", "Files"), Column("rate_bit_per_s", "Rate")), ((1, 1.0), (2, 1.0 + 1e-12))
    )
    claim = {"id": "c", "text": "t", "table": "t", "check": "increasing", "of": "rate_bit_per_s", "against": "files"}
    context = ClaimContext({}, sections=(ReportSection("s", "S", "", (table,)),))
    assert check_claims([claim], (), 0.95, context)[0].verdict == "disagrees"


# --- 10: fixed costs


def test_a_timed_transfer_is_not_treated_as_an_empty_file(tmp_path):
    """A closed-loop load requests no bytes but moves 15 GB in a minute."""
    points = product(files=[2], size_bytes=[0])
    empty = analyse(planted_run(tmp_path / "empty", points, lambda f, rng: 0.3), NO_FITS)
    assert [cost.median_s for cost in empty.fixed_costs] == [pytest.approx(0.3)]
    moving = analyse(moved_without_request(tmp_path / "load", points), NO_FITS)
    assert moving.fixed_costs == ()
    assert "empty file" not in moving.sentence
    assert "fixed cost" not in moving.sentence


def moved_without_request(base, points):
    original = RunWriter.trial

    def trial(self, record, host):
        for transfer in record["transfers"]:
            transfer["received_bytes"] = None
            transfer["tool_bytes"] = 15_000_000_000
        original(self, record, host)

    patch = pytest.MonkeyPatch()
    try:
        patch.setattr(RunWriter, "trial", trial)
        return planted_run(base, points, lambda f, rng: 60.8)
    finally:
        patch.undo()
