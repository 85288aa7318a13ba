"""Files of fitted curves (JSON): written by ``venturi fit``, read by ``venturi validate``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from venturi import __version__
from venturi.errors import FitError
from venturi.messages import one_of, path_text, quote_value
from venturi.model import FAMILIES, Fit, SavedFit
from venturi.run import Run

__all__ = [
    "FIT_FORMAT",
    "FIT_VERSION",
    "FitDocument",
    "SavedCurve",
    "fit_document",
    "movers_of",
    "read_fit",
    "saved_values",
]

FIT_FORMAT = "venturi-fit"
FIT_VERSION = 1


@dataclass(frozen=True)
class SavedCurve:
    """The best function of a curve: throughput per file in B/s against one factor.

    ``others`` are the values of the other factors, in base units.
    """

    against: str
    others: Mapping[str, str | int | float | bool | None]
    fit: SavedFit
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class FitDocument:
    """Content of a file of fitted curves.

    Attributes
    ----------
    name
        Name of the file.
    run, simulated
        Name of the fitted run, and whether its times were simulated.
    movers
        Names of its movers.
    factors
        Names of its factors. The last part of a name is the unit.
    curves
        Fitted curves.
    """

    name: str
    run: str
    simulated: bool
    movers: tuple[str, ...]
    factors: tuple[str, ...]
    curves: tuple[SavedCurve, ...]


def movers_of(run: Run) -> tuple[str, ...]:
    """Return the names of the movers in the plan of a run, in ascending order."""
    return tuple(sorted({str(call["mover"]) for call in run.header["calls"].values()}))


def fit_document(run: Run, curves: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the document of fitted curves. ``curves`` are in the form of `saved_values` and of ``venturi fit``."""
    return {
        "format": FIT_FORMAT,
        "version": FIT_VERSION,
        "venturi": __version__,
        "run": run.path.name,
        "simulated": run.backend == "sim",
        "movers": list(movers_of(run)),
        "factors": list(run.factors),
        "curves": list(curves),
    }


def saved_values(fit: Fit) -> dict[str, Any]:
    """Return the values of a fit that `read_fit` needs, as JSON. Numbers that are not finite are null."""
    saved = SavedFit.of(fit)
    return {
        "family": fit.family.name,
        "formula": fit.family.formula,
        "parameters": {name: _finite(value) for name, value in saved.parameters.items()},
        "covariance": [[_finite(value) for value in row] for row in saved.covariance.tolist()],
        "points": saved.points,
        "x_range": list(saved.x_range),
        "residual_variance": _finite(saved.residual_variance),
        "relative_sigma": None if saved.relative_sigma is None else _finite(saved.relative_sigma),
        "sigma_is_absolute": saved.sigma_is_absolute,
    }


def read_fit(path: Path) -> FitDocument:
    """Return the fitted curves of a file. Of each curve, only the first fit is used: the best one.

    Raises
    ------
    FitError
        If the file cannot be read, has another format or version, or lacks a value. The message contains the location.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FitError(f"{path}: cannot read the file of fitted curves ({error.strerror}); check the path") from error
    except ValueError as error:
        raise FitError(f"{path}: expected a file of fitted curves, found {error}; create one with `venturi fit RUN -o FILE`") from error  # fmt: skip
    return _Reader(path).document(document)


class _Reader:
    """Checks of a document, with the location of each value."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def document(self, found: object) -> FitDocument:
        if not isinstance(found, dict) or found.get("format") != FIT_FORMAT:
            what = found.get("format") if isinstance(found, dict) else found
            raise FitError(
                f'{self._path}: format: expected "{FIT_FORMAT}", found {quote_value(what)}; create the file with'
                " `venturi fit RUN -o FILE`"
            )
        if found.get("version") != FIT_VERSION:
            raise FitError(
                f"{self._path}: version: expected {FIT_VERSION}, found {quote_value(found.get('version'))}; fit the run"
                " again with this version of Venturi"
            )
        curves = self.value(found, "curves", list)
        if not curves:
            raise self.error(("curves",), "at least one curve, found none")
        return FitDocument(
            name=self._path.name,
            run=self.value(found, "run", str),
            simulated=self.value(found, "simulated", bool),
            movers=tuple(str(name) for name in self.value(found, "movers", list)),
            factors=tuple(str(name) for name in self.value(found, "factors", list)),
            curves=tuple(self.curve(one, ("curves", number)) for number, one in enumerate(curves)),
        )

    def curve(self, found: object, where: tuple[str | int, ...]) -> SavedCurve:
        table = self.table(found, where)
        fits = self.value(table, "fits", list, where)
        if not fits:
            raise self.error((*where, "fits"), "at least one fit, found none")
        best = self.table(fits[0], (*where, "fits", 0))
        return SavedCurve(
            against=self.value(table, "against", str, where),
            others=dict(self.value(table, "others", dict, where)),
            fit=self.fit(best, (*where, "fits", 0)),
            warnings=tuple(str(one) for one in best.get("warnings") or ()),
        )

    def fit(self, found: dict[str, Any], where: tuple[str | int, ...]) -> SavedFit:
        name = self.value(found, "family", str, where)
        if name not in FAMILIES:
            raise FitError(f"{self._path}: {path_text((*where, 'family'))}: {one_of('the families', FAMILIES, name)}")
        parameters = self.value(found, "parameters", dict, where)
        for parameter in FAMILIES[name].parameters:
            self.number(parameters.get(parameter), (*where, "parameters", parameter))
        x_range = self.value(found, "x_range", list, where)
        ends = [self.number(end, (*where, "x_range", number)) for number, end in enumerate(x_range)]
        if len(ends) != 2:
            raise self.error((*where, "x_range"), f"two numbers, found {len(ends)}")
        rows = self.value(found, "covariance", list, where)
        ratio, variance = found.get("relative_sigma"), found.get("residual_variance")
        try:
            return SavedFit(
                family=FAMILIES[name],
                # JSON objects have no order, and the covariance has the order of the family.
                parameters={parameter: float(parameters[parameter]) for parameter in FAMILIES[name].parameters},
                covariance=np.array([[math.inf if cell is None else float(cell) for cell in row] for row in rows]),
                points=self.value(found, "points", int, where),
                residual_variance=math.nan if variance is None else float(variance),
                relative_sigma=None if ratio is None else float(ratio),
                sigma_is_absolute=self.value(found, "sigma_is_absolute", bool, where),
                x_range=(ends[0], ends[1]),
            )
        except (TypeError, ValueError, FitError) as error:
            raise FitError(f"{self._path}: {path_text(where)}: {error}; fit the run again") from error

    def number(self, found: object, where: tuple[str | int, ...]) -> float:
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self.error(where, f"a number, found {quote_value(found)}")
        return float(found)

    def table(self, found: object, where: tuple[str | int, ...]) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise self.error(where, f"an object, found {quote_value(found)}")
        return found

    def value(self, table: dict[str, Any], key: str, kind: type, where: tuple[str | int, ...] = ()) -> Any:  # noqa: ANN401 - a value of this kind
        found = table.get(key)
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            name = {list: "a list", dict: "an object", str: "a text", bool: "true or false", int: "a whole number"}[
                kind
            ]
            raise self.error((*where, key), f"{name}, found {quote_value(found)}")
        return found

    def error(self, where: tuple[str | int, ...], problem: str) -> FitError:
        return FitError(f"{self._path}: {path_text(where)}: expected {problem}; fit the run again with `venturi fit`")


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
