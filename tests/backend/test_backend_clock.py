import pytest
from hypothesis import given
from hypothesis import strategies as st

from venturi.backend.checks import clock_findings, drift_finding
from venturi.backend.clock import ClockOffset, RoundTrip, estimate_offset

trips = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=20
)


@given(offset_ns=st.integers(-(10**12), 10**12), trips=trips)
def test_the_true_offset_is_within_the_uncertainty_even_with_asymmetric_delays(offset_ns, trips):
    measured = estimate_offset(
        RoundTrip(sent, sent + there + offset_ns, sent + there + back) for sent, there, back in trips
    )
    assert abs(measured.offset_s - offset_ns / 1e9) <= measured.uncertainty_s + 2e-9
    assert measured.uncertainty_s == min(there + back for _, there, back in trips) / 2e9


def test_an_estimate_without_round_trips_is_an_error():
    with pytest.raises(ValueError, match="expected at least one round trip"):
        estimate_offset([])


def test_a_clock_offset_or_uncertainty_above_a_millisecond_is_a_finding():
    def codes(clock, *, single_host=False):
        return [finding.code for finding in clock_findings("node1", clock, single_host=single_host)]

    assert codes(None) == []
    assert codes(ClockOffset(0.0009, 0.0009)) == []
    assert codes(ClockOffset(-0.0011, 0.0001)) == ["clock-offset"]
    assert codes(ClockOffset(0.0, 0.0011)) == ["clock-uncertain"]
    assert codes(ClockOffset(0.0, 0.0011), single_host=True) == []


def test_a_clock_drift_that_is_certainly_above_a_millisecond_is_a_finding():
    first = ClockOffset(0.0, 0.0002)
    assert drift_finding("node1", first, ClockOffset(0.0013, 0.0002)) is None
    finding = drift_finding("node1", first, ClockOffset(-0.0015, 0.0002))
    assert (finding.code, finding.host) == ("clock-drift", "node1")
    assert "-1.500 ms" in finding.evidence
