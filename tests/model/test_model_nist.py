"""The fit core compared with the certified nonlinear regressions of NIST.

Certified values have 11 digits. Parameters and standard deviations must agree to 1e-9 relative, which is ten digits.
The margin covers the rounding of the certified numbers and cancellation in ill-conditioned datasets. Lanczos1 is exact
except for the 13th digit of its data. Its residuals (8e-14) are 300 times the rounding of y in double precision, so
only about three digits of SSE and of the standard deviations exist. Its parameters have ten digits.
"""

from __future__ import annotations

import itertools

import pytest
from nist_sets import MODELS, CertifiedSet, read

from venturi.model import FAMILIES, Curve, Fit, Search, family_of, fit

NAMES = sorted(MODELS)

# Levenberg-Marquardt diverges or is slow for these, from NIST's far start alone and without the linear split. The same
# start succeeds if points around it are also tried, or if the amplitudes are projected out.
RUN_AWAY = {
    ("MGH09", 0, "split"), ("MGH10", 0, "whole"), ("MGH17", 0, "whole"), ("Eckerle4", 0, "whole"),
    ("Bennett5", 0, "whole"),
}  # fmt: skip
OTHER_MINIMUM = {("BoxBOD", 0, "whole")}
# Exchangeable terms: indices of the parameters of each term, and the parameter that orders the terms.
EXCHANGEABLE = {
    "Lanczos1": ([(1, 2), (3, 4), (5, 6)], 1),
    "Lanczos2": ([(1, 2), (3, 4), (5, 6)], 1),
    "Lanczos3": ([(1, 2), (3, 4), (5, 6)], 1),
    "MGH17": ([(2, 4), (3, 5)], 1),
    "Gauss1": ([(3, 4, 5), (6, 7, 8)], 1),
    "Gauss2": ([(3, 4, 5), (6, 7, 8)], 1),
    "Gauss3": ([(3, 4, 5), (6, 7, 8)], 1),
    "ENSO": ([(7, 8, 9), (4, 5, 6)], 0),
}
# Widths that enter squared, with the amplitude that changes sign with them, if there is one.
SIGNLESS = {"Gauss1": ("b5", "b8"), "Gauss2": ("b5", "b8"), "Gauss3": ("b5", "b8"), "Eckerle4": ("b1", "b2")}


def in_certified_order(found: Fit, name: str) -> tuple[dict[str, float], dict[str, float]]:
    values, errors = dict(found.parameters), found.standard_errors
    for width in SIGNLESS.get(name, ()):
        values[width] = abs(values[width])
    if name in EXCHANGEABLE:
        groups, key = EXCHANGEABLE[name]
        keys = [[f"b{index}" for index in group] for group in groups]
        order = sorted(keys, key=lambda group: values[group[key]])
        old_values, old_errors = dict(values), dict(errors)
        for target, source in zip(keys, order, strict=True):
            for to, origin in zip(target, source, strict=True):
                values[to], errors[to] = old_values[origin], old_errors[origin]
    return values, errors


def check(found: Fit, certified: CertifiedSet, error_tolerance: float = 1e-9) -> None:
    values, errors = in_certified_order(found, certified.name)
    if certified.name == "Lanczos1":
        error_tolerance = 0.01
    assert found.converged
    assert values == pytest.approx(certified.parameters, rel=1e-9)
    assert errors == pytest.approx(certified.standard_deviations, rel=error_tolerance)
    assert found.goodness.sse == pytest.approx(certified.residual_sum_of_squares, rel=2 * error_tolerance)


def as_family(certified: CertifiedSet, form: str):
    linear = certified.linear if form == "split" else ()
    return family_of(certified.name, certified.function, list(certified.parameters), linear=linear)


@pytest.mark.parametrize("form", ["whole", "split"])
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_certified_values_are_reached_from_the_nist_starts(name, start, form):
    certified = read(name)
    # MGH10 and Bennett5 without the split are narrow, bent valleys that need thousands of steps from the far start.
    valley = (name, start, form) in {("MGH10", 0, "whole"), ("Bennett5", 0, "whole")}
    settings = Search(last_steps=5000 if valley else 300)
    found = fit(Curve(certified.x, certified.y), as_family(certified, form), start=certified.starts[start],
                settings=settings)  # fmt: skip
    check(found, certified)


def from_one_start(name, start, form):
    certified = read(name)
    curve = Curve(certified.x, certified.y)
    return fit(curve, as_family(certified, form), start=certified.starts[start], decades=0), certified


