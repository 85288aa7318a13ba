"""A verdict as lines of text, for the terminal and the report."""

from __future__ import annotations

from venturi.advice.verdict import CAUSES, Verdict
from venturi.units import format_rate

__all__ = ["verdict_lines"]

SHOWN_FRACTIONS = 4


def verdict_lines(verdict: Verdict) -> list[str]:
    """Return confidence, evidence, predicted gain, settings and caveats of a verdict, one line each."""
    lines = []
    if verdict.cause is not None:
        lines.append(
            f"Confidence {100 * verdict.confidence:.0f} %; {100 * verdict.fraction:.0f} % of the transfer time."
        )
    fractions = [
        f"{one.resource or CAUSES[one.cause]} {100 * one.fraction:.0f} %"
        for one in verdict.fractions[:SHOWN_FRACTIONS]
    ]
    if len(verdict.fractions) > 1:
        lines.append(f"Time: {', '.join(fractions)}.")
    lines += [f"{'  −' if one.against else '  +'} {one.text}" for one in verdict.evidence]
    found = verdict.counterfactual
    if found is not None and found.rate_bytes_per_s is not None and verdict.rate_bytes_per_s is not None:
        low, high = found.low_bytes_per_s or 0.0, found.high_bytes_per_s or 0.0
        if verdict.range_bytes_per_s is None:
            gain = f"{format_rate(verdict.rate_bytes_per_s)} → {format_rate(found.rate_bytes_per_s)} [{format_rate(low)}, {format_rate(high)}]"
        else:
            ratio, *ends = (rate / verdict.rate_bytes_per_s for rate in (found.rate_bytes_per_s, low, high))
            gain = f"the whole run is {ratio:.3g} [{ends[0]:.3g}, {ends[1]:.3g}] times as fast"
        lines.append(f"If you {found.change}: {gain}; next limit: {found.next_limit}.")
    elif found is not None:
        lines.append(f"If you {found.change}: the gain is unknown; next limit {found.next_limit}.")
    for setting in verdict.settings:
        where = f" on {setting.host}" if setting.host else ""
        lines.append(f"Change{where}: {setting.change} ({setting.reason}; {setting.source}).")
    lines += [f"Leave alone: {text}." for text in verdict.leave_alone]
    if verdict.probe is not None:
        lines.append(f"To decide: {verdict.probe}.")
    if verdict.missing:
        lines.append(f"Missing evidence: {', '.join(verdict.missing)}.")
    if verdict.caveats:
        lines.append(f"Findings that lower the confidence: {', '.join(verdict.caveats)}.")
    return lines
