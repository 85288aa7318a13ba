"""Limits from samples: planted limits, intervals, loss, and parts that share a resource."""

import math

import pytest
from measurekit import DESCRIPTION, rounds, stream_detail, with_description

from venturi.measure.evaluate import evaluate_path, harmonic_sum
from venturi.measure.load import HostLoad, load_between

FAST = {"network": 1000e6, "read": 1000e6, "write": 1000e6, "mover": 950e6, "copy": 900e6}
SLOW = 50e6


def result_of(rates, *, description=DESCRIPTION, changes=None, noise=0.02):
    return evaluate_path(rounds(rates, noise=noise, changes=changes), description)


THROTTLED = HostLoad(cores=4, busy_cores=0.5, quota_cores=0.2, throttled_ratio=0.97)
LIMITS = {
    "link": ({"network": SLOW, "mover": 0.96 * SLOW}, {}, "network"),
    "loss": (
        {"network": SLOW, "mover": 0.96 * SLOW},
        {"network": {"one": SLOW / 4, "detail": stream_detail(retransmitted_bytes=10**6)}},
        "network",
    ),
    "receive-window": (
        {"network": SLOW, "mover": 0.96 * SLOW},
        {"network": {"one": SLOW / 4, "detail": stream_detail(receive_window_limited_s=1.8)}},
        "network",
    ),
    "send-buffer": (
        {"network": SLOW, "mover": 0.96 * SLOW},
        {"network": {"one": SLOW / 4, "detail": stream_detail(send_buffer_limited_s=1.8)}},
        "network",
    ),
    "source-disk": ({"read": SLOW}, {}, "read"),
    "destination-disk": ({"write": SLOW}, {}, "write"),
    "source-cpu": ({"mover": SLOW}, {"mover": {"load": {"source": THROTTLED}}}, "mover"),
    "destination-cpu": ({"mover": SLOW}, {"mover": {"load": {"destination": THROTTLED}}}, "mover"),
    "mover": ({"mover": SLOW}, {}, "mover"),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_each_planted_limit_is_found_in_the_correct_part(limit):
    slow, changes, part = LIMITS[limit]
    result = result_of({**FAST, **slow, "copy": 0.9 * SLOW}, changes=changes)
    assert (result.smallest, result.limit) == (part, limit)
    assert result.loss == pytest.approx(0.1, abs=0.08)
    assert not result.shared
    assert "50" in result.summary or "4" in result.summary


def test_a_network_limited_by_a_busy_cpu_is_not_reported_as_a_slow_link():
    busy = stream_detail(cpu_s=2.0, cpu_wait_s=6.0)  # four threads for 2 s
    result = result_of({**FAST, "network": SLOW, "mover": SLOW}, changes={"network": {"detail": busy}})
    assert (result.smallest, result.limit) == ("network", "source-cpu")


def test_a_disk_limited_by_a_busy_cpu_is_not_reported_as_a_slow_disk():
    busy = {"cpu_s": 1.0, "cpu_wait_s": 0.9}
    result = result_of({**FAST, "write": SLOW}, changes={"write": {"detail": busy}})
    assert (result.smallest, result.limit) == ("write", "destination-cpu")


def test_a_read_from_the_page_cache_is_not_the_limit():
    result = result_of({**FAST, "read": SLOW}, changes={"read": {"cached": True}})
    assert result.smallest == "network"
    assert any("page cache" in note for note in result.notes)


def test_the_network_is_the_limit_if_the_mover_is_almost_as_fast():
    assert result_of({**FAST, "network": 100e6, "mover": 90e6, "copy": 80e6}).smallest == "network"
    assert result_of({**FAST, "network": 100e6, "mover": 60e6, "copy": 55e6}).smallest == "mover"


def test_the_times_of_parts_that_share_a_cpu_are_added():
    rates = {**FAST, "mover": 100e6, "read": 200e6, "copy": 66e6}
    result = result_of(
        rates, changes={part: {"load": {"source": THROTTLED}} for part in ("mover", "copy")}, noise=0.0
    )
    assert result.loss == pytest.approx(0.34)
    [shared] = result.shared
    assert shared.parts == ("read", "mover")
    assert shared.rate_bytes_per_s == pytest.approx(1 / (1 / 100e6 + 1 / 200e6))
    assert "CPU of a" in shared.resource
    assert "66.7 MB/s" in result.summary


def test_two_directories_of_one_disk_share_its_rate():
    rates = {**FAST, "read": 100e6, "write": 100e6, "copy": 48e6}
    del rates["network"]
    result = result_of(rates, description=with_description(same_machine=True, shared_disk="8:1"), noise=0.0)
    assert result.shared[0].rate_bytes_per_s == pytest.approx(50e6)
    assert "8:1" in result.shared[0].evidence


def test_a_slow_copy_without_a_busy_resource_is_explained_by_the_sum_of_all_times():
    result = result_of({**FAST, "copy": 300e6}, noise=0.0)
    [shared] = result.shared
    assert shared.parts == ("read", "mover", "write")
    assert shared.rate_bytes_per_s == pytest.approx(harmonic_sum([1000e6, 950e6, 1000e6]))
    assert "take turns" in result.summary


def test_a_shared_disk_without_a_read_rate_gives_no_prediction():
    rates = {**FAST, "copy": 300e6}
    del rates["read"]
    assert result_of(rates, description=with_description(same_machine=True, shared_disk="8:1")).shared == ()


def test_connections_that_scale_without_losses_or_windows_are_reported_with_the_link():
    result = result_of({**FAST, "network": SLOW, "mover": SLOW}, changes={"network": {"one": SLOW / 3}}, noise=0.0)
    assert (result.smallest, result.limit) == ("network", "link")
    assert any("33 % of the rate of 4 connections" in note for note in result.notes)


@pytest.mark.parametrize(("control", "advises"), [("cubic", True), ("bbr", False)])
def test_bbr_is_advised_for_losses_unless_it_is_already_used(control, advises):
    detail = stream_detail(retransmitted_bytes=10**6, congestion_control=control)
    result = result_of(
        {**FAST, "network": SLOW, "mover": SLOW}, changes={"network": {"one": SLOW / 4, "detail": detail}}
    )
    assert result.limit == "loss"
    assert ("bbr" in result.summary) is advises


def test_intervals_need_five_rounds():
    five, four = (evaluate_path(rounds(FAST, noise=0.1, count=count), DESCRIPTION) for count in (5, 4))
    assert five.parts["copy"].interval.n == 5
    assert five.loss_interval is not None
    assert (four.parts["copy"].interval, four.loss_interval) == (None, None)
    assert four.parts["copy"].rate_bytes_per_s is not None


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.5])
def test_intervals_contain_the_true_rate_in_88_of_100_seeded_measurements(noise):
    held = dict.fromkeys(FAST, 0)
    for seed in range(100):
        result = evaluate_path(rounds(FAST, noise=noise, seed=seed), DESCRIPTION)
        for part, truth in FAST.items():
            # The planted rate is the median of the noise, rounded to whole bytes.
            held[part] += result.parts[part].interval.contains(truth)
    assert all(count >= 88 for count in held.values()), held


