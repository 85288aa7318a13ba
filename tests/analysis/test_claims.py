"""Checks of claims, and published rows with a range, against planted curves."""

import numpy as np
import pytest
from planted import planted_run, product
from planted_lab import RATE_BIT_PER_S, World, lab_run

from venturi.analysis import AnalyseOptions, analyse
from venturi.analysis.claims import CHECKS, Facts, judge_claims
from venturi.analysis.published import published_fits, published_rates, published_totals, restricted
from venturi.analysis.totals import totals
from venturi.study import Published

NO_FITS = AnalyseOptions(fits=False)
SIZES = [10**7, 10**8, 2 * 10**8, 5 * 10**8, 10**9, 2 * 10**9]


def judged(analysis, **claim):
    facts = Facts({p.point: p for p in analysis.points}, analysis.storage_rates, analysis.link_use,
                  RATE_BIT_PER_S / 8 if analysis.testbed else None, analysis.about.scale)  # fmt: skip
    (found,) = judge_claims([{"id": "c", "text": "t", **claim}], analysis.curves, 0.95, facts)
    return found


@pytest.fixture(scope="module")
def risen(tmp_path_factory):
    """Throughput of one file rises as 0.3 s of fixed cost matter less, and shares a rate above 10 files."""

    def law(factors, rng):
        if factors["size_bytes"] == 0:
            return 0.3 * (1 + 0.001 * rng.standard_normal())
        slow = 2.0 if factors["size_bytes"] == 10**7 else 1.0  # small files gain most by the correction
        return (0.3 + factors["size_bytes"] * factors["files"] / slow / 1e9) * (1 + 0.001 * rng.standard_normal())

    points = product(files=[1, 5, 20], size_bytes=[0, *SIZES])
    return analyse(planted_run(tmp_path_factory.mktemp("risen"), points, law, repeat=12))


def test_most_of_a_rise_is_found_where_it_is(risen):
    below = {"check": "most_of_rise_below", "against": "size", "files_max": 1}
    assert judged(risen, **below, limit=1e9).verdict == "agrees"
    refuted = judged(risen, **below, limit=1e8)
    assert refuted.verdict == "disagrees"
    assert "median share of the rise up to 100 MB" in refuted.evidence


def test_a_plateau_is_flat_from_its_limit_on(risen):
    flat = {"check": "plateau_above", "against": "size", "files_min": 20, "within": 0.15}
    assert judged(risen, **flat, limit=5e8).verdict == "agrees"
    assert judged(risen, **flat, limit=1e7).verdict == "disagrees"
    assert judged(risen, **flat, limit=2e9).verdict == "cannot tell"  # one point is no plateau


def test_limits_along_the_size_are_published_sizes_and_follow_the_scale(tmp_path):
    law = lambda f, rng: (0.3 + f["size_bytes"] / 1e7) * (1 + 0.01 * rng.standard_normal())  # noqa: E731
    points = product(files=[1], size_bytes=[size // 100 for size in SIZES])
    scaled = analyse(planted_run(tmp_path, points, law, repeat=12), NO_FITS)
    claim = {"id": "c", "text": "t", "check": "most_of_rise_below", "against": "size", "limit": 1e9}
    verdicts = [
        judge_claims([claim], scaled.curves, 0.95, Facts({}, scale=scale))[0].verdict for scale in (0.01, 1.0)
    ]
    assert verdicts == ["agrees", "cannot tell"]


def test_a_claim_of_the_corrected_throughput_is_judged_on_it(risen):
    falls = {"check": "decreasing", "against": "size", "files_max": 1}
    assert judged(risen, **falls).verdict == "disagrees"
    assert judged(risen, **falls, of="zero_size").verdict == "agrees"


def test_a_claim_without_the_numbers_it_is_of_cannot_be_told_and_says_why(risen):
    found = judged(risen, check="decreasing", against="size", of="read", storage="nowhere")
    assert found.verdict == "cannot tell"
    assert "none has two points for which this could be formed" in found.evidence


@pytest.mark.parametrize(("share", "verdict"), [(0.99, "agrees"), (0.6, "disagrees")])
def test_a_link_is_saturated_if_it_was_full_while_bytes_flowed(tmp_path, share, verdict):
    size = int(share * RATE_BIT_PER_S / 8 * 1448 / 1500)
    scatter = iter(np.random.default_rng(3).normal(1.0, 0.002, 10**4))
    world = World(seconds=lambda factors, way: factors["files"] * float(next(scatter)))
    analysis = analyse(lab_run(tmp_path, product(files=[1, 2], size_bytes=[size]), world, repeat=6), NO_FITS)
    found = judged(analysis, check="saturates", of="link", against="files")
    assert found.verdict == verdict
    assert "of the link" in found.evidence


def test_without_a_link_nothing_saturates(risen):
    assert judged(risen, check="saturates", against="files").verdict == "cannot tell"


def test_every_check_has_words_for_its_evidence_and_none_but_those_tested_here_exist():
    assert set(CHECKS) == {
        "decreasing", "increasing", "flat", "plateau_above", "most_of_fall_below", "most_of_rise_below", "saturates",
    }  # fmt: skip


# --- published rows with a range


def test_a_published_fit_of_some_files_stands_beside_ours_of_the_same(risen):
    row = {"against": "size", "family": "setup", "equation": "x"}
    rows = ({**row, "files_max": 4}, {**row, "files_max": 5}, row)
    fits = published_fits(Published(fits=rows), risen.families, risen.curves)
    assert [fit.ours_same_family.curves for fit in fits] == [1, 2, 3]
    assert [fit.files_max for fit in fits] == [4, 5, None]


def test_a_range_of_files_cuts_curves_against_files(risen):
    cut = restricted(risen.curves, {"against": "files", "files_min": 5})[-1]
    assert cut.x == (5.0, 20.0)
    assert cut.fits == ()  # what was fitted to all of it says nothing of a part


def test_published_rates_and_totals_are_scaled_where_links_are(tmp_path):
    world = World(scale=0.1, two_ways=True)
    points = product(direction=["two ways"], files=[1, 2], size_bytes=[10**6, 10**7])
    analysis = analyse(lab_run(tmp_path, points, world), NO_FITS)
    rate = {
        "name": "r", "mover": "guc", "files_min": 2, "files_max": 2, "low_bytes_per_s": 1e8, "high_bytes_per_s": 1e8,
        "storage": "src", "direction": "there", "of": "read", "where": {"direction": "two ways", "size_bytes": 10**7},
    }  # fmt: skip
    total = {
        "name": "t",
        "total_bytes_per_s": 1e8,
        "files_min": 1,
        "files_max": 2,
        "where": {"direction": "two ways"},
    }
    told = Published(rates=(rate,), totals=(total,))
    (found,) = published_rates(told, analysis.points, analysis.storage_rates, 0.1)
    assert found.ours_low_bytes_per_s == pytest.approx(2e7)
    assert found.ratio == pytest.approx(2e7 / (0.1 * 1e8))
    (ours,) = published_totals(told, lambda files: totals(analysis.points, analysis.factors, files), 0.1)
    assert ours.ratio == pytest.approx(ours.ours.mean_bytes_per_s / 1e7)
    elsewhere = Published(totals=({**total, "where": {"direction": "one way"}},))
    (none,) = published_totals(elsewhere, lambda files: totals(analysis.points, analysis.factors, files), 0.1)
    assert (none.ours, none.ratio) == (None, None)
