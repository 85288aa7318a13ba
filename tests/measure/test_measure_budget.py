"""Time and bytes of samples."""

import pytest

from venturi.errors import MeasureError
from venturi.measure import Endpoint, MeasureOptions, measure
from venturi.measure.budget import MAX_PART_S, MIN_FILE_BYTES, MIN_PART_S, Budget, next_size_bytes


def test_each_sample_gets_an_equal_share_of_the_remaining_time():
    budget = Budget(time_s=25.0, samples=25, max_bytes=10**9)
    assert budget.part_s() == pytest.approx(1.0, rel=0.1)
    # Each sample takes 0.2 s longer than planned, so the next samples get less time.
    for _ in range(5):
        budget.add(1.0, 1.2)
    budget.started_s -= 6.0
    assert budget.part_s() == pytest.approx(19 / 20 - 0.2, rel=0.1)
    budget.started_s -= 100.0
    assert budget.part_s() == MIN_PART_S
    assert Budget(time_s=1e4, samples=1, max_bytes=1).part_s() == MAX_PART_S


def test_all_samples_together_stay_below_the_byte_limit():
    # Per direction: files on disk, in memory and for reads, five parts of the warm-up, and the samples.
    for directions in (1, 2):
        for rounds in (1, 2, 5, 20):
            budget = Budget(time_s=60.0, samples=5 * rounds * directions, max_bytes=10**9, directions=directions)
            assert (3 + 5 + 5 * rounds) * directions * budget.sample_bytes <= 10**9


def test_too_few_bytes_or_seconds_for_all_samples_are_errors():
    smallest = Budget(time_s=60.0, samples=25, max_bytes=10**9).smallest_max_bytes
    assert Budget(time_s=60.0, samples=25, max_bytes=smallest).sample_bytes == MIN_FILE_BYTES
    a, b = Endpoint("/a"), Endpoint("/b")
    with pytest.raises(MeasureError, match=r"--max-bytes: expected at least 147 MB for 25 samples, found 73.4 MB"):
        measure(a, b, MeasureOptions(max_bytes=smallest // 2))
    with pytest.raises(MeasureError, match="--time: expected at least 4 min 10 s for 500 samples, found 60 s"):
        measure(a, b, MeasureOptions(time_s=60.0, rounds=50, both=True))


@pytest.mark.parametrize(
    ("size_bytes", "rate_bytes_per_s", "part_s", "limit_bytes", "expected"),
    [
        (100e6, 100e6, 1.0, 1e9, 100e6),  # as planned
        (100e6, 100e6, 1.2, 1e9, 100e6),  # close enough: equal sizes in all rounds
        (100e6, 100e6, 4.0, 1e9, 400e6),
        (100e6, 100e6, 100.0, 1e10, 800e6),  # a rate from a short copy is uncertain
        (100e6, 100e6, 4.0, 300e6, 300e6),
        (100e6, 1e6, 1.0, 1e9, MIN_FILE_BYTES),
        (100e6, None, 1.0, 1e9, 25e6),  # the last copy failed
    ],
)
def test_the_size_of_a_copy_follows_from_its_last_rate(size_bytes, rate_bytes_per_s, part_s, limit_bytes, expected):
    assert next_size_bytes(int(size_bytes), rate_bytes_per_s, part_s, int(limit_bytes)) == expected
