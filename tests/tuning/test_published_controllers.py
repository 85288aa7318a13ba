"""Each published rule against sequences that were computed by hand from its description."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from tuningkit import MB, KnownRates, numbers, probe, window_limited

from venturi.tuning import CONTROLLERS, StopTuning, TunedSettings, TunePath, TuneProbe, tune
from venturi.tuning.controllers.falcon_bayes import expected_improvement
from venturi.tuning.controllers.fts import FtsOptimizer

FAR = TunePath(rtt_s=0.1, rate_bytes_per_s=100 * MB, window_bytes=1 * MB, file_bytes=1e9, files=8)


def test_azcopy_multiplies_by_4_then_2_while_the_rate_follows_and_backs_off_with_the_rest_of_the_multiplier():
    # 4 → 16 (needs more than 10·(1 + 3·0.2) = 16): 40, accepted. 16 → 64: needs more than 64; 50 is too little, so back to
    # 16 with the multiplier 1 + 3/5 = 1.6. 16·1.6 = 25: needs more than 40·1.12 = 44.8; 41 is too little, and
    # 1 + 0.6/5 = 1.12 is below 1.19: end at 16.
    assert numbers(CONTROLLERS["azcopy"], TunePath(), [10, 40, 50, 40, 41]) == [4, 16, 64, 16, 25, 16]


def test_azcopy_ends_at_the_limit_of_the_mover():
    path = TunePath(largest={"concurrency": 10})
    assert numbers(CONTROLLERS["azcopy"], path, [10, 25]) == [4, 10, 10]
    stop = CONTROLLERS["azcopy"].next(path, [probe(10 * MB, concurrency=4), probe(25 * MB, concurrency=10)])
    assert isinstance(stop, StopTuning) and "limit" in stop.reason


def test_fts_adds_one_while_the_average_does_not_fall_and_starts_in_the_middle():
    path = TunePath(largest={"concurrency": 20})
    # Middle of 2 to 20. The first interval only starts the average.
    assert numbers(CONTROLLERS["fts"], path, [100, 100, 200, 50]) == [11, 11, 12, 13, 13]
    # Average after 200: 110. After 50: 104, a fall within the same decade: hold.


def test_fts_removes_one_only_when_the_average_crosses_a_rounded_power_of_ten():
    path = TunePath(largest={"concurrency": 20})
    # log10 of 3.2e8 rounds to 9; 0.9·3.2e8 + 0.1·1e6 = 2.88e8 rounds to 8.
    assert numbers(CONTROLLERS["fts"], path, [320, 1]) == [11, 11, 10]


@pytest.mark.parametrize(
    ("before", "now", "expected"), [(1.0, 0.9, 10), (0.9, 0.96, 11), (0.97, 0.96, 10), (0.9, 0.97, 12)]
)
def test_fts_removes_one_below_97_percent_success_unless_it_improves_to_96(before, now, expected):
    path = TunePath(largest={"concurrency": 20})
    history = [probe(100 * MB, success=one, concurrency=11) for one in (before, now)]
    assert FtsOptimizer().next(path, history).concurrency == expected


def test_fts_stays_within_its_range():
    assert numbers(CONTROLLERS["fts"], TunePath(largest={"concurrency": 3}), [1, 2, 3, 4]) == [2, 2, 3, 3, 3]
    assert numbers(CONTROLLERS["fts"], TunePath(largest={"concurrency": 1}), [1, 2]) == [1, 1, 1]


def test_falcon_steps_by_the_relative_slope_times_n_times_the_run_of_its_sign():
    # Utility in Mb/s: round(rate·8/1.02ⁿ). 100 MB/s at 1: 784; 200 MB/s at 2: 1538.
    # Slope 754/784 = 0.962: 2 + 1·ceil(2·0.962) = 4. 300 MB/s at 4: 2217; slope (679/2)/1538 = 0.221: 4 + 2·ceil(0.88) = 6.
    # 300 MB/s at 6: 2131; slope −43/2217 = −0.0194: 6 − 1·ceil(0.116) = 5.
    # 300 MB/s at 5: 2174, after a decrease with a larger value: downwards again, 5 − 2·ceil(5·43/2131) = 3.
    assert numbers(CONTROLLERS["falcon-gradient"], TunePath(), [100, 200, 300, 300, 300]) == [1, 2, 4, 6, 5, 3]


def test_falcon_stays_within_10_of_its_best_number():
    # 1e3 times the utility: the step would be far above 2 + 10.
    assert numbers(CONTROLLERS["falcon-gradient"], TunePath(), [1, 1000])[-1] == 12


def test_falcon_has_a_penalty_for_retransmissions():
    from venturi.tuning.controllers.falcon_gradient import falcon_utility

    # 1000 Mb/s at n = 0 losses: 1000/1.02 = 980; with 1 % loss: 980 − 10·1000·0.01 = 880.
    assert falcon_utility(probe(125 * MB, concurrency=1)) == 980
    assert falcon_utility(probe(125 * MB, concurrency=1, lost=0.01)) == 880


def test_the_expected_improvement_agrees_with_a_dense_gaussian_process():
    x, y, at = np.log([1.0, 4.0, 16.0]), np.array([100.0, 300.0, 250.0]), np.log([2.0, 4.0, 8.0, 64.0])

    def kernel(a, b):
        d = np.sqrt(5) * np.abs(np.subtract.outer(a, b))
        return (1 + d + d**2 / 3) * np.exp(-d)

    scaled = (y - y.mean()) / y.std()
    inverse = np.linalg.inv(kernel(x, x) + 0.05**2 * np.eye(3))
    mean = kernel(at, x) @ inverse @ scaled
    deviation = np.sqrt(1 - np.diag(kernel(at, x) @ inverse @ kernel(x, at)))
    z = (mean - scaled.max()) / deviation
    reference = y.std() * deviation * (z * stats.norm.cdf(z) + stats.norm.pdf(z))
    np.testing.assert_allclose(expected_improvement(x, y, at), reference, rtol=1e-9, atol=1e-9)


def test_falcon_bayes_starts_at_random_and_then_searches_between_good_numbers():
    rule = CONTROLLERS["falcon-bayes"]
    path = TunePath(largest={"concurrency": 32})
    history = []
    decision = rule.first(path)
    for _ in range(12):
        history.append(TuneProbe(decision, (min(decision.concurrency * 10, 100) * MB,)))
        decision = rule.next(path, history)
    starts = [one.settings.concurrency for one in history[:3]]
    assert len(set(starts)) > 1 and all(1 <= number <= 32 for number in starts)
    # The utility min(10 n, 100)/1.02ⁿ has its maximum at n = 10.
    assert min(abs(one.settings.concurrency - 10) for one in history[3:]) <= 1
    assert rule.next(path, history) == decision


def test_the_bdp_rule_divides_the_product_by_the_window():
    # 100 MB/s · 0.1 s = 10 MB, over windows of 1 MB.
    assert CONTROLLERS["bdp"].first(FAR) == TunedSettings(concurrency=1, streams=10)
    assert isinstance(CONTROLLERS["bdp"].next(FAR, [probe(1.0, streams=10)]), StopTuning)


def test_the_bdp_rule_sets_the_buffer_of_a_mover_without_streams():
    path = TunePath(rtt_s=0.1, rate_bytes_per_s=100 * MB, window_bytes=MB, largest={"window_bytes": 1 << 30})
    assert CONTROLLERS["bdp"].first(path) == TunedSettings(window_bytes=10_000_000)


def test_harp_uses_pipelining_for_small_files_and_parallelism_for_files_above_the_window():
    rule = CONTROLLERS["harp"]
    # Product 10 MB, window 1 MB: 10 streams, one file fills them.
    assert rule.first(FAR) == TunedSettings(concurrency=4, streams=10)
    small = TunePath(rtt_s=0.1, rate_bytes_per_s=100 * MB, window_bytes=MB, file_bytes=100_000, files=1000)
    assert rule.first(small) == TunedSettings(concurrency=4, streams=1, pipelining=100)


def test_harp_samples_half_and_twice_and_takes_the_maximum_of_the_parabola():
    # Rates at ln n: a parabola with its maximum at n = 6 (between the samples 2, 4, 8).
    def rate(n):
        return 100 - 20 * (math.log(n) - math.log(6)) ** 2

    assert numbers(CONTROLLERS["harp"], FAR, [rate(4), rate(2), rate(8)]) == [4, 2, 8, 6]


def test_rclone_has_4_streams_only_for_large_files():
    assert CONTROLLERS["rclone"].first(FAR) == TunedSettings(concurrency=4, streams=4)
    assert CONTROLLERS["rclone"].first(TunePath(file_bytes=1e6)) == TunedSettings(concurrency=4, streams=1)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_controller_is_pure_and_stays_within_the_limits_of_the_mover(name):
    path = TunePath(0.05, 80 * MB, None, MB, 5e8, 8, None, {"concurrency": 12, "streams": 3})
    first, second = (
        tune(KnownRates(window_limited(7, 80), path), CONTROLLERS[name], max_probes=12, time_s=math.inf)
        for _ in range(2)
    )
    assert [one.settings for one in first.probes] == [one.settings for one in second.probes]
    for one in first.probes:
        assert (one.settings.concurrency or 1) <= 12 and (one.settings.streams or 1) <= 3
        assert set(one.settings.values) <= {"concurrency", "streams"}
    assert CONTROLLERS[name].source and CONTROLLERS[name].summary
