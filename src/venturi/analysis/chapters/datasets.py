"""Sets of files moved between many interfaces: the rate of each set beside the published one, as a table and as grouped bars.

A rate is that of a whole set: bytes of all calls of a repetition, from the first begin to the last end, logins included. Repetitions that
were cut in two (a run that was resumed in the middle of one) and those with a failed call have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from venturi.analysis.chapter import Chapter, Column, Figure, Panel, Scalar, Series, Table
from venturi.analysis.result import About
from venturi.analysis.words import bit_rate, factor_name, factor_value
from venturi.run import Run
from venturi.study import study
from venturi.units import BITS_PER_BYTE

__all__ = ["datasets_chapter"]

_RATE = "rate_bit_per_s"
_UNIT = "_bit_per_s"


@dataclass(frozen=True, slots=True)
class _Row:
    """A point: its factors, what one repetition of it is, and the rate of each repetition."""

    factors: Mapping[str, Scalar]
    set: str
    pairs: int
    calls: int
    files: int
    volume_bytes: int
    left_out: int
    rates_bit_per_s: tuple[float, ...]

    @property
    def rate_bit_per_s(self) -> float | None:
        return fmean(self.rates_bit_per_s) if self.rates_bit_per_s else None

    def files_per_s(self) -> float | None:
        rate = self.rate_bit_per_s
        return (
            None if rate is None or not self.volume_bytes else rate / BITS_PER_BYTE * self.files / self.volume_bytes
        )


def datasets_chapter(run: Run, about: About) -> Chapter | None:
    """Return what a run of the workload ``dataset`` says, ``None`` for any other, or before the first point is done."""
    workload = about.scenario.get("workload")
    if not isinstance(workload, Mapping) or workload.get("kind") != "dataset":
        return None
    rows = _rows(run, workload)
    if not rows:
        return None
    published = _published(about)
    return Chapter(
        "datasets",
        "Sets of files",
        _sentence(rows, published, about.scale),
        (_table(rows, published, about.scale),),
        (_figure(rows, published, about),),
    )


def _rows(run: Run, workload: Mapping[str, Any]) -> list[_Row]:
    factors = run.factors
    chosen = "".join(f', any_value("factor_{name}") AS "factor_{name}"' for name in factors)
    found = run.query(
        f"""WITH rounds AS (
                SELECT point, repetition, count(*) AS calls, sum(files) AS files, sum(asked_bytes) AS bytes,
                       count(DISTINCT labels::JSON->>'pair') AS pairs, count(DISTINCT session) = 1 AND bool_and(outcome = 'ok') AS whole,
                       max(end_s) - min(start_s) AS time_s {chosen}
                FROM transfers WHERE point IS NOT NULL GROUP BY point, repetition)
            SELECT point, max(calls) AS calls, max(files) AS files, max(bytes) AS bytes, max(pairs) AS pairs, count(*) FILTER (NOT whole) AS left_out,
                   coalesce(list(bytes / time_s ORDER BY repetition) FILTER (whole AND time_s > 0), []) AS rates {chosen}
            FROM rounds GROUP BY point ORDER BY point"""
    )
    return [
        _Row(
            factors={name: _plain(found[f"factor_{name}"][index]) for name in factors},
            set=str(found["factor_set"][index] if "set" in factors else workload.get("set", "")),
            pairs=int(found["pairs"][index]),
            calls=int(found["calls"][index]),
            files=int(found["files"][index]),
            volume_bytes=int(found["bytes"][index]),
            left_out=int(found["left_out"][index]),
            rates_bit_per_s=tuple(float(rate) * BITS_PER_BYTE for rate in found["rates"][index]),
        )
        for index in range(len(found["point"]))
    ]


def _plain(value: Any) -> Scalar:  # noqa: ANN401 - a cell of any column
    plain = value.item() if hasattr(value, "item") else value
    return None if plain != plain else plain


def _published(about: About) -> dict[str, dict[str, float]]:
    """Return published rates by their column and set: of tables with one row a set."""
    if about.study is None:
        return {}
    found: dict[str, dict[str, float]] = {}
    for table in study(about.study).published.tables:
        sets = [row.get("set") for row in table.rows]
        if "set" not in table.columns or len(set(sets)) < len(sets):
            continue
        for column in (column for column in table.columns if column.endswith(_UNIT)):
            rates = {
                str(row["set"]): float(rate) for row in table.rows if isinstance(rate := row[column], int | float)
            }
            found.setdefault(column, {}).update(rates)
    return found


def _table(rows: Sequence[_Row], published: Mapping[str, Mapping[str, float]], scale: float) -> Table:
    varied = [name for name in rows[0].factors if name != "set" and len({row.factors[name] for row in rows}) > 1]
    ours = published.get(_RATE, {})
    columns = [
        Column("set", "Files"),
        *(Column(name, factor_name(name).capitalize()) for name in varied),
        Column("pairs", "Pairs"),
        Column("calls", "Calls"),
        Column("files", "Files moved"),
        Column("volume_bytes", "Volume"),
        Column("repetitions", "Repetitions"),
        Column(_RATE, "Rate"),
        Column("low_bit_per_s", "Lowest"),
        Column("high_bit_per_s", "Highest"),
        Column("files_per_s", "Files per second"),
        Column("full_bit_per_s", "Rate ÷ scale"),
        *(Column(_published_name(name), f"{_said_by(name)}, published", published=True) for name in published),
        *([Column("to_published_ratio", "Ours to published")] if ours else []),
    ]
    cells = []
    for row in rows:
        rate = row.rate_bit_per_s
        full = None if rate is None else rate / scale
        printed = ours.get(row.set)
        ends = (min(row.rates_bit_per_s), max(row.rates_bit_per_s)) if row.rates_bit_per_s else (None, None)
        cells.append((
            row.set, *(row.factors[name] for name in varied), row.pairs, row.calls, row.files, row.volume_bytes,
            len(row.rates_bit_per_s), rate, *ends, row.files_per_s(), full, *(rates.get(row.set) for rates in published.values()),
            *([None if full is None or not printed else full / printed] if ours else []),
        ))  # fmt: skip
    left_out = sum(row.left_out for row in rows)
    note = "Bytes of all calls of a repetition, from the first begin to the last end, logins included."
    if left_out:
        note += f" Left out: {left_out} repetitions with a failed call, or cut in two by a resume."
    return Table("dataset-rates", "Sets of files, ours and published", tuple(columns), tuple(cells), note)


def _published_name(column: str) -> str:
    return f"{column.removesuffix(_UNIT)}_published{_UNIT}"


def _said_by(column: str) -> str:
    return column.removesuffix(_UNIT).replace("_", " ").capitalize()


def _figure(rows: Sequence[_Row], published: Mapping[str, Mapping[str, float]], about: About) -> Figure:
    sets = tuple(
        dict.fromkeys((*(name for rates in published.values() for name in rates), *(row.set for row in rows)))
    )
    series = []
    for label, own in _by_kind(rows).items():
        rates = {row.set: row.rates_bit_per_s for row in own if row.rates_bit_per_s}

        def bars(of: Any, rates: dict[str, tuple[float, ...]] = rates) -> tuple[float | None, ...]:  # noqa: ANN401
            return tuple(of(rates[name]) / about.scale if name in rates else None for name in sets)

        series.append(Series(label, sets, bars(fmean), bars(min), bars(max), style="bars"))
    for column, told in published.items():
        bars_told = tuple(told.get(name) for name in sets)
        series.append(Series(f"{_said_by(column)}, published", sets, bars_told, style="bars", published=True))
    panel = Panel("Rate by set of files", "set", _RATE, tuple(series), y_log=_wide(rows))
    scaled = f" Ours are divided by the scale ({about.scale:g})." if about.scale != 1 else ""
    caption = f"Mean over repetitions; marks from the lowest to the highest.{scaled}"
    return Figure("dataset-rates", "Sets of files", (panel,), caption, "002, figure 5" if about.study else "")


def _by_kind(rows: Sequence[_Row]) -> dict[str, list[_Row]]:
    """Return the rows in groups with at most one of each set: those of one set are told apart by what varies among them."""
    names = [name for name in rows[0].factors if name != "set"]
    telling = [
        name
        for name in names
        if any(
            one.set == other.set and one.factors[name] != other.factors[name] for one in rows for other in rows
        )
    ]  # fmt: skip
    found: dict[str, list[_Row]] = {}
    for row in rows:
        words = ", ".join(f"{factor_name(name)} {factor_value(name, row.factors[name])}" for name in telling)
        found.setdefault(words or "ours", []).append(row)
    return found


def _wide(rows: Sequence[_Row]) -> bool:
    rates = [rate for row in rows if (rate := row.rate_bit_per_s)]
    return bool(rates) and max(rates) > 20 * min(rates)


def _sentence(rows: Sequence[_Row], published: Mapping[str, Mapping[str, float]], scale: float) -> str:
    printed = published.get(_RATE, {})
    said = []
    for name in dict.fromkeys(row.set for row in rows):
        rates = [rate / scale for row in rows if row.set == name and (rate := row.rate_bit_per_s) is not None]
        if not rates:
            continue
        words = [bit_rate(rate) for rate in sorted({min(rates), max(rates)})]
        beside = f" (published {bit_rate(printed[name])})" if name in printed else ""
        said.append(f"{name} files at {' to '.join(words)}{beside}")
    if not said:
        return "No set of files was moved whole yet."
    at = "" if scale == 1 else f", rates divided by the scale of {scale:g}"
    return f"Sets of files went {'; '.join(said)}{at}."
