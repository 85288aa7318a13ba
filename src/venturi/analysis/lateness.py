"""Effect of late deliveries of the network emulator on the results.

Each round trip has two deliveries, so it becomes longer by twice the mean lateness. Rates that depend on the round trip
(window per round trip, latency of files) decrease by at most this fraction. The rate of a full link stays the same.
"""

from __future__ import annotations

from dataclasses import replace

from venturi.analysis.result import FindingSummary
from venturi.analysis.result_lab import TestbedResult
from venturi.run import Run
from venturi.units import format_duration

__all__ = ["HARMLESS", "LATE", "grade_lateness"]

LATE = "emulator-late"
"""Code of the finding."""
HARMLESS = 0.01
"""Fraction of a round trip below which lateness is no warning."""
TIMEOUT_S = 0.2
"""Smallest retransmission timeout of Linux (`TCP_RTO_MIN`). A later packet is sent again."""

_BY_POINT = """WITH moments AS (
        SELECT time_s, max(value) FILTER (counter = 'emulator.late_sum_s') AS late_s,
               max(value) FILTER (counter = 'emulator.deliveries') AS deliveries,
               max(value) FILTER (counter = 'emulator.late_max_s') AS worst_s
        FROM samples WHERE counter LIKE 'emulator.%' GROUP BY time_s),
    steps AS (
        SELECT time_s, worst_s, lag(time_s) OVER w AS before_s, late_s - lag(late_s) OVER w AS late_s,
               deliveries - lag(deliveries) OVER w AS deliveries
        FROM moments WINDOW w AS (ORDER BY time_s)),
    windows AS (
        SELECT point, position, min(start_s) AS start_s, max(end_s) AS end_s FROM transfers
        WHERE outcome = 'ok' AND point IS NOT NULL GROUP BY point, position)
    SELECT point, sum(late_s) / sum(deliveries) AS mean_s, max(worst_s) AS worst_s
    FROM steps s JOIN windows w ON s.time_s > w.start_s AND s.before_s < w.end_s
    WHERE deliveries > 0 AND late_s >= 0 GROUP BY point ORDER BY mean_s DESC LIMIT 1"""


def grade_lateness(run: Run, finding: FindingSummary, testbed: TestbedResult | None) -> FindingSummary:
    """Return the finding `emulator-late` with its effect on round trips, as a note if the effect is harmless.

    Without samples of the emulator, or without a delay on the paths, the effect is unknown and the finding stays
    unchanged.

    Parameters
    ----------
    finding
        The finding of the emulator.
    testbed
        Testbed with the paths, which give the shortest round trip of the transfers.
    """
    trips_s = [path.rtt_s for path in testbed.paths if path.rtt_s] if testbed else []
    rows = run.query(_BY_POINT)
    if not trips_s or not len(rows["mean_s"]):
        return finding
    mean_s, worst_s, rtt_s = float(rows["mean_s"][0]), float(rows["worst_s"][0]), min(trips_s)
    part = 2 * mean_s / rtt_s
    effect = (
        f"the mean lateness in trials, at most {format_duration(mean_s)}, adds {100 * part:.2g} % to "
        f"the round trip of {format_duration(rtt_s)}"
    )
    graded = replace(finding, evidence=f"{effect}; {finding.evidence}")
    if part < HARMLESS and worst_s < TIMEOUT_S:
        advice = "no change is needed: rates that depend on round trips are lower by at most this fraction"
        return replace(graded, advice=advice, severity="note")
    return graded