@pytest.mark.parametrize(
    ("name", "start", "form"),
    [case for case in itertools.product(NAMES, (0, 1), ("whole", "split")) if case not in RUN_AWAY | OTHER_MINIMUM],
)
def test_certified_values_are_reached_from_a_single_start(name, start, form):
    check(*from_one_start(name, start, form))


@pytest.mark.parametrize(("name", "start", "form"), sorted(RUN_AWAY))
def test_a_search_that_diverges_from_a_single_start_warns(name, start, form):
    """By default, `fit` also tries points around the start, and then it succeeds."""
    found, certified = from_one_start(name, start, form)
    assert found.warnings
    assert found.goodness.sse > certified.residual_sum_of_squares


def test_a_boxbod_fit_that_reaches_the_constant_minimum_is_reported_as_failed():
    """In that minimum, b is so large that the model is constant, and the best constant is the mean."""
    ((name, start, form),) = OTHER_MINIMUM
    found, certified = from_one_start(name, start, form)
    assert found.goodness.sse == pytest.approx(((certified.y - certified.y.mean()) ** 2).sum(), rel=1e-9)
    assert found.failed
    assert found.warnings[0].startswith("failed:")


FAR_FROM_DEFAULT_STARTS = {("MGH17", "whole"), ("Gauss1", "whole"), ("Gauss3", "whole"), ("Bennett5", "whole")}
"""Datasets whose certified values a fit without given starts does not reach.

Bennett5 (R² = −3270) reports its failure. The others end in a minimum with R² above 0.9.
"""


@pytest.mark.parametrize("form", ["whole", "split"])
@pytest.mark.parametrize("name", NAMES)
def test_a_fit_without_starts_reaches_the_certified_values_except_in_known_cases(name, form):
    certified = read(name)
    found = fit(Curve(certified.x, certified.y), as_family(certified, form))
    reached = found.goodness.sse < 1e-20 or found.goodness.sse < certified.residual_sum_of_squares * (1 + 1e-6)
    assert reached == ((name, form) not in FAR_FROM_DEFAULT_STARTS)
    assert found.failed == (found.goodness.r_squared <= 0)
    assert found.failed == any(note.startswith("failed:") for note in found.warnings)


@pytest.mark.parametrize("name", NAMES)
def test_certified_values_are_reached_from_seeded_starts(name):
    certified = read(name)
    boxes = {}
    for key in certified.parameters:
        if key not in certified.linear:
            one, two = (start[key] for start in certified.starts)
            ends = (one / 3, 3 * one, two / 3, 3 * two)
            boxes[key] = (min(ends), max(ends))
    family = family_of(name, certified.function, list(certified.parameters), linear=certified.linear, starts=boxes)
    settings = Search(screened=(1000,), kept=(16,), heats=((10, 4),))
    check(fit(Curve(certified.x, certified.y), family, settings=settings), certified)


def test_the_power_family_reproduces_danwood():
    certified = read("DanWood")
    found = fit(Curve(certified.x, certified.y), FAMILIES["power"])
    assert list(found.parameters.values()) == pytest.approx(list(certified.parameters.values()), rel=1e-9)
    assert list(found.standard_errors.values()) == pytest.approx(
        list(certified.standard_deviations.values()), rel=1e-9
    )


def test_the_saturating_family_reproduces_misra1d():
    # b1 b2 x/(1 + b2 x) = x/(a + b x) with a = 1/(b1 b2), b = 1/b1.
    certified = read("Misra1d")
    found = fit(Curve(certified.x, certified.y), FAMILIES["saturating"])
    b1, b2 = certified.parameters.values()
    assert found.parameters == pytest.approx({"a": 1 / (b1 * b2), "b": 1 / b1}, rel=1e-9)
    assert found.goodness.sse == pytest.approx(certified.residual_sum_of_squares, rel=1e-9)
    # The standard deviation of b1 = 1/b to first order.
    assert found.standard_errors["b"] * b1**2 == pytest.approx(certified.standard_deviations["b1"], rel=1e-9)


def test_the_gaussian_family_reproduces_eckerle4_from_its_own_starts():
    # (b1/b2) exp(-((x - b3)/b2)²/2): height b1/b2, centre b3, width sqrt(2) b2.
    certified = read("Eckerle4")
    found = fit(Curve(certified.x, certified.y), FAMILIES["gaussian"])
    b1, b2, b3 = certified.parameters.values()
    assert found.parameters == pytest.approx({"a": b1 / b2, "b": b3, "c": 2**0.5 * b2}, rel=1e-9)
    assert found.standard_errors["b"] == pytest.approx(certified.standard_deviations["b3"], rel=1e-9)
