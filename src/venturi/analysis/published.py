"""Published values compared with this run: best functions, totals, single rates, and whole tables.

The tables have the form of the report. If the links of an emulated network were scaled, published rates are multiplied
by the scale before the comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from venturi.analysis.curves import family_table
from venturi.analysis.result import (
    Analysis,
    FamilyFit,
    FittedCurves,
    PointResult,
    PublishedFit,
    PublishedRate,
    PublishedTotal,
    Total,
)
from venturi.analysis.result_lab import PublishedRowComparison, PublishedTableComparison, StorageRate
from venturi.analysis.values import FactorValue
from venturi.study import Published, PublishedTable

__all__ = [
    "VALUE_COLUMNS",
    "published_fits",
    "published_rates",
    "published_rows",
    "published_tables",
    "published_totals",
    "restricted",
]

VALUE_COLUMNS = ("write_bytes_per_s", "read_bytes_per_s", "together_bytes_per_s", "throughput_bytes_per_s")
"""Value columns of a published table. All other columns except ``errata`` and ``note`` are factors."""


def restricted(curves: Sequence[FittedCurves], row: Mapping[str, Any]) -> list[FittedCurves]:
    """Return the curves that a published row describes.

    ``against`` names the factor, and ``where`` {factor: value} fixes the other factors. ``files_min`` and ``files_max``
    select curves, or points of curves against files, in a range with both ends included.
    """
    against, where = str(row.get("against", "")), row.get("where", {})
    low, high = row.get("files_min", -np.inf), row.get("files_max", np.inf)
    found = []
    for curve in curves:
        if curve.against not in (against, f"{against}_bytes", f"{against}_s"):
            continue
        if any(curve.others.get(key) != value for key, value in where.items()):
            continue
        files = curve.others.get("files")
        if isinstance(files, int | float) and not low <= files <= high:
            continue
        found.append(_cut(curve, low, high) if curve.against == "files" else curve)
    return found


def _cut(curve: FittedCurves, low: float, high: float) -> FittedCurves:
    kept = [index for index, x in enumerate(curve.x) if low <= x <= high]
    if len(kept) == len(curve.x):
        return curve
    # A fit to the whole range is not valid for a part of it.
    return replace(
        curve,
        x=tuple(curve.x[i] for i in kept),
        y_bytes_per_s=tuple(curve.y_bytes_per_s[i] for i in kept),
        error_bytes_per_s=tuple(curve.error_bytes_per_s[i] for i in kept),
        points=tuple(curve.points[i] for i in kept),
        fits=(),
    )


def published_fits(
    published: Published, table: Sequence[FamilyFit], curves: Sequence[FittedCurves]
) -> tuple[PublishedFit, ...]:
    """Return the published best functions with our fits over the same curves.

    Each row has our fit of the same family and our best family.
    """
    rows = []
    for row in published.fits:
        against = str(row["against"])
        limited = {"where", "files_min", "files_max"} & set(row)
        own_table = family_table(restricted(curves, row)) if limited else table
        own = [fit for fit in own_table if fit.against in (against, f"{against}_bytes") and fit.mean_r2 is not None]
        rows.append(
            PublishedFit(
                against=against, equation=str(row.get("equation", "")), family=str(row["family"]),
                mean_r2_table=row.get("mean_r2_table"), mean_r2_text=row.get("mean_r2_text"), range=str(row.get("range", "")),
                ours_same_family=next((fit for fit in own if fit.family == row["family"]), None),
                ours_best=own[0] if own else None, files_min=row.get("files_min"), files_max=row.get("files_max"),
            )
        )  # fmt: skip
    return tuple(rows)


def published_totals(
    published: Published, total_between: Callable[[tuple[int, int]], Sequence[Total]], scale: float
) -> tuple[PublishedTotal, ...]:
    """Return the published totals and our totals over the same file counts. Ours is None if several totals match."""
    rows = []
    for row in published.totals:
        files = (int(row["files_min"]), int(row["files_max"]))
        where = row.get("where", {})
        found = [t for t in total_between(files) if all(t.others.get(k) == v for k, v in where.items())]
        ours = found[0] if len(found) == 1 else None
        ratio = ours.mean_bytes_per_s / (scale * row["total_bytes_per_s"]) if ours else None
        rows.append(PublishedTotal(str(row["name"]), float(row["total_bytes_per_s"]), *files, ours, ratio, scale))
    return tuple(rows)


def published_rates(
    published: Published, points: Sequence[PointResult], storages: Sequence[StorageRate], scale: float
) -> tuple[PublishedRate, ...]:
    """Return the published single rates and our rates.

    A row with a ``storage`` describes its read and write rates (or one of them: ``of = "read"``), in one ``direction``
    or all. Other rows describe rates of whole trials, per mover if a point runs several, as file systems count them.
    """
    rows = []
    for row in published.rates:
        low, high = int(row["files_min"]), int(row["files_max"])
        own = [p for p in points if _matches(p, row) and low <= p.files <= high]
        of_storage = _by_storage(storages, row, {p.point for p in own}) if "storage" in row else None
        rates = of_storage if of_storage is not None else [r for p in own for r in _rates(p)]
        known = [rate for rate in rates if rate is not None]
        published_low, published_high = float(row["low_bytes_per_s"]), float(row["high_bytes_per_s"])
        middle = (min(known) + max(known)) / (published_low + published_high) / scale if known else None
        rows.append(
            PublishedRate(
                name=str(row["name"]), mover=str(row["mover"]), files_min=low, files_max=high,
                low_bytes_per_s=published_low, high_bytes_per_s=published_high,
                qualifier=str(row.get("qualifier", "")), ours_low_bytes_per_s=min(known, default=None),
                ours_high_bytes_per_s=max(known, default=None), points=len(own), ratio=middle, scale=scale,
            )
        )  # fmt: skip
    return tuple(rows)


def _matches(point: PointResult, row: Mapping[str, Any]) -> bool:
    if point.factors.get("mover", row["mover"]) != row["mover"]:
        return False
    return all(point.factors.get(key) == value for key, value in row.get("where", {}).items())


def _rates(point: PointResult) -> list[float | None]:
    return [part.together_bytes_per_s for part in point.parts] or [point.together_bytes_per_s]


def _by_storage(storages: Sequence[StorageRate], row: Mapping[str, Any], points: set[int]) -> list[float | None]:
    directions = ("forward", "reverse") if row.get("direction") == "each" else (str(row.get("direction", "all")),)
    own = [
        rate for rate in storages
        if rate.point in points and rate.storage == row["storage"] and rate.direction in directions
    ]  # fmt: skip
    sides = (str(row["of"]),) if "of" in row else ("read", "write")
    return [getattr(rate, f"{side}_bytes_per_s") for rate in own for side in sides]


def published_tables(
    published: Published, points: Sequence[PointResult], storages: Sequence[StorageRate], scale: float
) -> tuple[PublishedTableComparison, ...]:
    """Return the published tables with values of points, one row per published row, in their order."""
    shown = [table for table in published.tables if set(table.columns) & set(VALUE_COLUMNS)]
    return tuple(_table(table, points, storages, scale) for table in shown)


def _table(
    table: PublishedTable, points: Sequence[PointResult], storages: Sequence[StorageRate], scale: float
) -> PublishedTableComparison:
    names = [name for name in table.columns if name not in (*VALUE_COLUMNS, "errata", "note")]
    values = [name for name in table.columns if name in VALUE_COLUMNS]
    by_point = {r.point: r for r in storages if r.storage == table.storage and r.direction == "all"}
    rows = []
    for row in table.rows:
        factors: dict[str, FactorValue] = {name: row[name] for name in names}
        point = next((p for p in points if all(p.factors.get(k) == v for k, v in factors.items())), None)
        storage = by_point.get(point.point) if point else None
        published_value = {name: _float(row[name]) for name in values}
        ours = {name: _ours(name, point, storage) for name in values}
        ratios = {name: _ratio(ours[name], published_value[name], scale) for name in values}
        rows.append(
            PublishedRowComparison(
                factors=factors, published=published_value, ours=ours, ratio=ratios, point=point.point if point else None,
                errata=tuple(str(row.get("errata") or "").split()), note=str(row.get("note") or ""),
            )
        )  # fmt: skip
    return PublishedTableComparison(
        name=table.name, about=table.about, storage=table.storage, factors=tuple(names), values=tuple(values),
        rows=tuple(rows), scale=scale,
    )  # fmt: skip


def _ours(column: str, point: PointResult | None, storage: StorageRate | None) -> float | None:
    if column in ("read_bytes_per_s", "write_bytes_per_s"):
        return getattr(storage, column) if storage else None
    return getattr(point, column) if point else None


def _ratio(ours: float | None, published_value: float | None, scale: float) -> float | None:
    return ours / (published_value * scale) if ours is not None and published_value else None


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def published_rows(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Yield every published value and ours as one row of the table in ``published.csv``.

    ``published_other`` and ``ours_other`` are second values of a kind: R² of the text, or the upper end of a range.
    ``scale`` is the scale of our rates.
    """
    for fit in analysis.published_fits:
        same, best = fit.ours_same_family, fit.ours_best
        yield {"kind": "fit", "name": f"against {fit.against}, {fit.range}", "published": fit.mean_r2_table, "published_other": fit.mean_r2_text,
               "ours": same.mean_r2 if same else None, "note": f"{fit.family}; best in this run: {best.family if best else 'none'}"}  # fmt: skip
    for total in analysis.published_totals:
        yield {"kind": "total_bytes_per_s", "name": total.name, "published": total.total_bytes_per_s,
               "ours": total.ours.mean_bytes_per_s if total.ours else None, "ratio": total.ratio, "scale": total.scale,
               "note": f"{total.files_min} to {total.files_max} files"}  # fmt: skip
    for table in analysis.published_tables:
        for row in table.rows:
            for column in table.values:
                yield {"kind": column, "name": table.name, **{f"factor_{name}": value for name, value in row.factors.items()},
                       "published": row.published[column],
                       "ours": row.ours[column], "ratio": row.ratio[column], "scale": table.scale, "note": " ".join([*row.errata, row.note]).strip()}  # fmt: skip
    for rate in analysis.published_rates:
        yield {"kind": "rate_bytes_per_s", "name": rate.name, "published": rate.low_bytes_per_s, "published_other": rate.high_bytes_per_s,
               "ours": rate.ours_low_bytes_per_s, "ours_other": rate.ours_high_bytes_per_s, "ratio": rate.ratio, "scale": rate.scale, "note": rate.qualifier}  # fmt: skip
