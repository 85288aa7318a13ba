"""The controller of Venturi against closed forms: its model, its prior, its probes and its stop rule."""

from __future__ import annotations

import math

import pytest
from scipy import stats
from tuningkit import MB, KnownRates, overloaded, probe, saturating, window_limited

from venturi.tuning import CONTROLLERS, TunedSettings, TunePath, TuneProbe, choose, pareto, tune
from venturi.tuning.controllers.ours import path_model, split_connections
from venturi.tuning.rate_model import MODEL_ERROR, RateModel, RatePoint, fit_rate_model, saturating_gain

OURS = CONTROLLERS["ours"]
FAR = TunePath(rtt_s=0.1, rate_bytes_per_s=100 * MB, window_bytes=1 * MB, file_bytes=1e9, files=32)


def test_the_posterior_of_points_on_the_slope_is_the_mean_weighted_by_precision():
    prior = RateModel(12 * MB, 0.5, 1000 * MB, 0.2)
    rates = {1: 10.0, 2: 21.0, 4: 39.0}
    fitted = fit_rate_model(prior, [RatePoint(n, rate * MB) for n, rate in rates.items()])
    weight = 1 / MODEL_ERROR**2
    total = 1 / 0.5**2 + 3 * weight
    expected = (math.log(12) / 0.5**2 + weight * sum(math.log(rate / n) for n, rate in rates.items())) / total
    assert math.log(fitted.connection_bytes_per_s / MB) == pytest.approx(expected, rel=1e-12)
    assert fitted.connection_error == pytest.approx(total**-0.5, rel=1e-12)
    # No point measures the capacity, so its prior remains.
    assert (fitted.capacity_bytes_per_s, fitted.capacity_error) == pytest.approx((1000 * MB, 0.2))


def test_points_above_the_knee_measure_the_capacity():
    prior = RateModel(10 * MB, 0.5, 200 * MB, 1.0)
    fitted = fit_rate_model(prior, [RatePoint(2, 20 * MB), RatePoint(16, 50 * MB), RatePoint(32, 50 * MB, 0.03)])
    weights = (1 / MODEL_ERROR**2, 1 / (MODEL_ERROR**2 + 0.03**2))
    expected = (math.log(200) + sum(weights) * math.log(50)) / (1 + sum(weights))
    assert math.log(fitted.capacity_bytes_per_s / MB) == pytest.approx(expected, rel=1e-12)
    assert fitted.knee == pytest.approx(5, rel=0.01)


def test_the_expected_gain_is_that_of_a_lognormal_rate():
    # Far on the slope, only r1 counts: E[max(X/b − 1, 0)] of a lognormal X is the formula of Black and Scholes.
    model = RateModel(10 * MB, 0.3, 1e6 * MB, 0.1)
    v, b = 0.3, 45 * MB
    d2 = math.log(40 * MB / b) / v
    expected = 40 * MB / b * math.exp(v * v / 2) * stats.norm.cdf(d2 + v) - stats.norm.cdf(d2)
    # The kink limits the accuracy of the quadrature.
    assert model.expected_gain(4, b) == pytest.approx(expected, rel=0.05)
    certain = RateModel(10 * MB, 1e-9, 1e6 * MB, 1e-9)
    assert certain.expected_gain(9, b) == pytest.approx(1.0, rel=1e-6)


def test_the_saturating_gain_is_exact_for_its_curve_and_close_for_michaelis_menten():
    def exact(n):
        return 100 * math.exp(-3 / n)

    found = saturating_gain(RatePoint(4, exact(4)), RatePoint(8, exact(8)), 32)
    assert found == pytest.approx(exact(32) / exact(8) - 1, rel=1e-12)
    curve = saturating(100, 2)
    near = saturating_gain(RatePoint(8, curve(8)), RatePoint(16, curve(16)), 32)
    assert near == pytest.approx(curve(32) / curve(16) - 1, rel=0.15)
    assert saturating_gain(RatePoint(4, 10.0), RatePoint(8, 9.0), 16) == 0


def test_the_prior_has_the_rates_of_window_and_loss():
    assert FAR.connection_bytes_per_s == 10 * MB
    lossy = TunePath(rtt_s=0.1, loss=1e-4)
    # Mathis: MSS/RTT·sqrt(3/(2p)) = 1448·10·122.47; CUBIC: 1.054·(RTT/p)^0.75 = 187.4 segments, which is larger.
    assert lossy.connection_bytes_per_s == pytest.approx(14480 * 1.054 * 1000**0.75, rel=1e-9)
    near = TunePath(rtt_s=0.001, loss=1e-4)
    assert near.connection_bytes_per_s == pytest.approx(1448 / 0.001 * math.sqrt(1.5e4), rel=1e-9)


