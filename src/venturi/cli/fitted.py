"""One fitted curve of a run, as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from venturi.analysis import Criterion, FittedCurves, chosen_families, rank_curve
from venturi.analysis.format import format_factor_value
from venturi.calibration.fit_document import saved_values
from venturi.model import ParameterInterval, Prediction, RankedFit, Ranking, profile
from venturi.units import format_bytes, format_rate

__all__ = ["FittedCurve"]

_CRITERIA = {"aicc": "AICc", "r_squared": "R²", "r_squared_adjusted": "adjusted R²", "cross_validation": "CV error"}


@dataclass(frozen=True)
class FittedCurve:
    """A curve, its families (best first), intervals of the best parameters, and the requested predictions."""

    curve: FittedCurves
    ranking: Ranking
    intervals: Mapping[str, ParameterInterval]
    predictions: Prediction | None

    @classmethod
    def fit(
        cls,
        curve: FittedCurves,
        families: Sequence[str],
        criterion: Criterion,
        *,
        at: Sequence[float],
        extrapolate: bool,
        level: float,
    ) -> FittedCurve:
        """Fit and rank all families. If the curve has too few points for the criterion, rank by adjusted R².

        Raises
        ------
        RangeError
            If a prediction is outside the measured range and ``extrapolate`` is false.
        FitError
            If no family can be fitted.
        """
        ranking = rank_curve(curve, chosen_families(families, curve.against), criterion)
        best = ranking.best
        has_intervals = best.degrees_of_freedom > 0 or best.sigma_is_absolute
        return cls(
            curve,
            ranking,
            profile(best, level=level) if has_intervals else {},
            best.predict(list(at), level=level, extrapolate=extrapolate) if at else None,
        )

    def render(self) -> RenderableType:
        """Return the curve for a terminal: a table of families, then the best family."""
        return Group(
            Text(_title(self.curve), style="bold"), _table(self.ranking), Text("\n".join(self._lines()) + "\n")
        )

    def _lines(self) -> list[str]:
        best = self.ranking.best
        lines = [
            f"best by {_CRITERIA.get(self.ranking.criterion, self.ranking.criterion)}: {best.family.name}, {best.family.formula}, fitted to {len(self.curve.x)} points"
        ]
        for name, value in best.parameters.items():
            interval = self.intervals.get(name)
            between = (
                f"[{interval.low:.4g}, {interval.high:.4g}] at level {interval.level:g}, profile likelihood"
                if interval
                else "no interval: as many parameters as points"
            )
            lines.append(f"  {name} = {value:.6g}  {between}")
        lines += [f"  warning: {warning}" for warning in best.warnings]
        failed = [entry.fit.family.name for entry in self.ranking.entries if entry.fit.failed]
        if failed:
            lines.append(f"  failed, no better than the mean of the points: {', '.join(failed)}")
        lines += [
            f"  not fitted: {rejected_fit.family.name}: {rejected_fit.reason}"
            for rejected_fit in self.ranking.rejected
        ]
        lines += [
            f"  at {format_factor_value(self.curve.against, x)}: {format_rate(value)} [{format_rate(low)}, {format_rate(high)}]"
            + ("  EXTRAPOLATED" if outside else "")
            for x, value, low, high, outside in self._predicted()
        ]
        return lines

    def _predicted(self) -> Iterator[tuple[float, float, float, float, bool]]:
        if self.predictions is not None:
            p = self.predictions
            yield from zip(
                *(column.tolist() for column in (p.x, p.value, p.low, p.high, p.extrapolated)), strict=True
            )

    def as_json(self) -> dict[str, Any]:
        """Return the curve as JSON values in base units. Values that are not finite are null.

        :func:`venturi.calibration.fit_document.read_fit` reads them.
        """
        return {
            "against": self.curve.against,
            "others": dict(self.curve.others),
            "x": list(self.curve.x),
            "throughput_bytes_per_s": list(self.curve.y_bytes_per_s),
            "error_bytes_per_s": list(self.curve.error_bytes_per_s),
            "criterion": self.ranking.criterion,
            "fits": [_fit_json(entry) for entry in self.ranking.entries],
            "best_intervals": {
                name: {
                    "low": _finite(i.low),
                    "high": _finite(i.high),
                    "level": i.level,
                    "method": "profile likelihood",
                }
                for name, i in self.intervals.items()
            },
            "predictions": [
                {
                    "x": x,
                    "throughput_bytes_per_s": _finite(value),
                    "low": _finite(low),
                    "high": _finite(high),
                    "extrapolated": outside,
                }
                for x, value, low, high, outside in self._predicted()
            ],
        }


def _title(curve: FittedCurves) -> str:
    others = ", ".join(
        f"{name.removesuffix('_bytes')} {format_bytes(value) if name.endswith('_bytes') and isinstance(value, int | float) else value}"
        for name, value in curve.others.items()
    )
    return f"throughput per file against {curve.against.removesuffix('_bytes')}" + (f"; {others}" if others else "")


def _table(ranking: Ranking) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    crossed = ranking.criterion == "cross_validation"
    for column in ("family", "formula", "R²", "adjusted", "AICc", *(["CV error"] if crossed else [])):
        table.add_column(column, justify="left" if column in ("family", "formula") else "right")
    for entry in ranking.entries:
        good = entry.fit.goodness
        numbers = (good.r_squared, good.r_squared_adjusted, good.aicc, *([entry.score] if crossed else []))
        table.add_row(entry.fit.family.name, Text(entry.fit.family.formula), *map(_number, numbers))
    return table


def _fit_json(entry: RankedFit) -> dict[str, Any]:
    fit, good = entry.fit, entry.fit.goodness
    return {
        **saved_values(fit),
        "standard_errors": {name: _finite(value) for name, value in fit.standard_errors.items()},
        "r2": _finite(good.r_squared),
        "adjusted_r2": _finite(good.r_squared_adjusted),
        "aicc": _finite(good.aicc),
        "score": _finite(entry.score),
        "failed": fit.failed,
        "warnings": list(fit.warnings),
    }


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "–"


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
