import pytest
from hypothesis import given
from hypothesis import strategies as st

from venturi.backend.checks import clock_findings
from venturi.backend.clock import ClockOffset, RoundTrip, estimate_offset

trips = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=20
)


@given(offset_ns=st.integers(-(10**12), 10**12), trips=trips)
def test_the_true_offset_lies_within_the_uncertainty_however_the_way_there_and_back_differ(offset_ns, trips):
    measured = estimate_offset(
        RoundTrip(sent, sent + there + offset_ns, sent + there + back) for sent, there, back in trips
    )
    assert abs(measured.offset_s - offset_ns / 1e9) <= measured.uncertainty_s + 2e-9
    assert measured.uncertainty_s == min(there + back for _, there, back in trips) / 2e9


def test_no_round_trip_is_no_estimate():
    with pytest.raises(ValueError, match="expected at least one round trip"):
        estimate_offset([])


def test_a_clock_is_worth_a_finding_from_a_millisecond_on():
    def codes(clock, *, alone=False):
        return [finding.code for finding in clock_findings("node1", clock, alone=alone)]

    assert codes(None) == []
    assert codes(ClockOffset(0.0009, 0.0009)) == []
    assert codes(ClockOffset(-0.0011, 0.0001)) == ["clock-offset"]
    assert codes(ClockOffset(0.0, 0.0011)) == ["clock-uncertain"]
    assert codes(ClockOffset(0.0, 0.0011), alone=True) == []