def test_a_file_without_pipelining_waits_for_its_set_up():
    path = TunePath(rtt_s=0.1, rate_bytes_per_s=100 * MB, window_bytes=MB, file_bytes=14480, files=100,
                    largest={"concurrency": 64})  # fmt: skip
    # 14,480 bytes are the initial window: no slow start; three round trips and 1.448 ms of data.
    assert path_model(path).connection_bytes_per_s == pytest.approx(14480 / (0.3 + 0.001448), rel=1e-9)


def test_the_first_guess_has_25_percent_more_connections_than_the_knee():
    model = path_model(FAR)
    settings = OURS.first(FAR)
    assert settings.connections >= 1.25 * model.knee
    assert settings.connections <= 1.25 * model.knee + 8


def test_small_files_have_one_stream_and_a_single_file_has_streams():
    small = TunePath(rtt_s=0.1, rate_bytes_per_s=100 * MB, window_bytes=MB, file_bytes=1e5, files=1000)
    found = split_connections(small, 32)
    assert (found.concurrency, found.streams) == (32, 1)
    # Two round trips of the path are 200 files.
    assert found.pipelining == 200
    single = TunePath(file_bytes=1e9, files=1)
    assert (split_connections(single, 8).concurrency, split_connections(single, 8).streams) == (1, 8)


CURVES = {
    "window, known path": (window_limited(10, 95), FAR),
    "window, unknown path": (window_limited(10, 95), TunePath(file_bytes=1e9, files=32)),
    "capacity below the link": (window_limited(10, 40), FAR),
    "rate of a connection wrong by a factor of 2": (window_limited(5, 95), FAR),
    "soft": (saturating(100, 6), FAR),
    "one connection fills the path": (window_limited(95, 95), FAR),
    "overload": (overloaded(10, 95, 16), FAR),
}


@pytest.mark.parametrize("name", CURVES)
def test_six_probes_reach_95_percent_of_the_optimum(name):
    rate, path = CURVES[name]
    found = tune(KnownRates(rate, path), OURS, max_probes=6, time_s=math.inf)
    optimum = max(rate(n) for n in range(1, 1025))
    assert found.best.rate_bytes_per_s >= 0.95 * optimum * MB
    assert len(found.probes) <= 6


def test_it_stops_when_the_expected_gain_is_below_2_percent_and_keeps_defaults_that_are_as_good():
    rate, path = CURVES["one connection fills the path"]
    backend = KnownRates(rate, path)
    found = tune(backend, OURS, max_probes=6, time_s=math.inf)
    assert found.keeps_defaults and found.gain is None
    assert "below 2 %" in found.reason
    assert len(backend.tried) <= 3


def test_after_the_third_probe_no_setting_is_predicted_more_than_10_percent_below_the_defaults():
    # The defaults are far better than all settings of the controller: it must end instead of searching.
    backend = KnownRates(lambda n: 200.0 if n == 0 else 10.0, FAR, default=0)
    found = tune(backend, OURS, max_probes=20, time_s=math.inf)
    path = backend.path_properties(found.probes[0])
    for number in range(2, len(found.probes)):
        history = found.probes[1:number]
        if number + 1 <= 3:
            continue
        points = [RatePoint(one.settings.connections, one.rate_bytes_per_s) for one in history]
        model = fit_rate_model(path_model(path), points)
        assert model.rate(found.probes[number].settings.connections) >= 0.9 * 200 * MB
    assert found.keeps_defaults and len(found.probes) <= 4


def test_probes_end_with_the_time():
    found = tune(KnownRates(window_limited(1, 1e6), FAR), OURS, max_probes=20, time_s=2.0)
    assert len(found.probes) == 2 and found.reason == "the time is over"


def test_the_choice_has_the_fewest_connections_within_2_percent():
    probes = [probe(50 * MB), probe(99 * MB, concurrency=8), probe(100 * MB, concurrency=64)]
    assert choose(probes) is probes[1]


def test_a_gain_that_is_not_significant_keeps_the_defaults():
    default, other = (80.0, 120.0, 100.0), (90.0, 145.0, 125.0)
    assert stats.ttest_ind(default, other, equal_var=False).pvalue > 0.05
    noisy = [TuneProbe(TunedSettings(), default), TuneProbe(TunedSettings(concurrency=4), other)]
    assert choose(noisy) is noisy[0]
    clear = TuneProbe(TunedSettings(concurrency=4), (190.0, 200.0, 210.0))
    assert choose([noisy[0], clear]) is clear


def test_the_pareto_table_omits_dominated_probes_only():
    good = probe(100 * MB, concurrency=8)
    slow_and_larger = probe(90 * MB, concurrency=16)
    slow_and_smaller = probe(50 * MB, concurrency=1)
    unknown = probe(40 * MB)
    assert pareto([unknown, good, slow_and_larger, slow_and_smaller]) == (good, slow_and_smaller)
