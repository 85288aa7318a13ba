"""Next step of a reader: the command or the experiment that follows from a result."""

from __future__ import annotations

import shlex

from venturi.advice import Advice
from venturi.analysis.result import About, Counts, NextStep

__all__ = ["next_step"]


def next_step(about: About, counts: Counts, advice: Advice) -> NextStep:
    """Return the next step.

    An incomplete run is resumed, failures are read, an undecided bottleneck needs a probe, and a decided one has advice.
    """
    run = shlex.quote(about.path)
    if about.state == "stopped":
        return NextStep("to finish the run", f"venturi run --resume {run}")
    if counts.transfers_failed or counts.trials_failed:
        return NextStep("to see the reasons of all failures", f"venturi report {run} --full")
    if not counts.transfers_ok:
        return NextStep("to see all checks", f"venturi report {run} --full")
    if advice.run.probe is not None and not advice.run.groups:
        return NextStep(f"to decide the bottleneck, {advice.run.probe}", f"venturi advise {run}")
    if advice.run.cause is None:
        return NextStep("to see the evidence for each point", f"venturi advise {run}")
    return NextStep("to see the predicted gain and the settings", f"venturi advise {run}")
