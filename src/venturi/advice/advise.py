"""Verdicts of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import venturi
from venturi.advice.attribute import Attribution, attribute
from venturi.advice.decide import decide_point, decide_run
from venturi.advice.observe import Observation, observe
from venturi.advice.simulated import attribute_simulated
from venturi.advice.verdict import Advice, Verdict
from venturi.run import Run

__all__ = ["advise"]

MAX_TRIALS = 2000
"""Maximum number of trials to read. From longer runs, the longest trials of each point are read."""

FACTORS: Mapping[str, float] = {
    "emulator-overrun": 0.85,
    "emulator-memory": 0.9,
    "tcp-memory-short": 0.8,
    "limit-mismatch": 0.9,
    "sockets-incomplete": 0.9,
    "agent-restarted": 0.9,
    "samples-late": 0.97,
    "emulator-late": 0.97,
    "service-exited": 0.8,
    "other-run": 0.8,
}
"""Finding → factor of the confidence.

`emulator-late` alone rarely changes a result, because rates are right and the median stays small.
"""

LATE_RATIO = 0.2
"""Median lateness, as a fraction of the round trip, above which the emulator itself makes paths slower."""

LATE_FACTOR = 0.6


def advise(run: Run) -> Advice:
    """Return the verdicts of a run: one for each design point, and one for the whole run.

    It accepts any run. Each verdict names its missing evidence, which lowers the confidence.

    Parameters
    ----------
    run
        A run of any backend.

    Raises
    ------
    RunError
        If the tables cannot be read.

    Examples
    --------
    >>> from venturi.run import Run
    >>> advise(Run.open("my-lab")).run.sentence  # doctest: +SKIP
    '14.8 MB/s, limited by the disk of storage data on cern (processes of cern waited for a disk for 91 % of the time).'
    """
    observations = observe(run, limit=MAX_TRIALS)
    by_point: dict[int | None, list[tuple[Observation, Attribution]]] = {}
    for one in observations:
        found = attribute_simulated(run, one) if run.backend == "sim" else attribute(one)
        by_point.setdefault(one.point, []).append((one, found))
    codes = {finding.code for finding in run.findings()}
    verdicts: list[tuple[float, Verdict]] = []
    for _, trials in sorted(by_point.items(), key=lambda item: -1 if item[0] is None else item[0]):
        time_s = sum(one.duration_s for one, _ in trials)
        verdicts.append((time_s, decide_point(trials, _caveats(codes, trials))))
    return Advice(
        venturi.__version__, run.backend, decide_run(verdicts, run.backend), tuple(verdict for _, verdict in verdicts)
    )


def _caveats(codes: set[str], trials: Sequence[tuple[Observation, Attribution]]) -> dict[str, float]:
    found = {code: FACTORS[code] for code in sorted(codes & set(FACTORS))}
    if "emulator-late" in found and _lateness(trials) > LATE_RATIO:
        found["emulator-late"] = LATE_FACTOR
    return found


def _lateness(trials: Sequence[tuple[Observation, Attribution]]) -> float:
    """Return the largest median lateness of the emulator in relation to the round trip."""
    worst = 0.0
    for one, _ in trials:
        series = one.counters.get(("network", "emulator.late_p50_s"))
        late_s = series.last(one.end_s) if series is not None else None
        rtt_s = min((flow.gauges["min_rtt_s"] for flow in one.flows if "min_rtt_s" in flow.gauges), default=None)
        if late_s is not None and rtt_s:
            worst = max(worst, late_s / rtt_s)
    return worst
