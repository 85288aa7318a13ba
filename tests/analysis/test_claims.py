"""Checks of claims and of published rows with a range, against planted curves."""

import numpy as np
import pytest
from planted import planted_run, product
from planted_lab import RATE_BIT_PER_S, World, lab_run

from venturi.analysis import AnalyseOptions, analyse
from venturi.analysis.claims import CHECKS, ClaimContext, check_claims
from venturi.analysis.published import published_fits, published_rates, published_totals, restricted
from venturi.analysis.totals import totals
from venturi.study import Published

NO_FITS = AnalyseOptions(fits=False)
SIZES = [10**7, 10**8, 2 * 10**8, 5 * 10**8, 10**9, 2 * 10**9]


def checked(analysis, **claim):
    context = ClaimContext({p.point: p for p in analysis.points}, analysis.storage_rates, analysis.link_use,
                  RATE_BIT_PER_S / 8 if analysis.testbed else None, analysis.about.scale)  # fmt: skip
    (found,) = check_claims([{"id": "c", "text": "t", **claim}], analysis.curves, 0.95, context)
    return found


@pytest.fixture(scope="module")
def risen(tmp_path_factory):
    """Throughput of one file rises with size because of 0.3 s of fixed cost. Above 10 files, they share a rate."""

    def law(factors, rng):
        if factors["size_bytes"] == 0:
            return 0.3 * (1 + 0.001 * rng.standard_normal())
        slow = (
            2.0 if factors["size_bytes"] == 10**7 else 1.0
        )  # the correction raises the throughput of small files most
        return (0.3 + factors["size_bytes"] * factors["files"] / slow / 1e9) * (1 + 0.001 * rng.standard_normal())

    points = product(files=[1, 5, 20], size_bytes=[0, *SIZES])
    return analyse(planted_run(tmp_path_factory.mktemp("risen"), points, law, repeat=12))


def test_most_of_rise_below_agrees_only_if_most_of_the_rise_is_below_the_limit(risen):
    below = {"check": "most_of_rise_below", "against": "size", "files_max": 1}
    assert checked(risen, **below, limit=1e9).verdict == "agrees"
    refuted = checked(risen, **below, limit=1e8)
    assert refuted.verdict == "disagrees"
    assert "rise up to 100 MB" in refuted.evidence


def test_plateau_above_agrees_only_if_the_curve_is_flat_above_the_limit(risen):
    flat = {"check": "plateau_above", "against": "size", "files_min": 20, "within": 0.15}
    assert checked(risen, **flat, limit=5e8).verdict == "agrees"
    assert checked(risen, **flat, limit=1e7).verdict == "disagrees"
    assert checked(risen, **flat, limit=2e9).verdict == "cannot tell"  # one point is no plateau


def test_size_limits_of_claims_are_multiplied_by_the_scale(tmp_path):
    law = lambda f, rng: (0.3 + f["size_bytes"] / 1e7) * (1 + 0.01 * rng.standard_normal())  # noqa: E731
    points = product(files=[1], size_bytes=[size // 100 for size in SIZES])
    scaled = analyse(planted_run(tmp_path, points, law, repeat=12), NO_FITS)
    claim = {"id": "c", "text": "t", "check": "most_of_rise_below", "against": "size", "limit": 1e9}
    verdicts = [
        check_claims([claim], scaled.curves, 0.95, ClaimContext({}, scale=scale))[0].verdict for scale in (0.01, 1.0)
    ]
    assert verdicts == ["agrees", "cannot tell"]


def test_a_claim_about_corrected_throughput_is_checked_on_corrected_throughput(risen):
    falls = {"check": "decreasing", "against": "size", "files_max": 1}
    assert checked(risen, **falls).verdict == "disagrees"
    assert checked(risen, **falls, of="zero_size").verdict == "agrees"


def test_a_claim_without_data_is_undecided_and_gives_the_reason(risen):
    found = checked(risen, check="decreasing", against="size", of="read", storage="nowhere")
    assert found.verdict == "cannot tell"
    assert "has two points" in found.evidence


@pytest.mark.parametrize(("fraction", "verdict"), [(0.99, "agrees"), (0.6, "disagrees")])
def test_a_link_is_saturated_if_it_was_full_while_bytes_flowed(tmp_path, fraction, verdict):
    size = int(fraction * RATE_BIT_PER_S / 8 * 1448 / 1500)
    scatter = iter(np.random.default_rng(3).normal(1.0, 0.002, 10**4))
    world = World(seconds=lambda factors, direction: factors["files"] * float(next(scatter)))
    analysis = analyse(lab_run(tmp_path, product(files=[1, 2], size_bytes=[size]), world, repeat=6), NO_FITS)
    found = checked(analysis, check="saturates", of="link", against="files")
    assert found.verdict == verdict
    assert "of the link" in found.evidence


def test_without_a_link_saturation_is_undecided(risen):
    assert checked(risen, check="saturates", against="files").verdict == "cannot tell"


def test_checks_have_the_expected_names():
    assert set(CHECKS) == {
        "decreasing", "increasing", "flat", "plateau_above", "most_of_fall_below", "most_of_rise_below", "saturates",
    }  # fmt: skip


# --- published rows with a range


def test_a_published_fit_up_to_files_max_is_compared_with_our_curves_in_that_range(risen):
    row = {"against": "size", "family": "setup", "equation": "x"}
    rows = ({**row, "files_max": 4}, {**row, "files_max": 5}, row)
    fits = published_fits(Published(fits=rows), risen.families, risen.curves)
    assert [fit.ours_same_family.curves for fit in fits] == [1, 2, 3]
    assert [fit.files_max for fit in fits] == [4, 5, None]


def test_a_range_of_files_restricts_curves_against_files(risen):
    cut = restricted(risen.curves, {"against": "files", "files_min": 5})[-1]
    assert cut.x == (5.0, 20.0)
    assert cut.fits == ()  # fits of the full run do not apply to a part


def test_published_rates_and_totals_are_scaled_like_the_links(tmp_path):
    world = World(scale=0.1, bidirectional=True)
    points = product(direction=["two ways"], files=[1, 2], size_bytes=[10**6, 10**7])
    analysis = analyse(lab_run(tmp_path, points, world), NO_FITS)
    rate = {
        "name": "r", "mover": "guc", "files_min": 2, "files_max": 2, "low_bytes_per_s": 1e8, "high_bytes_per_s": 1e8,
        "storage": "src", "direction": "forward", "of": "read", "where": {"direction": "two ways", "size_bytes": 10**7},
    }  # fmt: skip
    total = {
        "name": "t",
        "total_bytes_per_s": 1e8,
        "files_min": 1,
        "files_max": 2,
        "where": {"direction": "two ways"},
    }
    output = Published(rates=(rate,), totals=(total,))
    (found,) = published_rates(output, analysis.points, analysis.storage_rates, 0.1)
    assert found.ours_low_bytes_per_s == pytest.approx(2e7)
    assert found.ratio == pytest.approx(2e7 / (0.1 * 1e8))
    (ours,) = published_totals(output, lambda files: totals(analysis.points, analysis.factors, files), 0.1)
    assert ours.ratio == pytest.approx(ours.ours.mean_bytes_per_s / 1e7)
    elsewhere = Published(totals=({**total, "where": {"direction": "one way"}},))
    (none,) = published_totals(elsewhere, lambda files: totals(analysis.points, analysis.factors, files), 0.1)
    assert (none.ours, none.ratio) == (None, None)