def test_the_load_is_the_change_between_two_readings():
    before = {
        "unix_s": 10.0, "cores": 4, "cpu": {"busy_s": 100.0, "iowait_s": 5.0, "steal_s": 0.0},
        "quota": {"cores": 0.5, "periods": 100, "throttled_periods": 50, "throttled_s": 3.0}, "pressure": {"cpu": 7.0},
    }  # fmt: skip
    after = {
        "unix_s": 12.0, "cores": 4, "cpu": {"busy_s": 103.0, "iowait_s": 6.0, "steal_s": 0.0},
        "quota": {"cores": 0.5, "periods": 120, "throttled_periods": 65, "throttled_s": 4.0}, "pressure": {"cpu": 8.0},
    }  # fmt: skip
    load = load_between(before, after)
    assert load == HostLoad(4, 1.5, 0.5, 0.0, 0.5, 0.75, 0.5, None, None)
    assert load.busy_ratio == pytest.approx(0.375)
    unknown = load_between({"unix_s": 1.0, "cores": 2}, {"unix_s": 2.0, "cores": 2})
    assert unknown == HostLoad(2)


def test_a_failed_part_is_reported_and_the_others_still_count():
    samples = [
        one
        if one.part != "read"
        else type(one)("read", one.round, 0.0, error="a: /source: cannot open: no such file")
        for one in rounds(FAST, noise=0.0)
    ]
    result = evaluate_path(samples, DESCRIPTION)
    assert result.parts["read"].rate_bytes_per_s is None
    assert result.smallest == "network"
    assert any("cannot open" in note for note in result.notes)
    assert math.isclose(result.loss, 1 - 900 / 1000)
