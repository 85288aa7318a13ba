"""Comment at the top of a cost file: runs, held-out points, errors, and the interval of each parameter. Writing and reading.

A scenario includes the file, so all that is no cost of a testbed is in comments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from venturi import __version__
from venturi.analysis.format import plural
from venturi.calibration.format import value_text
from venturi.calibration.result import Calibration, Errors, Estimated
from venturi.errors import UnitError
from venturi.units import BITS_PER_BYTE, parse_bytes, parse_duration, parse_rate_bit_per_s

__all__ = ["CostOrigin", "origin_lines", "read_origin"]

_LINE = re.compile(r"#\s*(?P<name>\w+ of .+): (?P<value>[^()]+) \((?P<low>.+) to (?P<high>.+); default: .+\)\s*")
_RUNS = re.compile(r"#\s*Costs of transfers, estimated by .* from (?P<runs>.+)\.\s*")
_HELD_OUT = re.compile(r"#.*\(fraction (?P<fraction>[0-9.]+), seed (?P<seed>\d+)\).*")
_LEVEL = re.compile(r"#\s*Intervals: (?P<level>[0-9.]+) %.*")


@dataclass(frozen=True)
class CostOrigin:
    """Origin of a file of costs, as `venturi calibrate` writes it.

    Attributes
    ----------
    name
        Name of the file.
    runs
        Names of the calibrated runs; empty if the file does not state them.
    hold_out, seed
        Fraction of the points that the calibration left out, and the seed that selected them.
    intervals
        Full name of a parameter → lower end, value and upper end, in base units.
    level
        Level of the intervals.
    """

    name: str
    runs: tuple[str, ...] = ()
    hold_out: float = 0.0
    seed: int = 1
    intervals: Mapping[str, tuple[float, float, float]] | None = None
    level: float = 0.95


def read_origin(path: Path) -> CostOrigin:
    """Return the origin of a file of costs, from its comments (TOML).

    A file without these comments has no runs and no intervals.
    """
    runs: tuple[str, ...] = ()
    hold_out, seed, level = 0.0, 1, 0.95
    intervals: dict[str, tuple[float, float, float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if match := _RUNS.fullmatch(line):
            runs = tuple(match["runs"].split(", "))
        elif match := _HELD_OUT.fullmatch(line):
            hold_out, seed = float(match["fraction"]), int(match["seed"])
        elif match := _LEVEL.fullmatch(line):
            level = float(match["level"]) / 100
        elif match := _LINE.fullmatch(line):
            found = [_quantity(match["name"].partition(" ")[0], match[key]) for key in ("low", "value", "high")]
            if all(value is not None for value in found):
                intervals[match["name"]] = (found[0] or 0.0, found[1] or 0.0, found[2] or 0.0)
    return CostOrigin(path.name, runs, hold_out, seed, intervals, level)


def _quantity(parameter: str, text: str) -> float | None:
    """Return the value of a parameter in base units; None for text such as *no known limit*."""
    text = text.removesuffix(" of a core").strip()
    try:
        if parameter.endswith("_bytes_per_s"):
            return parse_rate_bit_per_s(text) / BITS_PER_BYTE
        if parameter.endswith("_bytes"):
            return float(parse_bytes(text))
        if parameter.endswith("_s"):
            return parse_duration(text)
        return float(text)
    except (UnitError, ValueError):
        return None


def origin_lines(result: Calibration) -> list[str]:
    """Return the lines of the comment, without their mark."""
    runs = ", ".join(result.runs)
    lines = [
        f"Costs of transfers, estimated by `venturi calibrate` {__version__} from {runs}.",
        'To use them: include = ["<this file>"] in a scenario of the same testbed.',
        f"From {plural(result.fitted.n, 'point')}; {plural(result.held_out.n, 'other point')} held out"
        f" (fraction {result.hold_out:g}, seed {result.seed}).",
        f"Errors of the points held out: {_errors(result.held_out)}; with defaults {_errors(result.defaults)};"
        f" bytes / slowest link + RTT: {_errors(result.naive)}.",
        f"Intervals: {100 * result.level:g} %, {result.method}, n = {result.fitted.n}.",
        "",
    ]
    lines += [_line(one) for one in result.parameters if one.state == "estimated"]
    lines += _shared(result)
    kept = [one for one in result.parameters if one.state != "estimated" and one.state != "no effect"]
    if kept:
        lines += ["", "Not identified by these runs:"]
        lines += [
            f"{one.name}: {f'indistinguishable from {one.partner}' if one.partner else one.state}" for one in kept
        ]
    return lines


def _shared(result: Calibration) -> list[str]:
    """Return comments about the cores of all hosts together, or an empty list if they need no explanation."""
    if result.cost.machine_cores is not None:
        return ["machine_cores: cores that all hosts share, as in a lab; remove the line if each host has its own."]
    if len(set(result.machine_cores)) == 1:
        return []
    found = ", ".join(
        f"{'none' if cores is None else f'{cores:g}'} in {run}"
        for run, cores in zip(result.runs, result.machine_cores, strict=True)
    )
    return [f"No machine_cores: the runs have different values: {found}. Each run was simulated with its own value."]


def _line(one: Estimated) -> str:
    low, high = (value_text(one.parameter, end) for end in (one.low, one.high))
    return f"{one.name}: {value_text(one.parameter, one.value)} ({low} to {high}; default: {value_text(one.parameter, one.default)})"


def _errors(errors: Errors) -> str:
    if errors.median is None or errors.p90 is None:
        return "none measured"
    return f"median {100 * errors.median:.3g} %, p90 {100 * errors.p90:.3g} %"
