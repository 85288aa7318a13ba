"""The formulas of the families compared with their sources."""

from __future__ import annotations

import numpy as np
import pytest

from venturi.model import FAMILIES, SURFACES, SURFACES_WITH_STREAMS
from venturi.model.families.polynomial import CONSTANT


def value(name, x, *parameters):
    points = np.atleast_1d(np.asarray(x, dtype=float))[:, None]
    return FAMILIES[name].value(points, np.array(parameters)[:, None])[:, 0]


def test_the_slopes_of_the_search_are_the_derivatives_of_the_basis():
    for family in [*FAMILIES.values(), CONSTANT, *SURFACES, *SURFACES_WITH_STREAMS]:
        rng = np.random.default_rng(1)
        x = rng.uniform(0.1, 0.9, (3, 7, 1)) if family.name.startswith("surface") else rng.uniform(0.1, 0.9, (7, 1))
        theta = rng.uniform(-0.9, -0.2, (family.searched, 1)) + 1.1 * (family.name == "loss-pftk")
        terms = family.terms(x, theta)
        assert len(terms.phi) == family.linear
        for j in range(family.searched):
            step = np.zeros_like(theta)
            step[j] = 1e-6
            up, down = family.terms(x, theta + step).phi, family.terms(x, theta - step).phi
            for k in range(family.linear):
                expected = (up[k] - down[k]) / 2e-6
                found = sum((slope for jj, kk, slope in terms.slopes if (jj, kk) == (j, k)), np.zeros_like(expected))
                assert found == pytest.approx(expected, rel=1e-6, abs=1e-8), family.name


def test_searched_and_reported_parameters_give_the_same_curve():
    for family in FAMILIES.values():
        rng = np.random.default_rng(2)
        x = rng.uniform(0.1, 0.9, (7, 1)) if family.name.startswith("loss") else rng.uniform(1.0, 9.0, (7, 1))
        theta, c = rng.uniform(0.1, 0.9, (family.searched, 1)), rng.uniform(1, 2, (family.linear, 1))
        x_scale = np.array([9.0]) if family.scales_x else np.ones(1)
        basis = family.terms(x / x_scale, theta).phi
        p = np.array(family.expand(theta, c, x_scale, np.array([1e8]))) * np.ones(1)
        assert len(p) == len(family.parameters)
        assert family.value(x, p) == pytest.approx(1e8 * sum(a * phi for a, phi in zip(c, basis, strict=True))), (
            family.name
        )


def test_every_family_has_a_reason_and_a_formula():
    for family in [*FAMILIES.values(), *SURFACES]:
        assert family.reason, family.name
        assert family.formula, family.name
        assert set(family.positive) <= set(family.parameters)
        assert all(name in family.formula for name in family.parameters), family.name


def test_pftk_has_the_rate_of_its_published_formula():
    # MSS 1460 B, RTT 100 ms, T0 400 ms, p = 0.01, b = 2:
    # RTT sqrt(4 p/3) = 0.011547; T0 min(1, 3 sqrt(0.0075)) p (1 + 32 p²) = 0.4 · 0.259808 · 0.01 · 1.0032 = 0.00104255
    rate = value("loss-pftk", 0.01, 1460 / 0.1, 4.0)
    assert rate == pytest.approx(1460 / (0.0115470 + 0.00104255), rel=1e-5)


def test_pftk_without_timeouts_is_the_square_root_law_with_delayed_acknowledgements():
    # Mathis et al. 1997, table 1: C = 0.87 for periodic loss and delayed acknowledgements.
    assert value("loss-mathis", 1e-4, 1.0) == pytest.approx(0.866 / 1e-2, rel=1e-3)
    assert value("loss-pftk", 1e-4, 1.0, 0.0) == pytest.approx(value("loss-mathis", 1e-4, 1.0))


def test_overload_peaks_where_the_scalability_law_predicts():
    sigma, kappa = 0.1, 0.0036
    peak = np.sqrt((1 - sigma) / kappa)
    near = value("overload", [peak - 0.1, peak, peak + 0.1], 1e8, sigma, kappa)
    assert near.argmax() == 1
    assert value("overload", 1, 1e8, sigma, kappa) == pytest.approx(1e8)


def test_window_fills_the_link_at_the_bandwidth_delay_product():
    # 25 Mbit/s and 25 ms (document 004, table 5, with the factor of ten of 004-E01 corrected): 78 kB.
    rtt_s, link_bytes_per_s = 0.025, 25e6 / 8
    windows = np.array([16e3, 64e3, 78.125e3, 256e3])
    expected = np.minimum(windows / rtt_s, link_bytes_per_s)
    assert value("window", windows, 1 / rtt_s, link_bytes_per_s) == pytest.approx(expected)


def test_setup_gives_the_idle_time_of_small_files():
    # F129: one round trip of 53 ms for each file of 838 kB is 126 Mbit/s on an otherwise unlimited channel.
    assert value("setup", 838e3, 0.053, 1e15) * 8 / 1e6 == pytest.approx(126, abs=0.6)


def test_a_capped_share_is_flat_and_then_a_hyperbola():
    assert value("share-capped", [1, 4, 8, 16], 8e8, 1e8) == pytest.approx([1e8, 1e8, 1e8, 5e7])
