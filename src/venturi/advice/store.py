"""Verdicts as JSON and as the table ``verdicts`` of a run."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from venturi.advice.verdict import Advice, Verdict
from venturi.run import Run
from venturi.run.verdicts import write_verdicts

__all__ = ["store_verdicts", "verdict_json"]


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON values."""
    return {"sentence": verdict.sentence, **dataclasses.asdict(verdict)}


def store_verdicts(run: Run, advice: Advice) -> bool:
    """Write the verdicts of a run with the version of Venturi, and return whether the run is writable.

    The first row is the verdict of the whole run (`point` is null).
    """
    rows = [
        {
            "version": advice.version,
            "point": verdict.point if index else None,
            "rate_bytes_per_s": verdict.rate_bytes_per_s,
            "cause": verdict.cause,
            "resource": verdict.resource,
            "fraction": verdict.fraction,
            "runner_up": verdict.runner_up.cause if verdict.runner_up else None,
            "confidence": verdict.confidence,
            "detail": json.dumps(verdict_json(verdict)),
        }
        for index, verdict in enumerate((advice.run, *advice.points))
    ]
    return write_verdicts(run.path, rows)
