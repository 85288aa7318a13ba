"""Quantities as text, and text as quantities."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from venturi import units
from venturi.errors import UnitError


@given(st.integers(0, 10**19))
def test_the_exact_text_of_a_size_parses_to_the_same_size(size_bytes):
    assert units.parse_bytes(units.format_bytes_exact(size_bytes)) == size_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("0", 0), ("0 B", 0), ("512 B", 512), ("1 kB", 1000), ("1 KiB", 1024), ("0.1 GB", 10**8), ("1.5 MiB", 1_572_864),
     ("2e3 kB", 2_000_000), ("1PB", 10**15)],
)  # fmt: skip
def test_sizes_are_decimal_unless_the_unit_is_binary(text, size_bytes):
    assert units.parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["100", 100, 1.5, None, "", "MB", "100 Mb", "100 mb", "1.5 B", "-1 MB", "1 MB MB", "1 XB"]
)
def test_a_size_without_a_proper_unit_is_rejected_with_an_example(text):
    with pytest.raises(UnitError, match="expected a"):
        units.parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [("0", 0), ("100 ms", 0.1), ("10 s", 10), ("5 min", 300), ("2 h", 7200), ("1 d", 86400), ("3us", 3e-6)],
)
def test_times_are_parsed(text, duration_s):
    assert units.parse_duration(text) == pytest.approx(duration_s, rel=1e-15)


@pytest.mark.parametrize("text", ["10", "10 m", "10 sec", 10, "s", "10 MB"])
def test_a_time_without_a_proper_unit_is_rejected(text):
    with pytest.raises(UnitError, match="expected a time"):
        units.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "rate_bit_per_s"),
    [("10 Gb/s", 1e10), ("10 Gbit/s", 1e10), ("1 MB/s", 8e6), ("1 MiB/s", 8 * 1024**2), ("0", 0), ("500 b/s", 500)],
)
def test_rates_in_bits_and_bytes_are_parsed(text, rate_bit_per_s):
    assert units.parse_rate_bit_per_s(text) == rate_bit_per_s


@pytest.mark.parametrize("text", ["10", "10 G", "10 Gb", "10 GB", "10 Gbps", 10])
def test_a_rate_without_a_proper_unit_is_rejected(text):
    with pytest.raises(UnitError, match="expected a rate"):
        units.parse_rate_bit_per_s(text)


def test_a_rate_is_formatted_in_three_units_like_the_esnet_scorecard():
    # ESnet Data Transfer Scorecard: 1 TB/h is 2.2 Gb/s and 277.8 MB/s.
    assert units.format_rate_triple(1e12 / 3600) == "1 TB/h = 2.22 Gb/s = 278 MB/s"


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (0, "0 s"),
        (2e-9, "2 ns"),
        (0.0123, "12.3 ms"),
        (119.4, "119 s"),
        (119.6, "2 min 00 s"),
        (3599.6, "1 h 00 min"),
        (7380, "2 h 03 min"),
    ],
)
def test_times_are_shown_in_the_largest_unit_that_fits(duration_s, text):
    assert units.format_duration(duration_s) == text
